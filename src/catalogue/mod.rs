//! TOML definitions to checked types: `kollage.toml`, `images/*/image.toml`, `plugins/*/plugin.toml`.
//!
//! Everything is read before anything is refused: all problems of all files come in one report, each with its file,
//! line and column, the text underlined, and a hint where there is something to do. `tree` is TOML with places,
//! `reader` takes typed values out of it, `settings`, `image` and `plugin` say what a file may hold, `overlay` and
//! `release` change the trees of definitions before they are read, and `check` judges what takes all files to judge.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use crate::diag::{Diagnostic, Diagnostics, Severity, SourceFile};

mod base;
mod check;
pub(crate) mod definition;
mod explain;
mod fit;
mod given;
mod image;
mod init;
pub(crate) mod names;
mod overlay;
pub mod pattern;
mod plugin;
pub(crate) mod reader;
mod release;
pub mod schema;
mod settings;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tree;
pub mod types;

pub use base::parse_reference;
pub use given::Given;
pub use init::init;
pub use names::registry_of;
pub use overlay::{Additions, Block, Patch};
pub use pattern::Pattern;
pub use release::Release;
pub use settings::limit_of_steps;
pub use types::*;

use crate::lock::{self, Lock};
use definition::{Folder, House, Loaded};

impl Catalogue {
    /// Reads the catalogue at `root` (the directory with `kollage.toml`).
    pub fn load(root: &Path, overrides: &Overrides, config: &ConfigFiles) -> Result<Catalogue, Diagnostics> {
        Catalogue::with(root, &[], overrides, config)
    }

    /// With images that are in no file, besides those that are.
    pub fn with(
        root: &Path,
        given: &[Arc<Given>],
        overrides: &Overrides,
        config: &ConfigFiles,
    ) -> Result<Catalogue, Diagnostics> {
        let mut problems = Diagnostics::default();
        let mut house = House::new(root);
        house.recipes = Some(recipes(&house, &mut problems));
        let project = house.path("kollage.toml");
        let settings = settings::load(Some(&project), overrides, config, &mut problems);
        house.release = settings.as_ref().and_then(|settings| settings.release.clone());
        let settings = settings.unwrap_or_default();
        let named = settings.overlays.iter().map(|(dir, place)| (dir, Some(place)));
        let overlays = named.chain(overrides.overlays.iter().map(|dir| (dir, None)));
        let overlays = overlays.filter_map(|(dir, place)| overlay::load(dir, place, &mut problems)).collect();
        let overlays: Arc<Vec<overlay::Overlay>> = Arc::new(overlays);
        house.overlays = overlays.clone();
        let houses = self::houses(house, &mut problems);

        let mut tried = Vec::new();
        let mut images = folders(&houses, "images", &mut problems);
        images.extend(houses.first().into_iter().flat_map(|house| given.iter().map(move |one| (one.folder(), house))));
        let (images, broken_images) = gather(&images, image::load_image, |i| &i.name, &mut tried, &mut problems);
        let image_names = images.keys().chain(&broken_images).cloned().collect();
        let plugins = folders(&houses, "plugins", &mut problems);
        let (plugins, broken_plugins) = gather(&plugins, plugin::load_plugin, |p| &p.name, &mut tried, &mut problems);
        let plugin_names = plugins.keys().chain(&broken_plugins).cloned().collect();
        let touched = overlay::judge(&overlays, tried, [&image_names, &plugin_names], &mut problems);

        let changed =
            images.values().filter_map(|image| image.changed()).chain(plugins.values().filter_map(|p| p.changed()));
        let roots = houses.iter().map(|house| house.root.clone()).collect();
        let catalogue = Catalogue {
            root: root.to_owned(),
            settings,
            recipes: crate::template::Recipes::new(roots, changed.collect()),
            images,
            plugins,
            warnings: Diagnostics::default(),
            lock: lock::load(root, &mut problems),
            touched,
        };
        let checker = check::Checker {
            catalogue: &catalogue,
            broken_images: &broken_images,
            broken_plugins: &broken_plugins,
            problems: Diagnostics::default(),
        };
        problems.extend(checker.run());
        catalogue.judged(problems)
    }

