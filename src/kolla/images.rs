//! The images of a tree and what each of them is: its parent, its source, its plugins and additions, and whether it is
//! built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use regex::{Regex, RegexBuilder};

use crate::error::{Error, Result};
use crate::kolla::options::Options;
use crate::kolla::render::Rendered;
use crate::kolla::settings::Settings;
use crate::kolla::value::Value;
use crate::suggest;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Matched,
    Unmatched,
    /// The release says that it cannot be built for this distribution and architecture, or its parent cannot.
    Unbuildable,
}

#[derive(Debug)]
pub struct Image {
    pub name: String,
    pub path: PathBuf,
    pub text: String,
    pub canonical: String,
    /// What FROM says.
    pub parent_name: String,
    /// The number of the parent, when it is of the tree.
    pub parent: Option<usize>,
    pub children: Vec<usize>,
    pub status: Status,
}

/// In the order of their directories; parents are known, nothing is selected yet.
pub fn images(rendered: Vec<Rendered>, settings: &Settings) -> Vec<Image> {
    let mut images: Vec<Image> = rendered
        .into_iter()
        .map(|rendered| Image {
            canonical: settings.canonical(&rendered.name),
            parent_name: parent(&rendered.text),
            name: rendered.name,
            path: rendered.path,
            text: rendered.text,
            parent: None,
            children: Vec::new(),
            status: Status::Unmatched,
        })
        .collect();
    let numbers: BTreeMap<String, usize> =
        images.iter().enumerate().map(|(number, image)| (image.canonical.clone(), number)).collect();
    for number in 0..images.len() {
        if let Some(parent) = numbers.get(&images[number].parent_name).copied() {
            images[number].parent = Some(parent);
            images[parent].children.push(number);
        }
    }
    images
}

/// The second word of the first line that begins with FROM.
fn parent(text: &str) -> String {
    let from = |line: &&str| line.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("from"));
    let line = text.split('\n').find(from).unwrap_or_default();
    line.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// Marks what the patterns and profiles select, with its parents; all images when there are none. A profile and patterns
/// add up.
pub fn select(images: &mut [Image], options: &Options<'_>, settings: &Settings) -> Result<()> {
    let mut patterns = options.texts("regex")?;
    for (number, profile) in options.texts("profile")?.into_iter().enumerate() {
        patterns.extend(of_profile(images, options, number, &profile)?);
    }
    if !options.flag("enable_unbuildable")? {
        unbuildable(images, options, settings);
    }
    let matcher = matcher(&patterns)
        .map_err(|e| Error::bad_input(format!("`{}` is no regular expression", patterns.join("|"))).cause(e))?;
    let wanted: Vec<usize> = (0..images.len())
        .filter(|number| images[*number].status != Status::Unbuildable)
        .filter(|number| patterns.is_empty() || matcher.is_match(&images[*number].name))
        .collect();
    for number in wanted {
        let mut next = Some(number);
        while let Some(number) = next.filter(|number| images[*number].status != Status::Matched) {
            images[number].status = Status::Matched;
            next = images[number].parent;
        }
    }
    Ok(())
}

fn matcher(patterns: &[String]) -> std::result::Result<Regex, regex::Error> {
    RegexBuilder::new(&format!("({})", patterns.join("|"))).build()
}

/// The patterns of a profile, which have to select something.
fn of_profile(images: &[Image], options: &Options<'_>, number: usize, profile: &str) -> Result<Vec<String>> {
    let patterns: Vec<String> = options.get("profiles", profile)?.texts().map(str::to_owned).collect();
    let known = options.keys("profiles");
    if patterns.is_empty() && !known.iter().any(|name| name == profile) {
        let problem = format!("there is no profile `{profile}`");
        let hint = suggest::hint(profile, known.iter().map(String::as_str));
        return Err(options.refused_value("profile", number, problem, hint));
    }
    let refused = |problem: String, hint: &str| options.refused("profiles", profile, problem, hint);
    let matcher = matcher(&patterns).map_err(|e| {
        let why = e.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        refused(format!("the profile `{profile}` has `{}`, which is no regular expression", patterns.join(",")), &why)
    })?;
    if patterns.is_empty() || !images.iter().any(|image| matcher.is_match(&image.name)) {
        let hint = "it is a list of regular expressions for names of images";
        return Err(refused(format!("the profile `{profile}` selects no image"), hint));
    }
    Ok(patterns)
}

/// Images that the release cannot build here, and those above them.
fn unbuildable(images: &mut [Image], options: &Options<'_>, settings: &Settings) {
    let ours = |tag: &str| tag.split('+').all(|part| part == settings.base || part == settings.base_arch);
    let names: BTreeSet<&str> = options
        .tree
        .unbuildable
        .iter()
        .filter(|(tag, _)| ours(tag))
        .flat_map(|(_, names)| names.iter().map(String::as_str))
        .collect();
    let mut open: Vec<usize> = (0..images.len()).filter(|n| names.contains(images[*n].name.as_str())).collect();
    while let Some(number) = open.pop() {
        if images[number].status != Status::Unbuildable {
            images[number].status = Status::Unbuildable;
            open.extend(images[number].children.clone());
        }
    }
}

/// As `--list-dependencies` prints it: each image with children is a dictionary of one entry. None when nothing is
/// selected.
pub fn dependencies(images: &[Image]) -> Option<Value> {
    images.iter().find(|image| image.status == Status::Matched)?;
    // Kolla begins at the last image whose parent isn't of the tree.
    let root = images.iter().rfind(|image| image.parent.is_none())?;
    Some(Value::Dict(vec![(root.name.clone(), children(images, root))]))
}

fn children(images: &[Image], of: &Image) -> Value {
    let matched = of.children.iter().map(|n| &images[*n]).filter(|child| child.status == Status::Matched);
    let child = |child: &Image| match child.children.is_empty() {
        true => Value::Text(child.name.clone()),
        false => Value::Dict(vec![(child.name.clone(), children(images, child))]),
    };
    Value::List(matched.map(child).collect())
}

/// As the Python package graphviz writes what `--save-dependency` asks for.
pub fn dot(images: &[Image]) -> String {
    let quoted = |name: &str| {
        let plain =
            name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.starts_with(|c: char| c.is_numeric());
        if plain { name.to_owned() } else { format!("\"{name}\"") }
    };
    let mut out = String::from("// Container Images Dependency\ndigraph {\nrankdir=LR");
    for image in images.iter().filter(|image| image.status == Status::Matched) {
        out.push_str(&format!("\t{}\n", quoted(&image.name)));
        if let Some(parent) = image.parent {
            out.push_str(&format!("\t{} -> {}\n", quoted(&images[parent].name), quoted(&image.name)));
        }
    }
    out.push_str("}\n");
    out
}
