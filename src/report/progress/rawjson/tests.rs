//! The schema against real lines, and docs/events.md against the schema.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value};

use std::time::Duration;

use super::*;
use crate::report::clock::testing::Hand;
use crate::report::progress::testing::{Paper, run};

/// The part of JSON Schema that our types come to; anything else in a schema fails the test.
fn check(schema: &Value, root: &Value, value: &Value) -> Result<(), String> {
    let Value::Object(words) = schema else { return Ok(()) };
    for (word, of) in words {
        let fits = match (word.as_str(), value) {
            ("$ref", _) => {
                let at = of.as_str().unwrap().strip_prefix('#').unwrap();
                check(root.pointer(at).unwrap(), root, value)?;
                true
            }
            ("type", _) => match of {
                Value::Array(types) => types.iter().any(|name| is(name.as_str().unwrap(), value)),
                name => is(name.as_str().unwrap(), value),
            },
            ("const", _) => of == value,
            ("enum", _) => of.as_array().unwrap().contains(value),
            ("minimum", Value::Number(n)) => n.as_f64() >= of.as_f64(),
            ("minimum", _) => true,
            ("required", Value::Object(object)) => {
                let missing = of.as_array().unwrap().iter().find(|name| !object.contains_key(name.as_str().unwrap()));
                missing.map_or(Ok(true), |name| Err(format!("{name} is missing in {value}")))?
            }
            ("properties", Value::Object(object)) => {
                for (name, schema) in of.as_object().unwrap() {
                    object.get(name).map_or(Ok(()), |value| check(schema, root, value))?;
                }
                true
            }
            ("items", Value::Array(items)) => {
                items.iter().try_for_each(|item| check(of, root, item))?;
                true
            }
            // They say something of one type of values only.
            ("required" | "properties" | "items", _) => true,
            ("oneOf", _) => of.as_array().unwrap().iter().filter(|s| check(s, root, value).is_ok()).count() == 1,
            ("anyOf", _) => of.as_array().unwrap().iter().any(|s| check(s, root, value).is_ok()),
            ("$schema" | "$defs" | "title" | "description" | "format", _) => true,
            (word, _) => panic!("the test does not know `{word}` of {schema}"),
        };
        if !fits {
            return Err(format!("{value} is not {word} {of}"));
        }
    }
    Ok(())
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("the test does not know the type {other}"),
    }
}

#[test]
fn real_lines_are_what_the_schema_says() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let json = RawJson::new(Box::new(paper.clone()), hand.clock());
    json.event(Event::Forecast { remaining: Duration::from_secs(3), unmeasured: 1 });
    run(&json, &hand);
    json.event(Event::BackgroundFinished { node: "keystone".into() });
    let wait = Duration::from_secs(1);
    json.event(Event::StepRetried { node: "a".into(), step: 1, attempt: 2, attempts: 3, wait, reason: "r".into() });
    let node = summary::NodeSummary::new("a", summary::NodeKind::Plugin, summary::Group::NotMatched);
    json.finish(&RunSummary { nodes: vec![node], ..RunSummary::default() });
    let schema = schema();
    let mut seen = std::collections::BTreeSet::new();
    for line in paper.take().lines() {
        let mut value: Value = serde_json::from_str(line).unwrap();
        check(&schema, &schema, &value).unwrap_or_else(|why| panic!("{why}\n{line}"));
        seen.insert(value["event"].as_str().unwrap().to_owned());
        // The test itself can fail.
        value.as_object_mut().unwrap().remove("time");
        assert!(check(&schema, &schema, &value).is_err());
    }
    let known: std::collections::BTreeSet<String> = events(&schema).into_iter().map(|(name, _)| name).collect();
    assert_eq!(seen, known, "every event is in the run of this test");
}

fn events(schema: &Value) -> Vec<(String, &Value)> {
    let name = |event: &Value| event["properties"]["event"]["const"].as_str().unwrap().to_owned();
    schema["oneOf"].as_array().unwrap().iter().map(|event| (name(event), event)).collect()
}

fn text(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ")
}

/// What a field holds, in words.
fn kind(schema: &Value) -> String {
    if let Some(at) = schema["$ref"].as_str() {
        let name = at.rsplit('/').next().unwrap();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    match &schema["type"] {
        Value::Array(types) => types.iter().map(|t| t.as_str().unwrap()).collect::<Vec<_>>().join(" or "),
        Value::String(name) if name == "array" => format!("list of {}", kind(&schema["items"])),
        Value::String(name) => name.clone(),
        _ => panic!("{schema}"),
    }
}

fn fields(out: &mut String, properties: &Map<String, Value>) {
    let _ = writeln!(out, "| field | holds | |\n| --- | --- | --- |");
    for (name, schema) in properties.iter().filter(|(name, _)| *name != "event") {
        let _ = writeln!(out, "| `{name}` | {} | {} |", kind(schema), text(schema));
    }
    out.push('\n');
}

fn reference() -> String {
    let schema = schema();
    let mut out = String::from(
        "# Events of `--progress rawjson`\n\n<!-- Made from src/report/progress/rawjson.rs by its tests; \
         KOLLAGE_WRITE_DOCS=1 writes it again. -->\n\n`kollage build --progress rawjson` writes one JSON object a line \
         to standard error. The JSON Schema of a line is\n[events.schema.json](events.schema.json). `node` is always the \
         name of a node as the plan calls it.\n\nEvery object has these:\n\n",
    );
    fields(&mut out, schema["properties"].as_object().unwrap());
    for (name, event) in events(&schema) {
        let _ = writeln!(out, "## `{name}`\n\n{}\n", text(event));
        fields(&mut out, event["properties"].as_object().unwrap());
    }
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        let _ = writeln!(out, "## {name}\n");
        if !text(definition).is_empty() {
            let _ = writeln!(out, "{}\n", text(definition));
        }
        match definition["properties"].as_object() {
            Some(properties) => fields(&mut out, properties),
            None => {
                for (word, about) in words(definition) {
                    let about = if about.is_empty() { about } else { format!(": {about}") };
                    let _ = writeln!(out, "- `{word}`{about}");
                }
                out.push('\n');
            }
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The words of an enum, of which some may have a description.
fn words(definition: &Value) -> Vec<(String, String)> {
    let plain = |list: &Value| -> Vec<(String, String)> {
        list.as_array().into_iter().flatten().map(|w| (w.as_str().unwrap().to_owned(), String::new())).collect()
    };
    let mut words = plain(&definition["enum"]);
    for choice in definition["oneOf"].as_array().into_iter().flatten() {
        match choice["const"].as_str() {
            Some(word) => words.push((word.to_owned(), text(choice))),
            None => words.extend(plain(&choice["enum"])),
        }
    }
    words
}

#[test]
fn the_docs_are_what_the_types_say() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    for (name, text) in [("events.md", reference()), ("events.schema.json", schema)] {
        let path = docs.join(name);
        if std::env::var_os("KOLLAGE_WRITE_DOCS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == text, "docs/{name} is not what the types say; KOLLAGE_WRITE_DOCS=1 writes it again");
    }
}
