//! The templates of a tree to Dockerfiles, byte for byte those that Kolla makes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error as Problem, ErrorKind, State, UndefinedBehavior, Value as Shown};
use rayon::prelude::*;

use crate::diag::{Diagnostic, SourceFile};
use crate::error::{Error, Result};
use crate::kolla::dialect;
use crate::kolla::merged::Merged;
use crate::kolla::options::Options;
use crate::kolla::refused;
use crate::kolla::repos::Repos;
use crate::kolla::settings::Settings;
use crate::kolla::value::Value;

/// What every template of an image is called.
pub const TEMPLATE: &str = "Dockerfile.j2";

/// The name of the override among the templates; no path is called so.
const OVERRIDE: &str = "//override";

/// Instructions and output of one template; Kolla's largest take about thirty thousand.
const FUEL: u64 = 5_000_000;

const RECURSION: usize = 200;

/// One image of a tree, rendered.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The last part of its directory.
    pub name: String,
    /// Its directory, below `docker`.
    pub path: PathBuf,
    pub text: String,
    /// What `customizable` gave: which list, and what is in it.
    pub lists: Vec<(String, Vec<String>)>,
}

/// All images, ordered by their directories. `roots` are the tree's `docker` and the directories that are laid over it.
pub fn render(settings: &Settings, options: &Options<'_>, roots: &[PathBuf]) -> Result<Vec<Rendered>> {
    let repos = Repos::of(options, settings)?;
    let merged = Merged::read(&settings.template_override)?;
    let changed = merged.as_ref().map(|merged| merged.file.clone());
    let files = Files::default();
    let lists = Lists::default();
    let environment = environment(roots.to_vec(), changed.clone(), repos, files.clone(), lists.clone());
    let directories = directories(roots)?;
    let rendered: Vec<std::result::Result<Rendered, Box<Diagnostic>>> = directories
        .par_iter()
        .map(|path| {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let template = path.join(TEMPLATE).to_string_lossy().into_owned();
            let mut values = settings.values.clone();
            values.insert("image_name".into(), Shown::from(name.as_str()));
            let which = match &changed {
                Some(_) => {
                    values.insert("parent_template".into(), Shown::from(template.as_str()));
                    OVERRIDE
                }
                None => template.as_str(),
            };
            let text = environment
                .get_template(which)
                .and_then(|t| t.render(Shown::from_pairs(values)))
                .map_err(|problem| diagnostic(&problem, &name, which, &files))?;
            let lists = lists.lock().unwrap_or_else(PoisonError::into_inner).remove(&name).unwrap_or_default();
            Ok(Rendered { name, path: path.clone(), text: settings.with_pip_arguments(text), lists })
        })
        .collect();
    let mut problems = {
        let files = files.lock().unwrap_or_else(PoisonError::into_inner);
        refused::check(files.values(), changed.as_ref())
    };
    let mut images = Vec::with_capacity(rendered.len());
    for one in rendered {
        match one {
            Ok(image) => images.push(image),
            // What is refused fails in other words as well.
            Err(problem) if !problems.0.iter().any(|known| same_line(known, &problem)) => problems.push(*problem),
            Err(_) => {}
        }
    }
    if !problems.is_empty() {
        if let Some(merged) = merged {
            problems.0.iter_mut().for_each(|problem| merged.put(problem));
        }
        return Err(Error::from_diagnostics("the templates have problems; nothing was built", problems));
    }
    let mut names = BTreeSet::new();
    match images.iter().find(|image| !names.insert(image.name.as_str())) {
        Some(twice) => Err(Error::bad_input(format!("two directories of the tree are called `{}`", twice.name))),
        None => Ok(images),
    }
}

fn same_line(a: &Diagnostic, b: &Diagnostic) -> bool {
    matches!((&a.place, &b.place), (Some(a), Some(b)) if a.line() == b.line())
}

