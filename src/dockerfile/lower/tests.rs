use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::diag::{Diagnostics, SourceFile};
use crate::dockerfile::step::*;
use crate::dockerfile::{Inputs, lower, parse, resolve};
use crate::fetch::address::GitAddress;
use crate::image::config::{Healthcheck, ImageConfig, Platform, RuntimeConfig};

fn try_lower(text: &str, args: &[(&str, &str)], base: RuntimeConfig) -> Result<Vec<LoweredStage>, Diagnostics> {
    let platform = Platform { os: "linux".into(), architecture: "amd64".into(), variant: None };
    let build_args = args.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
    let inputs = Inputs { target: None, build_args, platform: platform.clone(), contexts: BTreeSet::new() };
    let dockerfile = Arc::new(parse(&SourceFile::new("Dockerfile", text))?);
    let resolved = resolve(&dockerfile, &inputs)?;
    let config = ImageConfig { config: base, ..ImageConfig::new(&platform) };
    let bases: BTreeMap<_, _> = resolved.images.iter().map(|name| (name.clone(), config.clone())).collect();
    lower(&resolved, &bases)
}

fn with(text: &str, args: &[(&str, &str)], base: RuntimeConfig) -> LoweredStage {
    let mut stages = try_lower(text, args, base).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    stages.pop().unwrap()
}

fn last(text: &str) -> LoweredStage {
    with(text, &[], RuntimeConfig::default())
}

fn history(stage: &LoweredStage) -> Vec<&str> {
    stage.steps.iter().map(|s| s.created_by.as_str()).collect()
}

fn runs(stage: &LoweredStage) -> Vec<&Run> {
    let all = stage.steps.iter().map(|step| &step.action);
    all.filter_map(|action| if let Action::Run(run) = action { Some(run) } else { None }).collect()
}

