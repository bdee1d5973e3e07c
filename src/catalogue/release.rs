//! `releases/NAME.toml`: the versions of one release in one place. It says what a definition leaves open (versions of
//! what comes from PyPI, of packages, the suite of the base, the date) and changes nothing that a definition says.
//!
//! A catalogue without a directory `releases` has none, and `build.release` is then a word in tags and nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pep440_rs::Version;

use crate::diag::{Diagnostic, Diagnostics, Place, SourceFile};

use super::definition::{head_of, read};
use super::names::{self, Requirement};
use super::reader::{Out, Reader, error};
use super::tree::{self, Entry, Node, Table, Value};
use super::types::{Places, SourceDef};
use crate::suggest;

#[derive(Clone, Debug)]
pub struct Release {
    pub name: String,
    pub file: Arc<SourceFile>,
    source_date_epoch: Option<(i64, Place)>,
    /// `name==version`, some with `; ` and a marker; sorted.
    pub constraints: Vec<String>,
    /// Versions by Debian package.
    pub packages: BTreeMap<String, String>,
    /// By normalised name of the distribution, with the place of the version.
    sources: BTreeMap<String, (String, Place)>,
    /// The versions of the constraints, by normalised name; several where markers tell them apart.
    constrained: BTreeMap<String, Vec<(String, Place)>>,
    suites: BTreeMap<String, (String, Place)>,
    places: Places,
}

/// The release that the merged settings name; None as well when it could not be read, which is then a problem.
/// `dir` is where releases are kept.
pub(super) fn load(settings: &Table, dir: &Path, problems: &mut Diagnostics) -> Option<Arc<Release>> {
    let node = tree::get(settings, &["build", "release"])?;
    let Value::String(name) = &node.value else { return None };
    if name.is_empty() || names::tag(name).is_err() || !dir.is_dir() {
        return None;
    }
    let path = dir.join(format!("{name}.toml"));
    if !path.is_file() {
        let known: Vec<String> = known(dir);
        let message = format!("there is no release `{name}`: no `{}`", path.display());
        let mut problem = error(&node.place, message);
        problem.hint = suggest::hint(name, known.iter().map(String::as_str));
        problems.push(problem);
        return None;
    }
    let file = read(&path, problems)?;
    read_release(name, &file, Some(dir), problems).map(Arc::new)
}

fn known(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".toml").map(str::to_owned))
        .filter(|name| names::tag(name).is_ok())
        .collect();
    names.sort();
    names
}

/// `dir` is where the constraints are; None: they are not looked for.
pub(super) fn read_release(
    name: &str,
    file: &Arc<SourceFile>,
    dir: Option<&Path>,
    problems: &mut Diagnostics,
) -> Option<Release> {
    let before = problems.0.len();
    let Node { value: Value::Table(entries), place } = tree::parse(file, problems)? else { return None };
    let mut out = Out { problems: std::mem::take(problems), places: BTreeMap::new() };
    let mut root = Reader::new(&entries, &place, &mut out);
    let (mut constraints, mut source_date_epoch) = (None, None);
    root.table("release", |reader| {
        match reader.form("name", "a release", names::tag) {
            Some(said) if said != name => {
                let message = format!("the file of release `{name}` says that its name is `{said}`");
                let hint = format!("a release is in the file of its name: `{said}.toml`");
                reader.out.problems.push(error(reader.value_place("name"), message).hint(hint));
            }
            None if !reader.has_like("name") => {
                let problem = error(reader.place, "[release] has no `name`");
                reader.out.problems.push(problem.hint(format!("add `name = \"{name}\"`")));
            }
            _ => {}
        }
        let epoch = reader.number("source_date_epoch", 0..=253_402_300_799);
        source_date_epoch = epoch.map(|epoch: i64| (epoch, reader.value_place("source_date_epoch").clone()));
        constraints = reader.form("constraints", "the name of a file beside the release's", names::inside);
    });
    if !root.has("release") && !root.has_like("release") {
        let hint = format!("it begins with `[release]` and `name = \"{name}\"`");
        root.out.problems.push(error(&head_of(file), "there is no [release] table").hint(hint));
    }
    let mut sources = BTreeMap::new();
    root.each("sources", |name, entry, reader| {
        if let Some(version) = version(reader, name, entry) {
            sources.insert(names::normalised(name), (version, entry.node.place.clone()));
        }
    });
    let packages = root.table("packages", |reader| {
        let packages = reader.string_map("deb", "a Debian package", names::deb_name);
        for (name, version) in &packages {
            let place = tree::get(&entries, &["packages", "deb", name]).map_or(reader.place, |node| &node.place);
            if names::deb(&format!("{name}={version}")).is_err() {
                reader.out.problems.push(error(place, format!("`{version}` is not a version of a Debian package")));
            }
        }
        packages
    });
    let mut suites = BTreeMap::new();
    root.each("bases", |distribution, entry, reader| {
        let full = reader.name(distribution);
        let suite = reader.table_of(&full, &entry.node, |base| base.form("suite", "a suite", names::tag));
        if let (Some(Some(suite)), Value::Table(base)) = (suite, &entry.node.value)
            && let Some(said) = base.get("suite")
        {
            suites.insert(distribution.to_owned(), (suite, said.node.place.clone()));
        }
    });
    root.finish();
    let Out { problems: found, places } = out;
    *problems = found;
    let mut release = Release {
        name: name.to_owned(),
        file: file.clone(),
        source_date_epoch,
        constraints: Vec::new(),
        packages: packages.unwrap_or_default(),
        sources,
        constrained: BTreeMap::new(),
        suites,
        places: Places(places),
    };
    if let (Some(constraints), Some(dir)) = (constraints, dir) {
        let path = dir.join(&constraints);
        match crate::text::read_to_string(&path) {
            Ok(text) => release.read_constraints(&SourceFile::new(&path, text), problems),
            Err(e) => {
                let place = release.places.place("release.constraints", file);
                let message = format!("cannot read the constraints `{}`: {e}", path.display());
                problems.push(error(&place, message).hint("the file is looked for beside the release's"));
            }
        }
    }
    (problems.0.len() == before).then_some(release)
}

