//! What can only be judged with all definitions in hand: parents and cycles, plugins and what they fit, users,
//! profiles, the operator's policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::engine::BaseSource;

use super::names;
use super::overlay::Block;
use super::pattern::Pattern;
use super::reader::error;
use super::types::{Catalogue, ImageDef, Parent, PluginDef};
use crate::suggest;

pub(super) struct Checker<'a> {
    pub catalogue: &'a Catalogue,
    /// Definitions that exist but could not be read: nothing is said about them twice.
    pub broken_images: &'a BTreeSet<String>,
    pub broken_plugins: &'a BTreeSet<String>,
    pub problems: Diagnostics,
}

impl Checker<'_> {
    pub fn run(mut self) -> Diagnostics {
        self.parents();
        self.cycles();
        self.users();
        self.starts();
        self.plugins();
        self.plugin_choices();
        self.image_settings();
        self.versions();
        self.profiles();
        self.policy();
        self.release();
        self.blocks();
        self.problems
    }

    fn image_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.catalogue.images.keys().chain(self.broken_images).map(String::as_str)
    }

    fn knows_image(&self, name: &str) -> bool {
        self.catalogue.images.contains_key(name) || self.broken_images.contains(name)
    }

    pub(super) fn knows_plugin(&self, name: &str) -> bool {
        self.catalogue.plugins.contains_key(name) || self.broken_plugins.contains(name)
    }

    fn unknown_image(&self, place: &Place, name: &str) -> Diagnostic {
        let mut problem = error(place, format!("unknown image `{name}`"));
        problem.hint = suggest::hint(name, self.image_names());
        problem
    }

    pub(super) fn unknown_plugin(&self, place: &Place, name: &str) -> Diagnostic {
        let mut problem = error(place, format!("unknown plugin `{name}`"));
        let known = self.catalogue.plugins.keys().chain(self.broken_plugins).map(String::as_str);
        problem.hint = suggest::hint(name, known).or_else(|| Some("there are no plugins in `plugins/`".into()));
        problem
    }

    fn parents(&mut self) {
        for image in self.catalogue.images.values() {
            let Parent::Image(parent) = &image.parent else { continue };
            if self.knows_image(parent) {
                continue;
            }
            let mut problem =
                error(&image.places.place("image.parent", &image.file), format!("unknown parent `{parent}`"));
            problem.hint = suggest::hint(parent, self.image_names().filter(|n| *n != image.name))
                .or_else(|| Some("an image from elsewhere is named with `from`".into()));
            self.problems.push(problem);
        }
    }

    /// Each cycle once, from the image that is first by name.
    fn cycles(&mut self) {
        let mut done: BTreeSet<&str> = BTreeSet::new();
        for start in self.catalogue.images.values() {
            let mut path: Vec<&str> = Vec::new();
            let mut on_path: BTreeSet<&str> = BTreeSet::new();
            let mut image = start;
            loop {
                if on_path.contains(image.name.as_str()) {
                    let from = path.iter().position(|n| *n == image.name).unwrap_or(0);
                    self.cycle(&path[from..]);
                    break;
                }
                if done.contains(image.name.as_str()) {
                    break;
                }
                path.push(&image.name);
                on_path.insert(&image.name);
                let Parent::Image(parent) = &image.parent else { break };
                let Some(next) = self.catalogue.images.get(parent) else { break };
                image = next;
            }
            done.extend(path);
        }
    }

    fn cycle(&mut self, names: &[&str]) {
        let first = names.iter().enumerate().min_by_key(|(_, n)| **n).map_or(0, |(i, _)| i);
        let mut path: Vec<&str> = names[first..].iter().chain(&names[..first]).copied().collect();
        let Some(image) = path.first().and_then(|n| self.catalogue.images.get(*n)) else { return };
        path.push(&image.name);
        let place = image.places.place("image.parent", &image.file);
        let message = match path.len() {
            2 => format!("image `{}` is its own parent", image.name),
            _ => format!("images are built on each other in a circle: {}", path.join(" -> ")),
        };
        let mut problem = error(&place, message).hint("one of them needs another parent, or `from`");
        for other in path.iter().skip(1).filter_map(|name| self.catalogue.images.get(*name)) {
            if other.name != image.name {
                let place = other.places.place("image.parent", &other.file);
                problem = problem.also(&place, format!("the parent of `{}`", other.name));
            }
        }
        self.problems.push(problem);
    }

    /// Definitions are beside the images; what is in them is read by whoever starts something.
    fn starts(&mut self) {
        let mut known: Option<Vec<String>> = None;
        for image in self.catalogue.images.values() {
            let Some(start) = &image.start else { continue };
            let known = known.get_or_insert_with(|| crate::start::names(&self.catalogue.root));
            if known.contains(start) {
                continue;
            }
            let place = image.places.place("image.start", &image.file);
            let mut problem = error(&place, format!("there is no start definition `{start}`"));
            problem.hint = suggest::hint(start, known.iter().map(String::as_str))
                .or_else(|| Some("definitions are in `start-scripts/NAME/start.toml`".into()));
            self.problems.push(problem);
        }
    }

    /// A user name means one number in the whole family: volumes are shared by number.
    fn users(&mut self) {
        let mut by_name: BTreeMap<&str, &Arc<ImageDef>> = BTreeMap::new();
        for image in self.catalogue.images.values() {
            let Some(user) = &image.user else { continue };
            let Some(first) = by_name.get(user.name.as_str()) else {
                by_name.insert(&user.name, image);
                continue;
            };
            let Some(known) = &first.user else { continue };
            for (what, mine, theirs) in [("uid", user.uid, known.uid), ("gid", user.gid, known.gid)] {
                if mine == theirs {
                    continue;
                }
                let path = format!("user.{what}");
                let other = first.places.place(&path, &first.file);
                let (line, column) = other.file.line_column(other.span.start);
                let place = image.places.place(&path, &image.file);
                let message =
                    format!("user `{}` has {what} {mine} here and {theirs} in image `{}`", user.name, first.name);
                let hint = format!("the other one is at {}:{line}:{column}", other.file.path.display());
                self.problems.push(error(&place, message).hint(hint));
                // A gid that isn't said is the uid: one difference is told once.
                break;
            }
        }
    }

    fn plugins(&mut self) {
        for plugin in self.catalogue.plugins.values() {
            self.plugin_fits_something(plugin);
            for (key, names) in [("requires", &plugin.requires), ("conflicts", &plugin.conflicts)] {
                for (i, name) in names.iter().enumerate() {
                    let place = plugin.places.place(&format!("plugin.{key}.{i}"), &plugin.file);
                    if *name == plugin.name {
                        let message = match key {
                            "requires" => format!("plugin `{name}` requires itself"),
                            _ => format!("plugin `{name}` conflicts with itself"),
                        };
                        self.problems.push(error(&place, message));
                    } else if !self.knows_plugin(name) {
                        let problem = self.unknown_plugin(&place, name);
                        self.problems.push(problem);
                    } else if key == "conflicts" && plugin.requires.contains(name) {
                        let message = format!("plugin `{}` both requires `{name}` and conflicts with it", plugin.name);
                        self.problems.push(error(&place, message));
                    }
                }
            }
            if let Some(path) = self.requires_circle(plugin) {
                let place = plugin.places.place("plugin.requires", &plugin.file);
                let message = format!("plugins require each other in a circle: {}", path.join(" -> "));
                self.problems.push(error(&place, message).hint("a plugin comes above those that it requires"));
            }
        }
    }

    /// The way back to `plugin`, told from the first by name only.
    fn requires_circle(&self, plugin: &PluginDef) -> Option<Vec<String>> {
        let mut seen = BTreeSet::from([plugin.name.as_str()]);
        let mut paths: Vec<Vec<&str>> = vec![vec![&plugin.name]];
        while let Some(path) = paths.pop() {
            let Some(last) = path.last().and_then(|n| self.catalogue.plugins.get(*n)) else { continue };
            for next in &last.requires {
                if *next == plugin.name && path.len() > 1 {
                    let mut path: Vec<String> = path.iter().map(|n| (*n).to_owned()).collect();
                    path.push(next.clone());
                    let first = path.iter().min() == Some(&plugin.name);
                    return first.then_some(path);
                }
                if seen.insert(next) {
                    paths.push([path.as_slice(), &[next.as_str()]].concat());
                }
            }
        }
        None
    }

    fn plugin_fits_something(&mut self, plugin: &PluginDef) {
        let before = self.problems.0.len();
        let images = &self.catalogue.images;
        for (i, pattern) in plugin.images.iter().enumerate() {
            let known = match pattern.literal() {
                Some(name) => self.knows_image(name),
                None => self.image_names().any(|n| pattern.matches(n)),
            };
            if !known {
                let place = plugin.places.place(&format!("plugin.images.{i}"), &plugin.file);
                let problem = self.no_match(&place, pattern, "image");
                self.problems.push(problem);
            }
        }
        // When files could not be read it isn't known who accepts what.
        if self.problems.0.len() > before || !self.broken_images.is_empty() || plugin.images.is_empty() {
            return;
        }
        let matched: Vec<&Arc<ImageDef>> =
            images.values().filter(|i| plugin.images.iter().any(|p| p.matches(&i.name))).collect();
        if matched.iter().any(|image| refusal(image, plugin).is_none()) {
            return;
        }
        let place = plugin.places.place("plugin.images", &plugin.file);
        let hint = match matched.iter().find(|i| i.takes_plugins()) {
            Some(image) => format!(
                "add `accept = [\"{}\"]` to [plugins] of `{}`",
                plugin.name,
                image.dir.join("image.toml").display()
            ),
            None => "what it matches are base images; plugins go on service images".into(),
        };
        self.problems.push(error(&place, format!("no image accepts plugin `{}`", plugin.name)).hint(hint));
    }

    fn no_match(&self, place: &Place, pattern: &Pattern, what: &str) -> Diagnostic {
        match pattern.literal() {
            Some(name) => self.unknown_image(place, name),
            None => error(place, format!("`{pattern}` matches no {what}")),
        }
    }

    /// `[plugins]` of every image.
    fn plugin_choices(&mut self) {
        for image in self.catalogue.images.values() {
            if !image.takes_plugins() && image.places.get("plugins").is_some_and(|p| Arc::ptr_eq(&p.file, &image.file))
            {
                let place = image.places.place("plugins", &image.file);
                let message =
                    format!("image `{}` is of kind `base`, and plugins go on service images only", image.name);
                let hint = "leave out [plugins], make it `kind = \"service\"`, or add `inherited = true` for what is built on it";
                self.problems.push(error(&place, message).hint(hint));
                continue;
            }
            let places: Vec<Place> = (0..image.plugins.default.len())
                .map(|i| image.places.place(&format!("plugins.default.{i}"), &image.file))
                .collect();
            self.choice(image, &image.plugins.default, &places);
        }
    }

    /// `[images.NAME]` of the settings, and `--plugin`.
    fn image_settings(&mut self) {
        let settings = &self.catalogue.settings;
        for (name, place) in &settings.image_sections {
            if !self.knows_image(name) {
                let problem = self.unknown_image(place, name);
                self.problems.push(problem);
            }
        }
        for (name, chosen) in &settings.image_plugins {
            let Some(image) = self.catalogue.images.get(name) else { continue };
            let places: Vec<Place> = (0..chosen.len())
                .map(|i| settings.places.place(&format!("images.{name}.plugins.{i}"), &image.file))
                .collect();
            self.choice(image, chosen, &places);
        }
    }

    /// Whether the chosen plugins exist, fit the image, and go together. `places` has one for each.
    fn choice(&mut self, image: &ImageDef, chosen: &[String], places: &[Place]) {
        for (name, place) in chosen.iter().zip(places) {
            let Some(plugin) = self.catalogue.plugins.get(name) else {
                if !self.broken_plugins.contains(name) {
                    let problem = self.unknown_plugin(place, name);
                    self.problems.push(problem);
                }
                continue;
            };
            if let Some((message, hint)) = refusal(image, plugin) {
                self.problems.push(error(place, message).hint(hint));
            }
            for required in &plugin.requires {
                if chosen.contains(required) || !self.knows_plugin(required) {
                    continue;
                }
                let message =
                    format!("plugin `{name}` requires `{required}`, which is not chosen for `{}`", image.name);
                self.problems.push(error(place, message).hint(format!("choose `{required}` as well")));
            }
            for other in plugin.conflicts.iter().filter(|c| chosen.contains(c) && *c != name) {
                let told =
                    self.catalogue.plugins.get(other).is_some_and(|o| o.conflicts.contains(name)) && other < name;
                if !told {
                    let message = format!("plugins `{name}` and `{other}` cannot both be on `{}`", image.name);
                    self.problems.push(error(place, message).hint("choose one of them"));
                }
            }
        }
    }

    fn profiles(&mut self) {
        let settings = &self.catalogue.settings;
        for (profile, items) in &settings.profiles {
            let place = |i: usize| settings.places.get(&format!("profiles.{profile}.{i}")).cloned();
            for (i, item) in items.iter().enumerate() {
                let Some(place) = place(i) else { continue };
                if let Some(nested) = item.strip_prefix('@') {
                    if !settings.profiles.contains_key(nested) {
                        let mut problem = error(&place, format!("unknown profile `{nested}`"));
                        problem.hint = suggest::hint(nested, settings.profiles.keys().map(String::as_str));
                        self.problems.push(problem);
                    }
                    continue;
                }
                match Pattern::parse(item) {
                    Err(why) => self.problems.push(error(&place, format!("`{item}` is not a pattern: {why}"))),
                    Ok(pattern) => {
                        if !self.image_names().any(|name| pattern.matches(name)) {
                            let mut problem = self.no_match(&place, &pattern, "image");
                            if let Some(name) = settings.profiles.keys().find(|p| *p == item && *p != profile) {
                                problem.hint = Some(format!("write `@{name}` for the profile of that name"));
                            }
                            self.problems.push(problem);
                        }
                    }
                }
            }
            let circle = profile_circle(self.catalogue, profile);
            if let (Some(path), Some(place)) = (circle, settings.places.get(&format!("profiles.{profile}"))) {
                let message = format!("profiles name each other in a circle: {}", path.join(" -> "));
                self.problems.push(error(place, message));
            }
        }
    }

    fn policy(&mut self) {
        let settings = &self.catalogue.settings;
        let policy = &settings.policy;
        if let Some(registry) = &settings.build.registry {
            let host = registry.split('/').next().unwrap_or(registry);
            if let (false, Some(place)) = (policy.allows_registry(host), settings.places.get("build.registry")) {
                self.problems.push(self.forbidden(place, host));
            }
        }
        for image in self.catalogue.images.values() {
            let Parent::External { source: BaseSource::Registry { reference }, .. } = &image.parent else { continue };
            let host = names::registry_of(reference);
            if reference != "scratch" && !policy.allows_registry(host) {
                self.problems.push(self.forbidden(&image.places.place("image.from", &image.file), host));
            }
        }
    }

    /// What a release has a version of and nothing takes may be for later, or mistyped.
    fn release(&mut self) {
        let Some(release) = &self.catalogue.settings.release else { return };
        let (images, plugins) = (self.catalogue.images.values(), self.catalogue.plugins.values());
        let sources = images.map(|i| &i.sources).chain(plugins.map(|p| &p.sources)).flat_map(BTreeMap::values);
        let taken: BTreeSet<String> =
            sources.filter_map(|source| Some(names::normalised(source.requirement()?.name))).collect();
        for (name, place) in release.sources().filter(|(name, _)| !taken.contains(*name)) {
            if let Some(near) = suggest::near(name, taken.iter().map(String::as_str)) {
                let message = format!("no definition takes `{name}` from PyPI");
                let warning = Diagnostic::warning(message).at(&place.file, place.span.clone());
                self.problems.push(warning.hint(near));
            }
        }
    }

    /// Blocks that overlays put in place of a recipe's. As for values, one definition that a glob matches is enough.
    fn blocks(&mut self) {
        let (images, plugins) = (self.catalogue.images.values(), self.catalogue.plugins.values());
        let images = images.map(|i| (format!("image `{}`", i.name), i.template(), &i.additions, &i.file));
        let plugins = plugins.map(|p| (format!("plugin `{}`", p.name), p.template(), &p.additions, &p.file));
        let mut used: Vec<&Place> = Vec::new();
        let mut unused: Vec<(&Block, Diagnostic)> = Vec::new();
        for (owner, template, additions, file) in images.chain(plugins) {
            for block in &additions.blocks {
                let Some(template) = &template else {
                    let message = format!("{owner} has a plain Dockerfile, which has no blocks");
                    let head = super::definition::head_of(file);
                    unused.push((block, error(&block.place, message).also(&head, "the definition")));
                    continue;
                };
                // What a template that can't be read or found has is told when it is rendered.
                match self.catalogue.recipes.blocks(template) {
                    Some((blocks, place)) if !blocks.contains(&block.name) => {
                        let message = format!("the recipe of {owner} has no block `{}`", block.name);
                        let mut problem = error(&block.place, message).also(&place, "the recipe");
                        problem.hint = suggest::hint(&block.name, blocks.iter().map(String::as_str))
                            .or_else(|| Some("it has no blocks at all".into()));
                        unused.push((block, problem));
                    }
                    _ => used.push(&block.place),
                }
            }
        }
        let mut told: Vec<&Place> = Vec::new();
        for (block, problem) in unused {
            let known = |places: &[&Place]| places.iter().any(|place| place.same(&block.place));
            if block.named || !(known(&used) || known(&told)) {
                told.push(&block.place);
                self.problems.push(problem);
            }
        }
    }

    fn forbidden(&self, place: &Place, host: &str) -> Diagnostic {
        let allowed = self.catalogue.settings.policy.registries.as_deref().unwrap_or_default();
        let hint = self.catalogue.settings.policy_hint("registries", allowed);
        error(place, format!("the operator's policy does not allow the registry `{host}`")).hint(hint)
    }
}

