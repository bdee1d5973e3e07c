//! The schemas against the reader, and against the catalogue that comes with Kollage.

use std::path::Path;

use crate::catalogue::reader::known;
use crate::catalogue::schema::{File, schema};
use crate::catalogue::{check_text, init};

/// A document for each form that the reader knows, so that it asks for all keys that there are.
fn documents(file: File) -> (&'static str, Vec<String>) {
    let sources = "[sources.x]\npypi=\"a\"\n|[sources.x]\ngit=\"https://h/r\"\n|[sources.x]\nurl=\"https://h/f\"\n";
    let bodies: Vec<String> = sources.split('|').map(|s| format!("{s}[packages]\n[[check]]\nrun=[\"x\"]\n")).collect();
    let with = |head: &str| bodies.iter().map(|body| format!("{head}{body}")).collect::<Vec<String>>();
    match file {
        File::Kollage => (
            "kollage.toml",
            vec!["[build]\n[build.debian]\n[engine]\n[engine.docker]\n[engine.buildkit]\n[[engine.buildkit.builders]]\n[policy]\n[profiles]\n[images.x]\n[plugins]\n[vars]\n".into()],
        ),
        File::Image => {
            let bases = ["bootstrap=\"debian\",suite=\"s\"", "oci=\"p\"", "docker-archive=\"p\"", "rootfs=\"p\"", ""];
            let heads = bases.iter().map(|base| format!("[image]\nfrom={{{base}}}\n[user]\n[plugins]\n"));
            ("image.toml", heads.flat_map(|head| with(&head)).collect())
        }
        File::Plugin => ("plugin.toml", with("[plugin]\n")),
        File::Overlay => {
            let one = |what: &str| format!("[[change]]\n{what}=[\"x\"]\nblocks={{}}\n[[patch]]\n{what}=[\"x\"]\n");
            ("overlay.toml", vec![one("images"), one("plugins")])
        }
        File::Release => ("release.toml", vec!["[release]\n[sources]\n[packages]\n[bases.x]\n".into()]),
    }
}

#[test]
fn every_key_that_the_reader_knows_is_in_the_schema_and_no_other() {
    for file in File::ALL {
        let (name, documents) = documents(file);
        known::take();
        for document in &documents {
            check_text(name, document);
        }
        let read = known::take();
        let described = known::described(&schema(file));
        let (missing, extra): (Vec<_>, Vec<_>) =
            (read.difference(&described).collect(), described.difference(&read).collect());
        assert!(missing.is_empty() && extra.is_empty(), "{name}: not described {missing:?}, not read {extra:?}");
        assert!(read.len() > 5, "{name}: {read:?}");
    }
}

fn problems(file: File, text: &str) -> Vec<String> {
    let validator = jsonschema::validator_for(&schema(file)).unwrap();
    let value = serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap();
    validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect()
}

/// Every file below a directory, whose schema goes by its name.
fn files(dir: &Path, found: &mut Vec<(File, std::path::PathBuf)>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        let in_releases = dir.ends_with("releases");
        match path.file_name().and_then(|n| n.to_str()) {
            _ if path.is_dir() => files(&path, found),
            Some("image.toml") => found.push((File::Image, path)),
            Some("plugin.toml") => found.push((File::Plugin, path)),
            Some("kollage.toml") => found.push((File::Kollage, path)),
            Some(name) if in_releases && name.ends_with(".toml") => found.push((File::Release, path)),
            _ => {}
        }
    }
}

#[test]
fn the_catalogues_that_come_with_kollage_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = tempfile::tempdir().unwrap();
    init(fresh.path()).unwrap();
    let mut found = vec![(File::Kollage, root.join("kollage.toml"))];
    for dir in [root.join("images"), root.join("plugins"), root.join("releases"), fresh.path().to_owned()] {
        files(&dir, &mut found);
    }
    assert!(found.len() > 8, "{found:?}");
    for (file, path) in found {
        let wrong = problems(file, &std::fs::read_to_string(&path).unwrap());
        assert!(wrong.is_empty(), "{}: {wrong:?}", path.display());
    }
}

#[test]
fn changes_of_an_overlay_are_valid() {
    let text = "[[change]]\nimages = [\"*-api\"]\npackages.deb.append = [\"tcpdump\"]\nimage.summary.override = \"x\"\n\
                plugins.accept.remove = true\nvars.a.b.add = 1\nblocks = { files = \"RUN true\" }\n\
                [[change]]\nplugins = [\"x\"]\nsources.x.pypi.override = \"x\"\n\
                [[patch]]\nimages = [\"x\"]\nsource = \"x\"\nfiles = [\"patches/*.patch\"]\n";
    assert_eq!(problems(File::Overlay, text), Vec::<String>::new());
    assert!(check_text("overlay.toml", text).0.iter().all(|p| p.message.contains("matches no file")));
}

#[test]
fn what_is_wrong_is_refused() {
    for (file, text) in [
        (File::Kollage, "[build]\nbse = \"debian\"\n"),
        (File::Kollage, "[build]\njobs = 0\n"),
        (File::Kollage, "[engine]\ndefault = \"dokcer\"\n"),
        (File::Kollage, "[profiles]\nmain = []\n"),
        (File::Image, "[packages]\ndeb = []\n"),
        (File::Image, "[image]\nfrom = { oci = \"a\", rootfs = \"b\" }\n"),
        (File::Image, "[image]\nparent = \"base\"\n[sources.x]\npypi = \"a\"\ngit = \"https://h/r\"\n"),
        (File::Plugin, "[plugin]\nimages = \"keystone\"\n"),
        (File::Release, "[release]\nname = 2026.2\n"),
        (File::Overlay, "[[change]]\nimages = [\"x\"]\npackages.deb.apend = [\"y\"]\n"),
        (File::Overlay, "[[change]]\npackages.deb.append = [\"y\"]\n"),
        (File::Overlay, "[[patch]]\nimages = [\"x\"]\nsource = \"x\"\n"),
    ] {
        assert!(!problems(file, text).is_empty(), "{text}");
    }
}
