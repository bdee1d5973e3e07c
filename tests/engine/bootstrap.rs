//! Bases made by mmdebstrap, for real: these need a mirror, and minutes.

use std::sync::Arc;

use crate::lab::{Lab, is_root, key};
use kollage::engine::{BaseJob, BaseSource, Bootstrap, Built, Ctl, Engine as _};
use kollage::error::{Kind, Result};
use kollage::event::Event;
use kollage::image::config::Platform;

fn job(mirror: Option<&str>) -> BaseJob {
    let source = BaseSource::Bootstrap(Bootstrap {
        distribution: "debian".into(),
        suite: "bookworm".into(),
        mirror: mirror.map(str::to_owned),
        components: vec!["main".into()],
        keyring: None,
        variant: "minbase".into(),
        packages: vec!["usr-is-merged".into()],
        snapshot: None,
    });
    BaseJob {
        key: key(&format!("bookworm {mirror:?}")),
        source,
        platform: Platform::host(),
        source_date_epoch: Some(1_750_000_000),
        pin: None,
        refresh: false,
    }
}

fn make(lab: &Lab, job: &BaseJob) -> Result<Built> {
    let node: Arc<str> = "bookworm".into();
    lab.engine.base(job, &Ctl { node: &node, sink: &*lab.events, cancel: &lab.cancel })
}

#[test]
fn a_bootstrapped_base_works_and_is_the_same_each_time() {
    if !is_root("a_bootstrapped_base_works_and_is_the_same_each_time") {
        return;
    }
    let lab = Lab::new();
    lab.engine.base_preflight(&job(None).source, &Platform::host()).unwrap();
    let base = make(&lab, &job(None)).unwrap();
    assert_eq!(lab.ask(&base, "cat /etc/debian_version | cut -d. -f1; id -un"), "12\nroot");
    assert_eq!(lab.engine.foresee(&job(None).source, &Platform::host()).unwrap().config, base.config.config);
    let layer = lab.engine.store().layer_fs(&base.config.rootfs.diff_ids[0]);
    for of_the_host in ["etc/resolv.conf", "etc/hostname", "etc/hosts"] {
        assert!(!layer.join(of_the_host).exists(), "{of_the_host} is in the base");
    }
    // Taken from the store.
    lab.events.clear();
    make(&lab, &job(None)).unwrap();
    assert!(lab.events.output().is_empty());
    let other = make(&Lab::new(), &job(None)).unwrap();
    assert_eq!(base.config, other.config);
}

#[test]
fn an_unreachable_mirror_is_said() {
    if !is_root("an_unreachable_mirror_is_said") {
        return;
    }
    let lab = Lab::new();
    let error = make(&lab, &job(Some("http://127.0.0.1:1/debian"))).unwrap_err();
    assert_eq!(error.kind(), Kind::Unusable, "{error:?}");
    assert!(error.hint_text().is_some_and(|h| h.contains("mirror")), "{error:?}");
    assert!(error.causes().last().is_some_and(|c| c.contains("127.0.0.1")), "{error:?}");
}

#[test]
fn a_cancelled_bootstrap_leaves_nothing() {
    if !is_root("a_cancelled_bootstrap_leaves_nothing") {
        return;
    }
    let lab = Lab::new();
    let error = std::thread::scope(|scope| {
        let made = scope.spawn(|| make(&lab, &job(None)));
        while !lab.events.any(|e| matches!(e, Event::Output { line, .. } if line.contains("extracting"))) {
            assert!(!made.is_finished(), "it was over before it could be cancelled");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        lab.cancel.cancel();
        made.join().unwrap().unwrap_err()
    });
    assert_eq!(error.kind(), Kind::Interrupted, "{error:?}");
    let store = lab.engine.store().root().to_str().unwrap().to_owned();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        for name in ["cmdline", "mountinfo", "environ"] {
            let text = std::fs::read(entry.path().join(name)).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&text).contains(&store), "{:?} {name}", entry.path());
        }
    }
}
