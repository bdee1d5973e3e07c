//! RUN steps of the embedded engine: what a step sees, what it may do, and what stays of it.

use std::os::unix::fs::MetadataExt as _;

use crate::lab::{Lab, Setup, is_root};
use kollage::dockerfile::step::Entitlement;
use kollage::engine::embedded::Options;
use kollage::engine::embedded::lend::Lending;
use kollage::engine::{Check, NoCache, SecretSource};
use kollage::error::Kind;

#[test]
fn a_step_sees_what_its_instructions_say() {
    if !is_root("a_step_sees_what_its_instructions_say") {
        return;
    }
    let lab = Lab::new();
    assert_eq!(
        lab.output("ENV A=1 B=two\nARG C=three\nWORKDIR /srv/app\nRUN pwd; echo $A $B $C; umask; id -u; echo $HOME; hostname; tty || true"),
        ["/srv/app", "1 two three", "0022", "0", "/root", "kollage", "not a tty"]
    );
    assert_eq!(
        lab.output("USER kim\nRUN id; echo $HOME; cat /proc/self/status | grep Cap | tr '\\t' ' '"),
        [
            "uid=1000(kim) gid=1001(kim) groups=29(audio),50(staff),1001(kim)",
            "/home/kim",
            "CapInh: 0000000000000000",
            "CapPrm: 0000000000000000",
            "CapEff: 0000000000000000",
            "CapBnd: 00000000a80425fb",
            "CapAmb: 0000000000000000",
        ]
    );
    assert_eq!(lab.output("USER 1234:staff\nRUN id -u; id -g; echo $HOME"), ["1234", "50", "/"]);
    // Both streams, lines without an end, bytes that are no text.
    assert_eq!(lab.output("RUN echo out; echo err >&2; printf 'no end'").len(), 3);
    assert_eq!(lab.output("RUN printf 'a\\377b\\n'"), ["a\u{fffd}b"]);
}

#[test]
fn a_step_may_do_what_docker_allows_and_no_more() {
    if !is_root("a_step_may_do_what_docker_allows_and_no_more") {
        return;
    }
    let lab = Lab::new();
    let out = lab.output("RUN cat /proc/self/status | grep Cap | tr '\\t' ' '");
    assert_eq!(out[1..4], ["CapPrm: 00000000a80425fb", "CapEff: 00000000a80425fb", "CapBnd: 00000000a80425fb"]);
    // Its own processes only: the first one, the shell, and what the shell runs.
    let out = lab.output("RUN ls -d /proc/[0-9]* | wc -l; echo $$");
    assert!(out[0].parse::<u32>().unwrap() <= 5, "{out:?}");
    let out = lab.output(
        "RUN mount -t tmpfs x /tmp 2>/dev/null || echo no-mount; \
         cat /proc/kcore 2>/dev/null | wc -c; \
         echo 1 2>/dev/null > /proc/sys/kernel/sysrq || echo no-sysctl; \
         echo x 2>/dev/null > /sys/kernel/profiling || echo no-sys; \
         ls /sys/firmware | wc -l; \
         readlink /proc/1/exe || echo hidden; \
         readlink /proc/1/fd/0 || echo hidden; \
         readlink /proc/1/root || echo hidden; \
         hostname other 2>/dev/null || echo no-hostname",
    );
    assert_eq!(out, ["no-mount", "0", "no-sysctl", "no-sys", "0", "hidden", "hidden", "hidden", "no-hostname"]);
    // A device node can be made, as Docker allows; but it opens nothing.
    let out = lab.output("RUN mknod /tmp/null c 1 3 && { cat /tmp/null 2>/dev/null || echo closed; }; mknod /dev/x c 1 3 && { cat /dev/x 2>/dev/null || echo closed; }; echo kept > /dev/null && echo null");
    assert_eq!(out, ["closed", "closed", "null"]);
    assert_eq!(
        lab.output("RUN echo out > /dev/stdout; ls /dev/shm | wc -l; test -e /dev/pts/ptmx && echo pts"),
        ["out", "0", "pts"]
    );
    assert_eq!(
        lab.output("USER kim\nRUN echo allowed > /dev/stdout; echo allowed > /dev/stderr"),
        ["allowed", "allowed"]
    );
    // The program of the host that the step descends from cannot be reached, nor written to.
    let out = lab.output("RUN for p in /proc/[0-9]*; do readlink $p/exe; done | sort | grep -v busybox || echo none");
    assert_eq!(out, ["none"]);
}

