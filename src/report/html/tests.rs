use super::*;
use crate::report::record::{Behind, Failure, LayerRecord, NeedRecord, NodeRecord, StepRecord, Turn};
use crate::report::summary::{Group, NodeKind};

fn node(name: &str, status: Group, needs: &[usize], turn: Option<(usize, f64, f64)>) -> NodeRecord {
    NodeRecord {
        name: name.into(),
        kind: NodeKind::Image,
        status,
        reason: Some("its user changed".into()),
        needs: needs.iter().map(|node| NeedRecord { node: *node, kind: "parent".into() }).collect(),
        reference: Some(format!("kollage/{name}:1")),
        digest: None,
        size: Some(1_000_000),
        seconds: turn.map_or(0.0, |(_, start, end)| end - start),
        expected: None,
        retries: 0,
        layers: vec![0, 1],
        turn: turn.map(|(worker, start, end)| Turn {
            worker,
            start,
            end,
            steps: vec![StepRecord { number: 1, title: format!("RUN {name}"), start, end: Some(end), reused: false }],
        }),
        failure: None,
    }
}

/// base, then a and b side by side, and c on a.
fn family() -> RunRecord {
    let layer = |size| LayerRecord { digest: "sha256:0".into(), size, created_by: "RUN x".into() };
    RunRecord {
        seconds: 10.0,
        jobs: 2,
        nodes: vec![
            node("base", Group::Built, &[], Some((0, 0.0, 2.0))),
            node("a", Group::Built, &[0], Some((0, 2.0, 5.0))),
            node("b", Group::Built, &[0], Some((1, 2.0, 8.0))),
            node("c", Group::Reused, &[1], None),
        ],
        layers: vec![layer(3_000_000), layer(1_000_000)],
        behind: vec![Behind { node: "b".into(), start: 8.0, end: None }],
        ..RunRecord::new("20260101T000000Z-1", "2026-01-01T00:00:00Z")
    }
}

#[test]
fn bars_stand_where_their_times_are_and_the_chain_that_took_longest_is_marked() {
    let page = render(&family()).unwrap();
    for expected in [
        r##"<a class="bar built critical" href="#node-0" style="left:0.0%;width:20.0%" title="base: 2.0s, from 0ms on, on the critical path">"##,
        r##"<a class="bar built" href="#node-1" style="left:20.0%;width:30.0%" title="a: 3.0s, from 2.0s on">"##,
        r##"<a class="bar built critical" href="#node-2" style="left:20.0%;width:60.0%""##,
        r#"<i class="work" style="left:80.0%;width:20.0%" title="b: compressed and written, 2.0s from 8.0s on">"#,
        "busy 55 % of the time",
        r#"class="edge parent critical""#,
        "<b>3</b> built",
    ] {
        assert!(page.contains(expected), "{expected} is not in\n{page}");
    }
}

#[test]
fn a_run_without_anything_in_it_is_a_page_too() {
    let page = render(&RunRecord::new("empty", "2026-01-01T00:00:00Z")).unwrap();
    assert!(page.contains("Nothing to build") && !page.contains("Timeline"));
}

#[test]
fn nothing_of_a_build_becomes_a_part_of_the_page() {
    const HOSTILE: &str =
        "</pre></title></style></script><script>bad()</script><img src=x onerror=bad()>\"'`{{ 7*7 }}&amp;";
    let mut run = family();
    run.warnings = vec![HOSTILE.into()];
    run.logs = Some(HOSTILE.into());
    run.started = HOSTILE.into();
    run.name = HOSTILE.into();
    run.behind[0].node = HOSTILE.into();
    run.layers[0].created_by = HOSTILE.into();
    run.layers[0].digest = HOSTILE.into();
    for node in &mut run.nodes {
        node.name = HOSTILE.into();
        node.reason = Some(HOSTILE.into());
        node.reference = Some(HOSTILE.into());
        node.digest = Some(HOSTILE.into());
        for need in &mut node.needs {
            need.kind = HOSTILE.into();
        }
        for step in node.turn.iter_mut().flat_map(|turn| &mut turn.steps) {
            step.title = HOSTILE.into();
        }
        let output = vec![HOSTILE.to_owned(); 2];
        node.failure = Some(Failure { error: HOSTILE.into(), output, left_out: 1 });
    }
    let page = render(&run).unwrap();
    let count = |what: &str| page.matches(what).count();
    // Those of the page itself.
    assert_eq!((count("<script"), count("</script"), count("</style"), count("<img")), (1, 1, 1, 0));
    assert!(!page.contains("onerror=bad()>"), "{page}");
    assert!(count("&lt;script&gt;bad()") > 20 && count("{{ 7*7 }}") > 20);
    // Nothing can be loaded, and nothing asks for anything.
    assert!(page.contains("default-src 'none'"));
    for outside in ["src=\"", "url(", "@import", "<link", "<iframe", "href=\"http"] {
        assert!(!page.contains(outside), "{outside}");
    }
}
