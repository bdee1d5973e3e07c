//! Any text as `image.toml`, `plugin.toml` or `kollage.toml`: problems, never a panic, each within its file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for name in ["image.toml", "plugin.toml", "kollage.toml"] {
        for problem in &kollage::catalogue::check_text(name, text).0 {
            if let Some(place) = &problem.place {
                assert!(place.file.text.get(place.span.clone()).is_some(), "{:?}", place.span);
            }
        }
    }
});
