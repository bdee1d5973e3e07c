//! `os/architecture/variant` as people write it, in the form in which it is compared.

use crate::image::config::Platform;

/// Like containerd: a part may be missing, and what is missing is the target's.
pub(super) fn parse(text: &str, target: &Platform) -> Option<Platform> {
    let parts: Vec<String> = text.split('/').map(str::to_ascii_lowercase).collect();
    let word = |s: &String| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if !parts.iter().all(word) {
        return None;
    }
    let (os, architecture, variant) = match parts.as_slice() {
        [one] if is_os(one) => (one.as_str(), target.architecture.as_str(), None),
        [one] => {
            let (architecture, variant) = normal(one, None);
            is_architecture(architecture).then_some((target.os.as_str(), architecture, variant))?
        }
        [os, architecture] => (os.as_str(), architecture.as_str(), None),
        [os, architecture, variant] => (os.as_str(), architecture.as_str(), Some(variant.as_str())),
        _ => return None,
    };
    let os = if os == "macos" { "darwin" } else { os };
    let (architecture, variant) = normal(architecture, variant);
    Some(Platform { os: os.into(), architecture: architecture.into(), variant: variant.map(str::to_owned) })
}

/// Two names of the same thing become one: `arm64/v8` is `arm64`, `arm` is `arm/v7`.
pub(super) fn normalised(platform: &Platform) -> Platform {
    let (architecture, variant) = normal(&platform.architecture, platform.variant.as_deref());
    Platform { os: platform.os.clone(), architecture: architecture.into(), variant: variant.map(str::to_owned) }
}

fn normal<'a>(architecture: &'a str, variant: Option<&'a str>) -> (&'a str, Option<&'a str>) {
    match (architecture, variant) {
        ("i386" | "x86", _) => ("386", None),
        ("x86_64" | "x86-64" | "amd64", variant) => ("amd64", variant.filter(|v| *v != "v1")),
        ("aarch64" | "arm64", variant) => ("arm64", variant.filter(|v| !matches!(*v, "8" | "v8" | "v8.0"))),
        ("armhf", _) => ("arm", Some("v7")),
        ("armel", _) => ("arm", Some("v6")),
        ("arm", None | Some("" | "7")) => ("arm", Some("v7")),
        ("arm", Some("5")) => ("arm", Some("v5")),
        ("arm", Some("6")) => ("arm", Some("v6")),
        ("arm", Some("8")) => ("arm", Some("v8")),
        (architecture, variant) => (architecture, variant),
    }
}

fn is_os(name: &str) -> bool {
    matches!(name, "linux" | "windows" | "darwin" | "macos" | "freebsd" | "netbsd" | "openbsd" | "solaris" | "wasip1")
}

pub(super) fn is_architecture(name: &str) -> bool {
    matches!(
        name,
        "386"
            | "amd64"
            | "arm"
            | "arm64"
            | "loong64"
            | "mips"
            | "mipsle"
            | "mips64"
            | "mips64le"
            | "ppc64"
            | "ppc64le"
            | "riscv64"
            | "s390x"
            | "wasm"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_in_many_ways() {
        let target = Platform { os: "linux".into(), architecture: "amd64".into(), variant: None };
        for (text, expected) in [
            ("linux/amd64", "linux/amd64"),
            ("amd64", "linux/amd64"),
            ("linux", "linux/amd64"),
            ("Linux/x86_64", "linux/amd64"),
            ("aarch64", "linux/arm64"),
            ("linux/arm64/v8", "linux/arm64"),
            ("armhf", "linux/arm/v7"),
            ("linux/arm/v6", "linux/arm/v6"),
            ("windows/amd64", "windows/amd64"),
        ] {
            assert_eq!(parse(text, &target).map(|p| p.to_string()).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "linux/", "a/b/c/d", "toaster", "linux/a b"] {
            assert_eq!(parse(text, &target), None, "{text}");
        }
    }
}
