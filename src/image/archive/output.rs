//! `-o type=oci|docker|tar|local,dest=PATH[,name=NAME][,tar=BOOL]`, in buildx's syntax, as a typed value.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::image::reference::Reference;
use crate::suggest;

/// Where an image goes, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub format: Format,
    pub dest: PathBuf,
    /// Replaces the image's own name; for a single image only.
    pub name: Option<Reference>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An OCI image layout in a directory.
    OciLayout,
    /// The same in one tar.
    OciTar,
    /// What `docker load` reads.
    Docker,
    /// The root file system as one tar.
    Tar,
    /// The root file system in a directory.
    Local,
}

impl Format {
    /// Whether one output can hold more than one image.
    pub fn holds_several(self) -> bool {
        matches!(self, Format::OciLayout | Format::OciTar | Format::Docker)
    }

    /// Whether an image in it can be one for several platforms.
    pub fn holds_platforms(self) -> bool {
        matches!(self, Format::OciLayout | Format::OciTar)
    }

    /// Whether it names the images that it holds; a bare root file system does not.
    fn has_names(self) -> bool {
        self.holds_several()
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::OciLayout | Format::OciTar => "oci",
            Format::Docker => "docker",
            Format::Tar => "tar",
            Format::Local => "local",
        })
    }
}

const TYPES: [&str; 4] = ["oci", "docker", "tar", "local"];
const KEYS: [&str; 4] = ["type", "dest", "name", "tar"];

impl FromStr for Output {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).map_err(|e| e.context(format!("`-o {text}` cannot be understood")))
    }
}

fn parse(text: &str) -> Result<Output> {
    let fields = fields(text)?;
    if let [dest] = fields.as_slice() {
        // `-o DIR`, unless it is a list with one entry.
        if !KEYS.iter().any(|key| dest.strip_prefix(key).is_some_and(|rest| rest.starts_with('='))) {
            return Ok(Output { format: Format::Local, dest: path(dest)?, name: None });
        }
    }
    let (mut kind, mut dest, mut name, mut tar) = (None, None, None, None);
    for field in &fields {
        let (key, value) = match field.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (field.as_str(), None),
        };
        let slot = match key {
            "type" => &mut kind,
            "dest" => &mut dest,
            "name" => &mut name,
            "tar" => &mut tar,
            _ => return Err(unknown("key", key, &KEYS)),
        };
        let value = value
            .ok_or_else(|| Error::bad_input(format!("`{key}` has no value")).hint(format!("write {key}=VALUE")))?;
        if slot.replace(value.to_owned()).is_some() {
            return Err(Error::bad_input(format!("`{key}` is given twice")));
        }
    }
    let kind = kind.ok_or_else(|| {
        Error::bad_input("`type` is missing").hint(format!("one of {}, as in type=oci,dest=out", TYPES.join(", ")))
    })?;
    if matches!(&*kind, "registry" | "image") {
        return Err(Error::bad_input(format!("type `{kind}` pushes, which is another flag's business"))
            .hint("write `--push --registry HOST[:PORT]`"));
    }
    if !TYPES.contains(&&*kind) {
        return Err(unknown("type", &kind, &TYPES));
    }
    let dest = path(&dest.ok_or_else(|| {
        Error::bad_input("`dest` is missing").hint(format!("say where it goes: type={kind},dest=PATH"))
    })?)?;
    let tar = tar.as_deref().map(boolean).transpose()?;
    let format = match (&*kind, tar) {
        ("oci", Some(true)) => Format::OciTar,
        ("oci", None) if dest.extension().is_some_and(|e| e == "tar") => Format::OciTar,
        ("oci", _) => Format::OciLayout,
        (_, Some(_)) => return Err(Error::bad_input(format!("`tar` does not go with type `{kind}`, only with `oci`"))),
        ("docker", None) => Format::Docker,
        ("tar", None) => Format::Tar,
        _ => Format::Local,
    };
    let name = name.as_deref().map(str::parse::<Reference>).transpose()?;
    if name.is_some() && !format.has_names() {
        return Err(Error::bad_input(format!("`name` does not go with type `{format}`, which holds no names")));
    }
    Ok(Output { format, dest, name })
}

