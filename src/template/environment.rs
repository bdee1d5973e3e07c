//! The minijinja environment, one for each catalogue: templates are read and compiled once and serve all images.
//!
//! Template names are paths below the catalogue's root: `images/NAME/FILE`, `plugins/NAME/FILE`, and for short
//! `_recipes/FILE` for `images/_recipes/FILE`; a name that begins with `./` or `../` is relative to the template that
//! names it. None leads out of the catalogue, not even through a symbolic link. What isn't in the catalogue is looked
//! for in its overlays, under the same names.
//!
//! Filters besides minijinja's own: `shell_quote` (a word, or a list as words), `json` and `tojson` (plain JSON as
//! the exec form wants it), `env_quote` (a value for ENV, LABEL or ARG). Functions: `fail("why")`, `start_script("NAME")` (the text
//! of `start-scripts/NAME/extend_start.sh`, for images that have it in them as well).

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, escape_formatter};

use crate::catalogue::names;
use crate::diag::{Place, SourceFile};

use super::changed::{Changed, Made};

/// Instructions and output of one template; recipes take a few thousand.
pub(super) const FUEL: u64 = 1_000_000;

/// Deep enough for any recipe, and fits the small stacks of worker threads in an unoptimised build.
const RECURSION: usize = 200;

/// The templates of a catalogue, read and compiled when first needed; cheap to clone.
#[derive(Clone)]
pub(crate) struct Recipes {
    inner: Arc<Inner>,
}

struct Inner {
    environment: Environment<'static>,
    files: Files,
    made: Arc<BTreeMap<String, Made>>,
}

/// Templates by name, so that an error can show the line.
type Files = Arc<Mutex<BTreeMap<String, Arc<SourceFile>>>>;

impl std::fmt::Debug for Recipes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recipes")
    }
}

impl Recipes {
    /// `roots` are the catalogue and its overlays.
    pub fn new(roots: Vec<PathBuf>, changed: Vec<Changed>) -> Self {
        let here = |root: PathBuf| if root.as_os_str().is_empty() { PathBuf::from(".") } else { root };
        let roots: Vec<PathBuf> = roots.into_iter().map(here).collect();
        let files = Files::default();
        let made = Arc::new(changed.iter().flat_map(Changed::templates).collect::<BTreeMap<_, _>>());
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(RECURSION);
        // For the place of an error; costs nothing where there is none.
        environment.set_debug(true);
        // A run sees one state of the catalogue.
        environment.set_auto_reload(false);
        if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
            environment.set_syntax(syntax);
        }
        environment.set_formatter(|out, state, value| {
            if value.is_none() {
                return Err(Error::new(ErrorKind::InvalidOperation, "the value is `none`, which no Dockerfile has"));
            }
            escape_formatter(out, state, value)
        });
        environment.set_path_join_callback(|name, from| joined(from, name).into());
        environment.add_function("start_script", {
            let roots = roots.clone();
            move |name: String| start_script(&roots, &name)
        });
        environment.set_loader({
            let (files, made) = (files.clone(), made.clone());
            move |name| match made.get(name) {
                Some(made) => Ok(Some(made.text.clone())),
                None => load_first(&roots, name, &files),
            }
        });
        environment.add_filter("shell_quote", shell_quote);
        environment.add_filter("json", json);
        environment.add_filter("tojson", json);
        environment.add_filter("env_quote", env_quote);
        environment.add_function("fail", fail);
        Recipes { inner: Arc::new(Inner { environment, files, made }) }
    }

    pub(super) fn environment(&self) -> &Environment<'static> {
        &self.inner.environment
    }

    /// Where in an overlay a part of a template stands that isn't a file.
    pub(super) fn made_place(&self, name: &str, span: &std::ops::Range<usize>) -> Option<Place> {
        self.inner.made.get(name)?.place(span)
    }

    /// A template that was loaded.
    pub(super) fn file(&self, name: &str) -> Option<Arc<SourceFile>> {
        let name =
            name.strip_prefix("_recipes/").map(|rest| format!("images/_recipes/{rest}")).unwrap_or(name.to_owned());
        self.inner.files.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned()
    }
}

/// The name of a template that another one names.
pub(super) fn joined(from: &str, name: &str) -> String {
    match name.starts_with("./") || name.starts_with("../") {
        true => join(from, name),
        false => name.to_owned(),
    }
}