#[test]
fn nothing_that_was_lent_stays_in_the_layer() {
    if !is_root("nothing_that_was_lent_stays_in_the_layer") {
        return;
    }
    let bundle = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(bundle.path(), "-----BEGIN CERTIFICATE-----\n").unwrap();
    let proxy = vec![("http_proxy".to_owned(), "http://me:pass-word@proxy:1".to_owned())];
    let lab = Lab::with(Options {
        lending: Lending { ca_bundle: Some(bundle.path().to_path_buf()), proxy, apt_as_root: false },
        ..Options::default()
    });
    lab.events.clear();
    let built = lab
        .build("ENV PIP_CERT=mine\nRUN echo $SSL_CERT_FILE $PIP_CERT $http_proxy; cat $CURL_CA_BUNDLE; cat $APT_CONFIG; wc -l < /etc/hosts > /lines; test -s /etc/resolv.conf || echo empty")
        .unwrap();
    let out = lab.events.output();
    // The password is lent, and the log doesn't show it.
    assert_eq!(out[0], "/run/kollage/ca-certificates.crt mine http://me:***@proxy:1");
    assert_eq!(out[1], "-----BEGIN CERTIFICATE-----");
    assert!(out[2].starts_with("Acquire::https::CaInfo"));
    assert_eq!(lab.top_layer(&built), ["lines"]);
    let config = serde_json::to_string(&built.config).unwrap();
    assert!(!config.contains("kollage/ca") && !config.contains("pass-word"), "{config}");

    // As Kolla's haproxy image does.
    let built = lab.build("RUN mkdir /run/own && chown -R 1000:1000 /run && stat -c %u $SSL_CERT_FILE").unwrap();
    let top = lab.top_layer(&built);
    assert!(top.contains(&"run/own/".to_owned()) && !top.iter().any(|path| path.contains("kollage")), "{top:?}");
    assert!(!top.iter().any(|path| path.contains("hosts") || path.contains("resolv")), "{top:?}");
    assert_eq!(std::fs::metadata(bundle.path()).unwrap().uid(), 0);

    // /etc is made by the step alone: what was lent lies in it, and stays out of it.
    let built = lab.build("RUN rm -rf /var /usr/lib && mkdir /run/mine && echo x > /etc/new").unwrap();
    assert_eq!(lab.top_layer(&built), ["!usr/lib", "!var", "etc/", "etc/new", "run/", "run/mine/", "usr/"]);
    // A layer that hides the scaffold: the mount points are made, and taken away again.
    let built = lab.build("RUN rm -rf /home && mkdir /home && mkdir /home/x\nRUN --mount=type=tmpfs,target=/home/kim/cache touch /home/kim/cache/file").unwrap();
    assert_eq!(lab.top_layer(&built), ["home/"]);
    // What a step puts beside a mount point that was made for it is its own.
    let built = lab
        .build("RUN rm -rf /home && mkdir /home\nRUN --mount=type=tmpfs,target=/home/kim/cache touch /home/kim/file")
        .unwrap();
    assert_eq!(lab.top_layer(&built), ["home/", "home/kim/", "home/kim/file"]);
}

#[test]
fn links_of_the_image_do_not_lead_mounts_astray() {
    if !is_root("links_of_the_image_do_not_lead_mounts_astray") {
        return;
    }
    let lab = Lab::new();
    // As systemd-resolved leaves it in an image: the target does not exist.
    let built = lab
        .build("RUN ln -s ../run/systemd/resolve/stub-resolv.conf /tmp/r && mv /tmp/r /etc/resolv.link\nRUN --mount=type=tmpfs,target=/etc/resolv.link/x true")
        .unwrap();
    assert_eq!(lab.top_layer(&built), Vec::<String>::new());
    let error = lab.build("RUN rm -rf /srv && ln -s / /srv/ 2>/dev/null; ln -s ../../../../../../tmp /climb\nRUN --mount=type=tmpfs,target=/climb/in touch /climb/in/file && false").unwrap_err();
    assert!(error.causes().iter().any(|c| c == "exit status 1"), "{error}");
    assert!(!std::path::Path::new("/tmp/in").exists());
}