/// Directories with a template, below `docker`.
fn directories(roots: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = BTreeSet::new();
    for root in roots {
        let mut open = vec![PathBuf::new()];
        while let Some(path) = open.pop() {
            let here = root.join(&path);
            let entries = std::fs::read_dir(&here)
                .map_err(|e| Error::bad_input(format!("cannot read {}", here.display())).cause(e))?;
            for entry in entries.flatten() {
                let name = entry.file_name();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(path.join(name));
                } else if name == TEMPLATE {
                    found.insert(path.clone());
                }
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// Templates that were read, by name.
type Files = Arc<Mutex<BTreeMap<String, Arc<SourceFile>>>>;

/// What can be customised, by image.
type Lists = Arc<Mutex<BTreeMap<String, Vec<(String, Vec<String>)>>>>;

fn environment(
    roots: Vec<PathBuf>,
    changed: Option<Arc<SourceFile>>,
    repos: Repos,
    files: Files,
    lists: Lists,
) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_debug(true);
    environment.set_auto_reload(false);
    environment.remove_global("debug");
    environment.set_formatter(dialect::print);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_loader(move |name| {
        let file = match &changed {
            Some(file) if name == OVERRIDE => Some(file.clone()),
            _ => load(&roots, name)?,
        };
        Ok(file.map(|file| {
            let text = dialect::source(&file.text);
            files.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), file);
            text
        }))
    });
    // The sum of two lists is a list in Python.
    environment.add_test("sequence", |value: &Shown| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::String | ValueKind::Map)
    });
    let repos = Arc::new(repos);
    environment.add_filter("customizable", move |state: &State<'_, '_>, list: Shown, what: String| {
        let image = state.lookup("image_name").map(|name| dialect::printed(&name)).unwrap_or_default();
        let list = customizable(state, list, &image, &what)?;
        let items = list.try_iter().into_iter().flatten().map(|item| dialect::printed(&item)).collect();
        lists.lock().unwrap_or_else(PoisonError::into_inner).entry(image).or_default().push((what, items));
        Ok::<Shown, Problem>(list)
    });
    environment.add_function("raise_error", |message: String| -> std::result::Result<Shown, Problem> {
        Err(Problem::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("debian_package_install", debian_package_install);
    environment.add_function("handle_repos", {
        let repos = repos.clone();
        move |names: Shown, mode: String| {
            if !matches!(names.kind(), ValueKind::Seq | ValueKind::Iterable) {
                let message = "the first argument of `handle_repos` is a list of repositories";
                return Err(Problem::new(ErrorKind::InvalidOperation, message));
            }
            let names: Vec<String> = names.try_iter()?.map(|name| dialect::printed(&name)).collect();
            let enable = match mode.as_str() {
                "enable" => true,
                "disable" => false,
                _ => return Ok(String::new()),
            };
            repos.handle(&names, enable).map_err(|why| Problem::new(ErrorKind::InvalidOperation, why))
        }
    });
    environment.add_function("cleanup_repos", move || {
        repos.cleanup().map_err(|why| Problem::new(ErrorKind::InvalidOperation, why))
    });
    environment
}

/// A later directory lies over an earlier one.
fn load(roots: &[PathBuf], name: &str) -> std::result::Result<Option<Arc<SourceFile>>, Problem> {
    let plain = Path::new(name).components().all(|c| matches!(c, std::path::Component::Normal(_)));
    if !plain {
        return Ok(None);
    }
    for root in roots.iter().rev() {
        let path = root.join(name);
        match crate::text::read_to_string(&path) {
            Ok(text) => return Ok(Some(SourceFile::new(path, text))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => {
                let message = format!("cannot read {}: {e}", path.display());
                return Err(Problem::new(ErrorKind::InvalidOperation, message));
            }
        }
    }
    Ok(None)
}

/// A list with what the user adds, removes or puts in its place: `IMAGE_WHAT_append`, `_remove` and `_override`, set at
/// the top level of a template override.
fn customizable(state: &State<'_, '_>, list: Shown, image: &str, what: &str) -> std::result::Result<Shown, Problem> {
    if list.is_undefined() {
        return Ok(list);
    }
    let name = format!("{}_{what}_", image.replace('-', "_"));
    let exports = state.exports();
    let said = |kind: &str| {
        let name = format!("{name}{kind}");
        // A `set` inside a block is none of the template's.
        if exports.contains(&name.as_str()) { state.lookup(&name) } else { None }
    };
    if let Some(list) = said("override") {
        return Ok(list);
    }
    let mut items: Vec<Shown> = list.try_iter()?.collect();
    if let Some(more) = said("append") {
        items.extend(more.try_iter()?);
    }
    if let Some(less) = said("remove") {
        for item in less.try_iter()? {
            if let Some(at) = items.iter().position(|there| *there == item) {
                items.remove(at);
            }
        }
    }
    Ok(Shown::from(items))
}

/// The commands that install packages by name and by address.
pub fn debian_package_install(packages: Shown, rest: Rest<Shown>) -> std::result::Result<String, Problem> {
    let clean = rest.first().is_none_or(Shown::is_true);
    let packages: Vec<String> = packages.try_iter()?.map(|package| dialect::printed(&package)).collect();
    let (urls, names): (Vec<&str>, Vec<&str>) =
        packages.iter().map(String::as_str).partition(|package| package.starts_with("http"));
    let mut commands = Vec::new();
    if !names.is_empty() {
        commands.push("apt-get --error-on=any update".to_owned());
        commands.push(format!("apt-get -y install --no-install-recommends {}", names.join(" ")));
        if clean {
            commands.push("apt-get clean".to_owned());
            commands.push("rm -rf /var/lib/apt/lists/*".to_owned());
        }
    }
    for url in urls {
        let file = url.rsplit('/').next().unwrap_or(url);
        commands.push(format!("curl --location {url} -o {file}"));
        commands.push(format!("dpkg -i {file}"));
        commands.push(format!("rm -rf {file}"));
    }
    Ok(commands.join(" && "))
}

/// Names the image, the template and the line, and the override where it is the cause.
fn diagnostic(problem: &Problem, image: &str, template: &str, files: &Files) -> Box<Diagnostic> {
    // The innermost error that knows where it happened is the cause.
    let mut cause = problem;
    let mut next = std::error::Error::source(problem);
    while let Some(inner) = next.and_then(|e| e.downcast_ref::<Problem>()) {
        if inner.name().is_some() {
            cause = inner;
        }
        next = std::error::Error::source(inner);
    }
    let reason = cause.detail().map(str::to_owned).unwrap_or_else(|| cause.kind().to_string());
    let mut diagnostic = Diagnostic::error(format!("the template of image `{image}` cannot be rendered: {reason}"));
    let files = files.lock().unwrap_or_else(PoisonError::into_inner);
    let found = cause.name().or(Some(template)).and_then(|name| files.get(name));
    if let (Some(file), Some(line)) = (found, cause.line()) {
        let start: usize = file.text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let length = file.text[start..].find('\n').unwrap_or(file.text.len() - start);
        diagnostic = diagnostic.at(file, start..start + length);
    }
    Box::new(diagnostic)
}

/// A value of the tree's tables, for templates.
pub fn shown(value: &Value) -> Shown {
    match value {
        Value::Text(text) => Shown::from(text.as_str()),
        Value::Bool(value) => Shown::from(*value),
        Value::Int(value) => Shown::from(*value),
        Value::List(list) => Shown::from(list.iter().map(shown).collect::<Vec<_>>()),
        Value::Dict(entries) => Shown::from_pairs(entries.iter().map(|(key, value)| (key.as_str(), shown(value)))),
        Value::None | Value::Name(_) | Value::Call(_) | Value::Opaque => Shown::from(()),
    }
}