/// An exact version: a release that said `30.*` would be another one next week.
fn version(reader: &mut Reader<'_>, name: &str, entry: &Entry) -> Option<String> {
    if names::requirement(name).is_err() || name.contains('[') {
        let message = format!("`{name}` is not a name of a distribution on PyPI");
        reader.out.problems.push(error(&entry.place, message));
    }
    let Value::String(text) = &entry.node.value else {
        reader.wrong_type(&reader.name(name), &entry.node, "a string");
        return None;
    };
    if text.parse::<Version>().is_err() {
        let hint = "a release names one exact version, without `==`, `>=` or `*`";
        reader.out.problems.push(error(&entry.node.place, format!("`{text}` is not a version")).hint(hint));
        return None;
    }
    Some(text.clone())
}

impl Release {
    /// What pip calls a constraints file, of which only exact versions make sense here.
    fn read_constraints(&mut self, file: &Arc<SourceFile>, problems: &mut Diagnostics) {
        let mut offset = 0;
        for line in file.text.split_inclusive('\n') {
            let start = offset;
            offset += line.len();
            // As for pip, a `#` begins a comment at the start of a line or after a blank.
            let end = if line.starts_with('#') { 0 } else { line.find(" #").unwrap_or(line.len()) };
            let text = line[..end].trim();
            if text.is_empty() {
                continue;
            }
            let at = start + (line.len() - line.trim_start().len());
            let place = Place { file: file.clone(), span: at..at + text.len() };
            match constraint(text) {
                Ok((name, version, marker)) => {
                    let known = self.constrained.entry(names::normalised(name)).or_default();
                    if let (Some((_, first)), None) = (known.first(), marker) {
                        let message = format!("`{name}` is twice in the constraints");
                        problems.push(error(&place, message).also(first, "here it is as well"));
                    }
                    known.push((version.to_owned(), place));
                    let marker = marker.map(|m| format!("; {m}")).unwrap_or_default();
                    self.constraints.push(format!("{name}=={version}{marker}"));
                }
                Err(why) => problems.push(
                    error(&place, format!("`{text}` is not a constraint: {why}")).hint("a line is `name==version`"),
                ),
            }
        }
        self.constraints.sort();
        for (name, (version, place)) in &self.sources {
            let Some([(constrained, other)]) = self.constrained.get(name).map(Vec::as_slice) else { continue };
            if constrained.parse::<Version>().ok() != version.parse().ok() {
                let message = format!("`{name}` is {version} in [sources] and {constrained} in the constraints");
                problems.push(error(place, message).also(other, "the constraint"));
            }
        }
    }

    /// The version that this release has of a distribution, and where it says so.
    pub fn version_of(&self, distribution: &str) -> Option<(&str, &Place)> {
        let name = names::normalised(distribution);
        let constrained = || match self.constrained.get(&name).map(Vec::as_slice) {
            Some([one]) => Some(one),
            _ => None,
        };
        self.sources.get(&name).or_else(constrained).map(|(version, place)| (version.as_str(), place))
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, &Place)> {
        self.sources.iter().map(|(name, (_, place))| (name.as_str(), place))
    }

