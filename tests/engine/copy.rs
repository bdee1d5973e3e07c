//! COPY and ADD of the embedded engine: where files go, whose they are, and what they bring along.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::lab::{Lab, Setup, is_root};
use kollage::error::Kind;

const STAT: &str = "stat -c '%n %u:%g %a'";

#[test]
fn destinations_are_dockers() {
    if !is_root("destinations_are_dockers") {
        return;
    }
    let lab = Lab::new();
    lab.file("a.txt", "a");
    lab.file("b.txt", "b");
    lab.file("dir/one", "1");
    lab.file("dir/sub/two", "2");
    for (instruction, layer) in [
        ("COPY a.txt /x", vec!["x"]),
        ("COPY a.txt /x/", vec!["x/", "x/a.txt"]),
        ("COPY a.txt /tmp", vec!["tmp/", "tmp/a.txt"]),
        ("COPY a.txt /new/deep/x", vec!["new/", "new/deep/", "new/deep/x"]),
        ("COPY a.txt b.txt /x/", vec!["x/", "x/a.txt", "x/b.txt"]),
        ("COPY *.txt /x/", vec!["x/", "x/a.txt", "x/b.txt"]),
        ("COPY dir /x", vec!["x/", "x/one", "x/sub/", "x/sub/two"]),
        ("COPY dir/ /tmp", vec!["tmp/", "tmp/one", "tmp/sub/", "tmp/sub/two"]),
        ("COPY dir /x/y/", vec!["x/", "x/y/", "x/y/one", "x/y/sub/", "x/y/sub/two"]),
        ("WORKDIR /tmp\nCOPY a.txt .", vec!["tmp/", "tmp/a.txt"]),
        ("WORKDIR /tmp\nCOPY a.txt name", vec!["tmp/", "tmp/name"]),
        ("COPY a.txt dir /x/", vec!["x/", "x/a.txt", "x/one", "x/sub/", "x/sub/two"]),
        ("COPY --parents dir/sub/two /x/", vec!["x/", "x/dir/", "x/dir/sub/", "x/dir/sub/two"]),
        ("COPY --exclude=sub dir /x", vec!["x/", "x/one"]),
        ("COPY <<one <<two /h/\n1\none\n2\ntwo", vec!["h/", "h/one", "h/two"]),
    ] {
        let built = lab.build(instruction).unwrap_or_else(|e| panic!("{instruction}: {e}"));
        assert_eq!(lab.top_layer(&built), layer, "{instruction}");
    }
    let built = lab.build("COPY . /all/").unwrap();
    assert_eq!(lab.ask(&built, "find /all -type f | sort"), "/all/a.txt\n/all/b.txt\n/all/dir/one\n/all/dir/sub/two");

    for (instruction, message) in [
        ("COPY nowhere /x", "line 2: there is no `nowhere` in the build context"),
        ("RUN touch /f\nCOPY a.txt b.txt /f/", "cannot copy a directory to `/f`: it is not a directory"),
        ("RUN touch /f\nCOPY dir /f", "cannot copy a directory to `/f`: it is not a directory"),
        ("RUN mkdir -p /x/one\nCOPY dir /x", "cannot replace the directory `/x/one` with a file"),
    ] {
        let error = lab.build(instruction).unwrap_err();
        assert_eq!(error.causes()[0], message, "{instruction}");
    }
}

