//! The JSON Schema of `start.toml`.

use serde_json::{Value, json};

use crate::catalogue::schema::{list, named, number, table, text, word};

pub fn schema() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "start.toml",
        "description": "How one service is started, whatever image it is in",
        "type": "object",
        "properties": properties(),
        "required": ["service"],
        "additionalProperties": false,
    })
}

fn properties() -> Value {
    json!({
        "service": table("What it is", json!({
            "summary": text("What it is, in a few words"),
            "command": words("Runs when the configuration names no command"),
            "arguments": words("Comes behind any command; what is empty is left out"),
            "stop_signal": word("Signal that stops it; TERM unless said", &["HUP", "INT", "QUIT", "TERM", "USR1", "USR2",
                "WINCH"]),
            "stop_timeout": number("Seconds until a stop becomes a kill", 1, 86_400),
            "capabilities": words("Capabilities that it needs besides those of any container, like NET_ADMIN"),
            "health": words("Check of its health: [\"http\", URL], [\"listen\", PROCESS, PORT], …"),
        })),
        "user": table("User that it runs as; root without one", json!({
            "name": text("Name in the image's /etc/passwd"),
            "uid": id("Number where the image has no such user"),
            "gid": id("Number of the group; the user's unless said"),
            "missing": word("Who it is where the image has no such user", &["image", "number", "error"]),
        })),
        "environment": named("Environment of the command and the steps, unless the container has it", string()),
        "variables": named("Variables that stand in texts as ${NAME}", table("A variable", json!({
            "summary": text("What it is, for whoever has to set it"),
            "default": text("What it is unless it is set"),
            "flag": {"description": "It counts when it is set, even to nothing", "type": "boolean"},
            "secret": {"description": "Only what asks for it sees it", "type": "boolean"},
        }))),
        "needs": table("What an image must have besides what command and steps name", json!({
            "programs": list("Programs by name or path"),
            "paths": list("Files and directories"),
        })),
        "directory": made("Directories that are made before anything else"),
        "file": made("Files that are made, empty, before anything else"),
        "step": steps("What is done before the command, in this order"),
        "task": {
            "description": "Something that is done once, instead of running the service",
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": text("Name: bootstrap, upgrade, finish-upgrade, backup, restore, …"),
                    "summary": text("What it does, in a few words"),
                    "variable": text("It is done when this one is set, even to nothing"),
                    "then": word("What comes after it", &["end", "start"]),
                    "while": word("How the service has to be while it is done", &["running", "stopped"]),
                    "step": steps("What it does, in this order"),
                },
                "required": ["name", "step"],
                "additionalProperties": false,
            },
        },
    })
}

fn string() -> Value {
    json!({"type": "string"})
}

fn words(about: &str) -> Value {
    json!({"description": about, "type": "array", "items": {"type": "string"}, "minItems": 1})
}

fn id(about: &str) -> Value {
    number(about, 0, i64::from(u32::MAX - 1))
}

fn mode() -> Value {
    json!({"description": "Permissions: 0750", "type": "string", "pattern": "^[0-7]{3,4}$"})
}

fn made(about: &str) -> Value {
    json!({
        "description": about,
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "path": text("Path"),
                "owner": text("USER or USER:GROUP; where it is new, the service's unless said"),
                "mode": mode(),
            },
            "required": ["path"],
            "additionalProperties": false,
        },
    })
}

fn steps(about: &str) -> Value {
    let does = ["make", "own", "link", "remove", "write", "run", "refuse"];
    json!({
        "description": about,
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "title": text("What it does in plain words; shown when the service starts"),
                "when": table("Only when all of this holds", json!({
                    "exists": list("Paths or patterns at which something is"),
                    "missing": list("Paths or patterns at which nothing is"),
                    "set": list("Variables that have a value"),
                    "unset": list("Variables that have none"),
                })),
                "make": text("Directory, or file, that is made"),
                "kind": word("What is made", &["directory", "file"]),
                "own": text("Path or pattern whose owner and mode are set"),
                "recurse": {"description": "And of all below", "type": "boolean"},
                "link": text("Path of a link"),
                "to": text("Where it leads"),
                "remove": text("Path or pattern that is removed with all below"),
                "write": text("File that is written"),
                "text": text("Its content"),
                "template": text("File beside the definition with its content"),
                "fragments": words("Paths or patterns of files that it is put together from, by name"),
                "keep": {"description": "What is there stays", "type": "boolean"},
                "check": words("Command that looks at ${CANDIDATE} before it becomes the file"),
                "check_user": text("User who looks, if not the service's"),
                "owner": text("USER or USER:GROUP"),
                "mode": mode(),
                "run": words("Program and arguments"),
                "user": text("User to run as, if not the service's"),
                "environment": named("Variables for the program; secrets can stand here", string()),
                "input": text("What it reads; secrets can stand here"),
                "escape": word("What becomes of values in `input`, `text` and `template`", &["sql"]),
                "directory": text("Directory to run in"),
                "refuse": text("Ends the start, and says this"),
            },
            "required": ["title"],
            "oneOf": does.map(|key| json!({"required": [key]})),
            "additionalProperties": false,
        },
    })
}
