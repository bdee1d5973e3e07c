//! Whatever an archive says, unpacking it ends in an error or in files inside of the directory.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use kollage::engine::embedded::helper::unpack_archive;
use kollage::event::Cancel;
use kollage::image::layer::Limits;
use kollage::image::layer::diff::{Diff, write_layer};
use kollage::image::layer::stack::LayerStack;
use kollage::image::layer::unpack::{unpack_layer, unpack_plain};

use super::Place;

const LIMITS: Limits = Limits {
    max_entries: 1000,
    max_file_size: 1 << 20,
    max_total_size: 4 << 20,
    max_header_size: 1 << 16,
    max_depth: 64,
};

/// Checksums are made right, so that the fuzzer gets past them. Devices become one that no machine has: should something
/// be written into one after all, it is no disk.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    for block in data.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        if matches!(block[156], b'3' | b'4') && block[329..345].iter().any(|b| !matches!(b, 0 | b'0' | b' ')) {
            block[329..345].copy_from_slice(b"0000360\x000000360\0");
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    data
}

/// A file beside the directory that is unpacked into, which nothing may touch.
fn with_neighbour(unpack: impl FnOnce(&Place, &Path)) {
    let place = Place::new();
    let into = place.dir("into");
    fs::write(place.path("neighbour"), "safe").expect("a file");
    unpack(&place, &into);
    assert_eq!(fs::read(place.path("neighbour")).expect("the file is still there"), b"safe");
}

fn names(dir: &Path) -> usize {
    fs::read_dir(dir).map(Iterator::count).unwrap_or_default()
}

/// As a layer over another one; what came of it is a layer that can be written, and read again to the same.
pub fn layer_unpack(data: &[u8]) {
    let cancel = Cancel::new().expect("an eventfd");
    let tar = with_checksums(data);
    with_neighbour(|place, into| {
        let below = place.dir("below");
        fs::create_dir_all(below.join("d/e")).expect("a directory");
        fs::write(below.join("d/e/f"), "below").expect("a file");
        std::os::unix::fs::symlink("/", below.join("l")).expect("a link");
        let stack = LayerStack::new([below]);
        let unpacked = unpack_layer(&mut tar.as_slice(), into, &stack, None, &LIMITS, &cancel);
        if unpacked.is_ok() {
            let once = tar_of(into, &cancel);
            if let Some(once) = &once {
                let again = place.dir("again");
                unpack_layer(&mut once.as_slice(), &again, &stack, None, &LIMITS, &cancel).expect("what was written");
                assert_eq!(tar_of(&again, &cancel).as_ref(), Some(once), "read again it is another layer");
            }
        }
        assert_eq!(names(into.parent().expect("a directory above")), if place.path("again").exists() { 4 } else { 3 });
        unpack_plain(&mut tar.as_slice(), &place.dir("plain"), &LIMITS, &cancel).ok();
    });
}

/// None where the directory holds what no layer can say (a name that begins with `.wh.`).
fn tar_of(dir: &Path, cancel: &Cancel) -> Option<Vec<u8>> {
    let diff = Diff { below: None, source_date_epoch: None, normalise: false, limits: &LIMITS, cancel: Some(cancel) };
    let mut tar = Vec::new();
    write_layer(dir, &mut tar, &diff).ok()?;
    Some(tar)
}

/// As a file that ADD would unpack. The first byte says how it is compressed, or that it comes as it is.
pub fn add_archive(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let tar = with_checksums(data);
    let packed = match kind % 6 {
        1 => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(&tar).and_then(|()| out.finish()).expect("gzip")
        }
        2 => zstd::encode_all(tar.as_slice(), 1).expect("zstd"),
        3 => {
            let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            out.write_all(&tar).and_then(|()| out.finish()).expect("bzip2")
        }
        4 => {
            let mut out = liblzma::write::XzEncoder::new(Vec::new(), 0);
            out.write_all(&tar).and_then(|()| out.finish()).expect("xz")
        }
        5 => data.to_vec(),
        _ => tar,
    };
    with_neighbour(|place, into| {
        // A root as images have it.
        fs::create_dir_all(into.join("usr/lib")).expect("a directory");
        std::os::unix::fs::symlink("usr/lib", into.join("lib")).expect("a link");
        std::os::unix::fs::symlink("../..", into.join("up")).expect("a link");
        let archive = place.path("archive");
        fs::write(&archive, &packed).expect("a file");
        let unpacked = unpack_archive(&archive, into, Path::new("usr"));
        assert_eq!(names(into.parent().expect("a directory above")), 3, "{unpacked:?}");
        assert_eq!(fs::read(&archive).expect("the archive is still there"), packed);
        assert!(into.join("lib").is_symlink());
    });
}
