use proptest::prelude::*;

use super::ast::*;
use super::*;

fn parsed(text: &str) -> Arc<Dockerfile> {
    Arc::new(parse(&SourceFile::new("Dockerfile", text)).unwrap_or_else(|e| panic!("{text}: {e:?}")))
}

fn only(text: &str) -> InstructionKind {
    let dockerfile = parsed(&format!("FROM x\n{text}"));
    assert_eq!(dockerfile.stages[0].instructions.len(), 1, "{text}");
    dockerfile.stages[0].instructions[0].kind.clone()
}

/// Message, underlined text and hint of every problem.
fn problems(text: &str) -> Vec<(String, String, String)> {
    shown(text, &parse(&SourceFile::new("Dockerfile", text)).unwrap_err())
}

fn shown(text: &str, problems: &Diagnostics) -> Vec<(String, String, String)> {
    let part = |d: &crate::diag::Diagnostic| d.place.as_ref().map(|p| text[p.span.clone()].to_owned());
    let all = problems.0.iter();
    all.map(|d| (d.message.clone(), part(d).unwrap_or_default(), d.hint.clone().unwrap_or_default())).collect()
}

fn inputs() -> Inputs {
    let platform = Platform { os: "linux".into(), architecture: "amd64".into(), variant: None };
    Inputs { target: None, build_args: BTreeMap::new(), platform, contexts: BTreeSet::new() }
}

fn with_args(args: &[(&str, &str)]) -> Inputs {
    Inputs { build_args: args.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect(), ..inputs() }
}

fn bases(text: &str, inputs: &Inputs) -> Vec<(usize, StageBase)> {
    let resolved = resolve(&parsed(text), inputs).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    resolved.stages.into_iter().map(|s| (s.index, s.base)).collect()
}

fn resolve_problems(text: &str, inputs: &Inputs) -> Vec<(String, String, String)> {
    shown(text, &resolve(&parsed(text), inputs).unwrap_err())
}

fn image(name: &str) -> StageBase {
    StageBase::Image(name.into())
}

fn values(words: &[Word]) -> Vec<&str> {
    words.iter().map(|w| w.value.as_str()).collect()
}

