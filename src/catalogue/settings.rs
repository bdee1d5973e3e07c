//! `kollage.toml`: of the project, of the user and of the system, and the command line, merged by precedence.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::diag::{Diagnostic, Diagnostics, Place, SourceFile};
use crate::dockerfile::step::{Entitlement, Network};
use crate::dockerfile::{self, duration};
use crate::engine::buildkit::address::Address;
use crate::engine::buildkit::dial::Certificates;
use crate::engine::{buildkit, docker};
use crate::image::config::Platform;
use crate::image::reference::Reference;
use crate::image::store::Codec;

use super::names;
use super::reader::{Out, Reader, error};
use super::release;
use super::tree::{self, Node, Table, Value};
use super::types::{
    BuildSettings, BuildkitSettings, CaBundle, ConfigFiles, EngineName, EngineSettings, Overrides, PackageType, Places,
    Policy, Settings, Snapshot,
};
use crate::lock;
use crate::suggest;

/// Distributions whose package type is known; others need `base_package_type`.
const DEB: [&str; 2] = ["debian", "ubuntu"];
const RPM: [&str; 7] = ["almalinux", "centos", "fedora", "openeuler", "opensuse", "rhel", "rocky"];

/// Everything that the settings files and the command line say. None: a file was not readable as TOML, and what it
/// would have said is unknown.
pub(super) fn load(
    project: Option<&Path>,
    overrides: &Overrides,
    config: &ConfigFiles,
    problems: &mut Diagnostics,
) -> Option<Settings> {
    let mut merged = Table::new();
    let mut first: Option<Place> = None;
    let mut readable = true;
    let layers =
        [(config.system.as_deref(), true, false), (config.user.as_deref(), false, false), (project, false, true)];
    for (path, system, required) in layers {
        let Some(path) = path else { continue };
        let Some(file) = read(path, required, problems) else { continue };
        first = Some(Place { file: file.clone(), span: 0..0 });
        match tree::parse(&file, problems) {
            Some(Node { value: Value::Table(mut table), .. }) => {
                if !system {
                    refuse_policy(&mut table, config, problems);
                }
                tree::merge(&mut merged, table);
            }
            _ => readable = false,
        }
    }
    for over in &overrides.settings {
        let mut table = tree::from_override(over, problems);
        refuse_policy(&mut table, config, problems);
        tree::merge(&mut merged, table);
    }
    if !readable {
        return None;
    }
    let releases = project.map(|project| project.with_file_name("releases"));
    let release = releases.and_then(|dir| release::load(&merged, &dir, problems));
    if let Some(release) = &release {
        release.fill_settings(&mut merged);
    }
    let place = first.unwrap_or_else(|| Place { file: SourceFile::new("kollage.toml", ""), span: 0..0 });
    let mut out = Out::default();
    let settings = read_settings(&merged, &place, &mut out);
    problems.extend(std::mem::take(&mut out.problems));
    Some(Settings { release, places: Places(out.places), ..settings })
}

/// One file by itself.
pub(super) fn check(file: &Arc<SourceFile>) -> Diagnostics {
    let mut problems = Diagnostics::default();
    if let Some(Node { value: Value::Table(table), place }) = tree::parse(file, &mut problems) {
        let mut out = Out { problems, ..Out::default() };
        read_settings(&table, &place, &mut out);
        problems = out.problems;
    }
    problems
}

