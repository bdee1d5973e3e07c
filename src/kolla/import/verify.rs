//! Whether an imported catalogue does what Kolla's Dockerfiles do, without building either.
//!
//! Both are brought down to steps (`dockerfile::lower`), and what the steps do is compared one by one, in their order. What counts
//! as the same: blanks that a shell doesn't see; the order of packages within one call of apt-get or dnf; an archive that
//! kolla-build makes of a source, and the source itself; labels wherever they stand. Plugins that became layers are compared by
//! their sources. The files beside the templates have to be the same, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use regex::{Captures, Regex};

use crate::catalogue::{Catalogue, ConfigFiles, ImageDef, Overrides, SourceDef};
use crate::diag::{Diagnostics, SourceFile};
use crate::dockerfile::step::{Action, Copy, From, Run, Source as CopySource, StageBase, Step};
use crate::dockerfile::{self, Inputs};
use crate::error::{Error, Result};
use crate::image::config::{ImageConfig, Platform};
use crate::kolla::import::source::LOCAL;
use crate::kolla::import::start;
use crate::kolla::import::{Found, Side, name_of};
use crate::kolla::pieces::squeezed;
use crate::kolla::sources::{Kind, Source, checked_out};
use crate::kolla::{house, render};
use crate::template;

/// What was found of one image for one distribution.
#[derive(Debug)]
pub struct Verdict {
    pub image: String,
    pub base: String,
    /// Nothing when both do the same.
    pub differences: Vec<String>,
}

/// Compares every image of the catalogue in `root`.
pub fn verify(root: &Path, sides: &[Side<'_>], roots: &[PathBuf]) -> Result<Vec<Verdict>> {
    let mut verdicts = Vec::new();
    for side in sides {
        let catalogue = load(root, side)?;
        let names: BTreeMap<String, &Found> =
            side.images.iter().map(|(name, found)| (name_of(name, side), found)).collect();
        for (name, definition) in &catalogue.images {
            let Some(found) = names.get(name) else { continue };
            let differences = compare(&catalogue, definition, found, side, roots);
            verdicts.push(Verdict { image: name.clone(), base: side.settings.base.clone(), differences });
        }
    }
    Ok(verdicts)
}

/// The catalogue as it is for one distribution.
pub fn load(root: &Path, side: &Side<'_>) -> Result<Catalogue> {
    let mut overrides = Overrides::new();
    overrides.string("--base", "build.base", &side.settings.base);
    if let Some(tag) = side.settings.values.get("base_distro_tag") {
        overrides.string("--base", "build.base_tag", &tag.to_string());
    }
    Catalogue::load(root, &overrides, &ConfigFiles::default()).map_err(|problems| {
        Error::from_diagnostics(format!("the imported catalogue cannot be used for {}", side.settings.base), problems)
    })
}

fn compare(
    catalogue: &Catalogue,
    definition: &ImageDef,
    found: &Found,
    side: &Side<'_>,
    roots: &[PathBuf],
) -> Vec<String> {
    let both = || -> std::result::Result<(Effects, Effects), Diagnostics> {
        let inputs = Inputs {
            target: None,
            build_args: catalogue.settings.build.build_args.clone(),
            platform: Platform::host(),
            contexts: BTreeSet::new(),
        };
        let context = Context { found, side, catalogue, roots };
        let path = found.image.path.join("Dockerfile");
        let mut theirs = context.effects(&SourceFile::new(path, found.image.text.clone()), &inputs)?;
        let mut ours = context.effects(&template::render_image(catalogue, definition)?.dockerfile, &inputs)?;
        let labels = house::labels(&found.image.name, side.settings);
        theirs.labels.extend(labels.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned()))));
        ours.labels.extend(definition.labels.clone());
        let layers = catalogue.plugins_of(definition);
        ours.plugins
            .extend(layers.iter().flat_map(|plugin| &plugin.sources).map(|(name, source)| defined(name, source)));
        Ok((theirs, ours))
    };
    let (theirs, ours) = match both() {
        Ok(both) => both,
        Err(problems) => return problems.0.iter().map(|problem| problem.message.clone()).collect(),
    };
    let mut differences = Vec::new();
    for step in 0..theirs.steps.len().max(ours.steps.len()) {
        let (kolla, here) = (theirs.steps.get(step), ours.steps.get(step));
        if kolla != here {
            let shown = |step: Option<&String>| step.map_or("nothing", String::as_str).to_owned();
            differences.push(format!("Kolla: {}; here: {}", shown(kolla), shown(here)));
            // What follows one that is missing is all different.
            break;
        }
    }
    if theirs.plugins != ours.plugins {
        differences.push(format!("plugins: Kolla {:?}; here {:?}", theirs.plugins, ours.plugins));
    }
    for name in theirs.labels.keys().chain(ours.labels.keys()).collect::<BTreeSet<_>>() {
        let (kolla, here) = (theirs.labels.get(name), ours.labels.get(name));
        if kolla != here {
            differences.push(format!("label {name}: Kolla {kolla:?}; here {here:?}"));
        }
    }
    if theirs.config != ours.config {
        differences.push(format!("configuration: Kolla {}; here {}", theirs.config, ours.config));
    }
    differences.extend(files(found, definition, &catalogue.root, roots));
    differences
}

