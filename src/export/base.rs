//! A base that only Kollage can make, as a context that any engine can: its files in one tar, and a Dockerfile that puts
//! its configuration beside them.

use std::fmt::Write as _;

use crate::image::config::ImageConfig;
use crate::image::digest::Key;

/// The name of the tar within the context.
pub const TAR: &str = "rootfs.tar";

/// `key` names what the base was made from: the text changes when that does.
pub fn dockerfile(name: &str, key: &Key, image: &ImageConfig) -> String {
    let config = &image.config;
    let mut out = format!("{}# {name}, {}\nFROM scratch\nADD {TAR} /\n", super::HEAD, key.as_str());
    let mut line = |keyword: &str, value: &str| {
        let _ = writeln!(out, "{keyword} {value}");
    };
    for variable in &config.env {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        line("ENV", &format!("{name}={}", quoted(value)));
    }
    for (name, value) in &config.labels {
        line("LABEL", &format!("{}={}", quoted(name), quoted(value)));
    }
    for port in config.exposed_ports.keys() {
        line("EXPOSE", port);
    }
    for trigger in &config.on_build {
        line("ONBUILD", trigger);
    }
    let lists = [
        ("SHELL", &config.shell),
        ("ENTRYPOINT", &config.entrypoint),
        ("CMD", &config.cmd),
        ("VOLUME", &Some(config.volumes.keys().cloned().collect::<Vec<_>>()).filter(|all| !all.is_empty())),
    ];
    for (keyword, list) in lists {
        if let Some(list) = list {
            line(keyword, &serde_json::to_string(list).unwrap_or_default());
        }
    }
    let texts = [
        ("WORKDIR", Some(&config.working_dir)),
        ("USER", Some(&config.user)),
        ("STOPSIGNAL", config.stop_signal.as_ref()),
    ];
    for (keyword, text) in texts {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            line(keyword, text);
        }
    }
    out
}

/// As one word in which nothing is expanded.
fn quoted(value: &str) -> String {
    let escaped: String =
        value.chars().flat_map(|c| matches!(c, '"' | '\\' | '$').then_some('\\').into_iter().chain([c])).collect();
    format!("\"{escaped}\"")
}
