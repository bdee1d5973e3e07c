//! `kollage kolla-build`, and `kolla-build` when Kollage is called so: a Kolla tree by kolla-build's own command line. The
//! options are those of the tree's release.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use jiff::Timestamp;

use crate::cli::App;
use crate::cli::args::KollaBuild;
use crate::diag::SourceFile;
use crate::error::{Context as _, Error, Kind, Result};
use crate::kolla::house::House;
use crate::kolla::images::{self, Image, Status};
use crate::kolla::layers::Layers;
use crate::kolla::options::{self, Opt, Options};
use crate::kolla::render;
use crate::kolla::settings::{self, Settings};
use crate::kolla::tree::Tree;
use crate::suggest;

pub(super) mod build;
mod lent;
mod summary;
mod template_only;

pub use lent::{Told, lent};

const NAME: &str = "kolla-build";

/// oslo.config's own option.
const COMPLETION: &str = "shell_completion";

/// The arguments as Kollage has them, whatever it was called.
pub fn called(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.first().is_some_and(|program| Path::new(program).file_name().is_some_and(|name| name == NAME)) {
        arguments.insert(1, NAME.into());
    }
    arguments
}

pub fn run(app: &App, args: &KollaBuild) -> Result<u8> {
    let tree = match find_tree(app, &args.arguments) {
        // Whoever asks what there is can't know yet that a tree has to be named.
        Err(_) if args.arguments.iter().any(|argument| argument == "--help" || argument == "-h") => {
            return app.print(&format!("{}\n", of_no_tree().render_help())).map(|()| 0);
        }
        found => Tree::open(&found?)?,
    };
    if let Some(script) = completion(&tree, &args.arguments) {
        return app.print(&script).map(|()| 0);
    }
    let (options, settings) = match read(app, &tree, &args.arguments)? {
        Ok(read) => read,
        Err(error) => {
            if error.kind() == ErrorKind::DisplayVersion {
                return app.print(&format!("{}\n", tree.version)).map(|()| 0);
            }
            let code = if error.use_stderr() { Kind::BadInput.exit_code() } else { 0 };
            // Nothing can be done about a closed stream.
            let _ = error.print();
            return Ok(code);
        }
    };
    let chosen = Chosen::of(app, &tree, options, settings)?;
    let Chosen { options, images, layers, .. } = &chosen;
    if options.flag("template_only")? {
        return template_only::run(app, &chosen);
    }
    if let Some(path) = options.filled("save_dependency")? {
        fs::write(&path, images::dot(images)).unusable(|| format!("cannot write {path}"))?;
        app.say(&format!("the dependencies of the images are in {path}"));
        return Ok(0);
    }
    if options.flag("list_images")? {
        let matched = images.iter().filter(|image| image.status == Status::Matched);
        let above = |image: &Image| match layers.names(&image.name).join(", ") {
            names if names.is_empty() => names,
            names => format!(" (layers: {names})"),
        };
        let line = |(n, image): (usize, &Image)| format!("{} : {}{}\n", n + 1, image.name, above(image));
        let lines: String = matched.enumerate().map(line).collect();
        return app.print(&lines).map(|()| 0);
    }
    if options.flag("list_dependencies")? {
        return match images::dependencies(images) {
            Some(tree) => app.print(&tree.json(Some(2))).map(|()| 0),
            None => app.print("Nothing matched!\n").map(|()| 0),
        };
    }
    build::run(app, &chosen)
}

/// For the shell that `--shell_completion` names.
fn completion(tree: &Tree, arguments: &[OsString]) -> Option<String> {
    let mut command = command(&options::declared(tree, "_CLI_OPTS"), tree);
    // What is wrong with the others is told where they are read.
    let matches = command.clone().try_get_matches_from(arguments).ok()?;
    let shell = *matches.get_one::<clap_complete::Shell>(COMPLETION)?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, NAME, &mut script);
    Some(String::from_utf8_lossy(&script).into_owned())
}

