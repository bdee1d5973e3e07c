//! Steps that take too long, and steps that are tried again because the network was in their way.

use std::time::Duration;

use kollage::engine::embedded::Options;
use kollage::error::Kind;
use kollage::event::Event;

use crate::lab::{Lab, is_root};
use crate::process::{marker, mounts_below, processes, wait_until, work_dirs};

fn impatient() -> Lab {
    Lab::with(Options { step_timeout: Some(Duration::from_millis(1500)), ..Options::default() })
}

#[test]
fn a_step_that_takes_too_long_is_ended_and_leaves_nothing() {
    if !is_root("a_step_that_takes_too_long_is_ended_and_leaves_nothing") {
        return;
    }
    for (number, script) in [
        (40, "sleep MARK & sleep MARK"),
        // Does not listen.
        (41, "trap '' TERM; sleep MARK & while true; do sleep MARK; done"),
        // Answers with success.
        (42, "trap 'exit 0' TERM; sleep MARK & wait; wait"),
        (43, "(/bin/busybox setsid sleep MARK >/dev/null 2>&1 &) ; sleep MARK"),
    ] {
        let lab = impatient();
        let mark = marker(number);
        let script = script.replace("MARK", &mark);
        let error = lab.build(&format!("RUN touch /before\nRUN {script}")).unwrap_err();
        assert_eq!(error.kind(), Kind::Failed, "{script}: {error}");
        let text = error.to_string();
        assert!(text.contains("Dockerfile:3: `RUN") && text.contains("longer than 1.5s"), "{text}");
        assert!(error.hint_text().unwrap_or_default().contains("--step-timeout"), "{error:?}");
        assert_eq!(processes(&mark), Vec::<u32>::new(), "{script}");
        assert_eq!(mounts_below(lab.dir.path()), Vec::<String>::new(), "{script}");
        assert_eq!(work_dirs(lab.engine.store().root()), Vec::<std::path::PathBuf>::new(), "{script}");
    }
}

/// Case 27: a download that hangs.
#[test]
fn a_download_that_hangs_is_cut_off_and_the_next_build_begins_cleanly() {
    if !is_root("a_download_that_hangs_is_cut_off_and_the_next_build_begins_cleanly") {
        return;
    }
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let lab = impatient();
    let run = format!(
        "RUN test ! -e /partial || exit 9; touch /partial; /bin/busybox wget -q -O /file http://127.0.0.1:{port}/ && rm /partial"
    );
    let error = lab.build(&run).unwrap_err();
    assert!(error.to_string().contains("longer than 1.5s"), "{error}");
    assert!(!lab.events.any(|e| matches!(e, Event::StepRetried { .. })));
    let serving = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        // The first one is that of the build that hung.
        for stream in server.incoming().take(2) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nfile");
        }
    });
    let built = lab.build(&run).unwrap();
    serving.join().unwrap();
    assert_eq!(lab.top_layer(&built), ["file"]);
}

fn patient(retries: u32) -> Lab {
    Lab::with(Options { retries, retry_wait: Duration::from_millis(1), ..Options::default() })
}

/// Fails so often with `message`, counting in a cache, and would find what an earlier try left behind.
fn fails(times: u32, message: &str, flags: &str) -> String {
    format!(
        "RUN {flags} --mount=type=cache,target=/c,id=count \
         n=$(cat /c/n 2>/dev/null || echo 0); echo $((n+1)) > /c/n; test ! -e /left || exit 9; touch /left; \
         test $n -ge {times} || {{ echo \"{message}\" >&2; exit 28; }}; rm /left; touch /done"
    )
}

fn retries(lab: &Lab) -> Vec<(u32, u32, String)> {
    let mut found = Vec::new();
    lab.events.any(|event| {
        if let Event::StepRetried { attempt, attempts, reason, .. } = event {
            found.push((*attempt, *attempts, reason.clone()));
        }
        false
    });
    found
}

const TIMED_OUT: &str = "curl: (28) Operation timed out";

#[test]
fn a_step_is_tried_again_on_a_clean_directory_when_the_network_failed() {
    if !is_root("a_step_is_tried_again_on_a_clean_directory_when_the_network_failed") {
        return;
    }
    let lab = patient(2);
    let built = lab.build(&fails(2, TIMED_OUT, "")).unwrap();
    assert_eq!(lab.top_layer(&built), ["done"]);
    let why = "a connection timed out";
    assert_eq!(retries(&lab), [(2, 3, why.to_owned()), (3, 3, why.to_owned())]);
    assert_eq!(lab.events.reused(), [false]);

    let lab = patient(1);
    let error = lab.build(&fails(2, TIMED_OUT, "")).unwrap_err();
    assert!(error.to_string().contains("exit status 28: it was tried 2 times"), "{error}");
    assert_eq!(error.kind(), Kind::Failed);
}

#[test]
fn what_failed_by_itself_is_not_tried_again() {
    if !is_root("what_failed_by_itself_is_not_tried_again") {
        return;
    }
    for (number, message, flags) in [
        (0, TIMED_OUT, ""),
        (2, "it does not compile", ""),
        (2, "E: Failed to fetch x  404  Not Found, Connection timed out", ""),
        (2, TIMED_OUT, "--network=none"),
    ] {
        let lab = patient(number);
        let error = lab.build(&fails(9, message, flags)).unwrap_err();
        assert_eq!(retries(&lab), [], "{message} {flags}");
        assert!(!error.to_string().contains("tried"), "{error}");
    }
}

#[test]
fn a_cancel_ends_the_wait_for_another_try() {
    if !is_root("a_cancel_ends_the_wait_for_another_try") {
        return;
    }
    let lab = Lab::with(Options { retry_wait: Duration::from_secs(3600), ..Options::default() });
    let (events, cancel) = (lab.events.clone(), lab.cancel.clone());
    let canceller = std::thread::spawn(move || {
        wait_until("the step fails", || events.any(|event| matches!(event, Event::StepRetried { .. })));
        cancel.cancel();
    });
    let error = lab.build(&fails(9, TIMED_OUT, "")).unwrap_err();
    canceller.join().unwrap();
    assert_eq!(error.kind(), Kind::Interrupted, "{error}");
}