    /// A catalogue of one: a single Dockerfile anywhere, as `kollage build --dockerfile` has it. There is no
    /// `kollage.toml`; the other settings files and the command line count.
    pub fn single(
        name: &str,
        dockerfile: &Arc<SourceFile>,
        context: &Path,
        overrides: &Overrides,
        config: &ConfigFiles,
    ) -> Result<Catalogue, Diagnostics> {
        let mut problems = Diagnostics::default();
        if let Err(why) = names::component(name) {
            problems.push(Diagnostic::error(format!("`{name}` is not a name of an image: {why}")));
        }
        let settings = settings::load(None, overrides, config, &mut problems).unwrap_or_default();
        let mut images = BTreeMap::new();
        images.insert(name.to_owned(), Arc::new(image::from_dockerfile(name, context, dockerfile.clone())));
        let recipes = crate::template::Recipes::new(vec![context.to_owned()], Vec::new());
        // Profiles and plugins of the user's own file are about another catalogue.
        let settings = Settings { profiles: BTreeMap::new(), image_plugins: BTreeMap::new(), ..settings };
        let catalogue = Catalogue {
            root: context.to_owned(),
            settings,
            images,
            plugins: BTreeMap::new(),
            warnings: Diagnostics::default(),
            lock: Lock::default(),
            recipes,
            touched: overlay::Touched::default(),
        };
        catalogue.judged(problems)
    }

    /// What the other settings files and the command line say where there is no catalogue.
    pub fn settings_alone(overrides: &Overrides, config: &ConfigFiles) -> Result<Settings, Diagnostics> {
        let mut problems = Diagnostics::default();
        let settings = settings::load(None, overrides, config, &mut problems).unwrap_or_default();
        if problems.has_errors() { Err(sorted(problems)) } else { Ok(settings) }
    }

    fn judged(mut self, problems: Diagnostics) -> Result<Catalogue, Diagnostics> {
        let problems = self.with_both_places(sorted(problems));
        if problems.has_errors() {
            return Err(problems);
        }
        self.warnings = problems;
        Ok(self)
    }

    /// Shows what an overlay changed beside a problem that its change led to, and the other way round.
    pub fn with_both_places(&self, problems: Diagnostics) -> Diagnostics {
        self.touched.with_both_places(problems)
    }

    /// The name of an image as FROM has it: `namespace/name:tag`.
    pub fn image_ref(&self, image: &str) -> String {
        format!("{}/{image}:{}", self.settings.build.namespace, self.settings.build.tag)
    }

    /// The images of a profile, of the profiles that it names (`@other`) included; None: there is no such profile.
    pub fn profile_images(&self, profile: &str) -> Option<BTreeSet<String>> {
        self.settings.profiles.get(profile)?;
        let mut images = BTreeSet::new();
        let mut seen = BTreeSet::from([profile]);
        let mut open = vec![profile];
        while let Some(name) = open.pop() {
            for item in self.settings.profiles.get(name).into_iter().flatten() {
                match item.strip_prefix('@') {
                    Some(nested) if seen.insert(nested) => open.push(nested),
                    Some(_) => {}
                    None => {
                        let Ok(pattern) = Pattern::parse(item) else { continue };
                        images.extend(self.images.keys().filter(|name| pattern.matches(name)).cloned());
                    }
                }
            }
        }
        Some(images)
    }

    /// The plugins of an image as settings and definition choose them, in the order of their layers. `load` has
    /// checked that each exists, fits, and has what it requires.
    pub fn plugins_of(&self, image: &ImageDef) -> Vec<Arc<PluginDef>> {
        let chosen = self.settings.image_plugins.get(&image.name).unwrap_or(&image.plugins.default);
        let mut plugins: Vec<&Arc<PluginDef>> = chosen.iter().filter_map(|name| self.plugins.get(name)).collect();
        plugins.sort_by_key(|p| (p.order, &p.name));
        // What a plugin requires comes below it, whatever its `order` says.
        let mut ordered: Vec<Arc<PluginDef>> = Vec::with_capacity(plugins.len());
        fn place(
            plugin: &Arc<PluginDef>,
            all: &[&Arc<PluginDef>],
            seen: &mut Vec<String>,
            out: &mut Vec<Arc<PluginDef>>,
        ) {
            if seen.contains(&plugin.name) {
                return;
            }
            seen.push(plugin.name.clone());
            for required in all.iter().filter(|p| plugin.requires.contains(&p.name)) {
                place(required, all, seen, out);
            }
            out.push(plugin.clone());
        }
        let mut seen = Vec::new();
        for plugin in &plugins {
            place(plugin, &plugins, &mut seen, &mut ordered);
        }
        ordered
    }

