//! The JSON Schema of `deployment.toml`.

use serde_json::{Value, json};

use super::definition::Restart;
use crate::catalogue::schema::{list, named, number, table, text, word};

pub fn schema() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "deployment.toml",
        "description": "Services that run together, and what each runs with",
        "type": "object",
        "properties": {
            "deployment": table("What it is", json!({
                "name": text("First part of the names of its containers, volumes and networks"),
            })),
            "bundle": table("Where the start runtime and its definitions come from: one of these", json!({
                "directory": text("Directory of the host"),
                "volume": text("Volume of the engine"),
                "image": text("Image that has them at its root"),
            })),
            "environment": named("Variables of all services", string()),
            "secrets": named("Where values are that must not stand in files", table("One of these", json!({
                "env": text("Environment variable that has the value"),
                "file": text("File that has it"),
            }))),
            "service": {
                "description": "Services; each is started after those that it needs, else in this order",
                "type": "array",
                "items": service(),
                "minItems": 1,
            },
        },
        "required": ["deployment", "bundle", "service"],
        "additionalProperties": false,
    })
}

fn service() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": text("What it is called here; other services reach it by this name"),
            "image": text("Image of the catalogue by name, or any reference"),
            "start": text("Start definition, if it isn't called like the service"),
            "config": text("Directory that becomes /var/lib/kolla/config_files"),
            "config_secret": {"description": "There are passwords in the configuration", "type": "boolean"},
            "network": word("The deployment's own network, or that of the host", &["own", "host"]),
            "ports": list("Ports of the host that lead to it: [ADDRESS:]HOST:CONTAINER[/udp]"),
            "volumes": list("What it keeps: NAME:PATH[:ro], or a directory of the host: /DIR:PATH[:ro]"),
            "environment": named("Variables", string()),
            "secrets": named("Secrets by variable: names of the table [secrets]", string()),
            "after": list("Services that have to be well before this one is started"),
            "restart": word("When the engine starts it again", &Restart::ALL.map(|(word, _)| word)),
            "capabilities": list("Capabilities besides those that a start takes: NET_ADMIN, …"),
            "health_timeout": number("Seconds until it has to be well", 1, 86_400),
            "tasks": table("Tasks of its definition, by when they are done", json!({
                "first": list("Once, before the first start; bootstrap unless said"),
                "upgrade": list("With a new image, while the old one runs; upgrade unless said"),
                "finish": list("With a new image, once it is well; finish-upgrade unless said"),
            })),
        },
        "required": ["name", "image"],
        "additionalProperties": false,
    })
}

fn string() -> Value {
    json!({"type": "string"})
}
