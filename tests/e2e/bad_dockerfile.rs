//! Wrong Dockerfiles: each is refused before anything is built, with line and column, what was expected, and where there
//! is one the nearest right spelling.

use std::fs;

use crate::sandbox::{Ran, Sandbox};

/// The Dockerfile; line:column; words of the message or its hint.
type Wrong = (&'static str, &'static str, &'static [&'static str]);

const WRONG: [Wrong; 84] = [
    // The file
    ("", "1:1", &["the Dockerfile is empty", "begin with `FROM <image>`"]),
    ("# a comment\n\n", "1:1", &["the Dockerfile is empty"]),
    ("ARG A=1\n", "1:1", &["has no FROM"]),
    ("RUN true\nFROM scratch\n", "1:1", &["RUN comes before the first FROM", "only ARG may stand before it"]),
    ("FROM scratch\nLABEL a=b\0c\n", "2:10", &["NUL byte"]),
    ("# escape=x\nFROM scratch\n", "1:10", &["`x` cannot be the escape character", "either `\\` or a backquote"]),
    ("# escape=`\n# escape=`\nFROM scratch\n", "2:10", &["`escape` is set twice"]),
    // Instructions
    ("FROM scratch\nRNU true\n", "2:1", &["unknown instruction `RNU`", "did you mean `RUN`?"]),
    ("FORM scratch\n", "1:1", &["unknown instruction `FORM`", "did you mean `FROM`?"]),
    ("FROM scratch\n  COPPY a b\n", "2:3", &["unknown instruction `COPPY`", "did you mean `COPY`?"]),
    ("FROM scratch\nLABEL a=b\n  && true\n", "3:3", &["unknown instruction `&&`", "that line has to end in `\\`"]),
    ("FROM scratch\nWORKDIRR /x\n", "2:1", &["did you mean `WORKDIR`?"]),
    ("FROM scratch\nENTRYPIONT x\n", "2:1", &["did you mean `ENTRYPOINT`?"]),
    ("FROM scratch\nHEALTCHECK NONE\n", "2:1", &["did you mean `HEALTHCHECK`?"]),
    // FROM
    ("FROM\n", "1:1", &["FROM names no image"]),
    ("FROM a b\n", "1:8", &["FROM takes one image and a name", "FROM <image> AS <name>"]),
    ("FROM scratch AS\n", "1:14", &["FROM takes one image and a name"]),
    ("FROM scratch AS 1x\n", "1:17", &["`1x` cannot be the name of a stage", "begin with a letter"]),
    ("FROM $BASE\n", "1:6", &["FROM names no image once its variables are expanded", "give `BASE` a value"]),
    ("FROM x:$TAG\n", "1:6", &["`x:` is only part of the name of an image", "give `TAG` a value"]),
    ("FROM --platfrom=linux/amd64 scratch\n", "1:6", &["FROM has no flag `--platfrom`", "did you mean `--platform`?"]),
    ("FROM --platform=a/b/c/d scratch\n", "1:6", &["`a/b/c/d` is not a platform", "linux/amd64"]),
    ("FROM --platform scratch\n", "1:6", &["`--platform` needs a value"]),
    ("ARG X=${Y\nFROM scratch\n", "1:5", &["the closing `}` is missing"]),
    // Flags
    ("FROM scratch\nCOPY --chwon=1 a b\n", "2:6", &["COPY has no flag `--chwon`", "did you mean `--chown`?"]),
    ("FROM scratch\nCOPY --form=x a b\n", "2:6", &["did you mean `--from`?"]),
    ("FROM scratch\nADD --from=x a b\n", "2:5", &["ADD has no flag `--from`"]),
    ("FROM scratch\nRUN --netwrok=none true\n", "2:5", &["did you mean `--network`?"]),
    ("FROM scratch\nWORKDIR --x /a\n", "2:9", &["WORKDIR takes no flags"]),
    ("FROM scratch\nCOPY --chmod a b\n", "2:6", &["`--chmod` needs a value", "--chmod=…"]),
    ("FROM scratch\nCOPY --link=maybe a b\n", "2:6", &["`--link` is either true or false"]),
    ("FROM scratch\nCOPY --chown=1 --chown=2 a b\n", "2:16", &["`--chown` is given twice"]),
    ("FROM scratch\nRUN --network=nnoe true\n", "2:5", &["`--network` cannot be `nnoe`", "did you mean `none`?"]),
    ("FROM scratch\nRUN --security=insecrue true\n", "2:5", &["did you mean `insecure`?"]),
    // Mounts
    (
        "FROM scratch\nRUN --mount=type=bnid,target=/x true\n",
        "2:5",
        &["no mount of type `bnid`", "did you mean `bind`?"],
    ),
    ("FROM scratch\nRUN --mount=type=cache,traget=/x true\n", "2:5", &["no field `traget`", "did you mean `target`?"]),
    ("FROM scratch\nRUN --mount=type=bind,size=1 true\n", "2:5", &["`size` means nothing for a mount of type bind"]),
    ("FROM scratch\nRUN --mount=type=cache,target=/c,mode=9 true\n", "2:5", &["`mode=9` is not a number"]),
    ("FROM scratch\nRUN --mount=type=cache,target=/c,sharing=al true\n", "2:5", &["shared, private or locked"]),
    ("FROM scratch\nRUN --mount=type=tmpfs,target=/c,size=big true\n", "2:5", &["`size=big` is not a size", "512m"]),
    ("FROM scratch\nRUN --mount=type=secret true\n", "2:5", &["a secret without a name", "id=…"]),
    ("FROM scratch\nRUN --mount=type=ssh,source=x true\n", "2:5", &["`source` means nothing for a mount of type ssh"]),
    ("FROM scratch\nRUN --mount=from=$X,target=/x true\n", "2:5", &["variables are not expanded in `from` of a mount"]),
    ("FROM scratch\nRUN --mount=from=0,target=/x true\n", "2:5", &["takes the name of a stage, not its number"]),
    ("FROM scratch\nRUN --mount=target=/x,ro=perhaps true\n", "2:5", &["neither true nor false"]),
    ("FROM scratch\nRUN --mount=type=ssh,target true\n", "2:5", &["`target` of a mount needs a value"]),
    // COPY and ADD
    ("FROM scratch\nCOPY a\n", "2:6", &["COPY needs a source and a destination"]),
    ("FROM scratch\nCOPY\n", "2:1", &["COPY needs a source and a destination"]),
    ("FROM scratch\nCOPY [\"a\", 1]\n", "2:6", &["strings only: `1` is not a string"]),
    ("FROM scratch\nCOPY a <<EOF\nx\nEOF\n", "2:8", &["a heredoc cannot be the destination"]),
    ("FROM scratch\nCOPY --from=5 a b\n", "2:6", &["there is no stage 5", "counted from 0"]),
    ("FROM scratch\nCOPY --from=0 a b\n", "2:6", &["stage 0 takes files from itself"]),
    ("FROM scratch AS x\nCOPY --from=y a b\nFROM scratch AS y\nFROM x\n", "2:6", &["the stage `y` comes after"]),
    ("FROM scratch\nCOPY --from=$X a b\n", "2:6", &["variables are not expanded in `--from`"]),
    ("FROM scratch\nCOPY --from=scratch a b\n", "2:6", &["nothing in scratch to copy"]),
    // Heredocs
    ("FROM scratch\nCOPY <<EOF /x\ntext\n", "2:6", &["the heredoc `EOF` does not end", "alone on the line"]),
    ("FROM scratch\nRUN <<A cat <<B\na\nA\nb\n", "2:5", &["the heredoc `B` does not end"]),
    // ENV, LABEL, ARG
    ("FROM scratch\nENV\n", "2:1", &["ENV needs an argument", "ENV <name>=<value>"]),
    ("FROM scratch\nENV A\n", "2:5", &["ENV `A` has no value", "write `A=`"]),
    ("FROM scratch\nENV A=1 B\n", "2:9", &["`B` has no equals sign"]),
    ("FROM scratch\nENV A=1 =2\n", "2:9", &["a name of ENV cannot be empty"]),
    ("FROM scratch\nLABEL A\n", "2:7", &["LABEL `A` has no value"]),
    ("FROM scratch\nENV A=${B:x}\n", "2:5", &["`${B:x…}` is not a substitution"]),
    ("FROM scratch\nENV A=${B\n", "2:5", &["the closing `}` is missing"]),
    ("FROM scratch\nENV A=\"b\n", "2:5", &["the closing double quote is missing"]),
    ("FROM scratch\nENV A=\"${B:?is needed}\"\n", "2:5", &["`B`: is needed"]),
    ("FROM scratch\nARG\n", "2:1", &["ARG needs an argument"]),
    ("FROM scratch\nARG =x\n", "2:5", &["an ARG without a name"]),
    // The rest
    ("FROM scratch\nEXPOSE http\n", "2:8", &["`http` cannot be exposed", "write `80`"]),
    ("FROM scratch\nEXPOSE 80/tpc\n", "2:8", &["`tpc` is none of tcp, udp and sctp"]),
    ("FROM scratch\nEXPOSE 9-1\n", "2:8", &["the range runs backwards"]),
    ("FROM scratch\nSTOPSIGNAL SIGTREM\n", "2:12", &["`SIGTREM` is not a signal", "SIGTERM"]),
    ("FROM scratch\nSHELL /bin/sh\n", "2:7", &["SHELL needs an array", "[\"/bin/sh\", \"-c\"]"]),
    ("FROM scratch\nUSER\n", "2:1", &["USER needs an argument"]),
    ("FROM scratch\nVOLUME [\"\"]\n", "2:8", &["an empty argument of VOLUME"]),
    ("FROM scratch\nVOLUME /a $B\n", "2:11", &["an empty argument of VOLUME"]),
    ("FROM scratch\nHEALTHCHECK\n", "2:1", &["HEALTHCHECK needs an argument", "HEALTHCHECK NONE"]),
    ("FROM scratch\nHEALTHCHECK CDM true\n", "2:13", &["HEALTHCHECK does not know `CDM`", "HEALTHCHECK CMD"]),
    ("FROM scratch\nHEALTHCHECK NONE x\n", "2:18", &["HEALTHCHECK NONE takes nothing else"]),
    ("FROM scratch\nHEALTHCHECK --interval=5 CMD true\n", "2:13", &["`5` is not a duration", "`30s`"]),
    ("FROM scratch\nHEALTHCHECK --retries=x CMD true\n", "2:13", &["`x` is not a number of retries"]),
    ("FROM scratch\nHEALTHCHECK --intervall=5s CMD true\n", "2:13", &["did you mean `--interval`?"]),
    ("FROM scratch\nONBUILD ONBUILD RUN true\n", "2:9", &["ONBUILD cannot be put off with ONBUILD"]),
    ("FROM scratch\nONBUILD RNU true\n", "2:9", &["unknown instruction `RNU`", "did you mean `RUN`?"]),
];