fn read(path: &Path, required: bool, problems: &mut Diagnostics) -> Option<Arc<SourceFile>> {
    match crate::text::read_to_string(path) {
        Ok(text) => Some(SourceFile::new(path, text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !required => None,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            problems.push(
                Diagnostic::error(format!("there is no `{}`", path.display()))
                    .hint("`kollage init` writes a small catalogue to start from; `-C DIR` names another directory"),
            );
            None
        }
        Err(e) => {
            problems.push(Diagnostic::error(format!("cannot read `{}`: {e}", path.display())));
            None
        }
    }
}

/// A policy that those could set whom it binds would be none.
fn refuse_policy(table: &mut Table, config: &ConfigFiles, problems: &mut Diagnostics) {
    let Some(entry) = table.remove("policy") else { return };
    let system = config.system.as_deref().unwrap_or(Path::new("/etc/kollage/kollage.toml"));
    problems.push(
        error(&entry.place, "[policy] is the operator's and cannot be set here")
            .hint(format!("it is read from `{}` only", system.display())),
    );
}

fn read_settings(table: &Table, place: &Place, out: &mut Out) -> Settings {
    let mut root = Reader::new(table, place, out);
    let build = root.table("build", read_build).unwrap_or_default();
    let engine = root
        .table("engine", |r| EngineSettings {
            default: r.choice("default", &engines()).unwrap_or_default(),
            disk_limit: disk_limit(r),
            docker: r.table("docker", |r| r.choice("builder", &docker::Builder::ALL)).flatten().unwrap_or_default(),
            buildkit: r.table("buildkit", read_buildkit).unwrap_or_default(),
        })
        .unwrap_or_default();
    let policy = root.table("policy", read_policy).unwrap_or_default();
    let mut settings = Settings { build, engine, policy, vars: root.free("vars"), ..Settings::default() };
    root.each("profiles", |name, entry, reader| {
        let full = reader.name(name);
        if let Err(why) = names::component(name) {
            reader.out.problems.push(error(&entry.place, format!("`{name}` is not a name of a profile: {why}")));
        }
        let patterns = reader.list_of(&full, &entry.node, "", |_| Ok(()), false);
        if matches!(&entry.node.value, Value::Array(items) if items.is_empty()) {
            reader.out.problems.push(error(&entry.node.place, format!("profile `{name}` selects nothing")));
        }
        settings.profiles.insert(name.to_owned(), patterns);
    });
    root.each("images", |name, entry, reader| {
        let full = reader.name(name);
        settings.image_sections.insert(name.to_owned(), entry.place.clone());
        reader.table_of(&full, &entry.node, |image| {
            let chosen = image.has("plugins");
            let plugins = image.forms("plugins", "a name of a plugin", names::component);
            if chosen {
                settings.image_plugins.insert(name.to_owned(), plugins);
            }
        });
    });
    root.table("plugins", |reader| {
        let allowed = reader.placed_forms("allow", "a name of a plugin", names::component);
        settings.allowed_plugins = allowed.into_iter().collect();
    });
    settings.overlays = overlays(&mut root);
    root.finish();
    settings
}

/// `overlays = ["DIR"]`, each meant from where the file is.
fn overlays(root: &mut Reader<'_>) -> Vec<(PathBuf, Place)> {
    let plain = |text: &str| match text.is_empty() || text.chars().any(char::is_control) {
        true => Err("it is no path".to_owned()),
        false => Ok(()),
    };
    let texts = root.placed_forms("overlays", "a directory of an overlay", plain).into_iter();
    texts.map(|(text, place)| (beside(&place, &text), place)).collect()
}

fn engines() -> [(&'static str, EngineName); 3] {
    EngineName::ALL.map(|engine| (engine.as_str(), engine))
}

fn disk_limit(reader: &mut Reader<'_>) -> Option<u64> {
    let text = reader.string("disk_limit")?;
    let bytes = crate::quantity::bytes(&text).filter(|bytes| *bytes > 0);
    if bytes.is_none() {
        let place = reader.value_place("disk_limit");
        let problem = error(place, format!("`{text}` is not a size")).hint("write it as `500m` or `20g`");
        reader.out.problems.push(problem);
    }
    bytes
}

fn read_buildkit(reader: &mut Reader<'_>) -> BuildkitSettings {
    let certificates = directory(reader, "certificates");
    let repository = reader.form("repository", "a repository of a registry", |text| match text.parse::<Reference>() {
        Ok(name) if name.tag().is_some() || name.digest().is_some() => Err("it has a tag or a digest".into()),
        Ok(_) if !text.contains('/') => Err("it names no registry".into()),
        Ok(_) => Ok(()),
        Err(why) => Err(why.to_string()),
    });
    let mut builders = Vec::new();
    reader.tables("builders", |one| {
        let address = one.form("address", "an address of a builder", |text| match text.parse::<Address>() {
            Ok(_) => Ok(()),
            Err(why) => Err(why.causes().first().cloned().unwrap_or_else(|| why.to_string())),
        });
        let platform = one.form("platform", "a platform", |text| match dockerfile::platform(text) {
            Some(_) => Ok(()),
            None => Err("write it as `linux/amd64`".into()),
        });
        let weight = one.number("weight", 1..=1000).unwrap_or(1);
        let own = directory(one, "certificates");
        match address.and_then(|text| text.parse().ok()) {
            Some(address) => builders.push(buildkit::Named {
                address,
                certificates: Certificates(own.or_else(|| certificates.clone())),
                platform: platform.and_then(|text| dockerfile::platform(&text)),
                weight,
            }),
            None if !one.has("address") => {
                let problem = error(one.place, "a builder has no `address`");
                one.out.problems.push(problem.hint("for example `address = \"tcp://builder:1234\"`"));
            }
            None => {}
        }
    });
    BuildkitSettings { builders, repository, certificates }
}

/// A path, meant from where the file is.
fn directory(reader: &mut Reader<'_>, key: &'static str) -> Option<PathBuf> {
    let text = reader.string(key)?;
    Some(beside(reader.value_place(key), &text))
}

fn read_policy(reader: &mut Reader<'_>) -> Policy {
    let engines = reader.some_of("engines", "an engine", &engines());
    let registries = reader.has("registries").then(|| reader.forms("registries", "a registry", names::registry_host));
    let entitlements = Entitlement::ALL.map(|entitlement| (entitlement.as_str(), entitlement));
    let entitlements = reader.some_of("entitlements", "something to allow", &entitlements);
    // Asked for again, so that the key is known when it is absent.
    reader.node("registries");
    Policy { engines, registries, entitlements }
}

fn read_build(reader: &mut Reader<'_>) -> BuildSettings {
    let default = BuildSettings::default();
    let base = reader.form("base", "a name of a distribution", names::component);
    let package_type = package_type(reader, base.as_deref().unwrap_or(&default.base));
    let base_tag = match (reader.form("base_tag", "a tag", names::tag), &base) {
        (Some(tag), _) => tag,
        (None, Some(base)) if *base != default.base && !reader.has("base_tag") => {
            let hint = format!("name the version of {base}, for example `base_tag = \"24.04\"`");
            let place = reader.value_place("base");
            reader
                .out
                .problems
                .push(error(place, format!("`build.base` is {base}, so it needs a `base_tag`")).hint(hint));
            default.base_tag.clone()
        }
        _ => default.base_tag.clone(),
    };
    let (snapshot, archive) =
        reader.table("debian", |reader| (snapshot(reader), snapshot_archive(reader))).unwrap_or_default();
    let mut build = BuildSettings {
        base: base.unwrap_or(default.base),
        base_tag,
        release: reader.form("release", "a release", names::tag).unwrap_or_default(),
        package_type,
        namespace: reader.form("namespace", "a namespace of images", names::namespace).unwrap_or(default.namespace),
        registry: reader.form("registry", "a registry", names::registry),
        tag_template: reader.string("tag").unwrap_or_default(),
        tag: String::new(),
        source_date_epoch: reader.number("source_date_epoch", 0..=253_402_300_799),
        snapshot,
        snapshot_archive: archive.unwrap_or(default.snapshot_archive),
        ca_bundle: ca_bundle(reader),
        compression: reader
            .choice("compression", &[("gzip", Codec::Gzip), ("zstd", Codec::Zstd)])
            .unwrap_or(default.compression),
        network: reader
            .choice("network", &[("default", Network::Default), ("none", Network::None), ("host", Network::Host)])
            .unwrap_or(default.network),
        build_args: reader.string_map("build_args", "a name of a build argument", names::env),
        platforms: platforms(reader),
        jobs: reader.number("jobs", 1..=1024),
        metrics_file: metrics_file(reader),
        retries: reader.number("retries", 0..=100).unwrap_or(default.retries),
        step_timeout: reader
            .form("step_timeout", "a limit for steps", |text| limit_of_steps(text).map(drop))
            .and_then(|text| limit_of_steps(&text).ok()),
    };
    if build.tag_template.is_empty() {
        let release = if build.release.is_empty() { "" } else { "{release}-" };
        build.tag_template = format!("{release}{}", default.tag_template);
    }
    match expand_tag(&build.tag_template, &build) {
        Ok(tag) => build.tag = tag,
        Err((message, hint)) => {
            let mut problem = error(reader.value_place("tag"), message);
            problem.hint = hint;
            reader.out.problems.push(problem);
        }
    }
    build
}

fn platforms(reader: &mut Reader<'_>) -> Vec<Platform> {
    let check = |text: &str| dockerfile::built_for(text).map(drop).map_err(str::to_owned);
    let mut platforms = Vec::new();
    for text in reader.forms("platforms", "a platform that images are built for", check) {
        platforms.extend(dockerfile::built_for(&text).ok().filter(|platform| !platforms.contains(platform)));
    }
    platforms
}

fn package_type(reader: &mut Reader<'_>, base: &str) -> PackageType {
    let choices = [("deb", PackageType::Deb), ("rpm", PackageType::Rpm)];
    if let Some(said) = reader.choice("base_package_type", &choices) {
        return said;
    }
    if RPM.contains(&base) {
        return PackageType::Rpm;
    }
    if !DEB.contains(&base) && !reader.has("base_package_type") {
        let hint = match suggest::nearest(base, DEB.into_iter().chain(RPM)) {
            Some(near) => format!("did you mean `{near}`? If not, say `base_package_type = \"deb\"` or `\"rpm\"`"),
            None => "say which it has: `base_package_type = \"deb\"` or `\"rpm\"`".into(),
        };
        let message = format!("`{base}` is not a distribution whose package type is known");
        reader.out.problems.push(error(reader.value_place("base"), message).hint(hint));
    }
    PackageType::Deb
}

fn metrics_file(reader: &mut Reader<'_>) -> Option<PathBuf> {
    let path = reader.form("metrics_file", "a file", |text| match text.is_empty() {
        true => Err("it is empty".into()),
        false => Ok(()),
    })?;
    Some(beside(reader.value_place("metrics_file"), &path))
}

/// Where days of the archive are: a copy of it is as good, and may be all that can be reached.
fn snapshot_archive(reader: &mut Reader<'_>) -> Option<String> {
    let text = reader.string("archive")?;
    let is_web =
        ["http://", "https://"].iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    // It becomes part of a line of apt's.
    match is_web && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '[') {
        true => Some(text.trim_end_matches('/').to_owned()),
        false => {
            let message = format!("`{text}` is not the address of an archive of Debian");
            let hint = "it is http:// or https://, and below it is `debian/20261130T000000Z/`";
            reader.out.problems.push(error(reader.value_place("archive"), message).hint(hint));
            None
        }
    }
}

fn snapshot(reader: &mut Reader<'_>) -> Snapshot {
    match reader.string("snapshot").as_deref() {
        None | Some("none") => Snapshot::None,
        Some("auto") => Snapshot::Locked,
        // A day is what people write, a moment what archives are named by.
        Some(text) if lock::is_snapshot(text) => Snapshot::At(text.to_owned()),
        Some(text) if lock::is_snapshot(&format!("{}T000000Z", text.replace('-', ""))) => {
            Snapshot::At(format!("{}T000000Z", text.replace('-', "")))
        }
        Some(other) => {
            let message = format!("`{other}` is not a day of Debian's archive");
            let hint = "it is \"2026-11-30\", \"20261130T103000Z\", \"auto\" for what kollage.lock says, or \"none\"";
            reader.out.problems.push(error(reader.value_place("snapshot"), message).hint(hint));
            Snapshot::None
        }
    }
}

fn ca_bundle(reader: &mut Reader<'_>) -> CaBundle {
    match reader.string("ca_bundle").as_deref() {
        None | Some("auto") => CaBundle::Auto,
        Some("off") => CaBundle::Off,
        Some(path) if path.contains('/') || path.ends_with(".pem") || path.ends_with(".crt") => {
            CaBundle::Path(beside(reader.value_place("ca_bundle"), path))
        }
        Some(other) => {
            let problem =
                error(reader.value_place("ca_bundle"), format!("`{other}` is not a value of `build.ca_bundle`"));
            let hint = "it is \"auto\", \"off\" or the path of a PEM file";
            reader.out.problems.push(problem.hint(hint));
            CaBundle::Auto
        }
    }
}

/// A path that a file names is meant from where the file is.
fn beside(place: &Place, path: &str) -> PathBuf {
    place.file.path.parent().map_or_else(|| PathBuf::from(path), |dir| dir.join(path))
}

/// `30m`, `1h30m`; `0` is none.
pub fn limit_of_steps(text: &str) -> Result<Duration, String> {
    let nanoseconds = duration::parse(text).and_then(|n| u64::try_from(n).ok());
    let limit = nanoseconds.map(Duration::from_nanos).ok_or("write it as `30m`, `90s` or `1h30m`")?;
    match limit.is_zero() || limit >= Duration::from_secs(1) {
        true => Ok(limit),
        false => Err("no step is done in less than a second".into()),
    }
}

/// Fills in `{release}`, `{base}` and `{base_tag}`; the error is a message and perhaps a hint.
fn expand_tag(template: &str, build: &BuildSettings) -> Result<String, (String, Option<String>)> {
    let fields = ["release", "base", "base_tag"];
    let mut tag = String::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        tag.push_str(&rest[..open]);
        let close = rest[open..].find('}').map(|i| open + i);
        let close = close.ok_or_else(|| (format!("`{{` in tag `{template}` is never closed"), None))?;
        let field = &rest[open + 1..close];
        match field {
            "release" if build.release.is_empty() => {
                let hint = "add `release = \"2026.1\"` to [build]".to_owned();
                return Err((format!("tag `{template}` names the release, and none is set"), Some(hint)));
            }
            "release" => tag.push_str(&build.release),
            "base" => tag.push_str(&build.base),
            "base_tag" => tag.push_str(&build.base_tag),
            _ => {
                return Err((format!("unknown `{{{field}}}` in tag `{template}`"), suggest::hint(field, fields)));
            }
        }
        rest = &rest[close + 1..];
    }
    tag.push_str(rest);
    names::tag(&tag).map_err(|why| (format!("`{tag}` is not a tag: {why}"), None))?;
    Ok(tag)
}