/// Names that climb too high keep a `..`, which the loader refuses.
fn join(from: &str, name: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in name.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|p| *p != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn load_first(roots: &[PathBuf], name: &str, files: &Files) -> Result<Option<String>, Error> {
    for root in roots {
        if let Some(text) = load(root, name, files)? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

fn load(root: &Path, name: &str, files: &Files) -> Result<Option<String>, Error> {
    let outside = || {
        Error::new(ErrorKind::BadInclude, format!("template `{name}` is not in the catalogue's `images` or `plugins`"))
    };
    let relative = match name.strip_prefix("_recipes/") {
        Some(rest) => format!("images/_recipes/{rest}"),
        None => name.to_owned(),
    };
    let plain = Path::new(&relative).components().all(|c| matches!(c, Component::Normal(_)));
    if !plain
        || relative.contains(['\\', '\0'])
        || !(relative.starts_with("images/") || relative.starts_with("plugins/"))
    {
        return Err(outside());
    }
    let path = if root == Path::new(".") { PathBuf::from(&relative) } else { root.join(&relative) };
    let unreadable = |e: std::io::Error| {
        let message = format!("cannot read template `{}`: {e}", path.display());
        Err(Error::new(ErrorKind::InvalidOperation, message))
    };
    // A link may point anywhere; where it leads counts.
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return unreadable(e),
    };
    match root.canonicalize() {
        Ok(root) if real.starts_with(&root) => {}
        Ok(_) => return Err(outside()),
        Err(e) => return unreadable(e),
    }
    match crate::text::read_to_string(&real) {
        Ok(text) => {
            let file = SourceFile::new(&path, text.clone());
            files.lock().unwrap_or_else(PoisonError::into_inner).insert(relative, file);
            Ok(Some(text))
        }
        Err(e) => unreadable(e),
    }
}

fn text_of(value: &Value, filter: &str) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Bool => Ok(value.to_string()),
        ValueKind::Undefined => {
            Err(Error::new(ErrorKind::UndefinedError, format!("`{filter}` got an undefined value")))
        }
        kind => {
            let message = format!("`{filter}` wants a string, not {kind}");
            Err(Error::new(ErrorKind::InvalidOperation, message))
        }
    }
}

/// A word as a POSIX shell takes it literally; a list as words with blanks between them.
fn shell_quote(value: Value) -> Result<String, Error> {
    if value.kind() == ValueKind::Seq {
        let words: Result<Vec<String>, Error> = value.try_iter()?.map(shell_word).collect();
        return Ok(words?.join(" "));
    }
    shell_word(value)
}

fn shell_word(value: Value) -> Result<String, Error> {
    let text = text_of(&value, "shell_quote")?;
    if text.contains(['\n', '\0']) {
        let message = "`shell_quote` got a line break, which a RUN line cannot hold";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return Ok(text);
    }
    Ok(format!("'{}'", text.replace('\'', r"'\''")))
}

fn json(value: Value) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "`json` got an undefined value"));
    }
    serde_json::to_string(&value)
        .map_err(|e| Error::new(ErrorKind::BadSerialization, format!("the value has no JSON form: {e}")))
}

/// In double quotes, with nothing left that ENV, LABEL or ARG would expand.
fn env_quote(value: Value) -> Result<String, Error> {
    let text = text_of(&value, "env_quote")?;
    if text.contains(['\n', '\0']) {
        let message = "`env_quote` got a line break, which ENV and LABEL cannot hold";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '$') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    Ok(quoted)
}

/// What an image's own start program takes in, where the image is to have it besides the bundle.
fn start_script(roots: &[PathBuf], name: &str) -> Result<String, Error> {
    let wrong = |why: String| Error::new(ErrorKind::InvalidOperation, why);
    names::component(name).map_err(|why| wrong(format!("`{name}` is no name of a start definition: {why}")))?;
    let below = Path::new("start-scripts").join(name).join("extend_start.sh");
    let path = roots.iter().map(|root| root.join(&below)).find(|path| path.is_file());
    let path = path.ok_or_else(|| wrong(format!("there is no `{}`", below.display())))?;
    crate::text::read_to_string(&path).map_err(|e| wrong(format!("cannot read `{}`: {e}", path.display())))
}

/// Lets a recipe say why it can't be used.
fn fail(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}
