#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kollage_fuzz::add_archive(data));
