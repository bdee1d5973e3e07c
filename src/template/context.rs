//! The variables that recipes see:
//!
//! - `image`: `name`, `kind`, `summary`, `start`, `user` (`name`, `uid`, `gid`, `group`, `home`, `shell`, `groups`),
//!   `packages` and `build_packages` (those of the base's package type), `sources` (by name: `name`, `kind`, and
//!   `requirement` and `distribution`, `path`, `url`, `ref`, `address` (for ADD), `version`, `sha256` as the kind has them; `patches`, each with `name`,
//!   `text` and `delimiter`, a word for a here-document), `locked` (what kollage.lock has for it, as lines of a file for
//!   `pip --require-hashes`), `locked_builds` (the same for what packages are built with, a list for each call of pip),
//!   `env`, `labels`, `ports`, `volumes`, `vars`
//! - `parent`: what FROM says
//! - `build`: `base`, `base_tag`, `release`, `base_package_type`, `namespace`, `registry`, `tag`
//! - `release`: `name`, `constraints` (a list of `name==version`), `packages` (versions by package); none where the
//!   catalogue keeps no releases
//! - `vars`: those of `kollage.toml`
//! - in recipes of plugins `plugin`: `name`, `summary`, `packages`, `build_packages`, `sources`, `locked`, `locked_builds`,
//!   `env`, `labels`, `vars`; `image` is then the image that it is put on
//!
//! What a definition doesn't say is `none` (`image.user`, `image.start`) or empty.

use std::collections::BTreeMap;

use minijinja::{Value, context};

use crate::catalogue::{Additions, Catalogue, ImageDef, Packages, Patch, PluginDef, SourceDef};
use crate::lock::Resolved;

pub(super) fn for_image(catalogue: &Catalogue, image: &ImageDef, parent: &str) -> Value {
    context! {
        image => self::image(catalogue, image),
        parent => parent,
        build => build(catalogue),
        release => release(catalogue),
        vars => table(&catalogue.settings.vars),
    }
}

/// `node` is what it is called on this image.
pub(super) fn for_plugin(catalogue: &Catalogue, plugin: &PluginDef, on: &ImageDef, node: &str, parent: &str) -> Value {
    let (packages, build_packages) = packages(catalogue, &plugin.packages);
    context! {
        plugin => context! {
            name => plugin.name.as_str(),
            summary => plugin.summary.as_str(),
            packages => packages,
            build_packages => build_packages,
            sources => sources(&plugin.sources, &plugin.additions),
            locked => locked(catalogue, node),
            locked_builds => locked_builds(catalogue, node),
            env => map(&plugin.env),
            labels => map(&plugin.labels),
            vars => table(&plugin.vars),
        },
        image => image(catalogue, on),
        parent => parent,
        build => build(catalogue),
        release => release(catalogue),
        vars => table(&catalogue.settings.vars),
    }
}

fn image(catalogue: &Catalogue, image: &ImageDef) -> Value {
    let (packages, build_packages) = packages(catalogue, &image.packages);
    let user = image.user.as_ref().map(|user| {
        context! {
            name => user.name.as_str(),
            uid => user.uid,
            gid => user.gid,
            group => user.group.as_str(),
            home => user.home.as_str(),
            shell => user.shell.as_str(),
            groups => list(&user.groups),
        }
    });
    context! {
        name => image.name.as_str(),
        kind => image.kind.as_str(),
        summary => image.summary.as_str(),
        start => image.start.as_deref(),
        user => user,
        packages => packages,
        build_packages => build_packages,
        sources => sources(&image.sources, &image.additions),
        locked => locked(catalogue, &image.name),
        locked_builds => locked_builds(catalogue, &image.name),
        env => map(&image.env),
        labels => map(&image.labels),
        ports => list(&image.ports),
        volumes => list(&image.volumes),
        vars => table(&image.vars),
    }
}

fn build(catalogue: &Catalogue) -> Value {
    let build = &catalogue.settings.build;
    context! {
        base => build.base.as_str(),
        base_tag => build.base_tag.as_str(),
        release => build.release.as_str(),
        base_package_type => build.package_type.as_str(),
        namespace => build.namespace.as_str(),
        registry => build.registry.as_deref(),
        tag => build.tag.as_str(),
    }
}

fn release(catalogue: &Catalogue) -> Option<Value> {
    let release = catalogue.settings.release.as_ref()?;
    Some(context! {
        name => release.name.as_str(),
        constraints => list(&release.constraints),
        packages => map(&release.packages),
    })
}

fn packages(catalogue: &Catalogue, packages: &Packages) -> (Value, Value) {
    let package_type = catalogue.settings.build.package_type;
    (list(packages.runtime(package_type)), list(packages.build(package_type)))
}

fn locked(catalogue: &Catalogue, node: &str) -> Value {
    let requirements = catalogue.lock.pypi.get(node).map(Resolved::requirements);
    requirements.map_or_else(|| Value::from(()), |lines| lines.into_iter().collect())
}

fn locked_builds(catalogue: &Catalogue, node: &str) -> Value {
    let rounds = catalogue.lock.pypi.get(node).map(Resolved::build_rounds);
    rounds.map_or_else(|| Value::from(()), |rounds| rounds.into_iter().map(Value::from).collect())
}

fn sources(sources: &BTreeMap<String, SourceDef>, additions: &Additions) -> Value {
    Value::from_pairs(sources.iter().map(|(name, def)| (name.as_str(), source(name, def, patches(name, additions)))))
}

fn source(name: &str, source: &SourceDef, patches: Value) -> Value {
    let kind = source.kind();
    match source {
        SourceDef::Pypi { requirement } => {
            context! { name, kind, patches, requirement => requirement.as_str(), distribution => source.distribution() }
        }
        SourceDef::Git { url, reference, version, .. } => {
            context! {
                name,
                kind,
                patches,
                url => url.as_str(),
                ref => reference.as_deref(),
                version => version.as_deref(),
                address => source.address(),
            }
        }
        SourceDef::Url { url, sha256 } => {
            context! { name, kind, patches, url => url.as_str(), sha256 => sha256.as_deref() }
        }
        SourceDef::Local { path } => context! { name, kind, patches, path => path.as_str() },
    }
}

fn patches(source: &str, additions: &Additions) -> Value {
    let patches = additions.patches.iter().filter(|(name, _)| name == source);
    let patch = |patch: &Patch| {
        context! { name => patch.name.as_str(), text => patch.text.as_str(), delimiter => delimiter(&patch.text) }
    };
    patches.map(|(_, found)| patch(found)).collect()
}

/// What ends a here-document with this text in it.
fn delimiter(text: &str) -> String {
    let mut word = "END_OF_PATCH".to_owned();
    while text.lines().any(|line| line.trim() == word) {
        word.push('_');
    }
    word
}

fn list(items: &[String]) -> Value {
    items.iter().map(String::as_str).collect()
}

fn map(map: &BTreeMap<String, String>) -> Value {
    Value::from_pairs(map.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

fn table(table: &toml::Table) -> Value {
    Value::from_pairs(table.iter().map(|(key, value)| (key.as_str(), self::value(value))))
}

fn value(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::from(*number),
        toml::Value::Boolean(yes) => Value::from(*yes),
        toml::Value::Datetime(date) => Value::from(date.to_string()),
        toml::Value::Array(items) => items.iter().map(self::value).collect(),
        toml::Value::Table(table) => self::table(table),
    }
}
