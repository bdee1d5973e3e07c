//! The way out of Kolla: a tree as a catalogue that a person can read and maintain.
//!
//! The templates are rendered for each distribution as kolla-build would render them (`Side`); their instructions (`pieces`) become
//! parts of a recipe, with what is regular taken out of them as data (`convert`, `source`); the recipes of the distributions are
//! laid over each other (`merge`), and everything is written down (`write`, `start`). `verify` renders what was written and
//! compares what it does with what Kolla's Dockerfiles do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::catalogue::{PackageType, Pattern, User, names};
use crate::error::{Error, Result};
use crate::kolla::images::{self, Image, Status};
use crate::kolla::import::convert::{Plan, Taken};
use crate::kolla::import::merge::{Line, Part};
use crate::kolla::options::Options;
use crate::kolla::pieces::{self, Kind, Piece};
use crate::kolla::repos::Repos;
use crate::kolla::settings::Settings;
use crate::kolla::sources::{self, Source, Sources};
use crate::kolla::{house, render};

mod convert;
mod merge;
mod plugins;
mod source;
mod start;
mod toml_text;
pub mod verify;
mod write;

/// What a tree gives for one distribution.
pub struct Side<'a> {
    pub options: &'a Options<'a>,
    pub settings: &'a Settings,
    pub images: BTreeMap<String, Found>,
    /// Commands that set up a repository, by its short name; longer ones first.
    repositories: Vec<(String, String)>,
}

/// One image of a side.
pub struct Found {
    pub image: Image,
    /// The tree's name of the image below.
    pub parent: Option<String>,
    pieces: Vec<Piece>,
    /// The lists that can be customised, once each.
    lists: BTreeMap<String, Vec<String>>,
    pub sources: Sources,
    has_children: bool,
}

impl<'a> Side<'a> {
    pub fn new(options: &'a Options<'a>, settings: &'a Settings, roots: &[PathBuf]) -> Result<Side<'a>> {
        let rendered = render::render(settings, options, roots)?;
        let mut lists: BTreeMap<String, Vec<(String, Vec<String>)>> =
            rendered.iter().map(|one| (one.name.clone(), one.lists.clone())).collect();
        let mut all = images::images(rendered, settings);
        images::select(&mut all, options, settings)?;
        let parents: Vec<Option<String>> =
            all.iter().map(|image| image.parent.map(|number| all[number].name.clone())).collect();
        let mut found = BTreeMap::new();
        for (image, parent) in all.into_iter().zip(parents) {
            let pieces = pieces::read(&image.name, &image.text).map_err(|problems| {
                Error::from_diagnostics(
                    format!("what the template of `{}` gives is no Dockerfile", image.name),
                    problems,
                )
            })?;
            let mut own = BTreeMap::new();
            let mut twice = BTreeSet::new();
            for (what, items) in lists.remove(&image.name).unwrap_or_default() {
                if own.insert(what.clone(), items).is_some() {
                    twice.insert(what);
                }
            }
            own.retain(|what, items| !twice.contains(what) && !items.is_empty());
            let sources = sources::sources(&image, options, settings.source_arch())?;
            let has_children = !image.children.is_empty();
            found.insert(image.name.clone(), Found { parent, pieces, lists: own, sources, has_children, image });
        }
        Ok(Side { options, settings, images: found, repositories: repositories(options, settings)? })
    }

    /// The distribution.
    fn name(&self) -> &str {
        &self.settings.base
    }

    fn package_type(&self) -> PackageType {
        if self.settings.base_package_type == "rpm" { PackageType::Rpm } else { PackageType::Deb }
    }

    /// The numbers of one of the tree's users.
    fn user(&self, name: &str) -> Option<User> {
        let users = self.settings.values.get("users")?;
        let entry = users.get_attr(name).ok().filter(|entry| !entry.is_undefined())?;
        let number = |key: &str| entry.get_attr(key).ok().and_then(|value| value.to_string().parse().ok());
        let group = entry.get_attr("group").map(|value| value.to_string()).unwrap_or_else(|_| name.to_owned());
        let (uid, gid) = (number("uid")?, number("gid")?);
        let name = name.to_owned();
        Some(User {
            home: format!("/var/lib/{name}"),
            shell: NO_LOGIN.into(),
            groups: Vec::new(),
            name,
            uid,
            gid,
            group,
        })
    }

    /// The image and those below it.
    fn chain<'s>(&'s self, name: &str) -> Vec<&'s Found> {
        let mut chain = Vec::new();
        let mut next = self.images.get(name);
        while let Some(found) = next {
            // A circle would have no end.
            if chain.len() > self.images.len() {
                break;
            }
            chain.push(found);
            next = found.parent.as_ref().and_then(|parent| self.images.get(parent));
        }
        chain
    }
}

