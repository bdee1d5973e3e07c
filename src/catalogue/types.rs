//! What a catalogue is made of once it has been read and checked.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::diag::{Diagnostic, Diagnostics, Place, SourceFile};
use crate::dockerfile::step::{Entitlement, Network};
use crate::engine::{BaseSource, Check, buildkit, docker};
use crate::image::config::Platform;
use crate::image::store::Codec;
use crate::lock::Lock;
use crate::template::Changed;

use super::definition;
use super::given::Given;
use super::names::{self, Requirement};
use super::overlay::{Additions, Touched};
use super::pattern::Pattern;
use super::reader;
use super::release::Release;
use super::tree::Table;

/// Everything that a maintainer wrote, loaded and checked as one.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// The directory with `kollage.toml`, as the caller named it.
    pub root: PathBuf,
    pub settings: Settings,
    pub images: BTreeMap<String, Arc<ImageDef>>,
    pub plugins: BTreeMap<String, Arc<PluginDef>>,
    /// What is odd but stops nothing.
    pub warnings: Diagnostics,
    /// What names that move stood for when they were looked up.
    pub lock: Lock,
    /// The templates, read and compiled when first needed.
    pub(crate) recipes: crate::template::Recipes,
    /// What overlays changed.
    pub(super) touched: Touched,
}

/// `kollage.toml` of the project, of the user and of the system, and the command line, merged by precedence.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub build: BuildSettings,
    /// Patterns as they were written; `@name` is another profile. See [`Catalogue::profile_images`].
    pub profiles: BTreeMap<String, Vec<String>>,
    /// `[images.NAME] plugins` and `--plugin`: takes the place of the image's own `[plugins] default`.
    pub image_plugins: BTreeMap<String, Vec<String>>,
    /// `[plugins] allow`: plugins that may be built although they do not fit, with the places of their names.
    pub(super) allowed_plugins: BTreeMap<String, Place>,
    pub engine: EngineSettings,
    pub policy: Policy,
    /// What `build.release` names; None where the catalogue keeps no releases.
    pub release: Option<Arc<Release>>,
    /// Directories of overlays, with the places of their names.
    pub(super) overlays: Vec<(PathBuf, Place)>,
    /// `[vars]`, for recipes (`vars.NAME`); an image's own `[vars]` are in `image.vars`.
    pub vars: toml::Table,
    /// By dotted path: `build.tag`, `profiles.main`, `profiles.main.0`, `images.keystone.plugins.0`.
    pub places: Places,
    /// Every `[images.NAME]`, with the place of the name.
    pub(super) image_sections: BTreeMap<String, Place>,
}

impl Settings {
    /// Whether what does not fit about a plugin is only told.
    pub fn allows_misfit(&self, plugin: &str) -> bool {
        self.allowed_plugins.contains_key(plugin)
    }

    /// The operator's refusal of an engine, with the place of the setting that chose it where that did.
    pub fn refuse_engine(&self, engine: EngineName, by_setting: bool) -> Option<Diagnostic> {
        if self.policy.allows_engine(engine) {
            return None;
        }
        let message = format!("the operator's policy does not allow the engine `{}`", engine.as_str());
        let problem = match self.places.get("engine.default").filter(|_| by_setting) {
            Some(place) => reader::error(place, message),
            None => Diagnostic::error(message),
        };
        let allowed: Vec<&str> = self.policy.engines.iter().flatten().map(|engine| engine.as_str()).collect();
        Some(problem.hint(self.policy_hint("engines", &allowed)))
    }

    /// What the operator allows, and where that is said.
    pub(super) fn policy_hint<T: AsRef<str>>(&self, key: &str, allowed: &[T]) -> String {
        let allowed = if allowed.is_empty() { "none".to_owned() } else { definition::quoted(allowed) };
        format!("[policy] in {} allows {allowed}", self.policy_file(key))
    }

    /// The file whose `[policy]` says something, for whoever is refused by it.
    pub fn policy_file(&self, key: &str) -> String {
        let place = self.places.get(&format!("policy.{key}"));
        place.map_or_else(|| "/etc/kollage/kollage.toml".into(), |place| place.file.path().display().to_string())
    }
}

