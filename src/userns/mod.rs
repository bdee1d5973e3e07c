//! User namespaces: which ids this process can give to files, and how an ordinary user gets more than one.
//!
//! Real root has them all. Everybody else builds as root of a user namespace: with the ranges that /etc/subuid and
//! /etc/subgid give, or with a single id where they give none. What cannot be made there is kept by stand-ins (see
//! `image::layer::standin`).
//!
//! - [`enter`]: from an ordinary user to root of a namespace; [`subid`]: the ranges; [`problem`]: why it can't be

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::error::Error;

mod enter;
mod problem;
mod subid;

pub use enter::{enter, mapper_if_called};

/// What /proc/self/ns/user says in the first namespace of a machine: a constant of the kernel.
const INITIAL: &str = "user:[4026531837]";

/// Consecutive ids, as uid_map has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

impl Extent {
    fn has(&self, id: u32) -> bool {
        id.checked_sub(self.inside).is_some_and(|offset| offset < self.count)
    }

    /// Whether it says the same of everything that the other one speaks of.
    fn covers(&self, other: &Extent) -> bool {
        let difference = |e: &Extent| i64::from(e.outside) - i64::from(e.inside);
        self.has(other.inside) && self.has(other.inside + (other.count - 1)) && difference(self) == difference(other)
    }
}

/// The user namespace that this process lives in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Userns {
    /// The machine's own: root is root.
    initial: bool,
    uids: Vec<Extent>,
    gids: Vec<Extent>,
}

/// That of this process, which stays in it for as long as it lives.
pub fn current() -> &'static Userns {
    static CURRENT: OnceLock<Userns> = OnceLock::new();
    CURRENT.get_or_init(|| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let link = std::fs::read_link("/proc/self/ns/user").ok();
        let first = link.is_none_or(|link| link.as_os_str() == INITIAL);
        Userns::of(first, &read("uid_map"), &read("gid_map"))
    })
}

impl Userns {
    fn of(first: bool, uid_map: &str, gid_map: &str) -> Userns {
        let (uids, gids) = (extents(uid_map), extents(gid_map));
        // Without /proc nothing is known, and everything is tried.
        let whole = |ids: &[Extent]| ids.is_empty() || ids.iter().any(|e| e.inside == 0 && e.count == u32::MAX);
        Userns { initial: first && whole(&uids) && whole(&gids), uids, gids }
    }

    pub fn is_initial(&self) -> bool {
        self.initial
    }

    /// Files can have no other owner than the one user there is.
    pub fn is_single(&self) -> bool {
        let one = |ids: &[Extent]| ids.iter().map(|e| u64::from(e.count)).sum::<u64>() <= 1;
        !self.initial && (one(&self.uids) || one(&self.gids))
    }

    pub fn has_uid(&self, uid: u32) -> bool {
        self.initial || self.uids.iter().any(|e| e.has(uid))
    }

    pub fn has_gid(&self, gid: u32) -> bool {
        self.initial || self.gids.iter().any(|e| e.has(gid))
    }

    /// Whose files a store has that is written here.
    pub fn identity(&self) -> Identity {
        match (self.initial, self.is_single()) {
            (true, _) => Identity::Root,
            (_, true) => Identity::Single { user: self.user() },
            _ => Identity::Range { user: self.user(), uids: self.uids.clone(), gids: self.gids.clone() },
        }
    }

    fn user(&self) -> u32 {
        self.uids.iter().find(|e| e.has(0)).map_or(0, |e| e.outside - e.inside.min(e.outside))
    }

    /// What somebody may not know whose step was refused something; None for root.
    pub fn step_hint(&self) -> Option<String> {
        match (self.initial, self.is_single()) {
            (true, _) => None,
            (_, true) => Some(format!(
                "this user has no range of ids, so in a step chown, chgrp, setgroups and su to anybody but root fail; \
                 with one they work: as root, `{RANGES}`, and install uidmap"
            )),
            (_, false) => Some(
                "an ordinary user's step makes no device nodes and gives no file to an id beyond the user's range; \
                 docs/rootless.md has the whole list"
                    .into(),
            ),
        }
    }

    /// None when a file can have this owner.
    pub fn refusal(&self, uid: u32, gid: u32) -> Option<Unmapped> {
        let refused = |kind, id, ids: &[Extent]| {
            let last = ids.iter().map(|e| e.inside.saturating_add(e.count - 1)).max().unwrap_or_default();
            Some(Unmapped { kind, id, last })
        };
        match (self.has_uid(uid), self.has_gid(gid)) {
            (false, _) => refused("user", uid, &self.uids),
            (_, false) => refused("group", gid, &self.gids),
            _ => None,
        }
    }
}

/// Who wrote the files of a store. What one writes, another reads wrong or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Identity {
    Root,
    /// A user whose ids have these numbers outside.
    Range {
        user: u32,
        uids: Vec<Extent>,
        gids: Vec<Extent>,
    },
    /// A user without a range.
    Single {
        user: u32,
    },
}

impl Identity {
    /// Whether one that is called this now reads what an earlier one wrote: a range may have grown since.
    pub fn reads(&self, written: &Identity) -> bool {
        let covers = |now: &[Extent], then: &[Extent]| then.iter().all(|t| now.iter().any(|n| n.covers(t)));
        match (self, written) {
            (Identity::Range { uids, gids, .. }, Identity::Range { uids: old_uids, gids: old_gids, .. }) => {
                covers(uids, old_uids) && covers(gids, old_gids)
            }
            _ => self == written,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Root => f.write_str("root"),
            Identity::Range { user, uids, .. } => {
                let ranges: Vec<String> =
                    uids.iter().filter(|e| e.inside > 0).map(|e| format!("{}:{}", e.outside, e.count)).collect();
                write!(f, "user {user} with the range of ids {}", ranges.join(" "))
            }
            Identity::Single { user } => write!(f, "user {user} without a range of ids"),
        }
    }
}