/// What a Dockerfile does.
struct Effects {
    steps: Vec<String>,
    plugins: BTreeSet<String>,
    labels: BTreeMap<String, String>,
    /// What is set at the end, but labels.
    config: serde_json::Value,
}

struct Context<'a> {
    found: &'a Found,
    side: &'a Side<'a>,
    catalogue: &'a Catalogue,
    roots: &'a [PathBuf],
}

impl Context<'_> {
    fn effects(&self, file: &Arc<SourceFile>, inputs: &Inputs) -> std::result::Result<Effects, Diagnostics> {
        let parsed = Arc::new(dockerfile::parse(file)?);
        let resolved = dockerfile::resolve(&parsed, inputs)?;
        let mut effects = Effects {
            steps: Vec::new(),
            plugins: BTreeSet::new(),
            labels: BTreeMap::new(),
            config: serde_json::Value::Null,
        };
        for stage in dockerfile::on_unknown_bases(&resolved) {
            effects.steps.push(match &stage.base {
                StageBase::Image(image) => format!("FROM {}", self.image(image)),
                other => format!("FROM {other:?}"),
            });
            for step in &stage.steps {
                self.step(step, &mut effects);
            }
            effects.finish(stage.config);
        }
        Ok(effects)
    }

    /// An image of the tree by the catalogue's name, whichever it was named by.
    fn image(&self, reference: &str) -> String {
        let own = self
            .catalogue
            .images
            .keys()
            .find(|name| reference == self.catalogue.image_ref(name) || reference == name.as_str());
        let kolla = || {
            let name = self.side.images.values().find(|found| found.image.canonical == reference)?;
            Some(name_of(&name.image.name, self.side))
        };
        match own.cloned().or_else(kolla) {
            Some(name) => name,
            None => house::own_base(reference)
                .filter(|_| reference == self.found.image.parent_name)
                .unwrap_or(reference)
                .to_owned(),
        }
    }

    fn step(&self, step: &Step, effects: &mut Effects) {
        match &step.action {
            Action::Run(run) => effects.steps.push(command(run)),
            Action::Copy(copy) => self.copy(copy, effects),
            Action::Workdir { path, user } => effects.steps.push(format!("WORKDIR {path} of {user:?}")),
            Action::Config if step.created_by.starts_with("LABEL") => {}
            Action::Config => effects.steps.push(squeezed(&step.created_by)),
        }
    }

    fn copy(&self, copy: &Copy, effects: &mut Effects) {
        let sources = &self.found.sources;
        if copy.add && copy.from == From::Context && copy.sources.len() == 1 {
            let dest = copy.dest.trim_end_matches('/');
            let own = sources.own.as_ref();
            match &copy.sources[0] {
                CopySource::Path(path) if own.is_some_and(|own| *path == own.archive()) => {
                    effects.steps.extend(own.map(|own| unpacked(own, dest)));
                    return;
                }
                CopySource::Path(path) if path == "plugins-archive" || path == "additions-archive" => {
                    let (what, all) = match path.as_str() {
                        "plugins-archive" => ("plugins", &sources.plugins),
                        _ => ("additions", &sources.additions),
                    };
                    effects.steps.push(directory(&format!("{dest}/{what}")));
                    effects.plugins.extend(all.iter().map(plugin));
                    return;
                }
                CopySource::Path(path) => {
                    let every = own.into_iter().chain(&sources.plugins).chain(&sources.additions);
                    let local = every.filter(|source| matches!(source.kind, Kind::Local(_)));
                    let here = |source: &&Source| {
                        let room = format!("{LOCAL}/{}", source.name);
                        *path == room || path.strip_prefix(&room).is_some_and(|rest| rest.starts_with('/'))
                    };
                    if let Some(source) = local.into_iter().find(here) {
                        self.added(source, dest, effects);
                        return;
                    }
                }
                CopySource::Url(url) if copy.unpack == Some(true) => {
                    let sum = copy.checksum.as_ref().map(ToString::to_string).unwrap_or_default();
                    self.fetched(format!("unpack {url} {sum}"), dest, effects);
                    return;
                }
                CopySource::Git(address) => {
                    let reference = address.reference.as_deref().unwrap_or_default();
                    self.fetched(
                        format!("check out {} {reference}", address.remote.trim_end_matches(".git")),
                        dest,
                        effects,
                    );
                    return;
                }
                _ => {}
            }
        }
        if let Some(script) = self.script(copy) {
            effects.steps.push(script);
            return;
        }
        let from = match &copy.from {
            From::Image(image) => From::Image(self.image(image)),
            other => other.clone(),
        };
        effects.steps.push(format!("{:?}", Copy { from, ..copy.clone() }));
    }

    /// A start script, from the image's own file or as text of the recipe.
    fn script(&self, copy: &Copy) -> Option<String> {
        let plain = !copy.add && copy.from == From::Context && copy.dest == start::MAIN && copy.chown.is_none();
        let (content, mode) = match copy.sources.as_slice() {
            [CopySource::Path(path)] if plain => {
                let file = start::file(&self.found.image.path.join(path), self.roots)?;
                let mode = fs::metadata(&file).ok()?.permissions().mode() & 0o7777;
                (fs::read(file).ok()?, mode)
            }
            [CopySource::Inline { content, .. }] if plain => (content.clone(), 0o644),
            _ => return None,
        };
        let mode = copy.chmod.as_deref().map_or(Some(mode), |mode| u32::from_str_radix(mode, 8).ok())?;
        Some(format!("start script of mode {mode:o}: {}", String::from_utf8_lossy(&content)))
    }

    /// A plugin that stays in the image stands for itself; the image's own source is a step.
    fn added(&self, source: &Source, dest: &str, effects: &mut Effects) {
        let sources = &self.found.sources;
        match sources.plugins.iter().chain(&sources.additions).any(|other| other.name == source.name) {
            true => drop(effects.plugins.insert(plugin(source))),
            false => effects.steps.push(unpacked(source, dest)),
        }
    }

    /// What was fetched from elsewhere is one of the image's sources, or a step that Kolla hasn't.
    fn fetched(&self, what: String, dest: &str, effects: &mut Effects) {
        let sources = &self.found.sources;
        let step = format!("{what} into {dest}");
        let mut several = sources.plugins.iter().chain(&sources.additions);
        let into = |source: &Source| {
            let below = format!("/{}-", source.archive());
            unpacked(source, dest.find(&below).map_or(dest, |at| &dest[..at])) == step
        };
        match several.find(|source| into(source)) {
            Some(source) => self.added(source, dest, effects),
            None => effects.steps.push(step),
        }
    }
}

