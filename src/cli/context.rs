//! `--build-context NAME=VALUE`: what a name in a Dockerfile means instead of a stage or an image.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::catalogue::parse_reference;
use crate::dockerfile::context_name;
use crate::engine::BaseSource;
use crate::error::{Error, Result};
use crate::fetch::address::{self, GitAddress};
use crate::fetch::{Remote, WebFile};

const FORMS: &str = "it is a directory, `docker-image://NAME`, `oci-layout://DIR[:NAME]`, or the address of a git \
                     repository or of a file";

pub fn contexts(texts: &[String]) -> Result<BTreeMap<String, BaseSource>> {
    let mut contexts = BTreeMap::new();
    for text in texts {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        if name.is_empty() || value.is_empty() {
            return Err(Error::bad_input(format!("`--build-context {}` is not of the form NAME=VALUE", shown(text)))
                .hint(format!("for example `--build-context src=../src`; {FORMS}")));
        }
        let source = source(value)
            .map_err(|why| Error::bad_input(format!("`--build-context {name}={}`: {why}", shown(value))).hint(FORMS))?;
        if contexts.insert(context_name(name).to_owned(), source).is_some() {
            return Err(Error::bad_input(format!("`--build-context {name}=…` is given twice")));
        }
    }
    Ok(contexts)
}

fn shown(text: &str) -> String {
    address::without_logins(text)
}

fn source(value: &str) -> Result<BaseSource, String> {
    if let Some(reference) = value.strip_prefix("docker-image://") {
        return match parse_reference(reference, Path::new("")) {
            Ok(source @ BaseSource::Registry { .. }) => Ok(source),
            Ok(_) => Err("`docker-image://` is followed by the name of an image".into()),
            Err(why) => Err(why),
        };
    }
    if let Some(layout) = value.strip_prefix("oci-layout://") {
        let (path, reference) = match layout.rsplit_once([':', '@']) {
            Some((path, reference)) if !reference.contains('/') => (path, Some(reference.to_owned())),
            _ => (layout, None),
        };
        return match path {
            "" => Err("`oci-layout://` is followed by a directory".into()),
            path => Ok(BaseSource::OciLayout { path: path.into(), reference }),
        };
    }
    if let Some(address) = GitAddress::parse(value) {
        return Ok(BaseSource::Remote(Remote::Git(address?)));
    }
    if value.starts_with("http://") || value.starts_with("https://") {
        return Ok(BaseSource::Remote(Remote::File(WebFile { url: value.to_owned(), checksum: None })));
    }
    if let Some((scheme, _)) = value.split_once("://") {
        return Err(format!("`{scheme}://` is not known"));
    }
    let path = PathBuf::from(value);
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => Ok(BaseSource::Directory { path }),
        Ok(_) => Err("it is not a directory".into()),
        Err(e) => Err(format!("it cannot be read: {e}")),
    }
}

/// The context of the build itself has to be here.
pub fn refuse_remote(context: &Path) -> Result<()> {
    let text = context.to_string_lossy();
    if text != "-" && !text.contains("://") && GitAddress::parse(&text).is_none() {
        return Ok(());
    }
    Err(Error::bad_input(format!("`--context {}`: the context has to be a directory", shown(&text)))
        .hint("fetch or unpack it first; `--build-context NAME=ADDRESS` gives a repository a name to copy from"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_context_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        let parsed = |text: String| contexts(&[text]).map(|all| all.into_iter().next().unwrap());
        let (name, source) = parsed(format!("docker.io/library/src:latest={path}")).unwrap();
        assert_eq!((name.as_str(), source), ("src", BaseSource::Directory { path: path.clone().into() }));
        let layout = |reference: Option<&str>| BaseSource::OciLayout {
            path: "/a/b".into(),
            reference: reference.map(str::to_owned),
        };
        assert_eq!(parsed("a=oci-layout:///a/b".into()).unwrap().1, layout(None));
        assert_eq!(parsed("a=oci-layout:///a/b:tag".into()).unwrap().1, layout(Some("tag")));
        let image = BaseSource::Registry { reference: "debian:13".into() };
        assert_eq!(parsed("a=docker-image://debian:13".into()).unwrap().1, image);
        assert!(matches!(parsed("a=https://h/x.git#v1".into()).unwrap().1, BaseSource::Remote(Remote::Git(_))));
        assert!(matches!(parsed("a=https://h/x.tar".into()).unwrap().1, BaseSource::Remote(Remote::File(_))));
        for (text, says) in [
            ("a", "NAME=VALUE"),
            ("=x", "NAME=VALUE"),
            ("a=/does/not/exist", "cannot be read"),
            ("a=target:x", "cannot be read"),
            ("a=s3://b", "`s3://` is not known"),
            ("a=https://user:secret@h/x.git?depth=1", "not known"),
        ] {
            let error = parsed(text.into()).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("secret"), "{text}: {error}");
        }
        assert!(contexts(&[format!("a={path}"), format!("a:latest={path}")]).is_err());
    }
}
