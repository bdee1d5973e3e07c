//! `kollage import-kolla`: a Kolla tree as a catalogue.

mod built;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::catalogue::Pattern;
use crate::cli::App;
use crate::cli::args::{ImportKolla, VerifyImport};
use crate::cli::kolla_build::Told;
use crate::error::{Context as _, Error, Result};
use crate::kolla::import::verify::{self, Verdict};
use crate::kolla::import::{self, Report, Side};
use crate::kolla::options::{self, Options};
use crate::kolla::settings::Settings;
use crate::kolla::tree::Tree;
use crate::report::human::count;

/// A difference was found, as of `start check`.
const DIFFERS: u8 = 4;

pub fn run(app: &App, args: &ImportKolla) -> Result<u8> {
    let patterns: Vec<Pattern> = args.images.iter().map(|text| pattern(text)).collect::<Result<_>>()?;
    is_free(&args.output)?;
    let tree = Tree::open(&args.tree)?;
    let chosen = chosen(app, args, &tree)?;
    let roots = chosen[0].1.roots(&tree);
    let mut sides = Vec::new();
    for (options, settings) in &chosen {
        sides.push(Side::new(options, settings, &roots)?);
    }
    let room = Room::new(beside(&args.output)?)?;
    let report = import::import(&sides, &roots, &patterns, &room.0)?;
    // What cannot be read back is not handed out.
    verify::load(&room.0, &sides[0])?;
    room.becomes(&args.output)?;
    app.print(&told(&report, &args.output))?;
    if args.verify.is_none() {
        return Ok(0);
    }
    let verdicts = verify::verify(&args.output, &sides, &roots)?;
    app.print(&judged(&verdicts))?;
    let mut differs = verdicts.iter().any(|verdict| !verdict.differences.is_empty());
    if args.verify == Some(VerifyImport::Build) {
        let compared = built::compare(app, args, &tree, &sides[0])?;
        app.print(&compared.text)?;
        differs |= compared.differs;
    }
    Ok(if differs { DIFFERS } else { 0 })
}

fn pattern(text: &str) -> Result<Pattern> {
    Pattern::parse(text).map_err(|why| Error::bad_input(format!("`--images {text}` is no pattern: {why}")))
}

/// Nothing of anybody's is written over.
fn is_free(dir: &Path) -> Result<()> {
    let taken = |what: &str| {
        let error = Error::bad_input(format!("{} {what}", dir.display()));
        Err(error.hint("name a directory that isn't there or is empty: an import never changes what it finds"))
    };
    match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => taken("is not empty"),
        Ok(false) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => taken("is no directory"),
        Err(e) => Err(Error::bad_input(format!("cannot read {}", dir.display())).cause(e)),
    }
}

/// Where the catalogue is written before it is whole.
fn beside(output: &Path) -> Result<PathBuf> {
    let name = output.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.ok_or_else(|| Error::bad_input(format!("{} has no name", output.display())))?;
    if let Some(parent) = output.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).unusable(|| format!("cannot make {}", parent.display()))?;
    }
    Ok(output.with_file_name(format!(".{name}.import-{}", std::process::id())))
}

/// What the tree is rendered for: the distributions that are named, or all that the tree has when nothing is said about the image
/// to build on.
fn chosen<'t>(app: &App, args: &ImportKolla, tree: &'t Tree) -> Result<Vec<(Options<'t>, Settings)>> {
    if args.base.len() > 1 && (args.base_image.is_some() || args.base_tag.is_some()) {
        return Err(Error::bad_input("`--base-image` and `--base-tag` are those of one distribution")
            .hint("name one with `--base`, or leave them out"));
    }
    let first = one(app, args, tree, args.base.first().map(String::as_str), &[])?;
    app.show_warnings(&first.0.warnings);
    let mut more: Vec<String> = args.base.iter().skip(1).cloned().collect();
    let told = ["base_image", "base_tag"].iter().any(|key| first.0.is_given(key));
    if args.base.is_empty() && !told {
        let choices = options::declared(tree, "_CLI_OPTS").into_iter().find(|option| option.name == "base");
        more.extend(choices.into_iter().flat_map(|option| option.choices).filter(|base| *base != first.1.base));
    }
    let mut all = vec![first];
    for base in more {
        all.push(one(app, args, tree, Some(&base), &[])?);
    }
    Ok(all)
}

/// `more` are configuration files after those that are named.
fn one<'t>(
    app: &App,
    args: &ImportKolla,
    tree: &'t Tree,
    base: Option<&str>,
    more: &[PathBuf],
) -> Result<(Options<'t>, Settings)> {
    let told = Told {
        config_files: args.config_file.iter().chain(more),
        template_overrides: &args.template_override,
        texts: [("base", base), ("base-image", args.base_image.as_deref()), ("base-tag", args.base_tag.as_deref())],
    };
    told.read(app, tree)
}

/// A directory of this run's own; gone when it isn't needed any more.
struct Room(PathBuf);

impl Room {
    fn new(path: PathBuf) -> Result<Room> {
        // One that is there is somebody else's.
        fs::create_dir(&path).unusable(|| format!("cannot make {}", path.display()))?;
        Ok(Room(path))
    }

    /// It takes the place of `output`, whole.
    fn becomes(self, output: &Path) -> Result<()> {
        fs::rename(&self.0, output).unusable(|| format!("cannot write {}", output.display()))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn told(report: &Report, output: &Path) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for image in &report.images {
        let data = if image.data.is_empty() { "nothing".to_owned() } else { image.data.join(", ") };
        let _ = writeln!(text, "{}: {data}; {} as they were", image.name, count(image.kept, "instruction"));
        for note in &image.notes {
            let _ = writeln!(text, "  {note}");
        }
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let _ = writeln!(text, "{} written to {}", count(report.images.len(), "image"), output.display());
    text
}

fn judged(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    let differing: Vec<&Verdict> = verdicts.iter().filter(|verdict| !verdict.differences.is_empty()).collect();
    for verdict in &differing {
        let _ = writeln!(text, "{} for {} differs:", verdict.image, verdict.base);
        for difference in &verdict.differences {
            let _ = writeln!(text, "  {difference}");
        }
    }
    let mut bases: Vec<&str> = Vec::new();
    for verdict in verdicts {
        if !bases.contains(&verdict.base.as_str()) {
            bases.push(&verdict.base);
        }
    }
    for base in bases {
        let of_base = || verdicts.iter().filter(|verdict| verdict.base == base);
        let same = of_base().filter(|verdict| verdict.differences.is_empty()).count();
        let _ = writeln!(text, "{base}: {same} of {} do the same as Kolla's", count(of_base().count(), "image"));
    }
    text
}
