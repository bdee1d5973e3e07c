//! Archives that ADD unpacks.

use crate::pack::{Tar, bomb, compress, flood, tar};
use crate::place::{Place, Ran};
use crate::table::{Row, contained, refused};

const GROUP: &str = "Archives in ADD";

fn add(place: &Place, archive: Vec<u8>) -> Ran {
    place.file("a.tar", archive).export("FROM scratch\nADD a.tar /\n")
}

fn limited(place: &Place, archive: Vec<u8>) -> Ran {
    place.file("a.tar", archive).build_with("FROM scratch\nADD a.tar /\n", &["--disk-limit", "64m"])
}

fn inside(place: &Place, rest: &str) -> String {
    format!("{}{rest}", place.outside().trim_start_matches('/'))
}

fn deep() -> Tar {
    let name = "d/".repeat(3000) + "f";
    tar().pax(&[("path", name.as_bytes())]).file("short")
}

pub fn rows() -> Vec<Row> {
    let climbs = "climbs out of it";
    vec![
        refused(GROUP, "member `../../escape`", 1, climbs, |p| add(p, tar().file("../../escape").end())),
        refused(GROUP, "member `a/../../../escape`", 1, climbs, |p| add(p, tar().file("a/../../../escape").end())),
        contained(
            GROUP,
            "member `/kollage-hostile-test/f`, an absolute name",
            "it is in the image, below its root",
            |p| add(p, tar().file("/kollage-hostile-test/f").end()),
            |p| p.has(&["kollage-hostile-test/f"]),
        ),
        contained(
            GROUP,
            "link to a directory of the host's, then a member through it",
            "the link is followed within the image",
            |p| add(p, tar().link("way", &p.outside()).file("way/f").end()),
            |p| p.has(&["way", &inside(p, "/f")]),
        ),
        contained(
            GROUP,
            "link that climbs, then a member through it",
            "it climbs no further than the image's root",
            |p| add(p, tar().link("way", &format!("../../../..{}", p.outside())).file("way/f").end()),
            |p| p.has(&["way", &inside(p, "/f")]),
        ),
        contained(
            GROUP,
            "chain of three links, then a member through them",
            "they are followed within the image",
            |p| add(p, tar().link("a", "b").link("b", "c").link("c", &p.outside()).file("a/f").end()),
            |p| p.has(&["a", "b", "c", &inside(p, "/f")]),
        ),
        contained(
            GROUP,
            "directory that a link takes the place of between two members",
            "the second member follows the link within the image",
            |p| add(p, tar().directory("d").file("d/one").link("d", &p.outside()).file("d/two").end()),
            |p| p.has(&["d", &inside(p, "/two")]),
        ),
        refused(GROUP, "links in a circle, then a member through them", 1, "a.tar", |p| {
            add(p, tar().link("a", "b").link("b", "a").file("a/f").end())
        }),
        refused(GROUP, "hard link to `../../etc/passwd`", 1, climbs, |p| {
            add(p, tar().hard("stolen", "../../etc/passwd").end())
        }),
        refused(GROUP, "hard link to `/etc/hostname` of the host", 1, "cannot link", |p| {
            add(p, tar().hard("stolen", "/etc/hostname").end())
        }),
        refused(GROUP, "hard link through a link to a file of the host's", 1, "cannot link", |p| {
            add(p, tar().link("way", &p.outside()).hard("stolen", "way/canary").end())
        }),
        contained(
            GROUP,
            "block device 8:0 and character device 1:1",
            "they are in the layer, and open nothing in a step (tests/engine/isolation.rs)",
            |p| add(p, tar().device(b'4', "disk", 8, 0).device(b'3', "memory", 1, 1).end()),
            |p| p.has(&["disk", "memory"]),
        ),
        contained(
            GROUP,
            "name with line breaks and escape sequences",
            "it is a name like others",
            |p| add(p, tar().file("a\nb\x1b[2Jc").end()),
            |p| p.has(&["a\nb\x1b[2Jc"]),
        ),
        refused(GROUP, "name with a NUL in a PAX record", 1, "contains a NUL", |p| {
            add(p, tar().pax(&[("path", b"before\0after")]).file("short").end())
        }),
        contained(
            GROUP,
            "attributes of overlayfs: trusted.overlay.redirect, trusted.overlay.opaque",
            "they are left out",
            |p| {
                let attributes: [(&str, &[u8]); 2] =
                    [("SCHILY.xattr.trusted.overlay.redirect", b"/etc"), ("SCHILY.xattr.trusted.overlay.opaque", b"y")];
                add(p, tar().pax(&attributes).directory("d").end())
            },
            |p| p.has(&["d/"]),
        ),
        refused(GROUP, "names of whiteouts: `.wh.passwd`, `.wh..wh..opq`", 1, ".wh.", |p| {
            add(p, tar().file("etc/.wh.passwd").file(".wh..wh..opq").end())
        }),
        refused(GROUP, "PAX header of 8 GB", 1, "an extended header of 8589934591 bytes", |p| {
            add(p, tar().file("first").claim(b'x', "pax", (1 << 33) - 1).end())
        }),
        refused(GROUP, "long name of 8 GB", 1, "an extended header of 8589934591 bytes", |p| {
            add(p, tar().file("first").claim(b'L', "long", (1 << 33) - 1).end())
        }),
        refused(GROUP, "negative size", 1, "its size is not a number", |p| {
            add(p, tar().file("first").odd_size("f", [0xff; 12]).end())
        }),
        refused(GROUP, "size of 2^95", 1, "its size is not a number", |p| {
            let mut size = [0xff; 12];
            size[0] = 0x80;
            add(p, tar().file("first").odd_size("f", size).end())
        }),
        refused(GROUP, "size of 2^62, with nothing behind it", 1, "is too large", |p| {
            add(p, tar().file("first").claim(b'0', "f", 1 << 62).open())
        }),
        refused(GROUP, "size of 32 GB, with nothing behind it", 1, "ends", |p| {
            add(p, tar().file("first").claim(b'0', "f", 32 << 30).open())
        }),
        refused(GROUP, "header with a wrong checksum after a good member", 1, "checksum is wrong", |p| {
            add(p, tar().file("first").damaged("f").end())
        }),
        refused(GROUP, "compressed archive that is cut off", 1, "a.tar", |p| {
            let whole = compress(&tar().entry(b'0', "f", "", &[7; 100_000]).end(), "gz");
            add(p, whole[..whole.len() / 2].to_vec())
        }),
        refused(GROUP, "PAX sparse file of 2^60 bytes with two bytes of data", 1, "is too large", |p| {
            let size = (1u64 << 60).to_string();
            let map: [(&str, &[u8]); 4] = [
                ("GNU.sparse.size", size.as_bytes()),
                ("GNU.sparse.numblocks", b"1"),
                ("GNU.sparse.offset", b"0"),
                ("GNU.sparse.numbytes", b"2"),
            ];
            add(p, tar().file("first").pax(&map).entry(b'0', "f", "", b"xx").end())
        }),
        refused(GROUP, "gzip of 16 GB of zeros, with `--disk-limit 64m`", 1, "may write 67 MB", |p| {
            limited(p, bomb(16, "gz"))
        }),
        refused(GROUP, "zstd of 16 GB of zeros, with `--disk-limit 64m`", 1, "may write 67 MB", |p| {
            limited(p, bomb(16, "zst"))
        }),
        refused(GROUP, "xz of 16 GB of zeros, with `--disk-limit 64m`", 1, "may write 67 MB", |p| {
            limited(p, bomb(16, "xz"))
        }),
        refused(GROUP, "bzip2 of 16 GB of zeros, with `--disk-limit 64m`", 1, "may write 67 MB", |p| {
            limited(p, bomb(16, "bz2"))
        }),
        contained(
            GROUP,
            "zstd frame that wants a window of 2 GB",
            "it is not unpacked: ADD takes it for a plain file",
            |p| {
                // Magic, a frame header without a size, and 2^31 as the window.
                let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00];
                add(p, frame.to_vec())
            },
            |p| p.has(&["a.tar"]),
        ),
        contained(
            GROUP,
            "millions of members, from 20 MB of gzip",
            "unpacked as they come, in bounded memory; Ctrl-C ends it at once",
            |p| {
                p.file("a.tar", flood("gz"));
                std::fs::write(p.path("Dockerfile"), "FROM scratch\nADD a.tar /\n").unwrap();
                let child =
                    p.start(&["build", "--dockerfile", "Dockerfile", "--context", "context", "-t", "hostile:1"]);
                interrupt_when_it_unpacks(p, child.id());
                p.wait(child)
            },
            |p| if p.last_code() == 130 { Ok(()) } else { Err(format!("exit code {}", p.last_code())) },
        ),
        refused(GROUP, "member in 3000 directories within each other", 1, "nested", |p| add(p, deep().end())),
    ]
}

/// Once something lies in a layer that is being made.
fn interrupt_when_it_unpacks(place: &Place, pid: u32) {
    let begun = std::time::Instant::now();
    while !unpacks(&place.path("store/tmp"), 3) && begun.elapsed().as_secs() < 100 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
}

fn unpacks(dir: &std::path::Path, depth: usize) -> bool {
    // The preflight has one of that name, too, with something else in it.
    if dir.ends_with("upper") {
        return dir.join("f0").exists();
    }
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    depth > 0 && entries.flatten().any(|entry| unpacks(&entry.path(), depth - 1))
}