    /// The file or flag that says which plugins an image has.
    pub fn chosen_in(&self, image: &ImageDef) -> String {
        let place = match self.settings.image_plugins.contains_key(&image.name) {
            true => self.settings.places.get(&format!("images.{}.plugins", image.name)),
            false => image.places.get("plugins.default"),
        };
        place.map_or_else(|| image.file.path.display().to_string(), |place| place.file.path.display().to_string())
    }

    /// Why the release that is set has not what an image or plugin takes from PyPI; None: it has, or there is none.
    pub fn not_in_release(
        &self,
        owner: &str,
        sources: &BTreeMap<String, SourceDef>,
        places: &Places,
        file: &Arc<SourceFile>,
    ) -> Option<Diagnostic> {
        let settings = &self.settings;
        settings.release.as_ref()?.refusal(owner, sources, places, file, settings.places.get("build.release"))
    }

    /// Why a plugin cannot be put on an image; None: it can.
    pub fn refusal(&self, image: &ImageDef, plugin: &PluginDef) -> Option<Diagnostic> {
        check::refusal(image, plugin).map(|(message, hint)| Diagnostic::error(message).hint(hint))
    }
}

/// What is wrong with the text of one definition by itself, its file unread: for editors and for fuzzing.
/// `name` is `image.toml`, `plugin.toml`, `release.toml`, `overlay.toml` or `kollage.toml`.
pub fn check_text(name: &str, text: &str) -> Diagnostics {
    let file = SourceFile::new(name, text);
    let house = House::new(Path::new("."));
    let dir = Path::new("images/image").to_owned();
    let folder = Folder { name: "image".into(), dir, toml: true, template: false, dockerfile: false, given: None };
    let problems = match name {
        "image.toml" => image::read_image(&folder, &house, file, Diagnostics::default()).problems,
        "plugin.toml" => plugin::read_plugin(&folder, &house, file, Diagnostics::default()).problems,
        "overlay.toml" => {
            let mut problems = Diagnostics::default();
            overlay::read_overlay(Path::new("."), &file, &mut problems);
            problems
        }
        "release.toml" => {
            let mut problems = Diagnostics::default();
            release::read_release("release", &file, None, &mut problems);
            problems
        }
        _ => settings::check(&file),
    };
    sorted(problems)
}

type Named<T> = BTreeMap<String, Arc<T>>;

/// Reads all definitions in parallel; the names of those that could not be made sense of come apart.
fn gather<T: Send>(
    folders: &[(Folder, &House)],
    load: impl Fn(&Folder, &House) -> Loaded<T> + Sync + Send,
    name: impl Fn(&T) -> &String,
    tried: &mut Vec<overlay::Tried>,
    problems: &mut Diagnostics,
) -> (Named<T>, BTreeSet<String>) {
    let loaded: Vec<Loaded<T>> = folders.par_iter().map(|(folder, house)| load(folder, house)).collect();
    let mut definitions = Named::new();
    let mut broken = BTreeSet::new();
    for ((folder, _), loaded) in folders.iter().zip(loaded) {
        problems.extend(loaded.problems);
        tried.extend(loaded.tried);
        match loaded.definition {
            Some(definition) => {
                definitions.insert(name(&definition).clone(), Arc::new(definition));
            }
            None => {
                broken.insert(folder.name.clone());
            }
        }
    }
    (definitions, broken)
}

/// The catalogue's own house and one for each overlay, which share their recipes.
fn houses(house: House, problems: &mut Diagnostics) -> Vec<House> {
    let mut recipes = house.recipes.clone().unwrap_or_default();
    let mut roots: Vec<&Path> = vec![&house.root];
    for overlay in house.overlays.iter() {
        let added = self::recipes(&House::new(&overlay.root), problems);
        for name in &added {
            let path = format!("images/_recipes/{name}.j2");
            if let Some(other) = roots.iter().find(|root| root.join(&path).is_file()) {
                problems.push(there_already("recipe", name, &overlay.root.join(&path), &other.join(&path)));
            }
        }
        recipes.extend(added);
        roots.push(&overlay.root);
    }
    let shared = |root: &Path, is_overlay: bool| House {
        root: root.to_owned(),
        recipes: Some(recipes.clone()),
        release: house.release.clone(),
        overlays: house.overlays.clone(),
        is_overlay,
    };
    roots.iter().enumerate().map(|(i, root)| shared(root, i > 0)).collect()
}