impl Effects {
    /// The last stage's is what counts.
    fn finish(&mut self, config: ImageConfig) {
        self.labels = config.config.labels.clone();
        let mut rest = config.config;
        rest.labels.clear();
        self.config = serde_json::to_value(&rest).unwrap_or_default();
    }
}

/// What ADD of a source's archive does.
fn unpacked(source: &Source, dest: &str) -> String {
    let what = plugin(source);
    match &source.kind {
        Kind::Git(address) => format!("check out {what} into {dest}/{}", checked_out(source, address)),
        Kind::Url(_) | Kind::Local(_) => format!("unpack {what} into {dest}"),
    }
}

/// What a plugin is, wherever it is unpacked.
fn plugin(source: &Source) -> String {
    match &source.kind {
        Kind::Url(file) => {
            format!("{} {}", file.url, file.checksum.as_ref().map(ToString::to_string).unwrap_or_default())
        }
        Kind::Git(address) => {
            let reference = address.reference.as_deref().unwrap_or_default();
            format!("{} {reference}", address.remote.trim_end_matches(".git"))
        }
        Kind::Local(_) => format!("the local source {}", source.name),
    }
}

/// The same of a source of a definition.
fn defined(name: &str, source: &SourceDef) -> String {
    match source {
        SourceDef::Url { url, sha256 } => {
            format!("{url} {}", sha256.as_ref().map(|sum| format!("sha256:{sum}")).unwrap_or_default())
        }
        SourceDef::Git { url, reference, .. } => {
            format!("{} {}", url.trim_end_matches(".git"), reference.as_deref().unwrap_or_default())
        }
        SourceDef::Local { .. } => format!("the local source {name}"),
        SourceDef::Pypi { requirement } => format!("{requirement} of PyPI"),
    }
}

