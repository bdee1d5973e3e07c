//! `--verify=build`: the images that kolla-build's Dockerfiles give, and those of the imported catalogue, side by side.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::cli::args::ImportKolla;
use crate::cli::import_kolla::{Room, one};
use crate::cli::kolla_build::{self, Chosen};
use crate::cli::verify::{Difference, Report, differences};
use crate::cli::workspace::store_path;
use crate::cli::{App, build, machine};
use crate::error::{Context as _, Error, Result};
use crate::fit;
use crate::image::config::ImageConfig;
use crate::image::store::Store;
use crate::kolla::images::{self, Status};
use crate::kolla::import::{Side, name_of, verify};
use crate::kolla::layers::Layers;
use crate::kolla::render;
use crate::kolla::tree::Tree;

/// What packages draw by chance when they are installed.
const DRAWN: [&str; 4] = ["/etc/machine-id", "/etc/nvme/hostid", "/etc/nvme/hostnqn", "/etc/iscsi/initiatorname.iscsi"];

/// Builds both for the catalogue's own distribution. Plugins that became layers are left out of both.
pub fn compare(app: &App, args: &ImportKolla, tree: &Tree, side: &Side<'_>) -> Result<Report> {
    let catalogue = verify::load(&args.output, side)?;
    let mut without = Vec::new();
    let mut off = String::new();
    for definition in catalogue.images.values().filter(|image| !catalogue.plugins_of(image).is_empty()) {
        without.push(definition.name.clone());
        let found = side.images.values().find(|found| name_of(&found.image.name, side) == definition.name);
        for plugin in found.into_iter().flat_map(|found| &found.sources.plugins) {
            off.push_str(&format!("[{}]\nenabled = false\n", plugin.name));
        }
    }
    let work = Room::new(std::env::temp_dir().join(format!("kollage-import-{}", std::process::id())))?;
    let config = work.0.join("without-plugins.conf");
    fs::write(&config, off).unusable(|| format!("cannot write {}", config.display()))?;
    let (options, settings) = one(app, args, tree, Some(&side.settings.base), &[config])?;
    let roots = settings.roots(tree);
    let mut images = images::images(render::render(&settings, &options, &roots)?, &settings);
    for image in &mut images {
        let wanted = catalogue.images.contains_key(&name_of(&image.name, side));
        image.status = if wanted { Status::Matched } else { Status::Unmatched };
    }
    let kolla = work.0.join("kolla");
    let chosen = Chosen { options, settings, roots, images, layers: Layers::default() };
    kolla_build::build::catalogue(app, &chosen, &kolla)?;
    let store = machine::open_store(&store_path(&app.global, &app.env)?)?;
    let names: BTreeMap<String, String> =
        catalogue.images.keys().map(|name| (name.clone(), catalogue.image_ref(name))).collect();
    app.say("What kolla-build's Dockerfiles give:");
    built(app, &kolla, &names, &[])?;
    let first = configs(&store, &names)?;
    app.say("What the imported catalogue gives:");
    let plain: Vec<String> = without.iter().map(|image| format!("--plugin={image}=")).collect();
    built(app, &args.output, &names, &plain)?;
    let second = configs(&store, &names)?;
    let mut compared = Report::default();
    let harmless = fit::harmless()?;
    for (name, kolla) in &first {
        let Some(here) = second.get(name) else { continue };
        let found = differences(&store, kolla, here, ["Kolla's", "the catalogue"])?;
        let (usual, real): (Vec<Difference>, Vec<Difference>) = found.into_iter().partition(|difference| {
            let path = difference.path.as_deref();
            difference.is_only_for_debuggers
                || path.is_some_and(|path| {
                    harmless.is_match(path)
                        || path.starts_with("/var/log")
                        || DRAWN.iter().any(|drawn| path == Path::new(drawn))
                })
        });
        let lines: Vec<String> = real.into_iter().map(|difference| difference.line).collect();
        let but = match usual.len() {
            0 => String::new(),
            count => {
                format!(", but for {count} files like records, logs and byte code, which no two builds have in common")
            }
        };
        compared.tell(&lines, &format!("{name}: the same tree and configuration{but}"), &|count| {
            format!("{name}: {count} differences{but}")
        });
    }
    if !without.is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(compared.text, "without their plugins: {}", without.join(", "));
    }
    Ok(compared)
}

/// `kollage build` of a catalogue on Kollage's own engine.
fn built(app: &App, directory: &Path, names: &BTreeMap<String, String>, more: &[String]) -> Result<()> {
    let mut arguments = vec!["--engine=embedded".to_owned()];
    arguments.extend(more.iter().cloned());
    arguments.extend(names.keys().cloned());
    match build::written(app, directory, arguments)? {
        0 => Ok(()),
        code => Err(Error::failed(format!("{} was not built (exit code {code})", directory.display()))
            .hint("the lines above say why; nothing was compared")),
    }
}

/// What the store has by the images' names; both builds use the same ones.
fn configs(store: &Store, names: &BTreeMap<String, String>) -> Result<BTreeMap<String, ImageConfig>> {
    let config = |name: &str| -> Result<ImageConfig> {
        let found = store.get_ref(name).ok_or_else(|| Error::failed(format!("{name} is not in the store")))?;
        store.image_config(&store.manifest(&found.manifest)?.config.digest)
    };
    names.iter().map(|(image, name)| Ok((image.clone(), config(name)?))).collect()
}