#[derive(Clone, Debug)]
pub struct BuildSettings {
    /// The distribution: `debian`, `ubuntu`, `rocky`, …
    pub base: String,
    pub base_tag: String,
    /// Empty when none is set.
    pub release: String,
    pub package_type: PackageType,
    pub namespace: String,
    /// Host of the registry that images are published to, with a path where there is one.
    pub registry: Option<String>,
    /// As written: `{release}-{base}-{base_tag}`.
    pub tag_template: String,
    /// The template filled in.
    pub tag: String,
    pub source_date_epoch: Option<i64>,
    /// Which day of Debian's archive its bases are made from.
    pub snapshot: Snapshot,
    /// Where those are.
    pub snapshot_archive: String,
    pub ca_bundle: CaBundle,
    pub compression: Codec,
    pub network: Network,
    pub build_args: BTreeMap<String, String>,
    /// What images are built for; none: this machine's.
    pub platforms: Vec<Platform>,
    /// How many nodes are built at once; None: as many as there are processors.
    pub jobs: Option<usize>,
    /// How often a download, a push or a step is tried again when the network was in its way.
    pub retries: u32,
    /// A step that takes longer is ended; nought is no limit.
    pub step_timeout: Option<Duration>,
    /// Where figures of each run go.
    pub metrics_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackageType {
    #[default]
    Deb,
    Rpm,
}

impl PackageType {
    pub fn as_str(self) -> &'static str {
        match self {
            PackageType::Deb => "deb",
            PackageType::Rpm => "rpm",
        }
    }
}

/// `[build.debian] snapshot`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Snapshot {
    /// What mirrors have at the moment.
    #[default]
    None,
    /// What kollage.lock says.
    Locked,
    /// `20261130T000000Z`
    At(String),
}

impl Snapshot {
    /// Debian's own archive of what it had, which mirrors don't have.
    pub const ARCHIVE: &'static str = "http://snapshot.debian.org/archive";
}

/// Which certificate authorities are lent to RUN steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CaBundle {
    /// The host's, when it has more than the distribution ships.
    #[default]
    Auto,
    Off,
    Path(PathBuf),
}

#[derive(Clone, Debug, Default)]
pub struct EngineSettings {
    pub default: EngineName,
    /// Bytes that the layers of a run and its running steps may take on the disk.
    pub disk_limit: Option<u64>,
    /// `builder` of `[engine.docker]`
    pub docker: docker::Builder,
    pub buildkit: BuildkitSettings,
}

/// `[engine.buildkit]`
#[derive(Clone, Debug, Default)]
pub struct BuildkitSettings {
    pub builders: Vec<buildkit::Named>,
    /// `REGISTRY/REPOSITORY`, where results of several builders meet.
    pub repository: Option<String>,
    /// For builders at `tls://` that have none of their own.
    pub certificates: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineName {
    #[default]
    Embedded,
    Docker,
    Buildkit,
}

impl EngineName {
    pub const ALL: [EngineName; 3] = [EngineName::Embedded, EngineName::Docker, EngineName::Buildkit];

    pub fn as_str(self) -> &'static str {
        match self {
            EngineName::Embedded => "embedded",
            EngineName::Docker => "docker",
            EngineName::Buildkit => "buildkit",
        }
    }
}

/// The operator's rules, from the system's file only. None: everything is allowed.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub engines: Option<Vec<EngineName>>,
    pub registries: Option<Vec<String>>,
    /// What `--allow` may grant.
    pub entitlements: Option<Vec<Entitlement>>,
}

impl Policy {
    pub fn allows_engine(&self, engine: EngineName) -> bool {
        self.engines.as_ref().is_none_or(|allowed| allowed.contains(&engine))
    }

    pub fn allows_entitlement(&self, entitlement: Entitlement) -> bool {
        self.entitlements.as_ref().is_none_or(|allowed| allowed.contains(&entitlement))
    }

    /// `registry` is a host, with its port where it has one: `docker.io`, `registry.example.org:5000`.
    pub fn allows_registry(&self, registry: &str) -> bool {
        self.registries.as_ref().is_none_or(|allowed| allowed.iter().any(|a| a == registry))
    }
}

