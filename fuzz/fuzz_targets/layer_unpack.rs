//! Whatever a layer's tar says, unpacking it ends in an error or in files inside of the directory.
#![no_main]

use std::path::Path;

use kollage::event::Cancel;
use kollage::image::layer::Limits;
use kollage::image::layer::stack::LayerStack;
use kollage::image::layer::unpack::unpack_layer;
use libfuzzer_sys::fuzz_target;

/// Checksums are made right, so that the fuzzer gets past them.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    for block in data.chunks_exact_mut(512).filter(|b| &b[257..262] == b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    data
}

fn names(dir: &Path) -> usize {
    std::fs::read_dir(dir).map(Iterator::count).unwrap_or_default()
}

fuzz_target!(|data: &[u8]| {
    let outer = std::env::temp_dir().join(format!("kollage-fuzz-{}", std::process::id()));
    let into = outer.join("into");
    std::fs::create_dir_all(&into).expect("a directory to unpack into");
    let limits = Limits {
        max_entries: 1000,
        max_file_size: 1 << 20,
        max_total_size: 4 << 20,
        max_header_size: 1 << 16,
        max_depth: 64,
    };
    let cancel = Cancel::new().expect("an eventfd");
    let tar = with_checksums(data);
    let _ = unpack_layer(&mut tar.as_slice(), &into, &LayerStack::default(), None, &limits, &cancel);
    assert_eq!(names(&outer), 1, "something was written outside of the directory");
    std::fs::remove_dir_all(&outer).expect("what was unpacked can be removed");
});