/// A tree's images, with what is asked for of them.
pub struct Chosen<'t> {
    pub options: Options<'t>,
    pub settings: Settings,
    pub roots: Vec<PathBuf>,
    pub images: Vec<Image>,
    pub layers: Layers,
}

impl<'t> Chosen<'t> {
    fn house(&self) -> House<'_> {
        House { settings: &self.settings, roots: &self.roots, layers: &self.layers }
    }

    /// What looks wrong is told.
    fn of(app: &App, tree: &Tree, mut options: Options<'t>, settings: Settings) -> Result<Chosen<'t>> {
        let roots = settings.roots(tree);
        let rendered = render::render(&settings, &options, &roots)?;
        let names: BTreeSet<String> = rendered.iter().map(|image| image.name.clone()).collect();
        options.unknown(&names);
        app.show_warnings(&options.warnings);
        let mut images = images::images(rendered, &settings);
        images::select(&mut images, &options, &settings)?;
        let layers = Layers::of(&images, &options, &settings)?;
        app.show_warnings(&layers.left);
        Ok(Chosen { options, settings, roots, images, layers })
    }
}

/// What files, the environment and the command line say, and what follows from it; or what is wrong with the command line.
fn read<'a>(
    app: &App,
    tree: &'a Tree,
    arguments: &[OsString],
) -> Result<std::result::Result<(Options<'a>, Settings), clap::Error>> {
    let mut declared = options::declared(tree, "_CLI_OPTS");
    let matches = match command(&declared, tree).try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => match unknown(&error, &declared, tree) {
            Some(error) => return Err(error),
            None => return Ok(Err(error)),
        },
    };
    let mut options = Options::new(tree, &rustix::system::uname().machine().to_string_lossy());
    declared.extend(options::own());
    for word in words(app, &matches, &declared)? {
        match word {
            Word::File(path) => {
                let text = crate::text::read_to_string(&path)
                    .map_err(|e| Error::bad_input(format!("cannot read {}", path.display())).cause(e))?;
                options.file(&SourceFile::new(path, text))?;
            }
            Word::Option(key, value) => options.command_line(&key, value),
        }
    }
    options.environment(&app.env.whole());
    options.check()?;
    let date = Timestamp::now().strftime("%Y%m%d").to_string();
    settings::derive(&mut options)?;
    let settings = Settings::new(&options, &app.env.whole(), &date)?;
    Ok(Ok((options, settings)))
}

/// An option that the release doesn't have, with the nearest that it has.
fn unknown(error: &clap::Error, declared: &[Opt], tree: &Tree) -> Option<Error> {
    let Some(ContextValue::String(option)) =
        error.get(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument)
    else {
        return None;
    };
    let own = options::own();
    let names = declared.iter().chain(&own).filter(|option| !option.positional).flat_map(|option| {
        let off = (option.kind == options::Kind::Flag).then(|| format!("--no{}", option.name));
        std::iter::once(format!("--{}", option.name)).chain(off)
    });
    let names: Vec<String> = names.chain(["--kolla", "--config-file", "--config-dir"].map(str::to_owned)).collect();
    // All begin alike, so that this would be near to everything.
    let bare = option.trim_start_matches('-');
    let near = suggest::nearest(bare, names.iter().map(|name| &name[2..])).map(|near| format!("--{near}"));
    let error = Error::bad_input(format!("Kolla {} has no option `{option}`", tree.version));
    Some(match near {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint("`--help` lists all options"),
    })
}

/// `--work-dir`, or a directory of this run's own, which goes with it.
struct Work {
    path: PathBuf,
    passing: bool,
}

