//! Layers of base images.

use crate::layouts::image;
use crate::pack::{Tar, bomb, compress, tar};
use crate::place::{Place, Ran};
use crate::table::{Row, contained, refused};

const GROUP: &str = "Layers of base images";

fn layer(place: &Place, tar: Tar) -> Ran {
    image(vec![tar.end()]).build(place)
}

/// On a layer with a file, so that there is something to delete.
fn second(place: &Place, above: Tar) -> Ran {
    image(vec![tar().directory("etc").file("etc/kept").end(), above.end()]).build(place)
}

pub fn rows() -> Vec<Row> {
    let refuses = "of the layer is refused";
    vec![
        refused(GROUP, "entry `../../escape`", 1, "its name climbs out", |p| layer(p, tar().file("../../escape"))),
        contained(
            GROUP,
            "entry `/kollage-hostile-test/f`, an absolute name",
            "it is in the image, below its root",
            |p| layer(p, tar().file("/kollage-hostile-test/f")),
            |p| p.has(&["kollage-hostile-test/f"]),
        ),
        refused(GROUP, "link to a directory of the host's, then an entry through it", 1, refuses, |p| {
            layer(p, tar().link("way", &p.outside()).file("way/f"))
        }),
        refused(GROUP, "chain of links, then an entry through them", 1, refuses, |p| {
            layer(p, tar().link("a", "b").link("b", &p.outside()).file("a/f"))
        }),
        refused(GROUP, "directory that a link takes the place of between two entries", 1, refuses, |p| {
            layer(p, tar().directory("d").file("d/one").link("d", &p.outside()).file("d/two"))
        }),
        refused(GROUP, "hard link to `../../etc/passwd`", 1, "climbs out", |p| {
            layer(p, tar().hard("stolen", "../../etc/passwd"))
        }),
        refused(GROUP, "hard link through a link to a file of the host's", 1, "which is no file", |p| {
            layer(p, tar().link("way", &p.outside()).hard("stolen", "way/canary"))
        }),
        refused(GROUP, "hard link to itself", 1, "it links to itself", |p| layer(p, tar().hard("a", "a"))),
        refused(GROUP, "whiteout of `..`: `.wh...`", 1, refuses, |p| second(p, tar().file("etc/.wh..."))),
        refused(GROUP, "whiteout of nothing: `.wh.`", 1, refuses, |p| second(p, tar().file("etc/.wh."))),
        refused(GROUP, "entry below a whiteout: `.wh.etc/f`", 1, "whose name marks a deletion", |p| {
            second(p, tar().file(".wh.etc/f"))
        }),
        contained(
            GROUP,
            "opaque marker at the root: `.wh..wh..opq`",
            "nothing of the layers below is left, as it says",
            |p| second(p, tar().file(".wh..wh..opq").file("new")),
            |p| {
                p.has(&["new", "added"])?;
                if p.exported()?.contains_key("etc/kept") { Err("etc/kept is still there".into()) } else { Ok(()) }
            },
        ),
        contained(
            GROUP,
            "whiteout of a name that is nowhere",
            "it means nothing",
            |p| second(p, tar().file("etc/.wh.nobody")),
            |p| p.has(&["etc/kept"]),
        ),
        contained(
            GROUP,
            "character device 0:0, which is overlayfs's own whiteout",
            "it deletes what is below, as a whiteout does, and nothing else",
            |p| second(p, tar().device(b'3', "etc/kept", 0, 0)),
            |p| p.has(&["etc/", "added"]),
        ),
        contained(
            GROUP,
            "block device 8:0",
            "it is in the layer, and opens nothing in a step",
            |p| layer(p, tar().device(b'4', "disk", 8, 0)),
            |p| p.has(&["disk"]),
        ),
        contained(
            GROUP,
            "attributes of overlayfs: a redirect to /etc",
            "they are left out",
            |p| {
                let redirect: [(&str, &[u8]); 1] = [("SCHILY.xattr.trusted.overlay.redirect", b"/etc")];
                second(p, tar().pax(&redirect).directory("other"))
            },
            |p| {
                p.has(&["other/"])?;
                if p.exported()?.contains_key("other/kept") { Err("it was followed".into()) } else { Ok(()) }
            },
        ),
        refused(GROUP, "name with a NUL in a PAX record", 1, "contains a NUL", |p| {
            layer(p, tar().pax(&[("path", b"before\0after")]).file("short"))
        }),
        refused(GROUP, "PAX header of 8 GB", 1, "an extended header of 8589934591 bytes", |p| {
            layer(p, tar().claim(b'x', "pax", (1 << 33) - 1))
        }),
        refused(GROUP, "owner of 2^40", 1, "its owner is", |p| {
            layer(p, tar().pax(&[("uid", b"1099511627776")]).file("f"))
        }),
        refused(GROUP, "entry in 3000 directories within each other", 1, "nested more than 256 deep", |p| {
            let name = "d/".repeat(3000) + "f";
            layer(p, tar().pax(&[("path", name.as_bytes())]).file("short"))
        }),
        refused(GROUP, "size of 2^62, with nothing behind it", 1, "it is too large", |p| {
            layer(p, tar().claim(b'0', "f", 1 << 62))
        }),
        refused(GROUP, "layer that is cut off", 1, "ends", |p| {
            let whole = tar().entry(b'0', "f", "", &[7; 100_000]).open();
            image(vec![whole[..50_000].to_vec()]).build(p)
        }),
        refused(GROUP, "layer that is no archive", 1, "the archive is damaged", |p| {
            image(vec![b"GIF89a, or whatever".repeat(100)]).build(p)
        }),
        refused(GROUP, "gzip of 16 GB of zeros, with `--disk-limit 64m`", 1, "it is too large", |p| {
            image(vec![bomb(16, "gz")]).write(p);
            p.file("f", "f").build_with("FROM oci:image\nCOPY f /added\n", &["--disk-limit", "64m"])
        }),
        refused(GROUP, "zstd of 16 GB of zeros after the archive's end", 1, "more than 64 MB follow its end", |p| {
            let mut bytes = compress(&tar().file("f").end(), "zst");
            bytes.extend(compress(&vec![0; 16 << 20], "zst").repeat(1024));
            image(vec![bytes]).build(p)
        }),
        refused(
            GROUP,
            "extended headers without an end, and no entry",
            1,
            "extended headers belong to one entry",
            |p| {
                let mut some = tar();
                for _ in 0..8192 {
                    some = some.pax(&[("comment", b"nothing")]);
                }
                image(vec![compress(&some.open(), "gz").repeat(1000)]).build(p)
            },
        ),
    ]
}