fn repositories(options: &Options<'_>, settings: &Settings) -> Result<Vec<(String, String)>> {
    let repos = Repos::of(options, settings)?;
    let command = |name: &str| {
        let text = repos.handle(&[name.to_owned()], true).ok()?;
        Some((name.to_owned(), text.strip_prefix("RUN ")?.to_owned()))
    };
    let mut all: Vec<(String, String)> = repos.names().filter_map(command).collect();
    all.sort_by_key(|(_, command)| std::cmp::Reverse(command.len()));
    Ok(all)
}

/// The shell that the base gives its users, and that a definition's users have unless it says otherwise.
const NO_LOGIN: &str = "/usr/sbin/nologin";

/// What becomes of one image.
pub struct Draft {
    /// The tree's name.
    pub name: String,
    kind_base: bool,
    /// The catalogue's name of the image below; None: `from`.
    parent: Option<String>,
    /// What FROM says, by distribution, where it is no image of the tree.
    from: BTreeMap<String, String>,
    user: Option<User>,
    packages: [Vec<String>; 2],
    /// Lists that go into `[vars]`: one value, or one for each distribution.
    lists: BTreeMap<String, Listed>,
    taken: Taken,
    recipe: Vec<Line>,
    there: Vec<bool>,
    start: Option<start::Start>,
    plugins: Vec<String>,
}

#[derive(Clone, Debug)]
enum Listed {
    Same(Vec<String>),
    Each(BTreeMap<String, Vec<String>>),
}

/// What was made of a tree.
pub struct Report {
    pub images: Vec<Told>,
    /// What concerns no image alone.
    pub notes: Vec<String>,
}

pub struct Told {
    pub name: String,
    /// What became data, in words.
    pub data: Vec<String>,
    /// How many instructions the recipe has as they were.
    pub kept: usize,
    pub notes: Vec<String>,
}

/// Writes the catalogue of a tree into `to`, a directory that is there and empty. The first of `sides` is what the catalogue is
/// built for when nothing else is said.
pub fn import(sides: &[Side<'_>], roots: &[PathBuf], patterns: &[Pattern], to: &Path) -> Result<Report> {
    let wanted = selected(sides, patterns)?;
    let plugins = plugins::Plugins::new(sides, &wanted);
    let mut drafts = Vec::new();
    for name in &wanted {
        let start = start::Start::of(name, &sides[0], roots);
        drafts.push(draft(name, sides, &wanted, &plugins, start));
    }
    write::catalogue(to, &drafts, &plugins, sides, roots)?;
    let images = drafts.iter().map(|draft| told(draft, sides)).collect();
    Ok(Report { images, notes: notes(sides) })
}

/// What the patterns name, and what that is built on.
fn selected(sides: &[Side<'_>], patterns: &[Pattern]) -> Result<BTreeSet<String>> {
    let all: BTreeSet<&String> = sides.iter().flat_map(|side| side.images.keys()).collect();
    for pattern in patterns {
        if !all.iter().any(|name| pattern.matches(name)) {
            let error = Error::bad_input(format!("no image of the tree matches `{pattern}`"));
            return Err(match crate::suggest::hint(pattern.as_str(), all.iter().map(|name| name.as_str())) {
                Some(hint) => error.hint(hint),
                None => error,
            });
        }
    }
    let mut wanted = BTreeSet::new();
    for name in all {
        if patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name)) {
            let below = sides.iter().flat_map(|side| side.chain(name));
            wanted.extend(below.map(|found| found.image.name.clone()));
        }
    }
    Ok(wanted)
}

/// The catalogue's name of an image.
pub fn name_of(image: &str, side: &Side<'_>) -> String {
    format!("{}{image}", side.settings.image_name_prefix)
}

