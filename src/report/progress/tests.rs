//! Every form of progress on the same run.

use std::time::Duration;

use insta::assert_snapshot;
use proptest::prelude::*;

use super::plain::Plain;
use super::rawjson::RawJson;
use super::testing::{Paper, any_event, background, begin, finished, output, run, started, step, step_done};
use super::tty::Tty;
use super::*;
use crate::event::{Event, Outcome};
use crate::report::clock::testing::Hand;
use crate::report::summary::{Group, NodeKind, NodeSummary};
use crate::report::text;

fn options(hand: &Hand, look: Look) -> Options {
    Options { clock: hand.clock(), logs: Some("/logs".into()), name_width: 13, ..Options::new(look) }
}

fn size(columns: usize, rows: usize) -> Size {
    Box::new(move || (columns, rows))
}

fn tty(hand: &Hand, paper: &Paper, look: Look, columns: usize, rows: usize) -> Tty {
    Tty::still(Box::new(paper.clone()), size(columns, rows), options(hand, look))
}

fn end() -> RunSummary {
    RunSummary {
        nodes: vec![
            NodeSummary {
                duration: Duration::from_secs(41),
                ..NodeSummary::new("keystone", NodeKind::Image, Group::Built)
            },
            NodeSummary::new("base", NodeKind::Image, Group::Reused),
        ],
        duration: Duration::from_secs(42),
        ..RunSummary::default()
    }
}

/// What stands on the terminal after a frame that was drawn on an empty one.
fn screen(paper: &Paper) -> String {
    paper.take().replace("\x1b[K", "").replace("\x1b", "^")
}

const UNICODE: Look = Look { color: false, unicode: true };

#[test]
fn a_terminal_shows_what_runs_below_what_is_done() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, UNICODE, 100, 24);
    begin(&tty, &hand);
    tty.draw();
    assert_snapshot!(screen(&paper), @r#"
    = base           reused: nothing changed
    ! warning: keystone: `VOLUME` in a parent
      hides what is written there
    ⠼ keystone          14s    2/3  Install keystone from PyPI into the virtual environment
    ⠼ haproxy           12s    4/9  Install packages: haproxy  · Reading package lists...
    ⠼ memcached         12s  new
    ━━━─────────────────── 1/6  reused 1, running 3 · 14s
    "#);
    hand.set(15_000);
    tty.draw();
    assert!(paper.take().starts_with("\x1b[4A\r"), "the next frame is drawn over the four lines of this one");
}

#[test]
fn a_narrow_terminal_shows_less_of_each_line() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, Look::PLAIN, 36, 24);
    begin(&tty, &hand);
    tty.draw();
    assert_snapshot!(screen(&paper), @r#"
    = base         reused: nothing changed
    ! warning: keystone: `VOLUME` in a parent
      hides what is written there
    | keystone        14s    2/3  In...
    | haproxy         12s    4/9  In...
    | memcached       12s  new
    [=     ] 1/6  reused 1, running...
    "#);
}

#[test]
fn a_low_terminal_shows_fewer_lines() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, UNICODE, 60, 4);
    for i in 0..9 {
        tty.event(started(&format!("image-{i}"), "new"));
    }
    tty.draw();
    assert_snapshot!(screen(&paper), @r#"
    ⠋ image-0            0s  new
      … and 8 more
    0 done  running 9 · 0s
    "#);
}