#[test]
fn a_whole_file_of_everything() {
    let text = "\
# syntax=docker/dockerfile:1
ARG VERSION=1 OTHER
FROM --platform=$BUILDPLATFORM debian:${VERSION} AS Build
MAINTAINER someone <s@example.org>
ENV A=b C=\"d e\" F=g\\ h
ENV legacy the  rest
LABEL \"a b\"=\"c d\" e=f
ARG X=y Z
RUN --mount=type=cache,target=/c --network=none --security=sandbox make
RUN [\"make\", \"-j\"]
CMD [\"x\"]
ENTRYPOINT []
EXPOSE 80 443/udp
VOLUME [\"/a\", \"/b c\"]
VOLUME /d /e
USER 1:2
WORKDIR /some where
SHELL [\"/bin/bash\", \"-c\"]
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5s --timeout=3s --start-period=1m --start-interval=1s --retries=3 CMD curl -f x
HEALTHCHECK NONE
ONBUILD COPY --from=build . /src
FROM scratch
COPY --from=0 --chown=1:2 --chmod=755 --link --exclude=*.md --exclude=a --parents a b /c/
ADD --checksum=sha256:1 --keep-git-dir=true --unpack=false --link=false https://x/y /z
COPY [\"a b\", \"/c d/\"]
";
    let dockerfile = parsed(text);
    assert_eq!(dockerfile.global_args.len(), 1);
    let stages: Vec<_> =
        dockerfile.stages.iter().map(|s| (s.from.image.value.as_str(), s.instructions.len())).collect();
    assert_eq!(stages, [("debian:${VERSION}", 19), ("scratch", 3)]);
    let from = &dockerfile.stages[0].from;
    assert_eq!(from.name.as_ref().map(|n| n.value.as_str()), Some("build"));
    assert_eq!(&text[from.name.as_ref().unwrap().span.clone()], "Build");
    assert_eq!(&text[from.image.span.clone()], "debian:${VERSION}");
    assert_eq!(&text[from.platform.as_ref().unwrap().span.clone()], "--platform=$BUILDPLATFORM");
    assert_eq!(from.line, 3);
    let InstructionKind::Copy(copy) = &dockerfile.stages[1].instructions[0].kind else { panic!() };
    assert_eq!((values(&copy.sources), copy.dest.value.as_str()), (vec!["a", "b"], "/c/"));
    assert_eq!(values(&copy.excludes), ["*.md", "a"]);
    assert!(copy.link && copy.parents);
    let InstructionKind::Add(add) = &dockerfile.stages[1].instructions[1].kind else { panic!() };
    assert_eq!((add.keep_git_dir, add.unpack, add.link), (Some(true), Some(false), false));
    let InstructionKind::Copy(copy) = &dockerfile.stages[1].instructions[2].kind else { panic!() };
    assert_eq!((values(&copy.sources), copy.dest.value.as_str()), (vec!["a b"], "/c d/"));
    let warned: Vec<_> = dockerfile.warnings.0.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(warned, ["MAINTAINER is deprecated", "ENV without an equals sign is an old form"]);
}

/// Case 1: moby 28587.
#[test]
fn a_comment_inside_of_a_run() {
    let InstructionKind::Run(run) = only("RUN echo one && \\\n# comment\n    echo two") else { panic!() };
    assert_eq!(run.command.form, Form::Shell("echo one &&     echo two".into()));
}

/// Case 13.
#[test]
fn an_empty_entry_point() {
    let InstructionKind::Entrypoint(command) = only("ENTRYPOINT []") else { panic!() };
    assert_eq!(command.form, Form::Exec(vec![]));
}

#[test]
fn pairs_of_env_and_label() {
    let pairs = |text: &str| match only(text) {
        InstructionKind::Env(pairs) | InstructionKind::Label(pairs) => {
            pairs.into_iter().map(|p| (p.name.value, p.value.value)).collect::<Vec<_>>()
        }
        _ => panic!(),
    };
    let own = |list: &[(&str, &str)]| list.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect::<Vec<_>>();
    assert_eq!(pairs("ENV a=b c= d=\"e f\""), own(&[("a", "b"), ("c", ""), ("d", "\"e f\"")]));
    assert_eq!(pairs("ENV a b=c  d"), own(&[("a", "b=c  d")]));
    assert_eq!(pairs("LABEL a=\"x\\\ny\" \\\n b=z"), own(&[("a", "\"xy\""), ("b", "z")]));
    assert_eq!(pairs("LABEL a='it is' b=x=y"), own(&[("a", "'it is'"), ("b", "x=y")]));
}

#[test]
fn shell_and_exec_forms() {
    let form = |text: &str| match only(text) {
        InstructionKind::Cmd(command) => command.form,
        _ => panic!(),
    };
    assert_eq!(form("CMD [ \"a\" , \"b\\n\" ]"), Form::Exec(vec!["a".into(), "b\n".into()]));
    assert_eq!(form("CMD ['a', 'b']"), Form::Shell("['a', 'b']".into()));
    assert_eq!(form("CMD [ -f x ] && y"), Form::Shell("[ -f x ] && y".into()));
    let dockerfile = parsed("FROM x\nCMD ['a']\nCMD [ -f x ]");
    assert_eq!(dockerfile.warnings.0.len(), 1);
}

#[test]
fn heredocs_of_copy_and_run() {
    let InstructionKind::Copy(copy) = only("COPY <<a.txt <<-\"b.txt\" plain /d/\nx $Y\na.txt\n\tz\nb.txt") else {
        panic!()
    };
    assert_eq!(values(&copy.sources), ["plain"]);
    let documents: Vec<_> = copy.heredocs.iter().map(|h| (h.name.as_str(), h.content(), h.expand)).collect();
    assert_eq!(documents, [("a.txt", "x $Y\n".into(), true), ("b.txt", "z\n".into(), false)]);
    let InstructionKind::Run(run) = only("RUN --network=none <<EOF\necho\nEOF") else { panic!() };
    assert_eq!((run.command.form, run.heredocs.len()), (Form::Shell("<<EOF".into()), 1));
    let InstructionKind::Onbuild(onbuild) = only("ONBUILD RUN cat <<E\nx\nE") else { panic!() };
    assert_eq!(onbuild.expression, "RUN cat <<E\nx\nE");
}

#[test]
fn all_problems_at_once_with_place_and_hint() {
    let text = "FROM x\nCOPPY a b\nRUN --mout=type=cache true\nEXPOSE\nENV a=b c\nHEALTHCHECK CMD\nCOPY a\n";
    assert_eq!(
        problems(text),
        [
            ("unknown instruction `COPPY`", "COPPY", "did you mean `COPY`?"),
            ("RUN has no flag `--mout`", "--mout=type=cache", "did you mean `--mount`?"),
            ("EXPOSE needs an argument", "EXPOSE", ""),
            ("`c` has no equals sign", "c", "write `name=value`; put a value with blanks in double quotes"),
            ("HEALTHCHECK needs an argument", "HEALTHCHECK CMD", "write `[]` to have none"),
            ("COPY needs a source and a destination", "a", "write `COPY <source>… <destination>`"),
        ]
        .map(|(a, b, c)| (a.into(), b.into(), c.into()))
    );
}

#[test]
fn one_problem_each() {
    for (line, message, underlined) in [
        ("COPY --from=a --from=b x y", "`--from` is given twice", "--from=b"),
        ("COPY --link=maybe x y", "`--link` is either true or false", "--link=maybe"),
        ("COPY --chown x y", "`--chown` needs a value", "--chown"),
        ("ADD --parents x y", "ADD has no flag `--parents`", "--parents"),
        ("USER --x y", "USER has no flag `--x`", "--x"),
        ("CMD [1]", "the array of CMD may hold strings only: `1` is not a string", "[1]"),
        ("SHELL bash -c", "SHELL needs an array with the shell in it", "bash -c"),
        ("HEALTHCHECK NONE x", "HEALTHCHECK NONE takes nothing else", "x"),
        ("HEALTHCHECK TEST x", "HEALTHCHECK does not know `TEST`", "TEST"),
        ("HEALTHCHECK --interval=5 CMD x", "`5` is not a duration", "--interval=5"),
        ("HEALTHCHECK --timeout=1us CMD x", "`--timeout` is shorter than a millisecond", "--timeout=1us"),
        ("HEALTHCHECK --retries=x CMD x", "`x` is not a number of retries", "--retries=x"),
        ("ONBUILD FROM x", "FROM cannot be put off with ONBUILD", "FROM"),
        ("ONBUILD ONBUILD RUN x", "ONBUILD cannot be put off with ONBUILD", "ONBUILD"),
        ("ONBUILD RUNN x", "unknown instruction `RUNN`", "RUNN"),
        ("FROM a b", "FROM takes one image and a name", "b"),
        ("FROM a AS 1b", "`1b` cannot be the name of a stage", "1b"),
        ("RUN --network=nome x", "`--network` cannot be `nome`", "--network=nome"),
        ("RUN --mount=type=cache,target=/x,id x", "`id` of a mount needs a value", "--mount=type=cache,target=/x,id"),
        ("COPY a <<EOF\nEOF", "a heredoc cannot be the destination of COPY", "<<EOF"),
        ("COPY << EOF /x\nEOF", "`<<` without a delimiter", "<<"),
        ("VOLUME [\"\"]", "an empty argument of VOLUME", "[\"\"]"),
        ("ENV =x", "a name of ENV cannot be empty", "=x"),
        ("ENV A", "ENV `A` has no value", "A"),
        ("ARG =x", "an ARG without a name", "=x"),
        ("RUN []", "RUN needs an argument", "[]"),
    ] {
        let found = problems(&format!("FROM x\n{line}\n"));
        let facts: Vec<_> = found.iter().map(|(m, u, _)| (m.as_str(), u.as_str())).collect();
        assert_eq!(facts, [(message, underlined)], "{line}");
    }
}

#[test]
fn files_without_a_stage() {
    let message = |text: &str| problems(text)[0].0.clone();
    assert_eq!(message(""), "the Dockerfile is empty");
    assert_eq!(message("# only a comment\n"), "the Dockerfile is empty");
    assert_eq!(message("ARG x\n"), "the Dockerfile has no FROM");
    assert_eq!(problems("RUN x\nRUN y\nFROM z\n").len(), 1);
    assert_eq!(problems("FROM\nRUN y\n").len(), 1);
}

#[test]
fn a_forgotten_backslash_is_guessed() {
    let found = problems("FROM x\nRUN apt-get update &&\n    apt-get install -y curl\n");
    assert_eq!(found[0].0, "unknown instruction `apt-get`");
    assert_eq!(found[0].2, "if this goes on from the line above, that line has to end in `\\`");
}

#[test]
fn windows_files() {
    let dockerfile = parsed("\u{feff}FROM x\r\nRUN a \\\r\n  b\r\nCMD [\"c\"]\r\n");
    assert_eq!(dockerfile.stages[0].instructions[0].text, "RUN a   b");
    assert_eq!(dockerfile.stages[0].instructions[1].line, 4);
}

// --- resolve

/// Case 3: moby 34129.
#[test]
fn global_arguments_in_from() {
    let text = "ARG v=latest\nARG r=a/$v\nFROM ${r}:$v\n";
    assert_eq!(bases(text, &inputs()), [(0, image("a/latest:latest"))]);
    assert_eq!(bases(text, &with_args(&[("v", "1")])), [(0, image("a/1:1"))]);
}

#[test]
fn predefined_arguments_in_from() {
    let text = "FROM x-$TARGETARCH-$TARGETOS-${TARGETVARIANT:-none}-$TARGETSTAGE AS last";
    assert_eq!(bases(text, &inputs()), [(0, image("x-amd64-linux-none-last"))]);
    assert_eq!(bases(text, &with_args(&[("TARGETARCH", "y")])), [(0, image("x-y-linux-none-last"))]);
}

#[test]
fn only_what_the_target_needs() {
    let text = "\
FROM a AS one
FROM b AS two
FROM c AS three
COPY --from=ONE x y
FROM two AS four
RUN --mount=from=three,target=/m --mount=type=bind,from=img,target=/n true
FROM scratch
COPY --from=0 x y
COPY --from=other:1 x y
";
    let stage = StageBase::Stage;
    assert_eq!(bases(text, &inputs()), [(0, image("a")), (4, StageBase::Scratch)]);
    let target = |name: &str| Inputs { target: Some(name.into()), ..inputs() };
    let all = [(0, image("a")), (1, image("b")), (2, image("c")), (3, stage(1))];
    assert_eq!(bases(text, &target("four")), all);
    assert_eq!(bases(text, &target("Two")), [(1, image("b"))]);
    let resolved = resolve(&parsed(text), &target("four")).unwrap();
    assert_eq!(resolved.images, ["a", "b", "c", "img"]);
    assert_eq!(resolve(&parsed(text), &inputs()).unwrap().images, ["a", "other:1"]);
}

#[test]
fn a_stage_may_have_the_name_of_its_image() {
    assert_eq!(
        bases("FROM debian AS debian\nFROM debian\n", &inputs()),
        [(0, image("debian")), (1, StageBase::Stage(0))]
    );
    assert_eq!(
        bases("FROM later AS first\nFROM x AS later\n", &Inputs { target: Some("first".into()), ..inputs() }),
        [(0, image("later"))]
    );
}

#[test]
fn onbuild_of_a_stage_is_needed_by_its_children() {
    let text = "FROM a AS tools\nFROM b AS parent\nONBUILD COPY --from=tools x y\nFROM parent\n";
    assert_eq!(bases(text, &inputs()).len(), 3);
    assert_eq!(bases(text, &Inputs { target: Some("parent".into()), ..inputs() }).len(), 1);
}

#[test]
fn references_that_cannot_work() {
    for (text, message, underlined) in [
        ("FROM x AS a\nCOPY --from=a x y", "the stage `a` takes files from itself", "--from=a"),
        ("FROM x\nCOPY --from=0 x y", "stage 0 takes files from itself", "--from=0"),
        ("FROM x\nCOPY --from=1 x y", "there is no stage 1", "--from=1"),
        ("FROM x\nCOPY --from=-1 x y", "there is no stage -1", "--from=-1"),
        (
            "FROM x AS a\nCOPY --from=1 x y\nFROM z\nFROM a",
            "stage 1 comes after the one that takes files from it",
            "--from=1",
        ),
        (
            "FROM x AS a\nRUN --mount=from=b,target=/b y\nFROM z AS b\nFROM a",
            "the stage `b` comes after the one that takes files from it",
            "--mount=from=b,target=/b",
        ),
        ("FROM x\nCOPY --from=$X x y", "variables are not expanded in `--from`", "--from=$X"),
        ("FROM x\nCOPY --from=scratch x y", "there is nothing in scratch to copy", "--from=scratch"),
        (
            "FROM a\nFROM x\nRUN --mount=from=0,target=/b y",
            "a mount takes the name of a stage, not its number",
            "--mount=from=0,target=/b",
        ),
        ("FROM x AS a\nFROM A", "FROM takes the name of a stage in lower case, not `A`", "A"),
        ("ARG B\nFROM $B", "FROM names no image once its variables are expanded", "$B"),
        ("FROM debian:$B", "`debian:` is only part of the name of an image", "debian:$B"),
        ("ARG V='a b'\nFROM $V", "`a b` cannot be the name of an image", "$V"),
        ("FROM ${B:?missing}", "`B`: missing", "${B:?missing}"),
        ("FROM --platform=toaster x", "`toaster` is not a platform", "--platform=toaster"),
    ] {
        let found = resolve_problems(text, &inputs());
        let facts: Vec<_> = found.iter().map(|(m, u, _)| (m.as_str(), u.as_str())).collect();
        assert_eq!(facts, [(message, underlined)], "{text}");
    }
    // Where the target does not lead, nothing has to work.
    assert_eq!(bases("FROM x\nCOPY --from=1 x y\nFROM z", &inputs()), [(1, image("z"))]);
}

#[test]
fn an_unknown_target() {
    let target = Some("buidl".into());
    let found = resolve_problems("FROM x AS build\nFROM y AS run\n", &Inputs { target, ..inputs() });
    assert_eq!(found[0].0, "there is no stage `buidl` in Dockerfile");
    assert_eq!(found[0].2, "did you mean `build`?");
}

#[test]
fn build_arguments_that_nobody_asks_for() {
    let given = with_args(&[
        ("A", "1"),
        ("B", "1"),
        ("C", "1"),
        ("D", "1"),
        ("http_proxy", "p"),
        ("SOURCE_DATE_EPOCH", "0"),
        ("TARGETARCH", "x"),
        ("BUILDKIT_INLINE_CACHE", "1"),
    ]);
    let resolved = resolve(&parsed("ARG A\nFROM x AS y\nARG B\nONBUILD ARG C\n"), &given).unwrap();
    assert_eq!(resolved.unused_build_args, ["D"]);
}

// --- unsupported

#[test]
fn what_the_engine_cannot_do_yet() {
    let text = "\
ARG U=https://h/x
FROM --platform=linux/arm64 x
ARG U
ADD $U /x
ADD https://tok@h/r.git /x
RUN --security=insecure a
RUN --mount=type=ssh a
RUN --device=gpu a
COPY --parents a b
ADD --keep-git-dir git@h:r /x
COPY --link --chmod=755 --chown=1 --exclude=x a b
";
    let resolved = resolve(&parsed(text), &inputs()).unwrap();
    let found = unsupported(&resolved);
    let facts: Vec<_> = found
        .0
        .iter()
        .map(|d| {
            let place = d.place.as_ref().unwrap();
            (place.file.line_column(place.span.start).0, d.message.as_str(), d.hint.is_some())
        })
        .collect();
    assert_eq!(
        facts,
        [
            (2, "FROM --platform=linux/arm64 is not the platform that is built for (linux/amd64)", true),
            (8, "RUN --device=gpu is not supported yet", true),
        ]
    );
    let mut allowed = BTreeSet::new();
    let asked = |allowed: &BTreeSet<Entitlement>| {
        let problems = not_granted(&resolved, allowed).0.into_iter();
        problems.map(|d| (d.place.unwrap().span.start, d.message)).collect::<Vec<_>>()
    };
    let at = text.find("RUN --security").unwrap();
    assert_eq!(asked(&allowed), [(at, "RUN --security=insecure is not allowed".to_owned())]);
    allowed.insert(Entitlement::SecurityInsecure);
    assert_eq!(asked(&allowed), []);
    let fine = resolve(&parsed("FROM --platform=$TARGETPLATFORM x\nRUN a\n"), &inputs()).unwrap();
    assert!(unsupported(&fine).is_empty());
}

#[test]
fn a_named_context_stands_before_stages_and_images() {
    let given = Inputs { contexts: ["st".to_owned(), "debian".to_owned()].into(), ..inputs() };
    let text = "FROM x AS St\nRUN false\nFROM docker.io/library/debian:latest AS own\nCOPY --from=ST a b\n\
                COPY --from=0 a b\nCOPY --from=1 a b\n";
    let text = text.replace("COPY --from=1 a b\n", "FROM own\nCOPY --from=1 a b\n");
    let resolved = resolve(&parsed(&text), &given).unwrap();
    assert_eq!(resolved.images, ["debian", "st"]);
    assert_eq!(resolved.stages.iter().map(|s| s.index).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(resolved.stages[0].base, StageBase::Image("debian".into()));
    let without = resolve(&parsed(&text), &inputs()).unwrap();
    assert_eq!(without.images, ["x", "docker.io/library/debian:latest"]);
}

// --- any text at all

/// Lines that are nearly right, so that the deeper parts are reached.
fn nearly() -> impl Strategy<Value = String> {
    let keyword = prop::sample::select(parse::KEYWORDS.to_vec());
    let rest = prop::sample::select(vec![
        "--mount=type=cache,target=/x",
        "--from=0",
        "--from=a",
        "--chmod=$A",
        "<<EOF",
        "<<-'E F'",
        "EOF",
        "a=b",
        "a",
        "\"",
        "'",
        "\\",
        "\\\n",
        "\n",
        "[\"a\",",
        "\"b\"]",
        "$A",
        "${A:-",
        "}",
        "${A/b/c}",
        "AS",
        "b",
        "/c/",
        "é",
        "#",
        "NONE",
        "CMD",
        "80/tcp",
        "\r\n",
        "--",
        "--link",
        "`",
        "\u{a0}",
        "RUN",
        "..",
    ]);
    let line = (keyword, prop::collection::vec(rest, 0..6)).prop_map(|(k, rest)| format!("{k} {}\n", rest.join(" ")));
    prop::collection::vec(line, 1..8).prop_map(|lines| format!("FROM x AS a\n{}", lines.concat()))
}

fn survives(text: &str) {
    let in_bounds = |problems: &Diagnostics| {
        for place in problems.0.iter().filter_map(|d| d.place.as_ref()) {
            assert!(place.file.text.get(place.span.clone()).is_some(), "{:?} in {text:?}", place.span);
        }
    };
    let file = SourceFile::new("Dockerfile", text);
    let dockerfile = match parse(&file) {
        Ok(dockerfile) => Arc::new(dockerfile),
        Err(problems) => return in_bounds(&problems),
    };
    in_bounds(&dockerfile.warnings);
    for instruction in dockerfile.stages.iter().flat_map(|s| &s.instructions) {
        assert!(text.get(instruction.span.clone()).is_some(), "{:?} in {text:?}", instruction.span);
    }
    let given = with_args(&[("A", "x"), ("http_proxy", "p")]);
    match resolve(&dockerfile, &given) {
        Ok(resolved) => {
            in_bounds(&unsupported(&resolved));
            let config = ImageConfig::new(&given.platform);
            let bases = resolved.images.iter().map(|name| (name.clone(), config.clone())).collect();
            if let Err(problems) = lower(&resolved, &bases) {
                in_bounds(&problems);
            }
        }
        Err(problems) => in_bounds(&problems),
    }
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "(\\PC|\n|\r|\t){0,200}") {
        survives(&text);
    }

    #[test]
    fn nearly_right_text_is_survived(text in nearly()) {
        survives(&text);
    }
}
