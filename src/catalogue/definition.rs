//! What `image.toml` and `plugin.toml` have in common, as far as one file can be judged without the others: folders,
//! recipes, packages, sources, checks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, Place, SourceFile};
use crate::engine::Check;

use super::given::Given;
use super::names;
use super::overlay::{Additions, Overlay, Tried, What};
use super::pattern::Pattern;
use super::reader::{Reader, error};
use super::release::Release;
use super::tree::{self, Node, Table, Value};
use super::types::{Packages, Recipe, SourceDef};

/// Where definitions are read from.
pub(super) struct House {
    /// As the caller named it; `.` is left out of paths.
    pub root: PathBuf,
    /// Names of the shared recipes; None: they were not looked for, and any name may be one.
    pub recipes: Option<Vec<String>>,
    /// Says what definitions leave open.
    pub release: Option<Arc<Release>>,
    /// Change what definitions say, in this order.
    pub overlays: Arc<Vec<Overlay>>,
    /// Whether this is itself the house of an overlay.
    pub is_overlay: bool,
}

impl House {
    pub fn new(root: &Path) -> Self {
        House { root: root.to_owned(), recipes: None, release: None, overlays: Arc::default(), is_overlay: false }
    }

    pub fn recipes(&self) -> &[String] {
        self.recipes.as_deref().unwrap_or_default()
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        if self.root == Path::new(".") { PathBuf::from(relative) } else { self.root.join(relative) }
    }
}

/// What is in a definition's folder.
pub(super) struct Folder {
    pub name: String,
    pub dir: PathBuf,
    pub toml: bool,
    pub template: bool,
    pub dockerfile: bool,
    /// What is in it, when it isn't there itself.
    pub given: Option<Arc<Given>>,
}

/// The definition, if there is enough of it, and what is wrong with it.
pub(super) struct Loaded<T> {
    pub definition: Option<T>,
    pub problems: Diagnostics,
    /// What became of the changes of overlays.
    pub tried: Vec<Tried>,
}

impl<T> Loaded<T> {
    pub fn failed(problems: Diagnostics) -> Self {
        Loaded { definition: None, problems, tried: Vec::new() }
    }
}

/// What images and plugins have in common.
pub(super) struct Body {
    pub packages: Packages,
    pub sources: BTreeMap<String, SourceDef>,
    pub checks: Vec<Check>,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub vars: toml::Table,
}

/// For problems that belong to a file but to no part of it: its first line.
pub(crate) fn head_of(file: &Arc<SourceFile>) -> Place {
    Place { file: file.clone(), span: 0..file.text.find('\n').unwrap_or(file.text.len()) }
}

/// `what` is "an image" or "a plugin".
pub(super) fn check_name(folder: &Folder, what: &str, problems: &mut Diagnostics) {
    if let Err(why) = names::component(&folder.name) {
        let message = format!("`{}` is not a name of {what}: {why}", folder.name);
        problems.push(Diagnostic::error(message).hint(format!("rename the folder `{}`", folder.dir.display())));
    }
}

pub(crate) fn read(path: &Path, problems: &mut Diagnostics) -> Option<Arc<SourceFile>> {
    match crate::text::read_to_string(path) {
        Ok(text) => Some(SourceFile::new(path, text)),
        Err(e) => {
            problems.push(Diagnostic::error(format!("cannot read `{}`: {e}", path.display())));
            None
        }
    }
}

/// The tree of a definition's file, after overlays and the release have been at it.
pub(super) struct Tree {
    pub table: Table,
    pub place: Place,
    pub additions: Additions,
    pub tried: Vec<Tried>,
}

impl Tree {
    pub fn read(
        file: &Arc<SourceFile>,
        what: What,
        name: &str,
        house: &House,
        problems: &mut Diagnostics,
    ) -> Option<Tree> {
        let Node { value: Value::Table(table), place } = tree::parse(file, problems)? else { return None };
        let mut tree = Tree { table, place, additions: Additions::default(), tried: Vec::new() };
        let head = head_of(file);
        for (number, overlay) in house.overlays.iter().enumerate() {
            let definition = (&mut tree.table, &head);
            overlay.apply(number, what, name, definition, &mut tree.additions, &mut tree.tried);
        }
        if let Some(release) = &house.release {
            release.fill_definition(&mut tree.table);
        }
        Some(tree)
    }
}