impl Work {
    fn new(options: &Options<'_>) -> Result<Work> {
        if let Some(dir) = options.filled("work_dir")? {
            return Ok(Work { path: dir.into(), passing: false });
        }
        let time = Timestamp::now().strftime("%Y-%m-%d_%H-%M-%S").to_string();
        let all = std::env::temp_dir();
        let say = || format!("cannot make a directory in {}", all.display());
        // Others may have made it, and more of it than a directory.
        for number in 0..100 {
            let path = all.join(format!("kolla-{time}_{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => return made.unusable(say).map(|()| Work { path, passing: true }),
            }
        }
        Err(Error::unusable(say()).cause("all names are taken"))
    }

    /// For whoever looks into it later.
    fn keep(mut self) -> PathBuf {
        self.passing = false;
        self.path.clone()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.passing {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Files of one's own for apt, which the base image copies: what they are called there, and where they are.
fn apt_files(options: &Options<'_>) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut files = Vec::new();
    for (key, name) in [("apt_sources_list", "sources.list"), ("apt_preferences", "apt_preferences")] {
        if let Some(path) = options.filled(key)? {
            fs::File::open(&path).bad_input(|| format!("cannot read `{key}`, {path}"))?;
            files.push((name, path.into()));
        }
    }
    Ok(files)
}

fn put_apt_files(options: &Options<'_>, base: &Path) -> Result<()> {
    apt_files(options)?.into_iter().try_for_each(|(name, path)| {
        fs::copy(&path, base.join(name)).map(drop).bad_input(|| format!("cannot copy {}", path.display()))
    })
}

/// `--kolla DIR`, `KOLLAGE_KOLLA`, or where a kolla-build would find its own.
fn find_tree(app: &App, arguments: &[OsString]) -> Result<PathBuf> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let Some(text) = argument.to_str() else { continue };
        match text.strip_prefix("--kolla") {
            Some("") => {
                let missing = || Error::bad_input("`--kolla` has no directory behind it");
                return arguments.next().map(PathBuf::from).ok_or_else(missing);
            }
            Some(rest) if rest.starts_with('=') => return Ok(PathBuf::from(&rest[1..])),
            _ => {}
        }
    }
    if let Some(dir) = &app.env.kolla {
        return Ok(dir.clone());
    }
    let mut prefixes = app.env.prefixes.clone();
    // Beside an installed kolla-build.
    let path = app.env.path.clone().unwrap_or_default();
    let bins = std::env::split_paths(&path).filter(|dir| dir.join(NAME).is_file());
    prefixes.extend(bins.filter_map(|dir| dir.parent().map(Path::to_owned)));
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    prefixes.extend(app.env.home.iter().map(|home| home.join(".local")));
    prefixes.into_iter().find(|prefix| Tree::open(prefix).is_ok()).ok_or_else(|| {
        Error::bad_input("no Kolla tree is named, and none is installed")
            .hint("name one with `--kolla DIR`: a checkout, or the virtual environment that kolla is installed in")
    })
}

/// What says something of options.
enum Word {
    File(PathBuf),
    /// Its key and a value.
    Option(String, String),
}

/// All that says something, in its order: what comes later wins, whether it stands on the command line or in a file that is
/// named there. Files of the usual places come first.
fn words(app: &App, matches: &ArgMatches, declared: &[Opt]) -> Result<Vec<Word>> {
    let mut words: Vec<(usize, Word)> = Vec::new();
    let homes = app.env.home.iter().flat_map(|home| [home.join(".kolla"), home.clone()]);
    let usual: Vec<PathBuf> = homes.chain(["/etc/kolla", "/etc"].map(PathBuf::from)).collect();
    let found = |name: &str| usual.iter().map(|dir| dir.join(name)).find(|path| path.exists());
    let files = texts(matches, "config-file");
    if files.is_empty() {
        words.extend(["kolla.conf", "kolla-build.conf"].iter().filter_map(|name| Some((0, Word::File(found(name)?)))));
    }
    words.extend(files.into_iter().map(|(at, file)| (at, Word::File(file.into()))));
    let mut directories: Vec<(usize, PathBuf)> =
        texts(matches, "config-dir").into_iter().map(|(at, dir)| (at, dir.into())).collect();
    if directories.is_empty() {
        directories.extend(["kolla.conf.d", "kolla-build.conf.d"].iter().filter_map(|name| Some((0, found(name)?))));
    }
    for (at, dir) in directories {
        let entries = fs::read_dir(&dir)
            .map_err(|e| Error::bad_input(format!("cannot read the directory {}", dir.display())).cause(e))?;
        let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        inside.retain(|path| path.extension().is_some_and(|extension| extension == "conf"));
        inside.sort();
        words.extend(inside.into_iter().map(|path| (at, Word::File(path))));
    }
    for option in declared {
        let key = option.key();
        if option.kind == options::Kind::Flag {
            for (id, value) in [(key.clone(), "true"), (format!("no{key}"), "false")] {
                if matches.get_flag(&id) {
                    let at = matches.index_of(&id).unwrap_or_default();
                    words.push((at, Word::Option(key.clone(), value.into())));
                }
            }
        } else {
            let values = texts(matches, &key).into_iter();
            words.extend(values.map(|(at, value)| (at, Word::Option(key.clone(), value))));
        }
    }
    // Stable: what has one place keeps its order.
    words.sort_by_key(|(at, _)| *at);
    Ok(words.into_iter().map(|(_, word)| word).collect())
}

/// The values of an argument, each with its place on the command line.
fn texts(matches: &ArgMatches, id: &str) -> Vec<(usize, String)> {
    let places = matches.indices_of(id).into_iter().flatten();
    places.zip(matches.get_many::<String>(id).into_iter().flatten().cloned()).collect()
}

/// The command as far as it is the same for each release.
fn of_no_tree() -> Command {
    let command = Command::new(NAME)
        .no_binary_name(true)
        .about("Build the images of a Kolla tree with Kollage")
        .after_help("All other options are those of the tree's release: --kolla DIR --help lists them.")
        .infer_long_args(true)
        .arg(
            Arg::new("kolla")
                .long("kolla")
                .value_name("DIR")
                .help("The Kolla tree: a checkout, or the prefix that its package is installed in [Kollage's own]"),
        )
        .arg(many("config-file", "FILE", "A configuration file; later ones win [default: /etc/kolla/kolla-build.conf]"))
        .arg(many("config-dir", "DIR", "A directory of configuration files, read after those"))
        .arg(
            Arg::new(COMPLETION)
                .long(COMPLETION)
                .value_name("SHELL")
                .value_parser(clap::value_parser!(clap_complete::Shell))
                .help("Print a completion script for a shell"),
        );
    options::own().iter().fold(command, with)
}

fn command(declared: &[Opt], tree: &Tree) -> Command {
    let command = of_no_tree()
        .version(tree.version.clone())
        .about(format!("Build the images of Kolla {} with Kollage", tree.version))
        .after_help("");
    declared.iter().fold(command, with)
}

fn with(command: Command, option: &Opt) -> Command {
    let mut arg = Arg::new(option.key()).help(help(option));
    if option.positional {
        return command.arg(arg.action(ArgAction::Append).value_name("REGEX"));
    }
    arg = arg.long(option.name.clone());
    if let Some(short) = option.short {
        arg = arg.short(short);
    }
    match option.kind {
        options::Kind::Flag => {
            let off = format!("no{}", option.key());
            let either = [option.key(), off.clone()];
            command.arg(arg.action(ArgAction::SetTrue).overrides_with_all(&either)).arg(
                Arg::new(off)
                    .long(format!("no{}", option.name))
                    .action(ArgAction::SetTrue)
                    .overrides_with_all(either)
                    .help(format!("The opposite of --{}", option.name)),
            )
        }
        options::Kind::Many => command.arg(arg.action(ArgAction::Append)),
        kind => {
            arg = arg.allow_negative_numbers(kind == options::Kind::Number);
            let id = option.key();
            command.arg(arg.action(ArgAction::Set).overrides_with(id))
        }
    }
}

fn many(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help).action(ArgAction::Append)
}

fn help(option: &Opt) -> String {
    let mut help = option.help.clone();
    if !option.choices.is_empty() {
        help.push_str(&format!(" [{}]", option.choices.join(", ")));
    }
    if let Some(text) = option.default.text().filter(|text| !text.is_empty()) {
        help.push_str(&format!(" [default: {text}]"));
    }
    help
}