fn extents(map: &str) -> Vec<Extent> {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(|n| n.parse().ok());
        let (inside, outside, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        (count > 0).then_some(Extent { inside, outside, count })
    };
    map.lines().filter_map(line).collect()
}

/// Whether a line of output sounds like the kernel's answer to somebody without the rights or ids.
pub fn looks_refused(line: &str) -> bool {
    ["Operation not permitted", "Invalid argument", "EPERM", "EINVAL"].iter().any(|text| line.contains(text))
}

/// An id that no file can have here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmapped {
    kind: &'static str,
    id: u32,
    /// The largest that one can have.
    last: u32,
}

impl Unmapped {
    /// What the administrator of the machine has to do.
    pub fn hint(&self) -> String {
        let option = if self.kind == "user" { "--add-subuids" } else { "--add-subgids" };
        if self.last == 0 {
            return format!(
                "ranges of ids for this user make it possible: as root, `{RANGES}`, and the package uidmap"
            );
        }
        // Of whole ranges, as useradd gives them.
        let missing = (self.id - self.last).next_multiple_of(65_536);
        format!("as root, add {missing} ids to the user's range: `usermod {option} FIRST-LAST USER`")
    }
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unmapped { kind, id, last } = self;
        match last {
            0 => write!(f, "{kind} id {id} does not exist here: this user has no range of ids, only 0 is there"),
            _ => write!(f, "{kind} id {id} is beyond the range of ids that this user has, which ends at {last}"),
        }
    }
}

impl std::error::Error for Unmapped {}

impl From<Unmapped> for std::io::Error {
    fn from(unmapped: Unmapped) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidInput, unmapped)
    }
}

/// An error of a file operation that was one of these: the machine is in the way, and there is something to do.
pub fn explained(error: &std::io::Error, message: &str) -> Option<Error> {
    let unmapped = error.get_ref()?.downcast_ref::<Unmapped>()?;
    Some(Error::unusable(message).cause(unmapped).hint(unmapped.hint()))
}

/// How a user gets ranges; what useradd would have given.
pub const RANGES: &str = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER";

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "         0          0 4294967295\n";
    const RANGE: &str = "         0       1001          1\n         1     100000      65536\n";
    const ONE: &str = "         0       1001          1\n";

    #[test]
    fn maps_say_who_one_is() {
        let root = Userns::of(true, WHOLE, WHOLE);
        assert!(root.is_initial() && !root.is_single() && root.has_uid(4_000_000));
        let range = Userns::of(false, RANGE, RANGE);
        assert!(!range.is_initial() && !range.is_single());
        assert!(range.has_uid(0) && range.has_gid(65_536) && !range.has_uid(65_537) && !range.has_uid(u32::MAX));
        let one = Userns::of(false, ONE, ONE);
        assert!(one.is_single() && one.has_uid(0) && !one.has_uid(1));
        // One kind of ids is not enough, and a namespace with all ids is not the machine's own.
        assert!(Userns::of(false, RANGE, ONE).is_single());
        assert!(!Userns::of(false, WHOLE, WHOLE).is_initial());
        assert!(Userns::of(true, "", "").is_initial());
    }

    #[test]
    fn a_store_is_read_by_whom_it_belongs_to() {
        let identity = |map: &str| Userns::of(false, map, map).identity();
        let (root, range, one) = (Userns::of(true, WHOLE, WHOLE).identity(), identity(RANGE), identity(ONE));
        for (reader, writer) in [(&root, &range), (&range, &root), (&range, &one), (&one, &range), (&one, &root)] {
            assert!(!reader.reads(writer), "{reader} {writer}");
        }
        let grown = identity("0 1001 1\n1 100000 131072\n");
        let appended = identity("0 1001 1\n1 100000 65536\n65537 500000 10\n");
        let moved = identity("0 1001 1\n1 200000 65536\n");
        assert!(range.reads(&range) && grown.reads(&range) && appended.reads(&range));
        assert!(!range.reads(&grown) && !moved.reads(&range));
        assert_eq!(range.to_string(), "user 1001 with the range of ids 100000:65536");
        assert_eq!(one.to_string(), "user 1001 without a range of ids");
        let text = serde_json::to_string(&range).unwrap();
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), range);
    }

    #[test]
    fn what_is_missing_is_named_with_its_remedy() {
        let range = Userns::of(false, RANGE, RANGE);
        assert_eq!(range.refusal(65_536, 0), None);
        let user = range.refusal(70_000, 70_000).unwrap();
        assert_eq!(
            user.to_string(),
            "user id 70000 is beyond the range of ids that this user has, which ends at 65536"
        );
        assert!(user.hint().contains("add 65536 ids") && user.hint().contains("--add-subuids"), "{}", user.hint());
        let group = range.refusal(1, 140_000).unwrap();
        assert!(group.hint().contains("add 131072 ids") && group.hint().contains("--add-subgids"));
        let one = Userns::of(false, ONE, ONE).refusal(33, 0).unwrap();
        assert!(one.to_string().contains("user id 33") && one.hint().contains(RANGES));
        let error = explained(&one.into(), "cannot write `/a`").unwrap();
        assert_eq!((error.kind(), error.causes().len()), (crate::error::Kind::Unusable, 1));
        assert!(explained(&std::io::Error::other("x"), "y").is_none());
    }
}
