//! JSON Schemas (draft 7, which editors know) of the files of a catalogue: their keys, types and words, with what an
//! editor shows about them. Forms of names and what one file says of another are the reader's business; a test holds
//! the keys of both against each other.

use serde_json::{Value, json};

use super::base::{DISTRIBUTIONS, VARIANTS};
use super::types::EngineName;
use crate::dockerfile::step::Entitlement;
use crate::engine::docker;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    Kollage,
    Image,
    Plugin,
    Release,
    Overlay,
}

impl File {
    pub const ALL: [File; 5] = [File::Kollage, File::Image, File::Plugin, File::Release, File::Overlay];

    pub fn as_str(self) -> &'static str {
        match self {
            File::Kollage => "kollage",
            File::Image => "image",
            File::Plugin => "plugin",
            File::Release => "release",
            File::Overlay => "overlay",
        }
    }
}

pub fn schema(file: File) -> Value {
    let (title, about, properties, required) = match file {
        File::Kollage => ("kollage.toml", "Settings of a catalogue", kollage(), json!([])),
        File::Image => ("image.toml", "One image of a catalogue", image(), json!(["image"])),
        File::Plugin => ("plugin.toml", "An optional layer on images that accept it", plugin(), json!(["plugin"])),
        File::Release => ("releases/NAME.toml", "The versions of one release", release(), json!(["release"])),
        File::Overlay => ("overlay.toml", "Changes to a catalogue from outside of it", overlay(), json!([])),
    };
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
        "description": about,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
        "definitions": match file {
            File::Overlay => json!({"edit": edit()}),
            _ => json!({}),
        },
    })
}

pub(crate) fn table(about: &str, properties: Value) -> Value {
    json!({"description": about, "type": "object", "properties": properties, "additionalProperties": false})
}

/// A table whose keys are names.
pub(crate) fn named(about: &str, each: Value) -> Value {
    json!({"description": about, "type": "object", "additionalProperties": each})
}

pub(crate) fn text(about: &str) -> Value {
    json!({"description": about, "type": "string"})
}

pub(crate) fn word(about: &str, words: &[&str]) -> Value {
    json!({"description": about, "enum": words})
}

pub(crate) fn list(about: &str) -> Value {
    json!({"description": about, "type": "array", "items": {"type": "string"}, "uniqueItems": true})
}

fn some_of(about: &str, words: &[&str]) -> Value {
    json!({"description": about, "type": "array", "items": {"enum": words}, "uniqueItems": true})
}

pub(crate) fn number(about: &str, low: i64, high: i64) -> Value {
    json!({"description": about, "type": "integer", "minimum": low, "maximum": high})
}

fn epoch() -> Value {
    number("The time of everything that is built, in seconds since 1970", 0, 253_402_300_799)
}

/// What a recipe reads and nobody else.
fn free() -> Value {
    json!({"description": "Anything, for recipes: `vars` in them", "type": "object"})
}