fn path(text: &str) -> Result<PathBuf> {
    match text {
        "" => Err(Error::bad_input("the destination is empty")),
        "-" => Err(Error::bad_input("an image is not written to standard output").hint("give a path: dest=PATH")),
        text => Ok(Path::new(text).to_path_buf()),
    }
}

fn boolean(text: &str) -> Result<bool> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(Error::bad_input(format!("`tar={text}` is neither true nor false"))),
    }
}

fn unknown(what: &str, given: &str, known: &[&str]) -> Error {
    let error = Error::bad_input(format!("unknown {what} `{given}`"));
    let near = suggest::near(given, known.iter().copied());
    error.hint(near.unwrap_or_else(|| format!("known are {}", known.join(", "))))
}

/// Fields between commas; one that starts with a quote ends with one, and `""` within it is a quote.
fn fields(text: &str) -> Result<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = text;
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                if rest[..end].contains('"') {
                    return Err(Error::bad_input(format!("`{}` has a quote in the middle", &rest[..end]))
                        .hint("put the whole field in quotes, and write a quote within it twice"));
                }
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(fields),
            None => return Err(Error::bad_input("a quoted field goes on after its closing quote")),
        }
    }
}

fn unquote(text: &str) -> Result<(String, &str)> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let quote = rest.find('"').ok_or_else(|| Error::bad_input("a quote is never closed"))?;
        field.push_str(&rest[..quote]);
        rest = &rest[quote + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None => return Ok((field, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn output(format: Format, dest: &str, name: Option<&str>) -> Output {
        Output { format, dest: dest.into(), name: name.map(|n| n.parse().unwrap()) }
    }

    #[test]
    fn understood() {
        for (text, expected) in [
            ("out", output(Format::Local, "out", None)),
            ("out/a=b", output(Format::Local, "out/a=b", None)),
            ("type=local,dest=out", output(Format::Local, "out", None)),
            ("type=oci,dest=out", output(Format::OciLayout, "out", None)),
            ("dest=out.tar,type=oci", output(Format::OciTar, "out.tar", None)),
            ("type=oci,dest=out.tar,tar=false", output(Format::OciLayout, "out.tar", None)),
            ("type=oci,dest=out,tar=true", output(Format::OciTar, "out", None)),
            ("type=docker,dest=a.tar,name=x/y:1", output(Format::Docker, "a.tar", Some("x/y:1"))),
            ("type=tar,dest=root.tar", output(Format::Tar, "root.tar", None)),
            ("type=tar,\"dest=a,b \"\"c\"\".tar\"", output(Format::Tar, "a,b \"c\".tar", None)),
        ] {
            assert_eq!(text.parse::<Output>().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn refused_with_what_to_do() {
        let problems: Vec<String> = [
            "type=ocy,dest=x",
            "type=squashfs,dest=x",
            "type=registry,dest=x",
            "type=oci",
            "dest=x",
            "type=oci,dst=x",
            "type=oci,dest=x,push",
            "type=oci,dest=x,name",
            "type=oci,type=tar,dest=x",
            "type=docker,dest=x,tar=true",
            "type=oci,dest=x,tar=yes",
            "type=tar,dest=x,name=a",
            "type=oci,dest=x,name=A/B",
            "type=tar,dest=-",
            "type=tar,\"dest=x",
            "type=tar,dest=\"x\"",
            "type=tar,\"dest=x\"y",
            "",
        ]
        .iter()
        .map(|text| {
            let error = text.parse::<Output>().unwrap_err();
            assert_eq!(error.kind(), crate::error::Kind::BadInput);
            format!("{error} [{}]", error.hint_text().unwrap_or_default())
        })
        .collect();
        insta::assert_snapshot!(problems.join("\n"));
    }

    proptest! {
        #[test]
        fn any_destination_can_be_written(dest in "[^-\0][^\0]{0,20}") {
            let text = format!("type=tar,\"dest={}\"", dest.replace('"', "\"\""));
            prop_assert_eq!(text.parse::<Output>().unwrap(), output(Format::Tar, &dest, None));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Output>();
        }
    }
}