#[test]
fn links_of_the_image_are_followed_within_it() {
    if !is_root("links_of_the_image_are_followed_within_it") {
        return;
    }
    let lab = Lab::new();
    lab.file("f", "new");
    lab.file("lib/libx", "x");
    lab.file("bin/tool", "x");
    // The destination itself is followed, also when it is absolute or climbs.
    let built = lab.build("RUN mkdir /real && ln -s /real /abs && ln -s ../../../../real /climb\nCOPY f /abs/1\nCOPY f /climb/2\nCOPY f /climb").unwrap();
    assert_eq!(lab.ask(&built, "ls /real; readlink /climb"), "1\n2\nf\n../../../../real");
    assert!(!std::path::Path::new("/real").exists());
    // A file replaces a link below the destination, and what the link led to stays.
    let built = lab.build("RUN mkdir /d && echo old > /old && ln -s /old /d/f\nCOPY f /d/").unwrap();
    assert_eq!(lab.ask(&built, "cat /old /d/f; test -L /d/f || echo file"), "old\nnewfile");
    // A directory is never put in the place of a link.
    let error = lab
        .build("RUN mkdir /usr/bin && ln -s usr/lib /lib64\nRUN mv /lib64 /x && mkdir /y && mv /x /y/lib\nCOPY . /y/")
        .unwrap_err();
    assert_eq!(error.causes()[0], "cannot copy a directory to `/y/lib`: it is a link to `usr/lib`, not a directory");
    assert_eq!(error.kind(), Kind::Failed);
    assert!(error.hint_text().is_some());
    // The base's own /lib is such a link.
    let error = lab.build("COPY . /").unwrap_err();
    assert!(error.causes()[0].contains("`/lib`: it is a link to `usr/lib`"), "{error}");
    // Links of the context: copied as links below a directory, followed when they are what is copied.
    symlink("f", lab.context().join("link")).unwrap();
    std::fs::create_dir(lab.context().join("only")).unwrap();
    symlink("/nowhere", lab.context().join("only/dangling")).unwrap();
    let built = lab.build("COPY link /copied\nCOPY only /only").unwrap();
    assert_eq!(lab.ask(&built, "test -L /copied || cat /copied; readlink /only/dangling"), "new/nowhere");
}

#[test]
fn owners_modes_and_times() {
    if !is_root("owners_modes_and_times") {
        return;
    }
    let lab = Lab::new();
    let file = lab.file("dir/f", "x");
    std::os::unix::fs::chown(&file, Some(4321), Some(4321)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4750)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
    std::fs::File::open(&file).unwrap().set_modified(time).unwrap();
    let ask = |instructions: &str, question: &str| lab.ask(&lab.build(instructions).unwrap(), question);
    assert_eq!(ask("COPY dir /d", &format!("{STAT} /d/f; stat -c %Y /d/f")), "/d/f 0:0 4750\n1600000000");
    assert_eq!(ask("COPY --chown=kim dir /d", &format!("{STAT} /d /d/f")), "/d 1000:1001 755\n/d/f 1000:1001 4750");
    assert_eq!(
        ask("COPY --chown=12:staff dir/f /new/f", &format!("{STAT} /new /new/f")),
        "/new 12:50 755\n/new/f 12:50 4750"
    );
    assert_eq!(ask("COPY --chown=7 --chmod=0604 dir/f /f", &format!("{STAT} /f")), "/f 7:7 604");
    assert_eq!(ask("COPY --chmod=711 <<EOF /f\nhi\nEOF", &format!("{STAT} /f; cat /f")), "/f 0:0 711\nhi");
    assert_eq!(ask("COPY <<EOF /f\nhi\nEOF", &format!("{STAT} /f")), "/f 0:0 644");
    // An existing directory keeps its looks; one that is new has those of any parent.
    assert_eq!(ask("RUN mkdir -m 700 /d && chown kim /d\nCOPY dir /d", &format!("{STAT} /d")), "/d 1000:0 700");
    let error = lab.build("COPY --chown=nobody dir /d").unwrap_err();
    assert_eq!(error.causes()[0], "there is no user `nobody` in the image");
    // Later times become the epoch, earlier ones stay.
    let setup = Setup { source_date_epoch: Some(1_500_000_000), ..Setup::default() };
    let built = lab.build_with("COPY dir /d", &setup).unwrap();
    assert_eq!(lab.ask(&built, "stat -c %Y /d/f"), "1500000000");
}