fn kollage() -> Value {
    let engines = EngineName::ALL.map(EngineName::as_str);
    let builders = docker::Builder::ALL.map(|(word, _)| word);
    let entitlements = Entitlement::ALL.map(Entitlement::as_str);
    json!({
        "build": table("How images are built and called", json!({
            "base": text("Distribution that images are built on: debian, ubuntu, rocky, …"),
            "base_tag": text("Its version: bookworm, 24.04, …"),
            "base_package_type": word("Which package lists count", &["deb", "rpm"]),
            "release": text("Release of what is in the images; releases/NAME.toml where there are releases"),
            "namespace": text("First part of image names"),
            "registry": text("Registry in front of image names, with a path where there is one"),
            "tag": text("Tag of images; {release}, {base} and {base_tag} are filled in"),
            "source_date_epoch": epoch(),
            "debian": table("Bases that are made of Debian's packages", json!({
                "archive": text("Where days of Debian's archive are: the address above `debian/`"),
                "snapshot": text("Day of Debian's archive: 2026-11-30, auto for what kollage.lock says, or none"),
            })),
            "ca_bundle": text("Certificates that are lent to steps: auto, off, or the path of a PEM file"),
            "compression": word("Of layers that are exported", &["gzip", "zstd"]),
            "network": word("Network of RUN steps", &["default", "none", "host"]),
            "build_args": named("Values of ARGs", json!({"type": "string"})),
            "platforms": json!({
                "description": "What images are built for, unless the command line says otherwise: linux/amd64, …",
                "type": "array",
                "items": {"type": "string"},
            }),
            "jobs": number("Images that are built at once", 1, 1024),
            "retries": number("How often steps and downloads are tried again after network failures", 0, 100),
            "metrics_file": text("Where figures of each run go, in the OpenMetrics format"),
            "step_timeout": text("A step that takes longer is ended: 30m, 1h30m; 0 is no limit"),
        })),
        "engine": table("What carries builds out", json!({
            "default": word("Engine, unless the command line names another", &engines),
            "disk_limit": text("What the layers of a build and its running steps may take: 20g"),
            "docker": table("The engine of Docker and Podman", json!({
                "builder": word("Which of Docker's builders; auto: BuildKit where there is one", &builders),
            })),
            "buildkit": table("The engine of builders elsewhere", json!({
                "builders": {"description": "Builders", "type": "array", "items": table("A builder", json!({
                    "address": text("Where it is: unix:///PATH, tcp://HOST:PORT or tls://HOST:PORT"),
                    "platform": text("What it is used for, as linux/arm64; whatever it can do otherwise"),
                    "weight": number("How much it takes beside the others", 1, 1000),
                    "certificates": text("Directory with ca.pem, cert.pem and key.pem for tls://"),
                }))},
                "repository": text("Repository of a registry where results meet: registry.example.org/kollage/work"),
                "certificates": text("Directory with ca.pem, cert.pem and key.pem for every builder at tls://"),
            })),
        })),
        "policy": table("The operator's rules, in /etc/kollage/kollage.toml only", json!({
            "engines": some_of("Engines that may be used", &engines),
            "registries": list("Registries that images may come from"),
            "entitlements": some_of("What `--allow` may give to steps", &entitlements),
        })),
        "overlays": list("Directories with an overlay.toml, in the order in which they change this catalogue"),
        "profiles": named(
            "Sets of images: names, globs, `re:` and an expression, `@` and another profile",
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
        ),
        "images": named("Choices by image", table("Choices for this image", json!({
            "plugins": list("Plugins that are put on it"),
        }))),
        "plugins": table("What holds for plugins wherever they are put", json!({
            "allow": list("Plugins that may be built although they do not fit"),
        })),
        "vars": free(),
    })
}

/// What images and plugins have in common, besides what is given.
fn definition(mut own: Value) -> Value {
    let common = json!({
        "packages": table("Packages of the distribution", json!({
            "deb": list("On Debian and Ubuntu; name or name=version"),
            "rpm": list("On distributions with RPM packages"),
            "deb_build": list("Needed to build, and not in the image"),
            "rpm_build": list("Needed to build, and not in the image"),
        })),
        "sources": named("What is installed besides packages, by a name", json!({
            "type": "object",
            "properties": {
                "pypi": text("A requirement: keystone, keystone[ldap], keystone==30.0.0"),
                "git": text("Address of a git repository"),
                "ref": text("Branch, tag or commit in it"),
                "subdir": text("Directory of it that has the package"),
                "version": text("Version of the package, where only the history of the repository could tell it"),
                "url": text("Address of a file"),
                "sha256": text("Its digest"),
                "local": text("Path in the definition's folder"),
            },
            "additionalProperties": false,
            "oneOf": [
                {"required": ["pypi"]}, {"required": ["git"]}, {"required": ["url"]}, {"required": ["local"]},
            ],
        })),
        "check": {
            "description": "Run in the finished image; a failure fails the image",
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "run": {"description": "Program and arguments", "type": "array", "items": {"type": "string"},
                            "minItems": 1},
                    "user": text("User to run as, instead of the image's"),
                },
                "required": ["run"],
                "additionalProperties": false,
            },
        },
        "env": named("Environment variables of the image", json!({"type": "string"})),
        "labels": named("Labels of the image", json!({"type": "string"})),
        "vars": free(),
    });
    if let (Some(own), Value::Object(common)) = (own.as_object_mut(), common) {
        own.extend(common);
    }
    own
}

