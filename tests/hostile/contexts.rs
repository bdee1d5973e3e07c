//! Build contexts, and what says which of their files count.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::layouts::fifo;
use crate::place::{Place, Ran};
use crate::table::{Row, built, contained, refused};

const GROUP: &str = "Contexts";

fn copy(place: &Place, what: &str) -> Ran {
    place.file("f", "f").export(&format!("FROM scratch\nCOPY {what} /d/\n"))
}

fn ended(place: &Place) -> Result<(), String> {
    if (0..=2).contains(&place.last_code()) { Ok(()) } else { Err(format!("exit code {}", place.last_code())) }
}

pub fn rows() -> Vec<Row> {
    vec![
        contained(
            GROUP,
            "FIFO that nobody writes to, in a directory that is copied",
            "it is copied as a FIFO; nobody waits for it",
            |p| {
                fifo(&p.context("pipe"));
                copy(p, ".")
            },
            |p| p.has(&["d/f"]),
        ),
        contained(
            GROUP,
            "FIFO that is copied by its name",
            "nobody waits for it",
            |p| {
                fifo(&p.context("pipe"));
                copy(p, "pipe")
            },
            ended,
        ),
        contained(
            GROUP,
            "FIFO that is added as if it were an archive",
            "nobody waits for it",
            |p| {
                fifo(&p.context("pipe"));
                p.export("FROM scratch\nADD pipe /d/\n")
            },
            ended,
        ),
        contained(
            GROUP,
            "socket",
            "it is left out, as by Docker",
            |p| {
                let _listener = std::os::unix::net::UnixListener::bind(p.context("socket")).unwrap();
                copy(p, ".")
            },
            |p| p.has(&["d/f"]),
        ),
        contained(
            GROUP,
            "device node of the host's disk",
            "it is copied as a device, and not read",
            |p| {
                use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
                let disk = p.context("disk");
                mknodat(CWD, &disk, FileType::BlockDevice, Mode::from_raw_mode(0o600), makedev(8, 0)).unwrap();
                copy(p, ".")
            },
            |p| p.has(&["d/f"]),
        ),
        contained(
            GROUP,
            "links in a circle, in a directory that is copied",
            "they are copied as links",
            |p| {
                symlink("b", p.context("a")).unwrap();
                symlink("a", p.context("b")).unwrap();
                copy(p, ".")
            },
            |p| p.has(&["d/a", "d/b"]),
        ),
        refused(GROUP, "links in a circle, copied by name", 2, "Dockerfile:2", |p| {
            symlink("b", p.context("a")).unwrap();
            symlink("a", p.context("b")).unwrap();
            copy(p, "a")
        }),
        contained(
            GROUP,
            "link to the directory that it is in",
            "it is copied as a link",
            |p| {
                symlink(".", p.context("self")).unwrap();
                copy(p, ".")
            },
            |p| p.has(&["d/self"]),
        ),
        refused(GROUP, "link to a file of the host's, copied by name", 2, "Dockerfile:2", |p| {
            symlink(p.path("outside/canary"), p.context("stolen")).unwrap();
            copy(p, "stolen")
        }),
        refused(GROUP, "link that climbs to a file of the host's, copied by name", 2, "Dockerfile:2", |p| {
            symlink("../outside/canary", p.context("stolen")).unwrap();
            copy(p, "stolen")
        }),
        refused(GROUP, "file of the host's through a link to its directory", 2, "Dockerfile:2", |p| {
            symlink(p.path("outside"), p.context("way")).unwrap();
            copy(p, "way/canary")
        }),
        refused(GROUP, "`COPY ../outside/canary`", 2, "Dockerfile:2", |p| copy(p, "../outside/canary")),
        refused(GROUP, "bind mount of `../outside`", 2, "Dockerfile:2", |p| {
            p.file("f", "f").build("FROM scratch\nRUN --mount=type=bind,source=../outside,target=/o [\"/none\"]\n")
        }),
        refused(GROUP, "context that is a file", 2, "context", |p| {
            std::fs::write(p.path("Dockerfile"), "FROM scratch\nCOPY f /f\n").unwrap();
            p.run(&["build", "--dockerfile", "Dockerfile", "--context", "Dockerfile", "-t", "x:1"])
        }),
        refused(GROUP, ".dockerignore that is a FIFO", 2, ".dockerignore", |p| {
            fifo(&p.context(".dockerignore"));
            copy(p, ".")
        }),
        refused(GROUP, ".dockerignore that is a link to /dev/zero", 2, ".dockerignore", |p| {
            symlink("/dev/zero", p.context(".dockerignore")).unwrap();
            copy(p, ".")
        }),
        contained(
            GROUP,
            ".dockerignore of 5000 patterns",
            "they are obeyed",
            |p| {
                let lines: String = (0..5_000).map(|n| format!("nothing{n}/**/x\n")).collect();
                p.file(".dockerignore", lines);
                copy(p, ".")
            },
            |p| p.has(&["d/f"]),
        ),
        contained(
            GROUP,
            ".dockerignore of a pattern with forty `**`, and a path that nearly fits",
            "matched in time that does not explode",
            |p| {
                p.file(".dockerignore", "**/a".repeat(40) + "/b\n");
                p.file(&("a/".repeat(60) + "c"), "x");
                copy(p, ".")
            },
            ended,
        ),
        contained(
            GROUP,
            "directories in each other, 300 deep",
            "refused or copied, without an end of the stack",
            |p| {
                p.file(&("x/".repeat(300) + "f"), "x");
                copy(p, ".")
            },
            ended,
        ),
        contained(
            GROUP,
            "file of 1 TB that is one hole",
            "it is hashed and copied by its data, or refused with `--disk-limit`; nobody waits for a terabyte",
            |p| {
                std::fs::File::create(p.context("hole")).unwrap().set_len(1 << 40).unwrap();
                p.file("f", "f").file(".dockerignore", "hole\n").export("FROM scratch\nCOPY . /d/\n")
            },
            |p| p.has(&["d/f"]),
        ),
        contained(
            GROUP,
            "file that grows while it is read",
            "the build ends; what it copied is what it says it copied",
            |p| {
                p.file("f", "f");
                let stop = Arc::new(AtomicBool::new(false));
                let writer = {
                    let (stop, path) = (stop.clone(), p.context("log"));
                    std::fs::write(&path, "begin\n").unwrap();
                    std::thread::spawn(move || {
                        let mut file = std::fs::File::options().append(true).open(path).unwrap();
                        let mut left = 64 << 20;
                        while !stop.load(Ordering::Relaxed) && left > 0 {
                            file.write_all(&[b'x'; 4096]).unwrap();
                            left -= 4096;
                        }
                    })
                };
                let ran = copy(p, ".");
                stop.store(true, Ordering::Relaxed);
                writer.join().unwrap();
                let verified = p.run(&["store", "verify"]);
                if verified.code == 0 { p.build("FROM scratch\nCOPY f /f\n") } else { ran }
            },
            built,
        ),
        contained(
            GROUP,
            "file that comes and goes while it is read",
            "the build ends, with it or without it",
            |p| {
                p.file("f", "f");
                let stop = Arc::new(AtomicBool::new(false));
                let writer = {
                    let (stop, path) = (stop.clone(), p.context("flicker"));
                    std::thread::spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            std::fs::write(&path, "there").unwrap();
                            let _ = std::fs::remove_file(&path);
                        }
                    })
                };
                let ran = copy(p, ".");
                stop.store(true, Ordering::Relaxed);
                writer.join().unwrap();
                ran
            },
            ended,
        ),
    ]
}
