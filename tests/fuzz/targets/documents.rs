//! Texts and JSON documents: an error that points into the text, or something that can be worked with; never a panic.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use kollage::catalogue::{Catalogue, ConfigFiles, Overrides, check_text};
use kollage::diag::{Diagnostics, SourceFile};
use kollage::dockerfile::{Inputs, lower, not_granted, parse, resolve, steps_not_granted, unsupported};
use kollage::event::Cancel;
use kollage::image::archive::import_oci;
use kollage::image::config::{ImageConfig, Platform};
use kollage::image::digest::Digest;
use kollage::image::manifest::{Index, Manifest};
use kollage::image::reference::Reference;
use kollage::image::store::Store;
use kollage::start;
use kollage::template::render_image;
use serde::{Serialize, de::DeserializeOwned};

use super::Place;

fn amd64() -> Platform {
    Platform { os: "linux".into(), architecture: "amd64".into(), variant: None }
}

fn in_bounds(problems: &Diagnostics) {
    for place in problems.0.iter().filter_map(|problem| problem.place.as_ref()) {
        assert!(place.file.text.get(place.span.clone()).is_some(), "{:?}", place.span);
        place.file.line_column(place.span.start);
    }
}

/// Any text goes through everything that a Dockerfile goes through.
pub fn dockerfile(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let platform = amd64();
    let build_args = BTreeMap::from([("A".into(), "a b".into()), ("http_proxy".into(), "p".into())]);
    let inputs = Inputs { target: None, build_args, platform: platform.clone(), contexts: Default::default() };
    let dockerfile = match parse(&SourceFile::new("Dockerfile", text)) {
        Ok(dockerfile) => Arc::new(dockerfile),
        Err(problems) => return in_bounds(&problems),
    };
    in_bounds(&dockerfile.warnings);
    let resolved = match resolve(&dockerfile, &inputs) {
        Ok(resolved) => resolved,
        Err(problems) => return in_bounds(&problems),
    };
    let nothing = BTreeSet::new();
    in_bounds(&unsupported(&resolved));
    in_bounds(&not_granted(&resolved, &nothing));
    let mut config = ImageConfig::new(&platform);
    config.config.on_build.push("COPY --from=a <<x /y\n$A\nx".into());
    config.config.env_set("PATH", "/bin");
    let bases = resolved.images.iter().map(|name| (name.clone(), config.clone())).collect();
    match lower(&resolved, &bases) {
        Ok(stages) => {
            assert_eq!(stages.len(), resolved.stages.len());
            in_bounds(&steps_not_granted(&resolved, &stages, &nothing));
        }
        Err(problems) => in_bounds(&problems),
    }
}

/// Any text as each of the files of a catalogue.
pub fn definitions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for name in ["image.toml", "plugin.toml", "release.toml", "kollage.toml"] {
        in_bounds(&check_text(name, text));
    }
    in_bounds(&start::check_text(text));
}

/// A small catalogue in which only one recipe is ever another one.
const CATALOGUE: [(&str, &str); 4] = [
    ("kollage.toml", ""),
    ("images/_recipes/service.j2", "FROM {{ parent }}\n{% block body %}{% endblock %}\n"),
    ("images/base/image.toml", "[image]\nkind = \"base\"\nfrom = \"debian:bookworm\"\nrecipe = \"service\"\n"),
    (
        "images/web/image.toml",
        "[image]\nparent = \"base\"\n[packages]\ndeb = [\"a\", \"b\"]\n[vars]\nlist = [1, \"two\"]\ntext = \"it's\"\n",
    ),
];

thread_local! {
    static PLACE: Place = {
        let place = Place::new();
        for (path, text) in CATALOGUE {
            let path = place.path("catalogue").join(path);
            fs::create_dir_all(path.parent().expect("a path with a parent")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        place
    };
}

/// Any text as a recipe: it ends, within what a recipe may use, in a text or in an error.
pub fn template(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let root = PLACE.with(|place| place.path("catalogue"));
    fs::write(root.join("images/web/Dockerfile.j2"), text).expect("the recipe");
    match Catalogue::load(&root, &Overrides::new(), &ConfigFiles::default()) {
        Err(problems) => in_bounds(&problems),
        Ok(catalogue) => {
            if let Err(problems) = render_image(&catalogue, &catalogue.images["web"]) {
                in_bounds(&problems);
            }
        }
    }
}

/// What was understood says the same when it is written and read again.
fn comes_back<T: Serialize + DeserializeOwned>(data: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(data).ok()?;
    let once = serde_json::to_string(&value).expect("what was read can be written");
    let again: T = serde_json::from_str(&once).expect("what was written can be read");
    assert_eq!(serde_json::to_string(&again).expect("it can be written again"), once);
    Some(value)
}

/// An image layout in parts that lines of `---` part: blobs, and the index last. In a part, `@N` is the digest of the
/// part N before it, and `#N` its size, so that the fuzzer can say things that belong together. Each part is also read
/// as every kind of document by itself.
pub fn image_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut blobs: Vec<(String, String)> = Vec::new();
    for part in text.split("\n---\n") {
        let mut part = part.to_owned();
        for (number, (digest, blob)) in blobs.iter().enumerate().take(10) {
            part = part.replace(&format!("@{number}"), digest);
            part = part.replace(&format!("#{number}"), &blob.len().to_string());
        }
        if part.len() > 1 << 20 {
            return;
        }
        if let Some(config) = comes_back::<ImageConfig>(part.as_bytes()) {
            std::hint::black_box((config.result_id(), config.chain_id(), config.platform()));
        }
        comes_back::<Manifest>(part.as_bytes());
        comes_back::<Index>(part.as_bytes());
        if let Ok(reference) = part.parse::<Reference>() {
            let again: Reference = reference.to_string().parse().expect("a name that was written can be read");
            assert_eq!(again, reference);
            std::hint::black_box((reference.familiar(), reference.host(), reference.manifest_id()));
        }
        let digest = Digest::of(part.as_bytes()).to_string();
        blobs.push((digest, part));
    }
    let Some((index, blobs)) = blobs.split_last().filter(|(_, blobs)| !blobs.is_empty()) else { return };
    let place = Place::new();
    let layout = place.dir("layout");
    let dir = place.dir("layout/blobs/sha256");
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("a file");
    fs::write(layout.join("index.json"), &index.1).expect("a file");
    for (digest, blob) in blobs {
        fs::write(dir.join(digest.trim_start_matches("sha256:")), blob).expect("a file");
    }
    let store = Store::open(&place.path("store")).expect("a store");
    let cancel = Cancel::new().expect("an eventfd");
    for reference in [None, Some("1")] {
        if let Ok(imported) = import_oci(&store, &layout, reference, &amd64(), &cancel) {
            let layers = &imported.config.rootfs.diff_ids;
            assert!(layers.iter().all(|layer| store.layer(layer).is_some()), "a layer is missing");
        }
    }
}
