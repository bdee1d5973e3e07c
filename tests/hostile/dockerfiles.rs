//! Dockerfiles that expand, nest and refer without end.

use crate::layouts::fifo;
use crate::pack::tar;
use crate::place::{Place, Ran};
use crate::table::{Row, built, contained, refused};

const GROUP: &str = "Dockerfiles";

fn doubling(first: &str, again: &str) -> String {
    format!("FROM scratch\n{first}\n{}COPY f /f\n", format!("{again}\n").repeat(60))
}

fn build(place: &Place, dockerfile: &str) -> Ran {
    place.file("f", "f").build(dockerfile)
}

pub fn rows() -> Vec<Row> {
    let too_long = "longer than";
    vec![
        refused(GROUP, "ARG that doubles itself sixty times", 2, too_long, |p| {
            build(p, &doubling("ARG A=ab", "ARG A=${A}${A}"))
        }),
        refused(GROUP, "global ARG that doubles itself sixty times", 2, too_long, |p| {
            build(p, &format!("ARG A=ab\n{}FROM scratch\nCOPY f /f\n", "ARG A=${A}${A}\n".repeat(60)))
        }),
        refused(GROUP, "ENV that doubles itself sixty times", 2, too_long, |p| {
            build(p, &doubling("ENV A=ab", "ENV A=$A$A"))
        }),
        refused(GROUP, "LABEL whose pattern replacement grows sixty times", 2, too_long, |p| {
            build(p, &doubling("ENV A=aa", "ENV A=${A//a/aa}"))
        }),
        refused(GROUP, "WORKDIR that doubles itself sixty times", 2, too_long, |p| {
            build(p, &format!("FROM scratch\nENV A=/a\n{}WORKDIR $A\n", "ENV A=$A$A\n".repeat(60)))
        }),
        refused(GROUP, "expansion within expansion, 100000 deep", 2, "Dockerfile:2", |p| {
            let nested = "${A:-".repeat(100_000) + &"}".repeat(100_000);
            build(p, &format!("FROM scratch\nENV B={nested}\nCOPY f /f\n"))
        }),
        contained(
            GROUP,
            "JSON form of 100000 brackets",
            "it is no JSON form, thus a word for the shell, as in Docker",
            |p| build(p, &format!("FROM scratch\nCOPY f /f\nCMD {}\n", "[".repeat(100_000))),
            built,
        ),
        refused(GROUP, "1000 heredocs on one line, none of which ends", 2, "Dockerfile:2", |p| {
            let names: String = (0..1000).map(|n| format!(" <<E{n}")).collect();
            build(p, &format!("FROM scratch\nCOPY{names} /d/\nx\n"))
        }),
        contained(
            GROUP,
            "heredoc within a heredoc, 10000 times",
            "the outermost counts, the others are its text",
            |p| build(p, &format!("FROM scratch\nCOPY <<E /f\n{}E\n", "RUN <<X\n".repeat(10_000))),
            built,
        ),
        contained(
            GROUP,
            "heredoc named `../../outside/f`",
            "the name climbs no further than the image's root",
            |p| build(p, "FROM scratch\nCOPY <<../../outside/f /d/\nx\n../../outside/f\n"),
            built,
        ),
        refused(GROUP, "ONBUILD of an ONBUILD", 2, "Dockerfile:2", |p| {
            build(p, &format!("FROM scratch\n{}COPY f /f\n", "ONBUILD ".repeat(1000)))
        }),
        refused(GROUP, "stages that copy from each other", 2, "Dockerfile:2", |p| {
            build(p, "FROM scratch AS a\nCOPY --from=b /f /f\nFROM scratch AS b\nCOPY --from=a /f /f\n")
        }),
        refused(GROUP, "10000 stages that are all needed, and one that is missing", 2, "missing", |p| {
            let mut text = String::from("FROM scratch AS s0\nCOPY f /f\n");
            for n in 1..10_000 {
                text += &format!("FROM s{} AS s{n}\n", n - 1);
            }
            build(p, &format!("{text}COPY missing /g\n"))
        }),
        refused(GROUP, "EXPOSE of ports up to 99999999999", 2, "Dockerfile:2", |p| {
            build(p, "FROM scratch\nEXPOSE 1-99999999999\nCOPY f /f\n")
        }),
        refused(GROUP, "HEALTHCHECK every 99999999999999 hours", 2, "Dockerfile:2", |p| {
            build(p, "FROM scratch\nHEALTHCHECK --interval=99999999999999h CMD x\nCOPY f /f\n")
        }),
        contained(
            GROUP,
            "COPY of a pattern with forty stars, and a name that nearly fits",
            "matched in time that does not explode",
            |p| {
                p.file(&"a".repeat(200), "x");
                build(p, &format!("FROM scratch\nCOPY f /f\nCOPY {}b* /d/\n", "*a".repeat(40)))
            },
            |p| {
                if p.last_code() == 0 || p.last_code() == 2 || p.last_code() == 1 {
                    Ok(())
                } else {
                    Err("it ended badly".into())
                }
            },
        ),
        contained(
            GROUP,
            "100000 instructions",
            "they are carried out",
            |p| build(p, &format!("FROM scratch\nCOPY f /f\n{}", "ENV A=b\n".repeat(100_000))),
            built,
        ),
        refused(GROUP, "Dockerfile that is no text", 2, "Dockerfile", |p| {
            std::fs::write(p.path("Dockerfile"), [0x80, 0xff, 0xfe]).unwrap();
            p.run(&["build", "--dockerfile", "Dockerfile", "--context", "context", "-t", "x:1"])
        }),
        refused(GROUP, "Dockerfile that is a FIFO", 2, "is not a regular file", |p| {
            fifo(&p.path("Dockerfile"));
            p.run(&["build", "--dockerfile", "Dockerfile", "--context", "context", "-t", "x:1"])
        }),
        refused(GROUP, "Dockerfile that is /dev/zero", 2, "is not a regular file", |p| {
            p.run(&["build", "--dockerfile", "/dev/zero", "--context", "context", "-t", "x:1"])
        }),
        refused(GROUP, "Dockerfile of 4 GB", 2, "Dockerfile", |p| {
            std::fs::File::create(p.path("Dockerfile")).unwrap().set_len(4 << 30).unwrap();
            p.run(&["build", "--dockerfile", "Dockerfile", "--context", "context", "-t", "x:1"])
        }),
        refused(GROUP, "name of an image with `../..` in it", 2, "no image name", |p| {
            p.file("f", "f");
            std::fs::write(p.path("Dockerfile"), "FROM scratch\nCOPY f /f\n").unwrap();
            p.run(&["build", "--dockerfile", "Dockerfile", "--context", "context", "-t", "../../outside/x:1"])
        }),
        contained(
            GROUP,
            "cache mount with the id `../../../outside`",
            "it is a name like others: the cache is in the store",
            |p| {
                p.file("base.tar", tar().directory("d").end());
                build(
                    p,
                    "FROM scratch\nADD base.tar /\nRUN --mount=type=cache,id=../../../outside,target=/c [\"/none\"]\n",
                )
            },
            |p| if p.last_code() == 1 { Ok(()) } else { Err(format!("exit code {}", p.last_code())) },
        ),
    ]
}