#[test]
fn deletions_and_replaced_directories() {
    if !is_root("deletions_and_replaced_directories") {
        return;
    }
    let lab = Lab::new();
    let built = lab.build("RUN mkdir /foo && touch /foo/bar /baz\nRUN rm -r /foo && ln -s baz /foo").unwrap();
    assert_eq!(lab.top_layer(&built), ["foo"]);
    let built = lab.build("RUN mkdir -p /d/old && touch /d/x\nRUN rm -r /d && mkdir /d && touch /d/new\nRUN rm /d/new && touch /d/new2").unwrap();
    assert_eq!(lab.ask(&built, "ls /d"), "new2");
    // Renaming a directory of a lower layer copies it, and leaves no trace of overlayfs.
    let built = lab.build("RUN mkdir -p /from/in && touch /from/in/f\nRUN mv /from /to").unwrap();
    assert_eq!(lab.top_layer(&built), ["!from", "to/", "to/in/", "to/in/f"]);
    // The same layer twice: overlayfs takes a directory only once.
    let same = "RUN echo 1 > /same && touch -d @1 /same";
    let built = lab.build(&format!("{same}\nRUN rm /same\n{same}\nRUN cat /same > /seen")).unwrap();
    let ids = &built.config.rootfs.diff_ids;
    assert_eq!((ids.len(), &ids[1]), (5, &ids[3]));
    assert_eq!(lab.read(&built, "/seen").unwrap(), b"1\n");
    // A sparse file that no layer could hold ends in seconds, and with a reason.
    let error = lab.build("RUN truncate -s 200G /sparse").unwrap_err();
    assert!(error.causes()[0].contains("`/sparse` is larger than a layer may hold"), "{error}");
}

#[test]
fn exit_codes_and_commands_that_cannot_be_executed() {
    if !is_root("exit_codes_and_commands_that_cannot_be_executed") {
        return;
    }
    let lab = Lab::new();
    let error = lab.build("RUN true\nRUN echo one && echo two >&2 && exit 42").unwrap_err();
    assert_eq!(error.kind(), Kind::Failed);
    assert!(error.message().starts_with("Dockerfile:3: `RUN echo one"), "{error}");
    assert_eq!(error.causes()[0], "exit status 42");
    assert_eq!(error.causes().len(), 1);
    assert!(lab.events.output().ends_with(&["one".into(), "two".into()]), "{:?}", lab.events.output());
    for (instructions, cause) in [
        ("RUN kill -9 $$", "killed by signal 9"),
        ("RUN [\"nowhere\"]", "there is no `nowhere` in PATH"),
        ("RUN [\"/etc/passwd\"]", "cannot execute `/etc/passwd`: Permission denied (os error 13)"),
        ("USER nobody-here\nRUN true", "there is no user `nobody-here` in the image"),
    ] {
        let error = lab.build(instructions).unwrap_err();
        assert_eq!(error.causes()[0], cause, "{instructions}");
        assert_eq!(error.kind(), Kind::Failed);
    }
    // What failed is not recorded, and what was done before it is.
    lab.events.clear();
    lab.build("RUN true\nRUN echo one && echo two >&2 && exit 42").unwrap_err();
    assert_eq!(lab.events.reused(), [true]);
}

