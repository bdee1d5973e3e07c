//! What the command line puts around RUN steps: hosts, limits, the size of /dev/shm.

use kollage::engine::NoCache;
use kollage::engine::surroundings::{Resource, Surroundings, Ulimit};
use kollage::error::Kind;

use crate::lab::{Lab, Setup, is_root};

fn output(lab: &Lab, instructions: &str, surroundings: &Surroundings) -> Vec<String> {
    lab.events.clear();
    let setup = Setup { no_cache: NoCache::Everything, surroundings: surroundings.clone(), ..Setup::default() };
    lab.build_with(instructions, &setup).unwrap();
    lab.events.output()
}

#[test]
fn a_step_sees_hosts_limits_and_shared_memory() {
    if !is_root("a_step_sees_hosts_limits_and_shared_memory") {
        return;
    }
    let lab = Lab::new();
    let limit = |resource, soft, hard| Ulimit { resource, soft, hard };
    let around = Surroundings {
        network: kollage::dockerfile::step::Network::Default,
        hosts: vec![("mirror".into(), [10, 0, 0, 1].into()), ("six".into(), std::net::Ipv6Addr::LOCALHOST.into())],
        ulimits: vec![limit(Resource::Core, Some(0), Some(0)), limit(Resource::Nofile, Some(77), Some(99))],
        shm_size: Some(3 << 20),
    };
    let hosts = output(&lab, "RUN --network=none cat /etc/hosts", &around);
    assert_eq!(hosts[2..], ["10.0.0.1\tmirror", "::1\tsix"], "{hosts:?}");
    // Before the host's own names, which would count otherwise.
    let hosts = output(&lab, "RUN cat /etc/hosts", &around);
    assert_eq!(hosts[2..4], ["10.0.0.1\tmirror", "::1\tsix"], "{hosts:?}");
    let limits = "RUN ulimit -Sn; ulimit -Hn; ulimit -c; stat -f -c '%b %S' /dev/shm";
    assert_eq!(output(&lab, limits, &around), ["77", "99", "0", "768 4096"]);
    let user = "USER kim\nRUN ulimit -Sn; ulimit -Hn; ulimit -n 100 2>/dev/null || echo no";
    assert_eq!(output(&lab, user, &around), ["77", "99", "no"]);
    assert_eq!(output(&lab, "RUN stat -f -c '%b %S' /dev/shm", &Surroundings::default()), ["16384 4096"]);
    // Nothing of it is in the image.
    let built = lab.build_with("RUN touch /x", &Setup { surroundings: around, ..Setup::default() }).unwrap();
    assert_eq!(lab.top_layer(&built), ["x"]);
}

#[test]
fn a_limit_that_cannot_be_set_is_said() {
    if !is_root("a_limit_that_cannot_be_set_is_said") {
        return;
    }
    let lab = Lab::new();
    // More open files than the kernel gives to anybody.
    let ulimits = vec![Ulimit { resource: Resource::Nofile, soft: Some(1 << 40), hard: Some(1 << 40) }];
    let surroundings = Surroundings { ulimits, ..Surroundings::default() };
    let error = lab.build_with("RUN true", &Setup { surroundings, ..Setup::default() }).unwrap_err();
    assert_eq!(error.kind(), Kind::BadInput, "{error}");
    assert!(error.to_string().contains("cannot set the limit `nofile`"), "{error}");
}

#[test]
fn steps_are_carried_out_again_when_their_surroundings_change() {
    if !is_root("steps_are_carried_out_again_when_their_surroundings_change") {
        return;
    }
    let lab = Lab::new();
    let reused = |shm_size, hosts: &[&str]| {
        let hosts = hosts.iter().map(|name| ((*name).to_owned(), [10, 0, 0, 1].into())).collect();
        let surroundings = Surroundings { hosts, shm_size, ..Surroundings::default() };
        lab.events.clear();
        lab.build_with("WORKDIR /w\nRUN touch x", &Setup { surroundings, ..Setup::default() }).unwrap();
        lab.events.reused()
    };
    assert_eq!(reused(None, &[]), [false, false]);
    assert_eq!(reused(None, &[]), [true, true]);
    assert_eq!(reused(Some(1 << 20), &[]), [true, false]);
    assert_eq!(reused(None, &["a"]), [true, false]);
    assert_eq!(reused(None, &["b"]), [true, false]);
    assert_eq!(reused(None, &["a"]), [true, true]);
}