    /// What the settings leave open.
    pub(super) fn fill_settings(&self, settings: &mut Table) {
        let base = match tree::get(settings, &["build", "base"]).map(|node| &node.value) {
            Some(Value::String(base)) => base.clone(),
            _ => super::types::BuildSettings::default().base,
        };
        let suite = self.suites.get(&base).map(|(suite, place)| (Value::String(suite.clone()), place));
        let epoch = self.source_date_epoch.as_ref().map(|(epoch, place)| (Value::Integer(*epoch), place));
        let Some(build) = settings.get_mut("build").and_then(|entry| entry.node.table_mut()) else { return };
        for (key, found) in [("base_tag", suite), ("source_date_epoch", epoch)] {
            if let Some((value, place)) = found {
                let node = Node { place: place.clone(), value };
                build.entry(key.to_owned()).or_insert(Entry { place: place.clone(), node });
            }
        }
    }

    /// What a definition leaves open: versions of PyPI's distributions and of Debian's packages, the suite of a base.
    pub(super) fn fill_definition(&self, definition: &mut Table) {
        let sources = tree::get_mut(definition, &["sources"]).and_then(Node::table_mut);
        for source in sources.into_iter().flat_map(Table::values_mut) {
            let pypi = source.node.table_mut().and_then(|source| tree::get_mut(source, &["pypi"]));
            let Some(node) = pypi else { continue };
            let Value::String(text) = &mut node.value else { continue };
            let Requirement { name, specifiers, .. } = Requirement::split(text);
            if let ("", Some((version, place))) = (specifiers, self.sources.get(&names::normalised(name))) {
                *text = format!("{}=={version}", text.trim_end());
                node.place = place.clone();
            }
        }
        for key in ["deb", "deb_build"] {
            let Some(packages) = tree::get_mut(definition, &["packages", key]) else { continue };
            let Value::Array(items) = &mut packages.value else { continue };
            for item in items {
                let Value::String(text) = &mut item.value else { continue };
                if let Some(version) = self.packages.get(text.as_str()) {
                    let place = self.places.place(&format!("packages.deb.{text}"), &self.file);
                    *item = Node { place, value: Value::String(format!("{text}={version}")) };
                }
            }
        }
        if let Some(from) = tree::get_mut(definition, &["image", "from"]).and_then(Node::table_mut)
            && let Some(Value::String(distribution)) = from.get("bootstrap").map(|e| &e.node.value)
            && let Some((suite, place)) = self.suites.get(distribution)
        {
            let node = Node { place: place.clone(), value: Value::String(suite.clone()) };
            from.entry("suite".into()).or_insert(Entry { place: place.clone(), node });
        }
    }

    /// Why something that takes these sources cannot be built in this release. `asked` is where the release is named.
    pub(super) fn refusal(
        &self,
        owner: &str,
        sources: &BTreeMap<String, SourceDef>,
        places: &Places,
        file: &Arc<SourceFile>,
        asked: Option<&Place>,
    ) -> Option<Diagnostic> {
        let mut sources = sources.iter().filter_map(|(name, source)| Some((name, source.requirement()?)));
        let place = |name: &str| places.place(&format!("sources.{name}.pypi"), file);
        if self.constraints.is_empty() {
            let (first, _) = sources.next()?;
            let message = format!("release `{}` has no constraints, and {owner} comes from PyPI", self.name);
            let problem = match asked {
                Some(asked) => error(asked, message).also(&place(first), "taken from PyPI"),
                None => error(&place(first), message),
            };
            let said = self.places.place("release.constraints", &self.file);
            let hint = "add `constraints = \"FILE\"` to [release]: a file with a line `name==version` for each";
            return Some(problem.also(&said, "the release").hint(hint));
        }
        let open = |wanted: &Requirement<'_>| {
            wanted.specifiers.is_empty() && !self.constrained.contains_key(&names::normalised(wanted.name))
        };
        let (name, Requirement { name: distribution, .. }) = sources.find(|(_, wanted)| open(wanted))?;
        let message = format!("release `{}` has no version of `{distribution}`, which {owner} takes", self.name);
        let problem = error(&place(name), message).also(&head_of(&self.file), "the release");
        Some(problem.hint(format!("add `{distribution} = \"VERSION\"` to its [sources]")))
    }
}

/// `name==version`, perhaps with a marker.
fn constraint(text: &str) -> Result<(&str, &str, Option<&str>), String> {
    let (requirement, marker) = match text.split_once(';') {
        Some((requirement, marker)) => (requirement.trim_end(), Some(marker.trim())),
        None => (text, None),
    };
    names::requirement(requirement)?;
    let parts = Requirement::split(requirement);
    let version = parts.exact().ok_or("it names no exact version")?;
    version.parse::<Version>().map_err(|_| format!("`{version}` is not a version"))?;
    match marker {
        Some("") => Err("nothing stands after `;`".into()),
        marker => Ok((parts.name, version, marker)),
    }
}