/// What Docker 20.10 with BuildKit gives for the same instructions.
#[test]
fn owners_and_modes_are_dockers() {
    if !is_root("owners_and_modes_are_dockers") {
        return;
    }
    let lab = Lab::new();
    for (name, mode) in [("dir/f", 0o750), ("dir/sub/g", 0o644)] {
        std::fs::set_permissions(lab.file(name, "x"), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, mode) in [("dir", 0o750), ("dir/sub", 0o700)] {
        std::fs::set_permissions(lab.context().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    symlink("dir/f", lab.context().join("link")).unwrap();
    let built = lab
        .build_dockerfile(
            "FROM example.org/busybox:latest AS s\n\
             RUN mkdir -m 700 /out && touch /out/f && chown 1000:50 /out /out/f && ln -s f /out/l\n\
             FROM example.org/busybox:latest\n\
             RUN mkdir -p /d/sub && chown kim /d/sub\n\
             COPY dir /newdir\n\
             COPY dir /d\n\
             COPY --chown=kim dir /kimdir\n\
             COPY --chown=1000 dir/f /n1/f\n\
             COPY --from=s /out /fromdir\n\
             COPY --from=s /out/f /fromfile\n\
             COPY --from=s /out/l /lnk/\n\
             COPY link /lnk2/\n\
             COPY --chmod=711 dir /chmoddir\n\
             USER kim\n\
             WORKDIR /w1/w2\n",
            &Setup::default(),
        )
        .unwrap();
    let asked = "/newdir /newdir/f /newdir/sub /d /d/sub /kimdir /kimdir/f /n1 /n1/f /fromdir /fromdir/f /fromfile \
                 /chmoddir /chmoddir/f /chmoddir/sub /w1 /w1/w2 /lnk/l /lnk2/link";
    let expected = [
        "/newdir 0:0 755",
        "/newdir/f 0:0 750",
        "/newdir/sub 0:0 700",
        "/d 0:0 755",
        "/d/sub 0:0 700",
        "/kimdir 1000:1001 755",
        "/kimdir/f 1000:1001 750",
        "/n1 1000:1000 755",
        "/n1/f 1000:1000 750",
        "/fromdir 0:0 755",
        "/fromdir/f 1000:50 644",
        "/fromfile 1000:50 644",
        "/chmoddir 0:0 711",
        "/chmoddir/f 0:0 711",
        "/chmoddir/sub 0:0 711",
        "/w1 1000:1001 755",
        "/w1/w2 1000:1001 755",
        "/lnk/l 1000:50 644",
        "/lnk2/link 0:0 750",
    ];
    assert_eq!(lab.ask(&built, &format!("{STAT} {asked}")).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn what_is_copied_from_a_stage_comes_whole() {
    if !is_root("what_is_copied_from_a_stage_comes_whole") {
        return;
    }
    let lab = Lab::new();
    let built = lab
        .build_dockerfile(
            "FROM example.org/busybox:latest AS made\n\
             RUN mkdir -p /out/sub && echo x > /out/a && ln /out/a /out/sub/b && chown kim:staff /out/a && chmod 2751 /out/a\n\
             RUN ln -s a /out/link && mknod /out/pipe p && truncate -s 10M /out/hole && touch /out/one.txt /out/two.txt\n\
             RUN rm /out/two.txt\n\
             FROM example.org/busybox:latest\n\
             COPY --from=made /out /out\n\
             COPY --from=made --exclude=*.txt /out/* /some/\n\
             COPY --from=made /out/*.txt /texts/\n\
             COPY --from=example.org/busybox:latest /etc/passwd /out/link /all/\n",
            &Setup::default(),
        );
    // The last instruction names something that the other image has not.
    let error = built.unwrap_err();
    assert_eq!(error.causes()[0], "there is no `out/link` to copy");
    let built = lab
        .build_dockerfile(
            "FROM example.org/busybox:latest AS made\n\
             RUN mkdir -p /out/sub && echo x > /out/a && ln /out/a /out/sub/b && chown kim:staff /out/a && chmod 2751 /out/a\n\
             RUN ln -s a /out/link && mknod /out/pipe p && truncate -s 10M /out/hole && touch /out/one.txt /out/two.txt\n\
             RUN rm /out/two.txt\n\
             FROM example.org/busybox:latest\n\
             COPY --from=made /out /out\n\
             COPY --from=made /out/*.txt /texts/\n\
             COPY --from=example.org/busybox:latest /etc/passwd /all/\n",
            &Setup::default(),
        )
        .unwrap();
    assert_eq!(
        lab.ask(&built, "stat -c '%n %h %u:%g %a %F' /out/a /out/sub/b /out/pipe; readlink /out/link; ls /texts /all; stat -c '%s %b' /out/hole"),
        "/out/a 2 1000:50 2751 regular file\n/out/sub/b 2 1000:50 2751 regular file\n/out/pipe 1 0:0 644 fifo\na\n\
         /all:\npasswd\n\n/texts:\none.txt\n10485760 0"
    );
    // Extended attributes, file capabilities among them.
    let lab = Lab::new();
    let built = lab.build("RUN cp /bin/busybox /cap").unwrap();
    let path = lab.engine.store().layer_fs(built.config.rootfs.diff_ids.last().unwrap()).join("cap");
    let capability = [1u8, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    rustix::fs::setxattr(&path, "security.capability", &capability, rustix::fs::XattrFlags::empty()).unwrap();
    let setup = Setup { bases: [("made".into(), std::sync::Arc::new(built))].into(), ..Setup::default() };
    let copied = lab.build_dockerfile("FROM example.org/busybox:latest\nCOPY --from=made /cap /cap\n", &setup).unwrap();
    let path = lab.engine.store().layer_fs(copied.config.rootfs.diff_ids.last().unwrap()).join("cap");
    let mut value = [0u8; 64];
    let length = rustix::fs::getxattr(&path, "security.capability", &mut value[..]).unwrap();
    assert_eq!(value[..length], capability);
}

#[test]
fn hard_links_of_the_context_stay_together() {
    if !is_root("hard_links_of_the_context_stay_together") {
        return;
    }
    let lab = Lab::new();
    let first = lab.file("dir/a", "shared");
    std::fs::hard_link(&first, lab.context().join("dir/b")).unwrap();
    let built = lab.build("COPY dir /d").unwrap();
    assert_eq!(lab.ask(&built, "stat -c %h /d/a /d/b; cat /d/b"), "2\n2\nshared");
}

#[test]
fn add_unpacks_what_is_an_archive() {
    if !is_root("add_unpacks_what_is_an_archive") {
        return;
    }
    let lab = Lab::new();
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, kind, uid: u64, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o640);
        header.set_uid(uid);
        header.set_gid(uid);
        header.set_mtime(1_600_000_000);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, content).unwrap();
    };
    add("pkg/", tar::EntryType::Directory, 0, b"");
    add("pkg/file", tar::EntryType::Regular, 33, b"content");
    let plain = tar.into_inner().unwrap();
    let gzip = || {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(&plain).unwrap();
        out.finish().unwrap()
    };
    let bzip2 = || {
        let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        out.write_all(&plain).unwrap();
        out.finish().unwrap()
    };
    let xz = || {
        let mut out = liblzma::write::XzEncoder::new(Vec::new(), 1);
        out.write_all(&plain).unwrap();
        out.finish().unwrap()
    };
    for (name, bytes) in [
        ("plain", plain.clone()),
        ("gzip", gzip()),
        ("bzip2", bzip2()),
        ("xz", xz()),
        ("zstd", zstd::encode_all(plain.as_slice(), 1).unwrap()),
    ] {
        // Told by its content: the name says something else.
        let file = format!("{name}.bin");
        lab.file(&file, &bytes);
        let built = lab.build(&format!("ADD {file} /to/")).unwrap();
        assert_eq!(
            lab.ask(&built, "stat -c '%n %u:%g %a %Y' /to/pkg/file; cat /to/pkg/file; find /to -type f | wc -l"),
            "/to/pkg/file 33:33 640 1600000000\ncontent1",
            "{name}"
        );
        let built = lab.build(&format!("COPY {file} /to/")).unwrap();
        assert_eq!(lab.ask(&built, "ls /to"), file);
        let built = lab.build(&format!("ADD --unpack=false {file} /to/")).unwrap();
        assert_eq!(lab.ask(&built, "ls /to"), file);
    }
    let built = lab.build("ADD --chown=kim gzip.bin /to").unwrap();
    assert_eq!(lab.ask(&built, "stat -c %u /to/pkg/file"), "1000");
    // Compressed, and no archive.
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(b"just text").unwrap();
    lab.file("text.gz", out.finish().unwrap());
    let built = lab.build("ADD text.gz /to/").unwrap();
    assert_eq!(lab.ask(&built, "ls /to"), "text.gz");
}

#[test]
fn hostile_archives_stay_within() {
    if !is_root("hostile_archives_stay_within") {
        return;
    }
    let lab = Lab::new();
    let archive = |entries: &[(&str, Option<&str>)]| {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, link) in entries {
            let mut header = tar::Header::new_gnu();
            // The checked setters refuse what is wanted here.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_mode(0o644);
            match link {
                Some(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
                    header.set_size(0);
                    header.set_cksum();
                    tar.append(&header, std::io::empty()).unwrap();
                }
                None => {
                    header.set_size(4);
                    header.set_cksum();
                    tar.append(&header, &b"evil"[..]).unwrap();
                }
            }
        }
        tar.into_inner().unwrap()
    };
    lab.file("climb.tar", archive(&[("../../../../../../tmp/kollage-evil", None)]));
    let error = lab.build("ADD climb.tar /x/").unwrap_err();
    assert!(error.causes().iter().any(|c| c.contains("climbs out")), "{error}");
    // Through a link of its own: that stays below the destination, which is the root for links, as in Docker.
    lab.file("link.tar", archive(&[("out", Some("/tmp")), ("out/kollage-evil", None)]));
    let built = lab.build("ADD link.tar /x/").unwrap();
    assert_eq!(lab.ask(&built, "cat /x/tmp/kollage-evil"), "evil");
    assert!(!std::path::Path::new("/tmp/kollage-evil").exists());
}

#[test]
fn the_ignored_are_not_copied_nor_mounted() {
    if !is_root("the_ignored_are_not_copied_nor_mounted") {
        return;
    }
    let lab = Lab::new();
    lab.file("dir/target/file1", "1");
    lab.file("dir/target/file2", "2");
    lab.file(".dockerignore", "*\n!*/target/*file1\n");
    let built = lab.build("COPY . /x/").unwrap();
    assert_eq!(lab.ask(&built, "find /x -type f"), "/x/dir/target/file1");
    lab.events.clear();
    let built = lab
        .build("RUN --mount=type=bind,target=/ctx,rw find /ctx -type f; stat -c %u /ctx/dir/target/file1; echo changed > /ctx/dir/target/file1\nRUN --mount=type=bind,source=dir/target/file1,target=/one cat /one")
        .unwrap();
    assert_eq!(lab.events.output(), ["/ctx/dir/target/file1", "0", "1"]);
    assert_eq!(lab.top_layer(&built), Vec::<String>::new());
    assert_eq!(std::fs::read(lab.context().join("dir/target/file1")).unwrap(), b"1");
    let error = lab.build("COPY dir/target/file2 /x/").unwrap_err();
    assert!(error.hint_text().is_some_and(|h| h.contains(".dockerignore")), "{error:?}");
}