/// None: `recipe` isn't said. Some(None): it is, and wrong.
pub(super) fn shared_recipe(reader: &mut Reader<'_>, folder: &Folder, house: &House) -> Option<Option<Recipe>> {
    let said = reader.has("recipe");
    let Some(name) = reader.form("recipe", "a name of a recipe", names::component) else {
        return said.then_some(None);
    };
    if house.recipes.is_some() && !house.recipes().contains(&name) {
        let path = house.path(&format!("images/_recipes/{name}.j2"));
        let mut problem =
            error(reader.value_place("recipe"), format!("unknown recipe `{name}`: there is no `{}`", path.display()));
        problem.hint = crate::suggest::hint(&name, house.recipes().iter().map(String::as_str));
        reader.out.problems.push(problem);
        return Some(None);
    }
    if folder.template {
        let own = folder.dir.join("Dockerfile.j2");
        let message = format!("`recipe` stands beside `{}`, which could be meant as well", own.display());
        let hint = format!("leave out `recipe`, and begin the template with `{{% extends \"_recipes/{name}.j2\" %}}`");
        reader.out.problems.push(error(reader.value_place("recipe"), message).hint(hint));
        return Some(None);
    }
    Some(Some(Recipe::Shared(name)))
}

pub(super) fn patterns(reader: &mut Reader<'_>, key: &'static str, what: &str) -> Vec<Pattern> {
    let texts = reader.forms(key, what, |text| Pattern::parse(text).map(|_| ()));
    texts.iter().filter_map(|text| Pattern::parse(text).ok()).collect()
}

pub(super) fn read_body(root: &mut Reader<'_>, folder: &Folder) -> Body {
    let packages = root.table("packages", |reader| Packages {
        deb: reader.forms("deb", "a Debian package", names::deb),
        rpm: reader.forms("rpm", "an RPM package", names::rpm),
        deb_build: reader.forms("deb_build", "a Debian package", names::deb),
        rpm_build: reader.forms("rpm_build", "an RPM package", names::rpm),
    });
    let mut sources = BTreeMap::new();
    root.each("sources", |name, entry, reader| {
        let full = reader.name(name);
        if let Err(why) = names::component(name) {
            reader.out.problems.push(error(&entry.place, format!("`{name}` is not a name of a source: {why}")));
        }
        let source = reader.table_of(&full, &entry.node, |reader| read_source(reader, &folder.dir)).flatten();
        if let Some(source) = source {
            sources.insert(name.to_owned(), source);
        }
    });
    let mut checks = Vec::new();
    root.tables("check", |reader| checks.extend(read_check(reader)));
    Body {
        packages: packages.unwrap_or_default(),
        sources,
        checks,
        env: root.string_map("env", "a name of a variable", names::env),
        labels: root.string_map("labels", "a label", |text| match text.trim() == text && !text.is_empty() {
            true => Ok(()),
            false => Err("it is empty or has blanks around it".into()),
        }),
        vars: root.free("vars"),
    }
}

fn read_check(reader: &mut Reader<'_>) -> Option<Check> {
    let run = reader.strings("run");
    let user = reader.form("user", "a user", |text| {
        let (user, group) = text.split_once(':').unwrap_or((text, "0"));
        let fine = |part: &str| part.parse::<u32>().is_ok() || names::user(part).is_ok();
        if fine(user) && fine(group) {
            Ok(())
        } else {
            Err("it is a name or number, perhaps with `:` and a group".into())
        }
    });
    let hint = "for example `run = [\"keystone-manage\", \"--version\"]`";
    if !reader.has("run") {
        if reader.has_like("run") {
            return None;
        }
        reader.out.problems.push(error(reader.place, "the check has no `run`").hint(hint));
        return None;
    }
    if run.first().is_none_or(|command| command.trim().is_empty()) {
        let place = reader.value_place("run").clone();
        // A list of the wrong type has been reported already and says nothing about being empty.
        if matches!(reader.node("run").map(|n| &n.value), Some(Value::Array(items)) if items.len() == run.len()) {
            reader.out.problems.push(error(&place, "the check's command is empty").hint(hint));
        }
        return None;
    }
    Some(Check { run, user, when_there: false })
}