fn there_already(what: &str, name: &str, added: &Path, there: &Path) -> Diagnostic {
    let message =
        format!("{what} `{name}` is in an overlay and in the catalogue: `{}`, `{}`", added.display(), there.display());
    Diagnostic::error(message).hint("an overlay changes what is there with `[[change]]`, and adds under other names")
}

/// The definitions below `images` or `plugins`, each name once.
fn folders<'a>(houses: &'a [House], below: &str, problems: &mut Diagnostics) -> Vec<(Folder, &'a House)> {
    let mut all: Vec<(Folder, &House)> = Vec::new();
    for house in houses {
        for folder in house_folders(house, below, problems) {
            match all.iter().find(|(known, _)| known.name == folder.name) {
                Some((known, _)) => {
                    let what = below.trim_end_matches('s');
                    problems.push(there_already(what, &folder.name, &folder.dir, &known.dir));
                }
                None => all.push((folder, house)),
            }
        }
    }
    all
}

/// The folders below `images` or `plugins` that hold a definition.
fn house_folders(house: &House, below: &str, problems: &mut Diagnostics) -> Vec<Folder> {
    let dir = house.path(below);
    let file = if below == "images" { "image.toml" } else { "plugin.toml" };
    let mut folders = Vec::new();
    for name in entries(&dir, below == "images" && !house.is_overlay, problems) {
        if name.starts_with(['_', '.']) {
            continue;
        }
        let path = dir.join(&name);
        if !path.is_dir() {
            continue;
        }
        let has = |file: &str| path.join(file).is_file();
        let folder = Folder {
            toml: has(file),
            template: has("Dockerfile.j2"),
            dockerfile: has("Dockerfile"),
            name,
            dir: path.clone(),
            given: None,
        };
        if folder.toml || (below == "images" && folder.dockerfile) {
            folders.push(folder);
        } else if folder.template || folder.dockerfile {
            let hint = format!("write `{}`", path.join(file).display());
            problems.push(Diagnostic::error(format!("`{}` has no {file}", path.display())).hint(hint));
        } else {
            let message = format!("`{}` holds no definition and is left out", path.display());
            let or = if below == "images" { " or a `Dockerfile`" } else { "" };
            problems.push(Diagnostic::warning(message).hint(format!("a definition is a folder with `{file}`{or}")));
        }
    }
    folders
}

fn recipes(house: &House, problems: &mut Diagnostics) -> Vec<String> {
    let names = entries(&house.path("images/_recipes"), false, problems);
    names.iter().filter_map(|name| name.strip_suffix(".j2")).map(str::to_owned).collect()
}

/// Names in a directory, sorted. One that isn't there is empty, or a problem when it is `required`.
fn entries(dir: &Path, required: bool, problems: &mut Diagnostics) -> Vec<String> {
    let read = match std::fs::read_dir(dir) {
        Ok(read) => read,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !required => return Vec::new(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            problems.push(
                Diagnostic::error(format!("there is no directory `{}`", dir.display()))
                    .hint("each image is a folder in it: `images/NAME/image.toml`"),
            );
            return Vec::new();
        }
        Err(e) => {
            problems.push(Diagnostic::error(format!("cannot read `{}`: {e}", dir.display())));
            return Vec::new();
        }
    };
    let mut names = Vec::new();
    for entry in read {
        match entry {
            Ok(entry) => match entry.file_name().into_string() {
                Ok(name) => names.push(name),
                Err(name) => {
                    let message = format!("`{}` has a name that is not UTF-8", dir.join(name).display());
                    problems.push(Diagnostic::error(message));
                }
            },
            Err(e) => problems.push(Diagnostic::error(format!("cannot read `{}`: {e}", dir.display()))),
        }
    }
    names.sort();
    names
}

/// Errors first; those without a place first, then by file and place.
fn sorted(mut problems: Diagnostics) -> Diagnostics {
    problems.0.sort_by_cached_key(|d| {
        let place = d.place.as_ref().map(|p| (p.file.path.clone(), p.span.start));
        (d.severity == Severity::Warning, place)
    });
    problems
}