/// One image: `images/<name>/image.toml`, or a folder with nothing but a Dockerfile.
#[derive(Clone, Debug)]
pub struct ImageDef {
    pub name: String,
    /// `images/<name>` below the catalogue's root: the build context.
    pub dir: PathBuf,
    /// `image.toml`, or the Dockerfile where there is no such file.
    pub file: Arc<SourceFile>,
    pub kind: ImageKind,
    pub parent: Parent,
    pub recipe: Recipe,
    /// The service's start definition: `start-scripts/<start>`.
    pub start: Option<String>,
    pub summary: String,
    pub user: Option<User>,
    pub packages: Packages,
    pub sources: BTreeMap<String, SourceDef>,
    pub plugins: PluginRules,
    pub checks: Vec<Check>,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub ports: Vec<String>,
    pub volumes: Vec<String>,
    pub vars: toml::Table,
    pub additions: Additions,
    /// What is in its folder, when that isn't there.
    pub(crate) given: Option<Arc<Given>>,
    /// By dotted path: `image.parent`, `packages.deb.0`, `plugins.default.0`, `check.0.run`.
    pub places: Places,
    /// What was read, after overlays and the release.
    pub(super) tree: Arc<Table>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageKind {
    /// Others are built on it; takes no plugins but those that these inherit.
    Base,
    #[default]
    Service,
}

impl ImageKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ImageKind::Base => "base",
            ImageKind::Service => "service",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parent {
    /// Another image of the catalogue.
    Image(String),
    /// `reference` is what FROM says; equal references are equal sources.
    External { reference: String, source: BaseSource },
    /// Whatever FROM of the last stage of the image's own plain Dockerfile says.
    Dockerfile,
}

/// What makes a definition a Dockerfile. Paths are below the catalogue's root as the caller named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// `images/_recipes/<name>.j2`
    Shared(String),
    /// The definition's own `Dockerfile.j2`.
    Own(PathBuf),
    /// The definition's own plain `Dockerfile`, taken as it is.
    Dockerfile(PathBuf),
}

