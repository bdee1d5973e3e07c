//! Any text goes through everything that a Dockerfile goes through, and every place that is named lies in the text.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use kollage::diag::{Diagnostics, SourceFile};
use kollage::dockerfile::{Inputs, lower, parse, resolve, unsupported};
use kollage::image::config::{ImageConfig, Platform};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let platform = Platform { os: "linux".into(), architecture: "amd64".into(), variant: None };
    let build_args = BTreeMap::from([("A".into(), "a b".into()), ("http_proxy".into(), "p".into())]);
    let inputs = Inputs { target: None, build_args, platform: platform.clone() };
    let dockerfile = match parse(&SourceFile::new("Dockerfile", text)) {
        Ok(dockerfile) => Arc::new(dockerfile),
        Err(problems) => return in_bounds(&problems),
    };
    in_bounds(&dockerfile.warnings);
    let resolved = match resolve(&dockerfile, &inputs) {
        Ok(resolved) => resolved,
        Err(problems) => return in_bounds(&problems),
    };
    in_bounds(&unsupported(&resolved));
    let mut config = ImageConfig::new(&platform);
    config.config.on_build.push("COPY --from=a <<x /y\n$A\nx".into());
    let bases = resolved.images.iter().map(|name| (name.clone(), config.clone())).collect();
    match lower(&resolved, &bases) {
        Ok(stages) => assert_eq!(stages.len(), resolved.stages.len()),
        Err(problems) => in_bounds(&problems),
    }
});

fn in_bounds(problems: &Diagnostics) {
    for place in problems.0.iter().filter_map(|problem| problem.place.as_ref()) {
        assert!(place.file.text.get(place.span.clone()).is_some(), "{:?}", place.span);
    }
}