#[test]
fn mounts_of_every_kind() {
    if !is_root("mounts_of_every_kind") {
        return;
    }
    let secrets = [
        ("token".to_owned(), SecretSource::Value(b"hunter2-token".to_vec())),
        ("file".to_owned(), SecretSource::Value(b"line one\nline two\n".to_vec())),
    ];
    let lab = Lab::with(Options { secrets: secrets.into(), ..Options::default() });
    lab.events.clear();
    let built = lab
        .build(
            "RUN --mount=type=secret,id=token --mount=type=secret,id=file,target=/etc/file,mode=0440,uid=1000,gid=50 \
             --mount=type=secret,id=token,env=TOKEN --mount=type=secret,id=unknown \
             stat -c '%a %u %g %n' /run/secrets/token /etc/file; sha256sum < /run/secrets/token; cat /etc/file; \
             test -e /run/secrets/unknown || echo none; echo $TOKEN; echo x > /run/secrets/token || echo read-only",
        )
        .unwrap();
    let out = lab.events.output();
    assert_eq!(out[..2], ["400 0 0 /run/secrets/token", "440 1000 50 /etc/file"]);
    assert!(out.iter().any(|l| l == "none") && out.iter().any(|l| l == "read-only"), "{out:?}");
    assert!(out.iter().any(|l| l == "***") && !out.iter().any(|l| l.contains("hunter2")), "{out:?}");
    assert_eq!(lab.top_layer(&built), Vec::<String>::new());
    let error = lab.build("RUN --mount=type=secret,id=password,required=true true").unwrap_err();
    assert_eq!(error.kind(), Kind::BadInput);
    assert_eq!(error.causes()[0], "line 2: there is no secret `password`");

    // A cache is kept between steps; one that begins with files of an image has them.
    let cache = "--mount=type=cache,target=/var/cache/x,id=x,uid=1000,mode=0700";
    assert_eq!(lab.output(&format!("RUN {cache} stat -c '%a %u' /var/cache/x; echo 1 > /var/cache/x/n")), ["700 1000"]);
    assert_eq!(lab.output(&format!("RUN {cache} cat /var/cache/x/n")), ["1"]);
    assert_eq!(
        lab.output("RUN --mount=type=cache,target=/c,from=example.org/busybox:latest,source=/etc,sharing=locked ls /c"),
        ["group", "passwd"]
    );
    assert_eq!(lab.output("RUN --mount=type=cache,target=/p,sharing=private touch /p/f; ls /p"), ["f"]);

    let out = lab.output(
        "RUN --mount=type=tmpfs,target=/t,size=1m dd if=/dev/zero of=/t/f bs=2M count=1 2>/dev/null || echo full",
    );
    assert_eq!(out, ["full"]);

    // Binds: read-only, or with writes that go nowhere.
    let stages = "FROM example.org/busybox:latest AS tools\nRUN mkdir /out && echo made > /out/file\nFROM example.org/busybox:latest\n";
    lab.events.clear();
    let built = lab
        .build_dockerfile(
            &format!(
                "{stages}RUN --mount=type=bind,from=tools,source=/out,target=/in \
                 --mount=type=bind,from=tools,source=/out/file,target=/one \
                 --mount=type=bind,from=tools,target=/all,rw \
                 cat /in/file /one; touch /in/x 2>/dev/null || echo read-only; touch /all/x && echo written; cat /all/out/file > /copy"
            ),
            &Setup::default(),
        )
        .unwrap();
    assert_eq!(lab.events.output(), ["made", "made", "read-only", "written"]);
    assert_eq!(lab.top_layer(&built), ["copy"]);
}

#[test]
fn a_step_without_network_has_a_loopback_and_nothing_else() {
    if !is_root("a_step_without_network_has_a_loopback_and_nothing_else") {
        return;
    }
    let lab = Lab::new();
    let out = lab.output(
        "RUN --network=none ip -o link | grep -c : ; ip -o addr show lo | grep -c 127.0.0.1; wc -c < /etc/resolv.conf",
    );
    assert_eq!(out, ["1", "1", "0"]);
}

#[test]
fn an_insecure_step_has_to_be_allowed() {
    if !is_root("an_insecure_step_has_to_be_allowed") {
        return;
    }
    let step =
        "RUN --security=insecure mount -t tmpfs x /tmp && echo mounted; cat /proc/self/status | grep CapEff | wc -l";
    let error = Lab::new().build(step).unwrap_err();
    assert_eq!((error.kind(), error.hint_text().is_some()), (Kind::BadInput, true));
    let lab = Lab::with(Options { entitlements: [Entitlement::SecurityInsecure].into(), ..Options::default() });
    assert_eq!(lab.output(step), ["mounted", "1"]);
}

#[test]
fn a_heredoc_with_its_own_interpreter() {
    if !is_root("a_heredoc_with_its_own_interpreter") {
        return;
    }
    let lab = Lab::new();
    lab.events.clear();
    let built = lab.build("RUN <<EOF\n#!/bin/busybox sh\necho \"from $0\" | sed s/pipes.*/pipes/\nEOF\nRUN <<EOF\necho one\necho two\nEOF").unwrap();
    assert_eq!(lab.events.output(), ["from /dev/pipes", "one", "two"]);
    assert_eq!(lab.top_layer(&built), Vec::<String>::new());
}