fn build(sandbox: &Sandbox, dockerfile: &[u8]) -> Ran {
    fs::write(sandbox.catalogue().join("Dockerfile"), dockerfile).unwrap();
    let ran = sandbox.run(&["build", "--dockerfile", "Dockerfile", "-t", "x"]).exits(2);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

#[test]
fn each_is_refused_with_its_place_and_what_was_expected() {
    let sandbox = Sandbox::new();
    let mut wrong = Vec::new();
    for (dockerfile, place, words) in WRONG {
        let ran = build(&sandbox, dockerfile.as_bytes());
        let place = format!("Dockerfile:{place}");
        for expected in words.iter().copied().chain([place.as_str()]) {
            // A place ends with its line.
            let said = match expected == place {
                true => ran.stderr.lines().any(|line| line.trim_end().ends_with(expected)),
                false => ran.stderr.contains(expected),
            };
            if !said {
                wrong.push(format!("{dockerfile:?}: `{expected}` is not in\n{}", ran.stderr));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn several_faults_come_at_once_in_the_order_of_the_file() {
    let sandbox = Sandbox::new();
    let ran = build(&sandbox, b"FROM scratch\nRNU a\nCOPY a\nENV A=1 B\nEXPOSE\n");
    for place in ["Dockerfile:2:1", "Dockerfile:3:6", "Dockerfile:4:9", "Dockerfile:5:1"] {
        assert!(ran.stderr.contains(place), "{place}: {}", ran.stderr);
    }
    // Those that only expansion shows as well.
    let ran = build(&sandbox, b"FROM scratch\nENV A=${B:?one}\nEXPOSE $X http\nSTOPSIGNAL $X\nUSER ${C?two}\n");
    for place in ["Dockerfile:2:5", "Dockerfile:3:11", "Dockerfile:4:12", "Dockerfile:5:6"] {
        assert!(ran.stderr.contains(place), "{place}: {}", ran.stderr);
    }
}

#[test]
fn what_is_no_text_is_said_with_its_place() {
    let sandbox = Sandbox::new();
    build(&sandbox, b"FROM scratch\nLABEL a=caf\xe9\n").says("Dockerfile:2:12").says("not UTF-8").says("iconv");
    // As an editor of Windows saves it.
    let utf16: Vec<u8> = "FROM scratch\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    build(&sandbox, &utf16).says("Dockerfile:1:2").says("UTF-16");
}