impl Recipe {
    /// The name of the template, of a definition below `images` or `plugins`.
    fn template(&self, below: &str, name: &str) -> Option<String> {
        match self {
            Recipe::Shared(recipe) => Some(format!("_recipes/{recipe}.j2")),
            Recipe::Own(_) => Some(format!("{below}/{name}/Dockerfile.j2")),
            Recipe::Dockerfile(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// Name of the primary group: the user's own name when not said.
    pub group: String,
    pub home: String,
    pub shell: String,
    /// Additional groups.
    pub groups: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packages {
    pub deb: Vec<String>,
    pub rpm: Vec<String>,
    /// Needed only while building; nothing of them stays in the image.
    pub deb_build: Vec<String>,
    pub rpm_build: Vec<String>,
}

impl Packages {
    pub fn runtime(&self, package_type: PackageType) -> &[String] {
        match package_type {
            PackageType::Deb => &self.deb,
            PackageType::Rpm => &self.rpm,
        }
    }

    pub fn build(&self, package_type: PackageType) -> &[String] {
        match package_type {
            PackageType::Deb => &self.deb_build,
            PackageType::Rpm => &self.rpm_build,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceDef {
    /// A requirement as pip takes it: `keystone[ldap]`, `networking-bgpvpn==22.0.0`.
    Pypi {
        requirement: String,
    },
    Git {
        url: String,
        reference: Option<String>,
        /// A directory of the repository that is the whole.
        subdir: Option<String>,
        /// Of the package, where only history could tell it.
        version: Option<String>,
    },
    Url {
        url: String,
        sha256: Option<String>,
    },
    /// Relative to the definition's folder.
    Local {
        path: String,
    },
}

impl SourceDef {
    /// What it takes from PyPI.
    pub(super) fn requirement(&self) -> Option<Requirement<'_>> {
        match self {
            SourceDef::Pypi { requirement } => Some(Requirement::split(requirement)),
            _ => None,
        }
    }

    /// The name on PyPI, as it begins the names of wheels: `oslo.db` is `oslo_db`.
    pub fn distribution(&self) -> Option<String> {
        Some(names::normalised(self.requirement()?.name).replace('-', "_"))
    }

    /// A repository as ADD takes it: with `.git` at the end of a web address, and what is wanted of it.
    pub fn address(&self) -> Option<String> {
        let SourceDef::Git { url, reference, subdir, .. } = self else { return None };
        let url = url.trim_end_matches('/');
        let is_web = url.starts_with("http://") || url.starts_with("https://");
        let end = if is_web && !url.ends_with(".git") { ".git" } else { "" };
        let mut address = format!("{url}{end}");
        if reference.is_some() || subdir.is_some() {
            address.push('#');
            address.push_str(reference.as_deref().unwrap_or_default());
        }
        if let Some(subdir) = subdir {
            address.push(':');
            address.push_str(subdir);
        }
        Some(address)
    }

    pub fn kind(&self) -> &'static str {
        match self {
            SourceDef::Pypi { .. } => "pypi",
            SourceDef::Git { .. } => "git",
            SourceDef::Url { .. } => "url",
            SourceDef::Local { .. } => "local",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct PluginRules {
    /// Which plugins may be chosen; none when empty.
    pub accept: Vec<Pattern>,
    pub default: Vec<String>,
    /// What is built on the image is built on its plugins as well.
    pub inherited: bool,
}

/// An optional layer on top of a service image: `plugins/<name>/plugin.toml`.
#[derive(Clone, Debug)]
pub struct PluginDef {
    pub name: String,
    /// `plugins/<name>` below the catalogue's root: the build context.
    pub dir: PathBuf,
    pub file: Arc<SourceFile>,
    pub summary: String,
    /// What it may be put on.
    pub images: Vec<Pattern>,
    /// Plugins that have to be chosen with it; they come below it.
    pub requires: Vec<String>,
    pub conflicts: Vec<String>,
    /// Files of the image that its layer changes, as globs of absolute paths.
    pub changes: Vec<String>,
    /// Ranges of versions by distribution on PyPI.
    pub needs: BTreeMap<String, String>,
    /// Lower comes first; then by name.
    pub order: i32,
    pub recipe: Recipe,
    pub packages: Packages,
    pub sources: BTreeMap<String, SourceDef>,
    pub checks: Vec<Check>,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub vars: toml::Table,
    pub additions: Additions,
    pub places: Places,
    pub(super) tree: Arc<Table>,
}

impl ImageDef {
    /// The template that its recipe is; None: it is a plain Dockerfile.
    pub(crate) fn template(&self) -> Option<String> {
        self.recipe.template("images", &self.name)
    }

    pub(super) fn changed(&self) -> Option<Changed> {
        Changed::new("images", &self.name, self.template()?, &self.additions.blocks)
    }

    pub fn is_service(&self) -> bool {
        self.kind == ImageKind::Service
    }

    /// Whether plugins may be put on it. What is built on a base would have to have them as well.
    pub fn takes_plugins(&self) -> bool {
        self.is_service() || self.plugins.inherited
    }
}

impl PluginDef {
    pub(crate) fn template(&self) -> Option<String> {
        self.recipe.template("plugins", &self.name)
    }

    pub(super) fn changed(&self) -> Option<Changed> {
        Changed::new("plugins", &self.name, self.template()?, &self.additions.blocks)
    }
}

/// Where each value stands, by dotted path (`packages.deb.0`).
#[derive(Clone, Debug, Default)]
pub struct Places(pub(super) BTreeMap<String, Place>);

impl Places {
    /// The place of the value, or of the nearest table around it that was written.
    pub fn get(&self, path: &str) -> Option<&Place> {
        let mut path = path;
        loop {
            if let Some(place) = self.0.get(path) {
                return Some(place);
            }
            path = &path[..path.rfind('.')?];
        }
    }

    /// As `get`; the beginning of `file` when nothing is known.
    pub fn place(&self, path: &str, file: &Arc<SourceFile>) -> Place {
        self.get(path).cloned().unwrap_or_else(|| Place { file: file.clone(), span: first_line(&file.text) })
    }
}

fn first_line(text: &str) -> Range<usize> {
    0..text.find('\n').unwrap_or(text.len())
}

/// The lower-precedence files; ones that don't exist are skipped.
#[derive(Clone, Debug, Default)]
pub struct ConfigFiles {
    /// `~/.config/kollage/kollage.toml`
    pub user: Option<PathBuf>,
    /// `/etc/kollage/kollage.toml`, the only one that may have a `[policy]`.
    pub system: Option<PathBuf>,
}

/// Settings from the command line and the environment, in rising order of precedence: the last one wins.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub(super) settings: Vec<Override>,
    /// Come after those of the settings.
    pub(super) overlays: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) struct Override {
    /// As a person names it: `--namespace`, `KOLLAGE_TAG`, `--set`.
    pub origin: String,
    pub path: Vec<String>,
    /// What the person wrote; the value is at its end.
    pub written: String,
    /// Where in it the value begins.
    pub value_at: usize,
    pub form: Form,
}

/// How the value of an override is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A string as it stands.
    Literal,
    Toml,
    /// Strings with commas between them.
    List,
}

impl Overrides {
    pub fn new() -> Self {
        Overrides::default()
    }

    /// `a.b=value` as `--set` has it; a value that isn't TOML is a string.
    pub fn set(&mut self, origin: &str, assignment: &str) -> Result<(), Diagnostic> {
        let file = SourceFile::new(Path::new(origin), assignment);
        let bad = || {
            Diagnostic::error(format!("`{origin} {assignment}` is not of the form `key.key=value`"))
                .at(&file, 0..assignment.len())
                .hint("for example `--set build.namespace=acme`")
        };
        let (path, value) = assignment.split_once('=').ok_or_else(bad)?;
        let path: Vec<String> = path.split('.').map(|p| p.trim().to_owned()).collect();
        if path.iter().any(String::is_empty) {
            return Err(bad());
        }
        let value = value.trim();
        // A version is written as one, `build.release=2026.1`: outside of [vars] nothing is a number with a point.
        let form = match toml::de::DeValue::parse(value) {
            Ok(parsed) if path.first().is_some_and(|key| key == "vars") || parsed.get_ref().as_float().is_none() => {
                Form::Toml
            }
            _ => Form::Literal,
        };
        let written = assignment.trim_end();
        let value_at = written.len() - value.len();
        self.settings.push(Override { origin: origin.into(), path, written: written.into(), value_at, form });
        Ok(())
    }

    /// Sets `path` (dotted) to a string: `overrides.string("--namespace", "build.namespace", "acme")`.
    pub fn string(&mut self, origin: &str, path: &str, value: &str) {
        let path = path.split('.').map(str::to_owned).collect();
        self.push(origin, path, "", value, Form::Literal);
    }

    /// Sets `path` to a number or anything else that TOML can write.
    pub fn value(&mut self, origin: &str, path: &str, value: impl Into<toml::Value>) {
        let path = path.split('.').map(str::to_owned).collect();
        self.push(origin, path, "", &value.into().to_string(), Form::Toml);
    }

    /// `--build-arg K=V`
    pub fn build_arg(&mut self, origin: &str, name: &str, value: &str) {
        let path = vec!["build".into(), "build_args".into(), name.into()];
        self.push(origin, path, &format!("{name}="), value, Form::Literal);
    }

    /// `--plugin IMAGE=P[,P]`; an empty list chooses none.
    pub fn plugins(&mut self, origin: &str, image: &str, plugins: &[String]) {
        let path = vec!["images".into(), image.into(), "plugins".into()];
        self.push(origin, path, &format!("{image}="), &plugins.join(","), Form::List);
    }

    /// `--overlay DIR`
    pub fn overlay(&mut self, dir: &Path) {
        self.overlays.push(dir.to_owned());
    }

    fn push(&mut self, origin: &str, path: Vec<String>, before: &str, value: &str, form: Form) {
        let written = format!("{before}{value}");
        self.settings.push(Override { origin: origin.into(), path, written, value_at: before.len(), form });
    }
}

impl Default for BuildSettings {
    fn default() -> Self {
        BuildSettings {
            base: "debian".into(),
            base_tag: "bookworm".into(),
            release: String::new(),
            package_type: PackageType::Deb,
            namespace: "kollage".into(),
            registry: None,
            tag_template: "{base}-{base_tag}".into(),
            tag: "debian-bookworm".into(),
            source_date_epoch: None,
            snapshot: Snapshot::None,
            snapshot_archive: Snapshot::ARCHIVE.into(),
            ca_bundle: CaBundle::Auto,
            compression: Codec::Gzip,
            network: Network::Default,
            build_args: BTreeMap::new(),
            platforms: Vec::new(),
            jobs: None,
            retries: 2,
            step_timeout: None,
            metrics_file: None,
        }
    }
}
