//! The JSON Schema of `kollage.lock`.

use serde_json::{Value, json};

use super::VERSION;
use crate::catalogue::schema::named;

pub fn schema() -> Value {
    let matching = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let package = "^[^ ]+( sha256:[0-9a-f]{64})+$";
    let tools = "^[^ ]+( sha256:[0-9a-f]{64})+( source)?(, [^ ]+( sha256:[0-9a-f]{64})+( source)?)*$";
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "kollage.lock",
        "description": "What names that move stood for; written by `kollage lock`",
        "type": "object",
        "properties": {
            "version": {"description": "Of the format", "const": VERSION},
            "bases": named("Digests of base images, by reference", matching("^sha256:[0-9a-f]{64}$")),
            "debian": named("Days of Debian's archive, by distribution and suite", matching("^[0-9]{8}T[0-9]{6}Z$")),
            "git": named("Commits, by address", matching("^[0-9a-f]{40,}( refs/[^ ]+)?$")),
            "urls": named("Digests of files and when they were made, by address",
                          matching("^sha256:[0-9a-f]{64}( -?[0-9]+)?$")),
            "pypi": named("Digests of what was asked, by image", matching("^[0-9a-f]+$")),
            "packages": named("What was found, by image and package", named("By name", matching(package))),
            "builds": named("What packages without a wheel are built with, by image and package",
                            named("By name", matching(tools))),
        },
        "required": ["version"],
        "additionalProperties": false,
    })
}