#[test]
fn results_are_reused_step_by_step() {
    if !is_root("results_are_reused_step_by_step") {
        return;
    }
    let lab = Lab::new();
    let build = |instructions: &str, setup: &Setup| {
        lab.events.clear();
        let built = lab.build_with(instructions, setup).unwrap();
        (built, lab.events.reused())
    };
    let plain = Setup::default();
    let (first, reused) = build("RUN echo 1 > /a\nENV X=1\nRUN echo 2 > /b", &plain);
    assert_eq!(reused, [false, false]);
    let (second, reused) = build("RUN echo 1 > /a\nENV X=1\nRUN echo 2 > /b", &plain);
    assert_eq!((reused, &second.config.rootfs), (vec![true, true], &first.config.rootfs));
    // The environment of a step belongs to it.
    assert_eq!(build("RUN echo 1 > /a\nENV X=2\nRUN echo 2 > /b", &plain).1, [true, false]);
    let no_cache = Setup { no_cache: NoCache::Everything, ..Setup::default() };
    assert_eq!(build("RUN echo 1 > /a", &no_cache).1, [false]);
    // Metadata makes no layer, and has its place in the history.
    let history: Vec<_> =
        first.config.history.iter().map(|h| (h.created_by.clone().unwrap_or_default(), h.empty_layer)).collect();
    assert_eq!(history.len(), 4);
    assert!(history[2].1 && history[2].0.contains("ENV X=1"), "{history:?}");
    assert_eq!(first.config.rootfs.diff_ids.len(), 3);
}

#[test]
fn one_epoch_gives_one_digest() {
    if !is_root("one_epoch_gives_one_digest") {
        return;
    }
    let setup = Setup { source_date_epoch: Some(1_750_000_000), ..Setup::default() };
    let build = || {
        let lab = Lab::new();
        let built = lab
            .build_with("WORKDIR /srv\nRUN mkdir d && echo x > d/f && ln d/f d/g\nUSER kim\nWORKDIR own", &setup)
            .unwrap();
        let node: std::sync::Arc<str> = "node".into();
        let ctl = kollage::engine::Ctl { node: &node, sink: &*lab.events, cancel: &lab.cancel };
        let published = kollage::engine::Engine::finish(&lab.engine, &built, &["kollage/x:1".into()], &ctl).unwrap();
        assert_eq!(lab.engine.store().get_ref("kollage/x:1").unwrap().manifest, published.digest);
        assert_eq!(lab.ask(&built, "stat -c '%u:%g %a' /srv /srv/own"), "0:0 755\n1000:1001 755");
        (built.config, published.digest)
    };
    let (one, other) = (build(), build());
    assert_eq!(one.0.created.as_deref(), Some("2025-06-15T15:06:40Z"));
    assert_eq!(one, other);
}

#[test]
fn checks_run_in_the_finished_image() {
    if !is_root("checks_run_in_the_finished_image") {
        return;
    }
    let lab = Lab::new();
    let check = |run: &[&str]| Check {
        run: run.iter().map(|&w| w.to_owned()).collect(),
        user: Some("kim".into()),
        ..Check::default()
    };
    let setup = Setup { checks: vec![check(&["sh", "-c", "id -u; touch /tmp/left"])], ..Setup::default() };
    let built = lab.build_with("RUN true", &setup).unwrap();
    assert_eq!(built.config.rootfs.diff_ids.len(), 2);
    assert!(lab.read(&built, "/tmp/left").is_none());
    let setup = Setup { checks: vec![check(&["sh", "-c", "echo broken; exit 3"])], ..Setup::default() };
    let error = lab.build_with("RUN true", &setup).unwrap_err();
    assert_eq!(error.kind(), Kind::Failed);
    assert_eq!(error.message(), "the check `sh -c echo broken; exit 3` failed in the finished image of node");
    assert_eq!(error.causes(), ["exit status 3"]);
}

#[test]
fn a_plugin_has_one_layer() {
    if !is_root("a_plugin_has_one_layer") {
        return;
    }
    let lab = Lab::new();
    let setup = Setup { max_layers: Some(1), ..Setup::default() };
    lab.build_with("RUN touch /one", &setup).unwrap();
    let error = lab.build_with("RUN touch /one\nRUN touch /two", &setup).unwrap_err();
    assert_eq!((error.kind(), error.message()), (Kind::BadInput, "node makes 2 layers, and at most 1 are allowed"));
}