fn image() -> Value {
    let base = json!({
        "description": "An image from elsewhere that it is built on",
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "properties": {
                    "bootstrap": word("Made from packages of this distribution", &DISTRIBUTIONS),
                    "suite": text("bookworm, noble, …; that of the release where there is one"),
                    "mirror": text("Where packages come from"),
                    "components": list("Parts of the archive: main, universe, …"),
                    "keyring": text("Keys of the archive, where the machine has not got them"),
                    "variant": word("How much is installed; mmdebstrap's words", &VARIANTS),
                    "packages": list("Packages besides"),
                    "oci": text("Directory with an OCI image layout"),
                    "docker-archive": text("File as `docker save` writes it"),
                    "ref": text("Name of the image in it, where there are several"),
                    "rootfs": text("Tar of a root file system"),
                },
                "additionalProperties": false,
                "oneOf": [
                    {"required": ["bootstrap"]}, {"required": ["oci"]}, {"required": ["docker-archive"]},
                    {"required": ["rootfs"]},
                ],
            },
        ],
    });
    definition(json!({
        "image": table("What it is", json!({
            "kind": word("base: others are built on it; service: it is run", &["base", "service"]),
            "parent": text("Image of this catalogue that it is built on"),
            "from": base,
            "recipe": text("images/_recipes/NAME.j2, instead of a Dockerfile.j2 of its own"),
            "start": text("Name of its start definition"),
            "summary": text("What it is, in a few words"),
            "ports": list("Ports that it listens on: 80, 53/udp"),
            "volumes": list("Paths that are volumes"),
        })),
        "user": table("User that the service runs as", json!({
            "name": text("Name"),
            "uid": number("Number", 0, i64::from(u32::MAX - 1)),
            "group": text("Name of its group, where that is another"),
            "gid": number("Number of its group", 0, i64::from(u32::MAX - 1)),
            "groups": list("Other groups that it is in"),
            "home": text("Home directory"),
            "shell": text("Login shell"),
        })),
        "plugins": table("Which plugins can be put on it", json!({
            "accept": list("Names or globs of plugins that may be chosen"),
            "default": list("Plugins that are chosen unless somebody says otherwise"),
            "inherited": json!({"description": "What is built on it is built on its plugins as well; then a base can have some", "type": "boolean"}),
        })),
    }))
}

fn plugin() -> Value {
    definition(json!({
        "plugin": table("What it is and fits", json!({
            "summary": text("What it adds, in a few words"),
            "images": list("Names or globs of images that it can be put on"),
            "requires": list("Plugins that have to be below it"),
            "conflicts": list("Plugins that cannot be beside it"),
            "changes": list("Globs of the image's files that its layer changes: /etc/keystone/**"),
            "needs": named("Ranges of versions by distribution on PyPI: >=28,<30", json!({"type": "string"})),
            "order": number("Place among the plugins of an image; 50 unless said", -1_000_000, 1_000_000),
            "recipe": text("images/_recipes/NAME.j2, instead of a Dockerfile.j2 of its own"),
        })),
    }))
}

fn release() -> Value {
    json!({
        "release": table("What it is", json!({
            "name": text("The name of the file"),
            "source_date_epoch": epoch(),
            "constraints": text("File beside this one with lines `name==version`"),
        })),
        "sources": named("Versions of PyPI sources that definitions leave open", json!({"type": "string"})),
        "packages": table("Versions of distribution packages", json!({
            "deb": named("Versions by Debian package", json!({"type": "string"})),
        })),
        "bases": named("By distribution", table("What this release is built on", json!({
            "suite": text("Suite of the base"),
        }))),
    })
}

fn overlay() -> Value {
    let one_of_both = json!([{"required": ["images"]}, {"required": ["plugins"]}]);
    let edit = json!({"$ref": "#/definitions/edit"});
    json!({
        "change": {
            "description": "Changes definitions: `packages.deb.append = [\"tcpdump\"]`",
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "images": list("Names or globs of images that are changed"),
                    "plugins": {"anyOf": [list("Names or globs of plugins that are changed"), edit]},
                    "blocks": named("Blocks of the recipe that are replaced", json!({"type": "string"})),
                },
                "additionalProperties": edit,
                "anyOf": one_of_both,
            },
        },
        "patch": {
            "description": "Patches the source of images or plugins after it was installed",
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "images": list("Names or globs of images"),
                    "plugins": list("Names or globs of plugins"),
                    "source": text("Name of the source"),
                    "files": list("Patches in the overlay; the last part may be a glob"),
                },
                "required": ["source", "files"],
                "additionalProperties": false,
                "oneOf": one_of_both,
            },
        },
    })
}

/// A key, or a table of keys, that ends in words that say how its value changes.
fn edit() -> Value {
    let anything = json!({});
    json!({
        "type": "object",
        "minProperties": 1,
        "anyOf": [
            {
                "properties": {
                    "append": {"description": "Put behind a list", "type": "array"},
                    "remove": {"description": "Taken out of a list; true for all of it",
                               "anyOf": [{"type": "array"}, {"const": true}]},
                    "override": anything,
                    "add": anything,
                },
                "additionalProperties": false,
            },
            {"additionalProperties": {"$ref": "#/definitions/edit"}},
        ],
    })
}