fn read_source(reader: &mut Reader<'_>, dir: &Path) -> Option<SourceDef> {
    const KINDS: [&str; 4] = ["pypi", "git", "url", "local"];
    const MORE: [&str; 4] = ["ref", "subdir", "version", "sha256"];
    let said: Vec<&str> = KINDS.into_iter().filter(|k| reader.has(k)).collect();
    if let Some(key) = ["git", "url"].into_iter().find(|key| holds_credentials(reader, key)) {
        // Without a place and without the text: both would show what must not be shown.
        let place = reader.value_place(key);
        let (line, _) = place.file.line_column(place.span.start);
        let message =
            format!("`{}` in {}, line {line}, holds a password or token", reader.name(key), place.file.path.display());
        let hint = "leave it out of the address: it would end up in logs and images; use a credential helper of git";
        reader.out.problems.push(Diagnostic::error(message).hint(hint));
        for key in KINDS.into_iter().chain(MORE) {
            reader.node(key);
        }
        return None;
    }
    let pypi = reader.form("pypi", "a requirement", names::requirement);
    let git = reader.form("git", "an address of a git repository", git_url);
    let url = reader.form("url", "an address", web_url);
    let local = reader.form("local", "a path in the definition's folder", names::inside);
    match said.as_slice() {
        [] => {
            let hint = "one of `pypi`, `git`, `url`, `local`";
            reader.out.problems.push(error(reader.place, "the source says no kind").hint(hint));
            for key in MORE {
                reader.node(key);
            }
            return None;
        }
        [_] => {}
        [first, second, ..] => {
            let place = reader.key_place(second).unwrap_or(reader.place);
            let message = format!("the source says two kinds, `{first}` and `{second}`");
            reader.out.problems.push(error(place, message).hint("keep one of them"));
            for key in MORE {
                reader.node(key);
            }
            return None;
        }
    }
    match said[0] {
        "pypi" => pypi.map(|requirement| SourceDef::Pypi { requirement }),
        "git" => {
            let reference = reader.form("ref", "a name or commit in git", |text| {
                let bad = |c: char| c.is_whitespace() || c.is_control() || "~^:?*[\\".contains(c);
                match text.is_empty() || text.starts_with('-') || text.contains("..") || text.contains(bad) {
                    true => Err("git takes no such name".into()),
                    false => Ok(()),
                }
            });
            let subdir = reader.form("subdir", "a directory of a repository", names::inside);
            let version = reader.form("version", "a version", |text| {
                text.parse::<pep440_rs::Version>().map(drop).map_err(|why| why.to_string())
            });
            git.map(|url| SourceDef::Git { url, reference, subdir, version })
        }
        "url" => {
            let sha256 = reader.form("sha256", "a sha256", names::sha256);
            url.map(|url| SourceDef::Url { url, sha256 })
        }
        _ => {
            let path = local?;
            if !dir.join(&path).exists() {
                let message = format!("there is no `{}`", dir.join(&path).display());
                let place = reader.value_place("local");
                reader
                    .out
                    .problems
                    .push(error(place, message).hint("a local source is relative to the definition's folder"));
            }
            Some(SourceDef::Local { path })
        }
    }
}

/// `https://token@host` or `ssh://user:password@host`.
fn holds_credentials(reader: &mut Reader<'_>, key: &'static str) -> bool {
    if !reader.has(key) {
        return false;
    }
    let Some(Value::String(text)) = reader.node(key).map(|n| &n.value) else { return false };
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    host.rsplit_once('@').is_some_and(|(user, _)| user.contains(':') || scheme.starts_with("http"))
}

fn web_url(text: &str) -> Result<(), String> {
    let rest = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let rest = rest.ok_or("it begins with https:// or http://")?;
    address(rest)
}

fn git_url(text: &str) -> Result<(), String> {
    let rest = ["https://", "http://", "ssh://", "git://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    match rest {
        Some(rest) => address(rest),
        // user@host:path
        None if text.split_once(':').is_some_and(|(host, _)| host.contains('@')) => address(text),
        None => Err("it begins with https://, ssh:// or git://".into()),
    }
}

fn address(rest: &str) -> Result<(), String> {
    if rest.is_empty() || rest.starts_with('/') || rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("it has no host, or blanks in it".into());
    }
    Ok(())
}

pub(super) fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    names.iter().map(|n| format!("`{}`", n.as_ref())).collect::<Vec<_>>().join(", ")
}