fn draft(
    name: &str,
    sides: &[Side<'_>],
    wanted: &BTreeSet<String>,
    plugins: &plugins::Plugins,
    start: Option<start::Start>,
) -> Draft {
    let found: Vec<Option<&Found>> = sides.iter().map(|side| side.images.get(name)).collect();
    let there: Vec<bool> = found.iter().map(Option::is_some).collect();
    let each = || sides.iter().zip(&found).filter_map(|(side, found)| Some((side, (*found)?)));
    let parent = each().find_map(|(side, found)| found.parent.as_deref().map(|parent| name_of(parent, side)));
    let mut from = BTreeMap::new();
    if parent.is_none() {
        for (side, found) in each() {
            let reference = &found.image.parent_name;
            let reference = house::own_base(reference).unwrap_or(reference).to_owned();
            from.insert(side.settings.base.clone(), reference);
        }
    }
    let distinct: BTreeSet<&String> = from.values().collect();
    let (lists, packages) = lists(sides, &found);
    let mut plan = Plan {
        user: user(sides, &found),
        lists: lists.iter().map(|(what, (_, expression))| (what.clone(), expression.clone())).collect(),
        layered: plugins.is_layered(name),
        several_bases: distinct.len() > 1,
        moved: start.as_ref().and_then(start::Start::moved),
        ..Plan::default()
    };
    let mut taken = Taken::default();
    let mut all = Vec::new();
    for (side, found) in sides.iter().zip(&found) {
        let Some(found) = found else {
            all.push(None);
            continue;
        };
        plan.parent.insert(side.settings.base.clone(), found.image.parent_name.clone());
        let canonical = |name: &String| (side.settings.canonical(name), name_of(name, side));
        plan.names = wanted.iter().map(canonical).collect();
        let parts: Vec<Part> =
            found.pieces.iter().flat_map(|piece| convert::parts(piece, found, side, &plan, &mut taken)).collect();
        all.push(Some(parts));
    }
    let used = |what: &str| taken.lists.contains(what);
    let mut draft = Draft {
        name: name.to_owned(),
        kind_base: each().any(|(_, found)| found.has_children),
        parent,
        from,
        user: plan.user,
        packages: if used(PACKAGES) { packages } else { Default::default() },
        lists: lists
            .into_iter()
            .filter(|(what, _)| used(what))
            .filter_map(|(what, (listed, _))| Some((listed_as(&what), listed?)))
            .collect(),
        taken,
        recipe: merge::merge(all),
        there,
        start,
        plugins: plugins.of(name),
    };
    for (side, found) in each() {
        if found.image.status == Status::Unbuildable {
            draft.taken.notes.insert(format!("Kolla says that it cannot be built for {}", side.settings.base));
        }
    }
    draft
}

/// What Kolla calls the list that every image has.
const PACKAGES: &str = "packages";

fn listed_as(what: &str) -> String {
    if what == PACKAGES { "more_packages".into() } else { what.to_owned() }
}

type Lists = BTreeMap<String, (Option<Listed>, String)>;

/// How the recipe names each list, and where its items stand: `[packages]`, or `[vars]`.
fn lists(sides: &[Side<'_>], found: &[Option<&Found>]) -> (Lists, [Vec<String>; 2]) {
    let mut out = Lists::new();
    let mut packages: [Vec<String>; 2] = Default::default();
    let each = || sides.iter().zip(found).filter_map(|(side, found)| Some((side, (*found)?)));
    let names: BTreeSet<&String> = each().flat_map(|(_, found)| found.lists.keys()).collect();
    for what in names {
        let by_base: BTreeMap<String, Vec<String>> = each()
            .filter_map(|(side, found)| Some((side, found, found.lists.get(what)?)))
            .filter(|(side, found, items)| convert::stands(&found.pieces, items, side.settings))
            .map(|(side, _, items)| (side.settings.base.clone(), items.clone()))
            .collect();
        let fits = |(side, _): &(&Side<'_>, &Found)| {
            let items = by_base.get(&side.settings.base).into_iter().flatten();
            items.map(|item| names::package(side.package_type(), item)).all(|judged| judged.is_ok())
        };
        if what == PACKAGES && each().all(|one| fits(&one)) {
            let mut more = BTreeMap::new();
            for (kind, all) in [PackageType::Deb, PackageType::Rpm].into_iter().zip(&mut packages) {
                let lists: Vec<(&String, &Vec<String>)> = (each().filter(|(side, _)| side.package_type() == kind))
                    .filter_map(|(side, _)| by_base.get_key_value(&side.settings.base))
                    .collect();
                let Some((_, first)) = lists.first() else { continue };
                *all = first.iter().filter(|item| lists.iter().all(|(_, list)| list.contains(item))).cloned().collect();
                for (base, list) in lists {
                    let rest = list.iter().filter(|item| !all.contains(item)).cloned().collect();
                    more.insert(base.clone(), rest);
                }
            }
            let same = more.values().all(Vec::is_empty);
            let expression =
                if same { "image.packages" } else { "(image.packages + image.vars.more_packages[build.base])" };
            out.insert(what.clone(), ((!same).then_some(Listed::Each(more)), expression.to_owned()));
            continue;
        }
        let Some(first) = by_base.values().next().cloned() else { continue };
        let name = listed_as(what);
        let (listed, expression) = match by_base.values().all(|items| *items == first) {
            true => (Listed::Same(first), format!("image.vars.{name}")),
            false => (Listed::Each(by_base), format!("image.vars.{name}[build.base]")),
        };
        out.insert(what.clone(), (Some(listed), expression));
    }
    (out, packages)
}

/// The user that the image runs as, or that it sets up.
fn user(sides: &[Side<'_>], found: &[Option<&Found>]) -> Option<User> {
    let each = || sides.iter().zip(found).filter_map(|(side, found)| Some((side, (*found)?)));
    let set_up =
        |found: &Found| found.pieces.iter().filter_map(|piece| convert::configured(&piece.line)).collect::<Vec<_>>();
    let runs_as = each().find_map(|(side, found)| {
        let last = found.pieces.iter().rev().find_map(|piece| match &piece.kind {
            Kind::User(name) => Some(name),
            _ => None,
        })?;
        side.user(last)
    });
    let Some(user) = runs_as else {
        return each().find_map(|(side, found)| with_group(set_up(found).into_iter().next()?, side));
    };
    // What the image, or one below it, says of the same user.
    let told = each().find_map(|(side, found)| {
        let chain = side.chain(&found.image.name).into_iter();
        let user = chain.flat_map(set_up).find(|told| told.name == user.name)?;
        with_group(user, side)
    });
    Some(told.unwrap_or(user))
}

fn with_group(user: User, side: &Side<'_>) -> Option<User> {
    let known = side.user(&user.name)?;
    names::user(&user.name).ok()?;
    Some(User { group: known.group, ..user })
}

fn told(draft: &Draft, sides: &[Side<'_>]) -> Told {
    let mut data = Vec::new();
    if draft.parent.is_some() {
        data.push("parent".to_owned());
    }
    if let Some(user) = &draft.user {
        data.push(format!("user {}", user.name));
    }
    let packages: usize = draft.packages.iter().map(Vec::len).sum();
    if packages > 0 {
        data.push(format!("packages ({packages})"));
    }
    data.extend(draft.lists.keys().map(|name| format!("list {name}")));
    if !draft.taken.users.is_empty() {
        data.push(format!("all users ({})", draft.taken.users.len()));
    }
    data.extend(draft.taken.sources.keys().map(|name| format!("source {name}")));
    data.extend(draft.plugins.iter().map(|name| format!("plugin {name}")));
    data.extend(draft.start.iter().map(|start| match start.moved {
        Some(_) => "start script".to_owned(),
        None => "start script put together (the image keeps its parts)".to_owned(),
    }));
    let kept = draft.recipe.iter().filter(|line| line.part.kept).count();
    let notes = draft.taken.notes.iter().cloned().collect();
    Told { name: name_of(&draft.name, &sides[0]), data, kept, notes }
}

fn notes(sides: &[Side<'_>]) -> Vec<String> {
    let side = &sides[0];
    let mut notes = Vec::new();
    if side.images.values().any(|found| found.sources.own.as_ref().is_some_and(is_of_one_machine)) {
        notes.push(format!("addresses and checksums of sources are those for {}", side.settings.base_arch));
    }
    notes
}

/// Sums of one's own differ between architectures.
fn is_of_one_machine(source: &Source) -> bool {
    matches!(&source.kind, sources::Kind::Url(file) if file.checksum.is_some())
}