#[test]
fn colours_say_the_same_as_the_symbols() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, Look { color: true, unicode: true }, 80, 24);
    run(&tty, &hand);
    tty.draw();
    assert_snapshot!(screen(&paper), @r#"
    ^[2m=^[0m ^[2mbase         ^[0m^[2m  reused: nothing changed^[0m
    ^[1;33m! warning:^[0m keystone: `VOLUME` in a parent
      hides what is written there
    ^[1;31m✗^[0m ^[1mhaproxy      ^[0m^[1;31m  failed at step 4/9 after 12s^[0m
        ^[1mstep 4/9:^[0m Install packages: haproxy
        ^[1;31merror:^[0m `apt-get install` exited with code 100
          ^[2mcause:^[0m in images/haproxy/Dockerfile.j2, line 12
        ^[2mits output:^[0m
        ^[2m│^[0m Reading package lists...
        ^[2m│^[0m E: Unable to locate package haproxyy
        ^[36mhint:^[0m is the package's name right?
        whole log: /logs/haproxy.log
    ^[1;33m-^[0m ^[1mhaproxy+stats^[0m^[1;33m  skipped: needs haproxy, which failed^[0m
    ^[32m✓^[0m ^[1mkeystone     ^[0m  built in 41s (2 steps run, 1 reused)
    ^[1;33m-^[0m ^[1mmemcached    ^[0m^[1;33m  stopped^[0m
    ^[2m  keystone       compressing 2 layers^[0m
    ^[32m━━━━━━━━━━━^[0m^[2m───^[0m^[1m 5/6^[0m  ^[32mbuilt 1^[0m, ^[2mreused 1^[0m, ^[1;31mfailed 1^[0m, ^[1;33mskipped 2^[0m^[2m · 41s^[0m
    "#);
}

#[test]
fn a_failure_is_told_with_its_step_output_and_log() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, UNICODE, 80, 24);
    run(&tty, &hand);
    tty.finish(&end());
    assert_snapshot!(screen(&paper), @r#"
    = base           reused: nothing changed
    ! warning: keystone: `VOLUME` in a parent
      hides what is written there
    ✗ haproxy        failed at step 4/9 after 12s
        step 4/9: Install packages: haproxy
        error: `apt-get install` exited with code 100
          cause: in images/haproxy/Dockerfile.j2, line 12
        its output:
        │ Reading package lists...
        │ E: Unable to locate package haproxyy
        hint: is the package's name right?
        whole log: /logs/haproxy.log
    - haproxy+stats  skipped: needs haproxy, which failed
    ✓ keystone       built in 41s (2 steps run, 1 reused)
    - memcached      stopped

    Done in 42s
      built         1  keystone
      reused        1  base
    "#);
}

#[test]
fn a_failure_shows_the_places_of_its_problems() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let plain = Plain::new(Box::new(paper.clone()), Options { logs: None, ..options(&hand, Look::PLAIN) });
    let file = crate::diag::SourceFile::new("Dockerfile", "FROM a\nCOPY none /\n");
    let mut problems = crate::diag::Diagnostics::default();
    problems.push(crate::diag::Diagnostic::error("`none` is not in the context").at(&file, 12..16));
    plain.event(finished("a", Outcome::Failed(crate::error::Error::from_diagnostics("cannot build", problems)), 0));
    assert_snapshot!(paper.take(), @r#"
    a              | ==> failed after 0ms
    a              |     error: cannot build
    a              |     error: `none` is not in the context
    a              |      --> Dockerfile:2:6
    a              |       |
    a              |     2 | COPY none /
    a              |       |      ^^^^
    a              |
    a              |     1 problem in 1 file
    "#);
}

#[test]
fn another_try_stays_to_be_read() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, UNICODE, 100, 24);
    tty.event(started("web", "new"));
    tty.event(step("web", 2, 3, "RUN apt-get update"));
    tty.event(output("web", 2, "Temporary failure resolving"));
    tty.event(Event::StepRetried {
        node: "web".into(),
        step: 2,
        attempt: 2,
        attempts: 3,
        wait: Duration::from_millis(1500),
        reason: "a name could not be resolved".into(),
    });
    tty.draw();
    let shown = screen(&paper);
    let told = "web: retrying step 2/3 in 1.5s (try 2 of 3): a name could not be resolved";
    // What the first try said is gone.
    assert!(shown.contains(told) && !shown.contains("Temporary"), "{shown}");
    tty.event(step_done("web", 2, false, 10));
    tty.event(finished("web", Outcome::Built, 10));
    tty.draw();
    let shown = screen(&paper);
    assert!(shown.contains("built in 10ms (1 step run), with 1 retry"), "{shown}");
}

#[test]
fn work_behind_a_node_ends_with_it_or_when_it_is_said() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, UNICODE, 80, 24);
    for i in 0..5 {
        tty.event(finished(&format!("image-{i}"), Outcome::Built, 0));
        tty.event(background(&format!("image-{i}"), "compressing"));
    }
    tty.event(started("debian:bookworm", "not in the store"));
    tty.event(background("debian:bookworm", "pulling layer 1 of 2"));
    tty.draw();
    assert_snapshot!(screen(&paper), @r#"
    ✓ image-0        built in 0ms
    ✓ image-1        built in 0ms
    ✓ image-2        built in 0ms
    ✓ image-3        built in 0ms
    ✓ image-4        built in 0ms
    ⠋ debian:bookworm      0s  pulling layer 1 of 2
      image-0          compressing
      image-1          compressing
      … and 3 more in the background
    5 done  built 5, running 1 · 0s
    "#);
    tty.event(finished("debian:bookworm", Outcome::Built, 0));
    for i in 0..4 {
        tty.event(Event::BackgroundFinished { node: format!("image-{i}").into() });
    }
    tty.draw();
    let text = paper.take();
    assert!(text.contains("image-4") && !text.contains("pulling") && !text.contains("image-3"), "{text}");
}

#[test]
fn only_the_last_lines_of_the_failing_step_are_told() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, UNICODE, 80, 24);
    tty.event(step("a", 1, 2, "RUN make"));
    for i in 1..=100 {
        tty.event(output("a", 1, &format!("line {i}.")));
    }
    tty.event(finished("a", Outcome::Failed(crate::error::Error::failed("exit code 2")), 0));
    tty.close();
    let text = screen(&paper);
    assert!(text.contains("last 20 lines") && text.contains("line 81.") && !text.contains("line 80."), "{text}");
}

#[test]
fn nothing_is_left_on_the_terminal_and_nothing_comes_after_the_end() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, UNICODE, 80, 24);
    tty.event(started("a", "new"));
    tty.draw();
    assert!(screen(&paper).contains("a"));
    tty.close();
    assert_eq!(paper.take(), "\x1b[2A\r\x1b[J");
    tty.event(finished("a", Outcome::Built, 0));
    drop(tty);
    assert_eq!(paper.take(), "");
}

#[test]
fn long_runs_count_reused_nodes_instead_of_listing_them() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, UNICODE, 80, 24);
    tty.event(Event::RunStarted { nodes: 300 });
    tty.event(finished("base", Outcome::Reused("nothing changed".into()), 0));
    tty.draw();
    assert_snapshot!(screen(&paper), @r#"────────────── 1/300  reused 1 · 0s"#);
}

#[test]
fn the_thread_draws_by_itself_and_ends_with_its_value() {
    let paper = Paper::default();
    let tty = Tty::new(Box::new(paper.clone()), size(80, 24), Options::new(UNICODE));
    tty.event(finished("a", Outcome::Built, 0));
    let mut text = String::new();
    while !text.contains("built") {
        text.push_str(&paper.take());
        std::thread::yield_now();
    }
    drop(tty);
}

#[test]
fn plain_has_the_node_in_front_of_every_line() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let plain = Plain::new(Box::new(paper.clone()), options(&hand, Look::PLAIN));
    run(&plain, &hand);
    plain.finish(&end());
    assert_snapshot!(paper.take(), @r#"
    base           | ==> reused: nothing changed
    keystone       | ==> started: its context file policy.yaml changed
    keystone       | ==> step 1/3: FROM kollage/openstack-base:1
    keystone       | ==> step 1/3 reused
    haproxy        | ==> started: new
    haproxy        | ==> step 4/9: Install packages: haproxy
    haproxy        | Reading package lists...
    keystone       | ==> step 2/3: Install keystone from PyPI into the virtual environment
    keystone       | Collecting keystone==29.0.0
    keystone       | ! warning: `VOLUME` in a parent
    keystone       |   hides what is written there
    memcached      | ==> started: new
    haproxy        | E: Unable to locate package haproxyy
    haproxy        | ==> failed at step 4/9 after 12s
    haproxy        |     step 4/9: Install packages: haproxy
    haproxy        |     error: `apt-get install` exited with code 100
    haproxy        |       cause: in images/haproxy/Dockerfile.j2, line 12
    haproxy        |     its output:
    haproxy        |     | Reading package lists...
    haproxy        |     | E: Unable to locate package haproxyy
    haproxy        |     hint: is the package's name right?
    haproxy        |     whole log: /logs/haproxy.log
    haproxy+stats  | ==> skipped: needs haproxy, which failed
    keystone       | ==> step 2/3 done in 12s
    keystone       | ==> step 3/3: USER keystone
    keystone       | ==> step 3/3 done in 10ms
    keystone       | ==> built in 41s (2 steps run, 1 reused)
    keystone       | ==> compressing 2 layers
    memcached      | ==> stopped

    Done in 42s
      built         1  keystone
      reused        1  base
    "#);
}

#[test]
fn plain_can_have_times_and_colours() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let options = Options { timestamps: true, ..options(&hand, Look { color: true, unicode: true }) };
    let plain = Plain::new(Box::new(paper.clone()), options);
    begin(&plain, &hand);
    assert_snapshot!(paper.take().replace('\x1b', "^"), @r#"
    ^[2m[     0.0s] ^[0m^[2mbase           |^[0m ^[2m==>^[0m reused: nothing changed
    ^[2m[     0.0s] ^[0m^[2mkeystone       |^[0m ^[33m==>^[0m started: its context file policy.yaml changed
    ^[2m[     0.0s] ^[0m^[2mkeystone       |^[0m ^[33m==>^[0m step 1/3: ^[1mFROM kollage/openstack-base:1^[0m
    ^[2m[     0.0s] ^[0m^[2mkeystone       |^[0m ^[2m==>^[0m ^[2mstep 1/3 reused^[0m
    ^[2m[     2.0s] ^[0m^[2mhaproxy        |^[0m ^[33m==>^[0m started: new
    ^[2m[     2.0s] ^[0m^[2mhaproxy        |^[0m ^[33m==>^[0m step 4/9: ^[1mInstall packages: haproxy^[0m
    ^[2m[     2.0s] ^[0m^[2mhaproxy        |^[0m Reading package lists...
    ^[2m[     2.0s] ^[0m^[2mkeystone       |^[0m ^[33m==>^[0m step 2/3: ^[1mInstall keystone from PyPI into the virtual environment^[0m
    ^[2m[     2.0s] ^[0m^[2mkeystone       |^[0m Collecting keystone==29.0.0
    ^[2m[     2.0s] ^[0m^[2mkeystone       |^[0m ^[1;33m! warning:^[0m `VOLUME` in a parent
    ^[2m[     2.0s] ^[0m^[2mkeystone       |^[0m   hides what is written there
    ^[2m[     2.0s] ^[0m^[2mmemcached      |^[0m ^[33m==>^[0m started: new
    "#);
}

#[test]
fn quiet_tells_only_what_failed() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let quiet = Plain::quiet(Box::new(paper.clone()), options(&hand, Look::PLAIN));
    run(&quiet, &hand);
    quiet.finish(&end());
    assert_snapshot!(paper.take(), @r#"
    haproxy        | ==> failed at step 4/9 after 12s
    haproxy        |     step 4/9: Install packages: haproxy
    haproxy        |     error: `apt-get install` exited with code 100
    haproxy        |       cause: in images/haproxy/Dockerfile.j2, line 12
    haproxy        |     its output:
    haproxy        |     | Reading package lists...
    haproxy        |     | E: Unable to locate package haproxyy
    haproxy        |     hint: is the package's name right?
    haproxy        |     whole log: /logs/haproxy.log
    "#);
}

#[test]
fn rawjson_has_one_object_a_line() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let json = RawJson::new(Box::new(paper.clone()), hand.clock());
    run(&json, &hand);
    json.event(Event::BackgroundFinished { node: "keystone".into() });
    json.finish(&end());
    assert_snapshot!(paper.take(), @r#"
    {"v":1,"event":"run_started","nodes":6,"time":0.0}
    {"v":1,"event":"node_finished","node":"base","outcome":"reused","duration":0.001,"reason":"nothing changed","error":null,"time":0.0}
    {"v":1,"event":"node_started","node":"keystone","reason":"its context file policy.yaml changed","worker":0,"time":0.0}
    {"v":1,"event":"step_started","node":"keystone","step":1,"steps":3,"title":"FROM kollage/openstack-base:1","time":0.0}
    {"v":1,"event":"step_finished","node":"keystone","step":1,"reused":true,"duration":0.0,"time":0.0}
    {"v":1,"event":"node_started","node":"haproxy","reason":"new","worker":0,"time":2.0}
    {"v":1,"event":"step_started","node":"haproxy","step":4,"steps":9,"title":"Install packages: haproxy","time":2.0}
    {"v":1,"event":"output","node":"haproxy","step":4,"stream":"stdout","line":"Reading package lists...","time":2.0}
    {"v":1,"event":"step_started","node":"keystone","step":2,"steps":3,"title":"Install keystone from PyPI into the virtual environment","time":2.0}
    {"v":1,"event":"output","node":"keystone","step":2,"stream":"stdout","line":"\u001b[32mCollecting\u001b[0m keystone==29.0.0","time":2.0}
    {"v":1,"event":"warning","node":"keystone","message":"`VOLUME` in a parent\nhides what is written there","time":2.0}
    {"v":1,"event":"node_started","node":"memcached","reason":"new","worker":0,"time":2.0}
    {"v":1,"event":"output","node":"haproxy","step":4,"stream":"stdout","line":"E: Unable to locate package haproxyy","time":14.4}
    {"v":1,"event":"node_finished","node":"haproxy","outcome":"failed","duration":12.4,"reason":null,"error":{"kind":"failed","message":"`apt-get install` exited with code 100","causes":["in images/haproxy/Dockerfile.j2, line 12"],"hint":"is the package's name right?","problems":[]},"time":14.4}
    {"v":1,"event":"node_finished","node":"haproxy+stats","outcome":"skipped","duration":0.0,"reason":"haproxy","error":null,"time":14.4}
    {"v":1,"event":"step_finished","node":"keystone","step":2,"reused":false,"duration":12.0,"time":14.4}
    {"v":1,"event":"step_started","node":"keystone","step":3,"steps":3,"title":"USER keystone","time":14.4}
    {"v":1,"event":"step_finished","node":"keystone","step":3,"reused":false,"duration":0.01,"time":14.4}
    {"v":1,"event":"node_finished","node":"keystone","outcome":"built","duration":41.0,"reason":null,"error":null,"time":41.0}
    {"v":1,"event":"background","node":"keystone","title":"compressing 2 layers","time":41.0}
    {"v":1,"event":"node_finished","node":"memcached","outcome":"cancelled","duration":39.0,"reason":null,"error":null,"time":41.0}
    {"v":1,"event":"background_finished","node":"keystone","time":41.0}
    {"v":1,"event":"run_finished","duration":42.0,"interrupted":false,"summary":{"v":1,"duration":42.0,"interrupted":false,"built":[{"name":"keystone","kind":"image","status":"built","reference":null,"digest":null,"config_digest":null,"size":null,"duration":41.0,"retries":0,"reason":null},{"name":"base","kind":"image","status":"reused","reference":null,"digest":null,"config_digest":null,"size":null,"duration":0.0,"retries":0,"reason":null}],"failed":[],"not_matched":[],"skipped":[],"unbuildable":[]},"time":41.0}
    "#);
}

#[test]
fn rawjson_says_where_problems_are() {
    let paper = Paper::default();
    let json = RawJson::new(Box::new(paper.clone()), Hand::default().clock());
    let file = crate::diag::SourceFile::new("Dockerfile", "FROM a\nRUNN b\n");
    let mut problems = crate::diag::Diagnostics::default();
    problems.push(crate::diag::Diagnostic::error("unknown instruction").at(&file, 7..11));
    json.event(finished("a", Outcome::Failed(crate::error::Error::from_diagnostics("bad Dockerfile", problems)), 0));
    assert_snapshot!(paper.take(), @r#"{"v":1,"event":"node_finished","node":"a","outcome":"failed","duration":0.0,"reason":null,"error":{"kind":"bad_input","message":"bad Dockerfile","causes":[],"hint":null,"problems":[{"severity":"error","message":"unknown instruction","hint":null,"file":"Dockerfile","line":2,"column":1}]},"time":0.0}"#);
}

proptest! {
    #[test]
    fn any_events_in_any_order_give_whole_lines_that_fit(
        events in proptest::collection::vec(any_event(), 0..40),
        columns in 0usize..120,
        rows in 0usize..12,
        color: bool,
        unicode: bool,
    ) {
        let hand = Hand::default();
        let look = Look { color, unicode };
        let (paper, lines, objects) = (Paper::default(), Paper::default(), Paper::default());
        let tty = Tty::still(Box::new(paper.clone()), size(columns, rows), options(&hand, look));
        let plain = Plain::new(Box::new(lines.clone()), options(&hand, look));
        let json = RawJson::new(Box::new(objects.clone()), hand.clock());
        for (i, event) in events.into_iter().enumerate() {
            hand.set(i as u64 * 700);
            tty.event(event.clone());
            plain.event(event.clone());
            json.event(event);
            tty.draw();
            // Only lines of the frame erase their ends.
            let frame: Vec<String> =
                paper.take().lines().filter_map(|l| l.strip_suffix("\x1b[K")).map(str::to_owned).collect();
            prop_assert!(frame.len() <= rows.saturating_sub(1).max(1), "{} lines in {rows} rows", frame.len());
            for line in &frame {
                let line = line.rsplit('\r').next().unwrap_or_default();
                prop_assert!(text::width(line) <= columns.saturating_sub(1).max(1), "{line:?} in {columns}");
            }
        }
        tty.close();
        let written = lines.take();
        prop_assert!(written.is_empty() || written.ends_with('\n'));
        prop_assert!(!written.contains('\r') && (color || !written.contains('\x1b')));
        for line in objects.take().lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            prop_assert_eq!(&value["v"], 1);
        }
    }
}

#[test]
fn the_form_follows_the_terminal() {
    let tty = Facts { terminal: true, term: Some("xterm".into()), ..Facts::default() };
    assert_eq!(tty.resolve(Mode::Auto), Mode::Tty);
    assert_eq!(Facts { ci: true, ..tty.clone() }.resolve(Mode::Auto), Mode::Plain);
    assert_eq!(Facts { ci: true, ..tty.clone() }.resolve(Mode::Tty), Mode::Tty);
    assert_eq!(Facts { term: Some("dumb".into()), ..tty.clone() }.resolve(Mode::Tty), Mode::Plain);
    assert_eq!(Facts { term: None, ..tty.clone() }.resolve(Mode::Auto), Mode::Plain);
    assert_eq!(Facts { terminal: false, ..tty.clone() }.resolve(Mode::Tty), Mode::Plain);
    assert_eq!(Facts::default().resolve(Mode::RawJson), Mode::RawJson);
}

#[test]
fn the_look_follows_the_environment() {
    let facts =
        Facts { terminal: true, term: Some("xterm".into()), locale: Some("de_DE.UTF-8".into()), ..Facts::default() };
    assert_eq!(facts.look(), Look { color: true, unicode: true });
    assert_eq!(Facts { no_color: true, ..facts.clone() }.look(), Look { color: false, unicode: true });
    assert_eq!(Facts { locale: Some("C".into()), ..facts.clone() }.look(), Look { color: true, unicode: false });
    assert_eq!(Facts { term: Some("linux".into()), ..facts.clone() }.look(), Look { color: true, unicode: false });
    assert_eq!(Facts { terminal: false, ..facts }.look(), Look { color: false, unicode: true });
}

#[test]
fn modes_have_names() {
    for name in Mode::NAMES {
        assert!(name.parse::<Mode>().is_ok(), "{name}");
    }
    assert_eq!("fancy".parse::<Mode>().unwrap_err(), "`fancy` is not one of auto, tty, plain, rawjson, quiet");
}

#[test]
fn the_time_that_is_left_counts_down_and_claims_nothing_that_nobody_measured() {
    let (hand, paper) = (Hand::default(), Paper::default());
    let tty = tty(&hand, &paper, UNICODE, 100, 24);
    let last_line = |millis: u64| {
        hand.set(millis);
        tty.draw();
        screen(&paper).lines().rev().find_map(|line| line.split_once(" · ")).map(|(_, t)| t.to_owned())
    };
    let forecast = |seconds: u64, unmeasured| {
        tty.event(Event::Forecast { remaining: Duration::from_secs(seconds), unmeasured });
    };
    tty.event(Event::RunStarted { nodes: 3 });
    tty.event(started("a", "new"));
    forecast(0, 3);
    assert_eq!(last_line(1_000).as_deref(), Some("1s"));
    forecast(70, 0);
    assert_eq!(last_line(2_000).as_deref(), Some("2s, about 1m09s left"));
    assert_eq!(last_line(90_000).as_deref(), Some("1m30s, longer than last time"));
    forecast(12, 1);
    assert_eq!(last_line(92_000).as_deref(), Some("1m32s, at least 10s left"));
    forecast(0, 0);
    assert_eq!(last_line(93_000).as_deref(), Some("1m33s, a moment left"));
    for name in ["a", "b", "c"] {
        tty.event(finished(name, Outcome::Built, 0));
    }
    assert_eq!(last_line(94_000).as_deref(), Some("1m34s"));
}