/// Why a plugin can't be put on an image: a sentence and a hint. None: it can.
pub(super) fn refusal(image: &ImageDef, plugin: &PluginDef) -> Option<(String, String)> {
    let (image_name, name) = (&image.name, &plugin.name);
    if !image.takes_plugins() {
        let message = format!("plugin `{name}` cannot be put on `{image_name}`, which is of kind `base`");
        return Some((message, "plugins go on service images only".into()));
    }
    if !image.plugins.accept.iter().any(|p| p.matches(name)) {
        let file = image.dir.join("image.toml");
        let message = format!("image `{image_name}` does not accept plugin `{name}`");
        return Some((message, format!("its `accept` in [plugins] of `{}` says which it does", file.display())));
    }
    if !plugin.images.iter().any(|p| p.matches(image_name)) {
        let message = format!("plugin `{name}` is not made for image `{image_name}`");
        return Some((message, format!("its `images` in `{}` says what it is for", plugin.file.path.display())));
    }
    None
}

/// A way from a profile back to itself, told from the first by name only.
fn profile_circle(catalogue: &Catalogue, start: &str) -> Option<Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut paths = vec![vec![start.to_owned()]];
    while let Some(path) = paths.pop() {
        let items = path.last().and_then(|last| catalogue.settings.profiles.get(last));
        for next in items.into_iter().flatten().filter_map(|item| item.strip_prefix('@')) {
            if next == start {
                let path: Vec<String> = path.into_iter().chain([next.to_owned()]).collect();
                let first = path.iter().map(String::as_str).min() == Some(start);
                return first.then_some(path);
            }
            if seen.insert(next.to_owned()) {
                paths.push([path.as_slice(), &[next.to_owned()]].concat());
            }
        }
    }
    None
}