fn directory(path: &str) -> String {
    format!("make the directory {path}")
}

fn command(run: &Run) -> String {
    let text = run.argv.last().map(|text| sorted(&squeezed(text))).unwrap_or_default();
    if let Some(path) = text.strip_prefix("mkdir -p ").filter(|path| ["/plugins", "/additions"].contains(path)) {
        return directory(path);
    }
    let shell = &run.argv[..run.argv.len().saturating_sub(1)];
    format!(
        "RUN {shell:?} {text} (as {:?} in {}, environment {:?}, mounts {:?}, network {:?}, security {:?}, script {:?})",
        run.user, run.cwd, run.env, run.mounts, run.network, run.security, run.script
    )
}

/// Packages of one call in the order of their names.
fn sorted(command: &str) -> String {
    static CALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"((?:apt-get -y install --no-install-recommends|dnf -y install) )([^&;|]+?)( ?[&;|]|$)").ok()
    });
    let Some(call) = CALL.as_ref() else { return command.to_owned() };
    let replaced = call.replace_all(command, |found: &Captures<'_>| {
        let mut packages: Vec<&str> = found[2].split(' ').collect();
        packages.sort_unstable();
        format!("{}{}{}", &found[1], packages.join(" "), &found[3])
    });
    replaced.into_owned()
}

/// Files of the tree's directory that the definition's hasn't, or has otherwise. Its start script may have moved.
fn files(found: &Found, definition: &ImageDef, root: &Path, roots: &[PathBuf]) -> Vec<String> {
    let mut theirs: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for root in roots {
        collect(&root.join(&found.image.path), Path::new(""), &mut theirs);
    }
    let moved = definition.start.as_ref().map(|start| root.join("start-scripts").join(start).join("extend_start.sh"));
    let differs = |(name, path): &(&PathBuf, &PathBuf)| {
        let here = fs::read(definition.dir.join(name)).or_else(|e| match &moved {
            Some(moved) => fs::read(moved),
            None => Err(e),
        });
        match (fs::read(path), here) {
            (Ok(kolla), Ok(here)) => kolla != here,
            _ => true,
        }
    };
    theirs.iter().filter(differs).map(|(name, _)| format!("the file {} is not the same", name.display())).collect()
}

fn collect(dir: &Path, below: &Path, out: &mut BTreeMap<PathBuf, PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        let left_out = [render::TEMPLATE, "Dockerfile", "__pycache__"].iter().any(|left| name == Path::new(left));
        if path.is_dir() && !left_out {
            collect(&path, &name, out);
        } else if !left_out {
            out.insert(name, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_packages_does_not_count_and_everything_else_does() {
        let one = "apt-get -y install --no-install-recommends b a && x";
        assert_eq!(sorted(one), sorted("apt-get -y install --no-install-recommends a b && x"));
        assert_ne!(sorted(one), sorted("apt-get -y install --no-install-recommends a b c && x"));
        assert_ne!(sorted(one), sorted("apt-get -y install --no-install-recommends x && b a"));
        assert_eq!(sorted("dnf -y install b a"), "dnf -y install a b");
    }
}