fn copies(stage: &LoweredStage) -> Vec<&Copy> {
    let all = stage.steps.iter().map(|step| &step.action);
    all.filter_map(|action| if let Action::Copy(copy) = action { Some(copy) } else { None }).collect()
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

fn env_of(run: &Run) -> Vec<(&str, &str)> {
    run.env.iter().filter(|(n, _)| n != "PATH").map(|(n, v)| (n.as_str(), v.as_str())).collect()
}

/// Every value here is what docker 20.10 with BuildKit made of the same file; HEALTHCHECK and EXPOSE are in the form
/// of today's frontend.
#[test]
fn the_whole_configuration_as_docker_makes_it() {
    let stage = last(
        r#"FROM scratch
ENV A=env
ARG A=arg
ENV E1=$A
ARG N
ARG HTTP_PROXY
ENV B="x y" C='$B' D=$B
ENV legacy a "b  c"   d
LABEL l1=$A l2="q\"uote" l3='s $A' l4=${A:-z} l5=a\ b l6="multi\
line"
WORKDIR /app/../b/
WORKDIR c/
EXPOSE 8080 80/UDP 100-102
VOLUME ["/v1", "/v 2"]
VOLUME /w1 /w2/
HEALTHCHECK --interval=1m30s --retries=3 CMD curl -f x
STOPSIGNAL SIGTERM
SHELL ["/bin/bash", "-c"]
CMD echo "hi"
ENTRYPOINT ["a", "b\n<>"]
USER $A
COPY f d/y ./
COPY . /all/
MAINTAINER me you
ONBUILD LABEL x=y
"#,
    );
    let config = &stage.config.config;
    assert_eq!(
        config.env,
        [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "A=env",
            "E1=arg",
            "B=x y",
            "C=$B",
            "D=",
            "legacy=a b  c   d"
        ]
    );
    assert_eq!(config.user, "arg");
    assert_eq!(config.cmd, Some(strings(&["/bin/bash", "-c", "echo \"hi\""])));
    assert_eq!(config.entrypoint, Some(strings(&["a", "b\n<>"])));
    assert_eq!(
        config.exposed_ports.keys().collect::<Vec<_>>(),
        ["100/tcp", "101/tcp", "102/tcp", "80/udp", "8080/tcp"]
    );
    assert_eq!(config.volumes.keys().collect::<Vec<_>>(), ["/v 2", "/v1", "/w1", "/w2/"]);
    assert_eq!(config.working_dir, "/b/c");
    assert_eq!(config.on_build, ["LABEL x=y"]);
    assert_eq!(config.stop_signal.as_deref(), Some("SIGTERM"));
    assert_eq!(config.shell, Some(strings(&["/bin/bash", "-c"])));
    let labels: Vec<_> = config.labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(
        labels,
        [("l1", "arg"), ("l2", "q\"uote"), ("l3", "s $A"), ("l4", "arg"), ("l5", "a b"), ("l6", "multiline")]
    );
    let check = Healthcheck {
        test: strings(&["CMD-SHELL", "curl -f x"]),
        interval: 90_000_000_000,
        retries: 3,
        ..Healthcheck::default()
    };
    assert_eq!(config.healthcheck, Some(check));
    assert_eq!(stage.config.author.as_deref(), Some("me you"));
    assert_eq!(
        history(&stage),
        [
            "ENV A=env",
            "ARG A=arg",
            "ENV E1=arg",
            "ARG N",
            "ARG HTTP_PROXY",
            "ENV B=x y C=$B D=",
            "ENV legacy=a b  c   d",
            "LABEL l1=arg l2=q\"uote l3=s $A l4=arg l5=a b l6=multiline",
            "WORKDIR /app/../b/",
            "WORKDIR /b/c",
            "EXPOSE [100/tcp 101/tcp 102/tcp 80/udp 8080/tcp]",
            "VOLUME [/v1 /v 2]",
            "VOLUME [/w1 /w2/]",
            r#"HEALTHCHECK &{["CMD-SHELL" "curl -f x"] "1m30s" "0s" "0s" "0s" '\x03'}"#,
            "STOPSIGNAL SIGTERM",
            "SHELL [/bin/bash -c]",
            "CMD [\"/bin/bash\" \"-c\" \"echo \\\"hi\\\"\"]",
            "ENTRYPOINT [\"a\" \"b\\n<>\"]",
            "USER arg",
            "COPY f d/y ./ # buildkit",
            "COPY . /all/ # buildkit",
            "MAINTAINER me you"
        ]
    );
}

/// Case 3.
#[test]
fn arguments_before_from_are_seen_inside_only_when_declared_again() {
    let text = "ARG v=latest\nFROM x:$v\nLABEL before=$v\nARG v\nLABEL after=$v\nARG v=own\nLABEL own=$v\n";
    let labels = |args: &[(&str, &str)]| {
        let stage = with(text, args, RuntimeConfig::default());
        stage.config.config.labels.into_values().collect::<Vec<_>>()
    };
    // In the order after, before, own.
    assert_eq!(labels(&[]), ["latest", "", "own"]);
    assert_eq!(labels(&[("v", "1")]), ["1", "", "1"]);
}

/// Case 10: kaniko 728.
#[test]
fn an_argument_that_only_a_script_reads_is_in_the_environment() {
    let text = "FROM x\nARG E\nENV E=$E\nRUN ./script\n";
    let env = |value| {
        let stage = with(text, &[("E", value)], RuntimeConfig::default());
        env_of(runs(&stage)[0]).into_iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>()
    };
    assert_eq!(env("one"), ["E=one"]);
    assert_eq!(env("two"), ["E=two"]);
    let stage = with(text, &[("E", "one")], RuntimeConfig::default());
    assert_eq!(history(&stage)[2], "RUN |1 E=one /bin/sh -c ./script # buildkit");
}

#[test]
fn env_and_arg_of_one_name() {
    let stage = last("FROM x\nARG A=arg\nENV A=env\nARG B=b\nARG C\nRUN true\nARG A=again\nRUN true\n");
    let runs = runs(&stage);
    assert_eq!(env_of(runs[0]), [("A", "env"), ("B", "b")]);
    assert_eq!(env_of(runs[1]), [("A", "again"), ("B", "b")]);
    assert_eq!(history(&stage)[4], "RUN |3 A=env B=b C= /bin/sh -c true # buildkit");
    assert_eq!(stage.config.config.env_get("A"), Some("env"));
}

#[test]
fn values_of_one_line_see_what_was_before_it() {
    let stage = last("FROM x\nENV a=1\nENV a=2 b=$a c=${b:-none}\n");
    assert_eq!(stage.config.config.env[1..], ["a=2", "b=1", "c=none"]);
}

#[test]
fn nothing_is_expanded_in_commands() {
    let stage = last("FROM x\nENV A=a\nRUN echo $A ${A}\nRUN [\"$A\"]\nCMD $A\nENTRYPOINT [\"$A\"]\n");
    assert_eq!(runs(&stage)[0].argv, ["/bin/sh", "-c", "echo $A ${A}"]);
    assert_eq!(runs(&stage)[1].argv, ["$A"]);
    assert_eq!(stage.config.config.entrypoint, Some(strings(&["$A"])));
    assert_eq!(stage.config.config.cmd, Some(strings(&["/bin/sh", "-c", "$A"])));
}

#[test]
fn proxies_reach_the_process_and_nothing_else() {
    let args = [("http_proxy", "http://u:secret@p"), ("NO_PROXY", "x")];
    let stage = with("FROM x\nRUN true\nARG NO_PROXY\nRUN true\n", &args, RuntimeConfig::default());
    let runs = runs(&stage);
    let names = |run: &Run| run.proxy_env.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
    assert_eq!(names(runs[0]), ["HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"]);
    assert_eq!(names(runs[1]), ["HTTP_PROXY", "http_proxy", "no_proxy"]);
    assert_eq!(env_of(runs[1]), [("NO_PROXY", "x")]);
    assert!(!history(&stage).concat().contains("secret"));
    assert!(!format!("{:?}", stage.config).contains("secret"));
}

#[test]
fn what_the_parent_brings() {
    let base = RuntimeConfig {
        env: strings(&["PATH=/p", "A=base"]),
        cmd: Some(strings(&["old"])),
        working_dir: "/w".into(),
        user: "u".into(),
        shell: Some(strings(&["/bin/ash", "-c"])),
        ..RuntimeConfig::default()
    };
    let stage = with("FROM x\nENV PATH=$PATH:/more B=$A\nRUN a\nCOPY a b\nWORKDIR c\n", &[], base.clone());
    assert_eq!(stage.config.config.env, ["PATH=/p:/more", "A=base", "B=base"]);
    let run = runs(&stage)[0];
    assert_eq!((run.cwd.as_str(), run.user.as_str(), run.argv[0].as_str()), ("/w", "u", "/bin/ash"));
    assert_eq!(copies(&stage)[0].dest, "/w/b");
    assert!(matches!(&stage.steps[3].action, Action::Workdir { path, user } if path == "/w/c" && user == "u"));
    assert_eq!(stage.config.config.cmd, Some(strings(&["old"])));
    // An entry point of one's own forgets the parent's command, unless there is one of one's own as well.
    let cmd = |text: &str| with(text, &[], base.clone()).config.config.cmd;
    assert_eq!(cmd("FROM x\nENTRYPOINT [\"e\"]\n"), None);
    assert_eq!(cmd("FROM x\nCMD [\"c\"]\nENTRYPOINT [\"e\"]\n"), Some(strings(&["c"])));
}

/// Case 13: Kolla's bifrost image.
#[test]
fn an_entry_point_is_emptied() {
    let base = RuntimeConfig { entrypoint: Some(strings(&["init"])), ..RuntimeConfig::default() };
    let stage = with("FROM x\nENTRYPOINT []\nCMD [\"/sbin/init\"]\n", &[], base);
    assert_eq!(stage.config.config.entrypoint, None);
    assert_eq!(stage.config.config.cmd, Some(strings(&["/sbin/init"])));
    assert_eq!(history(&stage), ["ENTRYPOINT []", "CMD [\"/sbin/init\"]"]);
}

/// Case 1.
#[test]
fn both_commands_around_a_comment_run() {
    let stage = last("FROM x\nRUN echo one && \\\n# comment\n    echo two\n");
    assert_eq!(runs(&stage)[0].argv[2], "echo one &&     echo two");
}

/// Case 2: buildkit 2439.
#[test]
fn heredocs_into_files() {
    let stage = last(
        "FROM x\nENV V=v\nCOPY <<a <<'b' <<-c.txt d /x/\n<?xml version=\"1.0\"?>\n$V \\$V\na\n$V\nb\n\t\tt $V\n\tc.txt\n",
    );
    let copy = copies(&stage)[0];
    let inline = |name: &str, content: &str| Source::Inline { name: name.into(), content: content.into() };
    assert_eq!(
        copy.sources,
        [
            Source::Path("d".into()),
            inline("a", "<?xml version=\"1.0\"?>\nv $V\n"),
            inline("b", "$V\n"),
            inline("c.txt", "t v\n")
        ]
    );
    assert_eq!(copy.dest, "/x/");
    assert_eq!(history(&stage)[1], "COPY d <<a <<b <<c.txt /x/ # buildkit");
}

#[test]
fn heredocs_that_run() {
    let stage = last(
        "FROM x\nRUN <<EOF\nset -e\necho $A\nEOF\nRUN <<-EOF\n\t#!/usr/bin/python3\n\tprint()\n\tEOF\nRUN cat <<A <<-B | x\n1\nA\n\t2\n\tB\n",
    );
    let runs = runs(&stage);
    assert_eq!(runs[0].argv, ["/bin/sh", "-c", "set -e\necho $A\n"]);
    assert_eq!(runs[0].script, None);
    assert_eq!(runs[1].argv, ["/dev/pipes/EOF"]);
    assert_eq!(runs[1].script.as_deref(), Some(&b"#!/usr/bin/python3\nprint()\n"[..]));
    assert_eq!(runs[2].argv[2], "cat <<A <<-B | x\n1\nA\n\t2\nB");
    assert_eq!(history(&stage)[1], "RUN /bin/sh -c /dev/pipes/EOF # buildkit");
    let titles: Vec<_> = stage.steps.iter().map(|s| s.title.as_str()).collect();
    assert_eq!(titles, ["RUN <<EOF (echo $A …)", "RUN <<-EOF (print() …)", "RUN cat <<A <<-B | x"]);
}

#[test]
fn a_comment_right_above_can_give_the_title() {
    let text =
        "FROM scratch\n# title: Install packages: x\nRUN apt-get install x\n# title: far\n\nRUN b\n#title:\nRUN c\n";
    let stage = last(text);
    let titles: Vec<_> = stage.steps.iter().map(|s| s.title.as_str()).collect();
    assert_eq!(titles, ["Install packages: x", "RUN b", "RUN c"]);
    assert_eq!(stage.steps[0].created_by, "RUN /bin/sh -c apt-get install x # buildkit");
}

#[test]
fn titles_are_short_and_leave_flags_out() {
    let long = "x".repeat(200);
    let stage = last(&format!("FROM x\nRUN --mount=target=/m a \\\n   && b\nENV  A=b\nrun {long}\n"));
    assert_eq!(stage.steps[0].title, "RUN a && b");
    assert_eq!(stage.steps[1].title, "ENV A=b");
    assert_eq!(stage.steps[2].title.chars().count(), 100);
    assert_eq!((stage.steps[0].line, stage.steps[2].line), (2, 5));
}

#[test]
fn mounts_as_buildkit_has_them() {
    let stage = last(
        "FROM tools AS t\nFROM x\nWORKDIR /w\nARG ID=cid\nRUN --mount=target=. \
         --mount=type=bind,from=t,src=/a/../b,dst=/b,rw \
         --mount=type=cache,target=/var/cache/apt/,sharing=locked \
         --mount=type=cache,id=$ID,target=rel,from=t,source=c,uid=5,mode=0700,ro \
         --mount=type=tmpfs,target=/t,size=1m \
         --mount=type=secret,id=dir/key --mount=type=secret,id=k,env=K,required=true \
         --mount=type=secret,target=/s/pass,mode=0440,gid=7 --mount=type=ssh true\n",
    );
    let mounts: Vec<_> = runs(&stage)[0].mounts.iter().map(|m| format!("{} {:?}", m.target, m.kind)).collect();
    let secret = "env: None, required: false, mode: 256, uid: 0, gid: 0 }";
    assert_eq!(
        mounts,
        [
            "/w Bind { from: Context, source: \".\", writable: false }".to_owned(),
            "/b Bind { from: Stage(0), source: \"b\", writable: true }".into(),
            "/var/cache/apt Cache { id: \"/var/cache/apt\", sharing: Locked, from: None, source: \".\", \
             read_only: false, mode: 493, uid: 0, gid: 0 }"
                .into(),
            "/w/rel Cache { id: \"cid\", sharing: Shared, from: Some(Stage(0)), source: \"c\", read_only: true, \
             mode: 448, uid: 5, gid: 0 }"
                .into(),
            "/t Tmpfs { size: Some(1048576) }".into(),
            format!("/run/secrets/key Secret {{ id: \"dir/key\", {secret}"),
            " Secret { id: \"k\", env: Some(\"K\"), required: true, mode: 256, uid: 0, gid: 0 }".into(),
            "/s/pass Secret { id: \"pass\", env: None, required: false, mode: 288, uid: 0, gid: 7 }".into(),
            "/run/buildkit/ssh_agent.0 Ssh { id: \"default\", required: false, mode: 384, uid: 0, gid: 0 }".into(),
        ]
    );
}

#[test]
fn sources_and_destinations_of_copy() {
    let stage = last(
        "FROM a AS b\nFROM x\nENV D=dir O=1:2 M=\nWORKDIR /w\nCOPY --chown=$O --chmod=$M ../$D/./f /g/ sub/.\n\
         COPY --from=b --link --exclude=*.c . ..\nADD --unpack=true https://h/x.tgz git@h:r.git x.tar .\n",
    );
    let copies = copies(&stage);
    assert_eq!(copies[0].sources, [Source::Path("dir/f".into()), Source::Path("g".into())]);
    assert_eq!(
        (copies[0].dest.as_str(), copies[0].chown.as_deref(), &copies[0].chmod),
        ("/w/sub/", Some("1:2"), &None)
    );
    assert_eq!((copies[1].dest.as_str(), &copies[1].from, copies[1].link), ("/", &From::Stage(0), true));
    assert_eq!(copies[1].excludes, ["*.c"]);
    assert_eq!(
        copies[2].sources,
        [
            Source::Url("https://h/x.tgz".into()),
            Source::Git(GitAddress::parse("git@h:r.git").unwrap().unwrap()),
            Source::Path("x.tar".into())
        ]
    );
    assert_eq!((copies[2].dest.as_str(), copies[2].unpack, copies[2].add), ("/w/", Some(true), true));
    assert_eq!(history(&stage)[2], "COPY --chown=1:2 ../dir/./f /g/ sub/. # buildkit");
}

#[test]
fn onbuild_of_the_parent_runs_first() {
    let base = RuntimeConfig {
        on_build: strings(&["ENV A=1", "COPY <<f /f\n$A\nf", "RUN make $A"]),
        ..RuntimeConfig::default()
    };
    let stage = with("ARG x\nFROM x\nENV B=$A\n", &[], base);
    assert_eq!(history(&stage), ["ENV A=1", "COPY <<f /f # buildkit", "RUN /bin/sh -c make $A # buildkit", "ENV B=1"]);
    assert_eq!(stage.steps[1].line, 2);
    assert_eq!(stage.steps[2].title, "ONBUILD RUN make $A");
    assert!(stage.config.config.on_build.is_empty());
}

#[test]
fn a_stage_hands_on_arguments_and_onbuild() {
    let stage = last("FROM x AS p\nARG V=1\nONBUILD LABEL o=$V\nFROM p\nLABEL l=$V\nRUN true\n");
    let labels: Vec<_> = stage.config.config.labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(labels, [("l", "1"), ("o", "1")]);
    assert_eq!(history(&stage), ["LABEL o=1", "LABEL l=1", "RUN |1 V=1 /bin/sh -c true # buildkit"]);
    assert!(stage.config.config.on_build.is_empty());
}

#[test]
fn onbuild_of_the_parent_that_cannot_be_run() {
    let problem = |trigger: &str| {
        let base = RuntimeConfig { on_build: strings(&[trigger]), ..RuntimeConfig::default() };
        let problems = try_lower("FROM x\n", &[], base).unwrap_err();
        let place = problems.0[0].place.as_ref().unwrap().span.clone();
        assert_eq!(place, 0..6);
        problems.0[0].message.clone()
    };
    assert_eq!(problem("BOGUS x"), "the parent's ONBUILD `BOGUS x`: unknown instruction `BOGUS`");
    assert_eq!(
        problem("COPY --from=elsewhere a b"),
        "the parent's ONBUILD takes files from `elsewhere`, which this Dockerfile doesn't name"
    );
}

#[test]
fn what_is_wrong_after_expansion_is_said_with_its_place() {
    let text = "FROM x\nSTOPSIGNAL SIGFOO\nEXPOSE 80/icmp\nCOPY --chmod=999 a b\nCOPY https://x/y b\n\
                LABEL a=${N:?say}\nRUN --mount=type=cache,target=/ x\nADD --checksum=sha256:1 a b\nENV \"\"=x\n";
    let problems = try_lower(text, &[], RuntimeConfig::default()).unwrap_err();
    let facts: Vec<_> =
        problems.0.iter().map(|d| (d.message.as_str(), &text[d.place.as_ref().unwrap().span.clone()])).collect();
    assert_eq!(
        facts,
        [
            ("`SIGFOO` is not a signal", "SIGFOO"),
            ("`80/icmp` cannot be exposed: `icmp` is none of tcp, udp and sctp", "80/icmp"),
            ("`999` is not a mode", "--chmod=999"),
            ("COPY cannot fetch `https://x/y`", "https://x/y"),
            ("`N`: say", "a=${N:?say}"),
            ("nothing can be mounted over the root directory", "--mount=type=cache,target=/"),
            ("`--checksum` is for one URL or one git repository", "--checksum=sha256:1"),
            ("the name is empty once its variables are expanded", "\"\"=x"),
        ]
    );
}

#[test]
fn scratch_and_predefined_arguments() {
    let stage =
        last("FROM scratch\nARG TARGETARCH\nARG SOURCE_DATE_EPOCH\nLABEL a=$TARGETARCH b=$TARGETOS\nRUN [\"x\"]\n");
    assert_eq!(stage.config.config.working_dir, "/");
    assert_eq!(stage.config.config.labels.values().collect::<Vec<_>>(), ["amd64", ""]);
    assert_eq!(env_of(runs(&stage)[0]), [("TARGETARCH", "amd64")]);
    assert_eq!(runs(&stage)[0].argv, ["x"]);
    let epoch = with("FROM x\nARG SOURCE_DATE_EPOCH\nRUN y\n", &[("SOURCE_DATE_EPOCH", "5")], RuntimeConfig::default());
    assert_eq!(env_of(runs(&epoch)[0]), [("SOURCE_DATE_EPOCH", "5")]);
}

#[test]
fn network_and_security() {
    let stage = last("FROM x\nRUN --network=none a\nRUN --network=host --security=insecure a\nRUN a\n");
    let facts: Vec<_> = runs(&stage).iter().map(|r| (r.network, r.security)).collect();
    assert_eq!(
        facts,
        [
            (Network::None, Security::Sandbox),
            (Network::Host, Security::Insecure),
            (Network::Default, Security::Sandbox)
        ]
    );
}
