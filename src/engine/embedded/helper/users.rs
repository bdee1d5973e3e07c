//! USER and --chown: names and numbers looked up in the image's own /etc/passwd and /etc/group.

use std::path::Path;

use super::inroot::{Owner, Root};
use crate::error::{Error, Result};

/// Who a process runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: String,
}

/// The image's two files; one that is missing is an empty one.
#[derive(Debug, Default)]
pub struct Accounts {
    passwd: Vec<User>,
    group: Vec<Group>,
}

#[derive(Debug)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

#[derive(Debug)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

impl Accounts {
    pub fn of(root: &Root) -> Accounts {
        let read = |path: &str| root.read(Path::new(path)).unwrap_or_default();
        Accounts::parse(&read("etc/passwd"), &read("etc/group"))
    }

    /// Lines that make no sense say nothing, as everywhere these files are read.
    pub fn parse(passwd: &[u8], group: &[u8]) -> Accounts {
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let passwd = String::from_utf8_lossy(passwd)
            .lines()
            .map(fields)
            .filter_map(|f| {
                let (uid, gid) = (f.get(2)?.parse().ok()?, f.get(3)?.parse().ok()?);
                Some(User { name: f.first()?.clone(), uid, gid, home: f.get(5).cloned().unwrap_or_default() })
            })
            .collect();
        let group = String::from_utf8_lossy(group)
            .lines()
            .map(fields)
            .filter_map(|f| {
                let members = f.get(3).map(|m| m.split(',').map(|n| n.trim().to_owned()).collect()).unwrap_or_default();
                Some(Group { name: f.first()?.clone(), gid: f.get(2)?.parse().ok()?, members })
            })
            .collect();
        Accounts { passwd, group }
    }

    /// `USER user[:group]`. A number need not be in the files; its group is then root's, as with Docker.
    pub fn identity(&self, spec: &str) -> Result<Identity> {
        let (user, group) = split(spec);
        let user = if user.is_empty() { "0" } else { user };
        let entry = self.user(user);
        let uid = match (entry, user.parse::<u32>()) {
            (Some(entry), _) => entry.uid,
            (None, Ok(uid)) => uid,
            (None, Err(_)) => return Err(unknown("user", user, "/etc/passwd")),
        };
        let home = entry.map(|e| e.home.clone()).filter(|h| !h.is_empty()).unwrap_or_else(|| "/".into());
        let (gid, mut groups) = match group {
            Some(group) => (self.group_id(group)?, Vec::new()),
            None => {
                let of = |e: &User| {
                    let mut ids: Vec<u32> =
                        self.group.iter().filter(|g| g.members.contains(&e.name)).map(|g| g.gid).collect();
                    ids.sort_unstable();
                    ids.dedup();
                    ids
                };
                (entry.map_or(0, |e| e.gid), entry.map(of).unwrap_or_default())
            }
        };
        // The group itself is one of them, as login has it and Docker.
        groups.retain(|other| *other != gid);
        groups.insert(0, gid);
        Ok(Identity { uid, gid, groups, home })
    }

    /// `--chown=user[:group]`. Without a group a name has its own, and a number is its own group's number, too.
    pub fn owner(&self, spec: &str) -> Result<Owner> {
        let (user, group) = split(spec);
        let (uid, own) = match (user.parse::<u32>(), self.passwd.iter().find(|e| e.name == user)) {
            (Ok(uid), _) => (uid, uid),
            (Err(_), Some(entry)) => (entry.uid, entry.gid),
            (Err(_), None) if user.is_empty() || self.is_root_of_nothing(user) => (0, 0),
            (Err(_), None) => return Err(unknown("user", user, "/etc/passwd")),
        };
        Ok(Owner { uid, gid: group.map_or(Ok(own), |g| self.group_id(g))? })
    }

    /// Where there are no accounts at all, there still is root.
    fn is_root_of_nothing(&self, name: &str) -> bool {
        name == "root" && self.passwd.is_empty() && self.group.is_empty()
    }

    fn user(&self, spec: &str) -> Option<&User> {
        let number = spec.parse().ok();
        self.passwd
            .iter()
            .find(|e| e.name == spec)
            .or_else(|| self.passwd.iter().find(|e| number.is_some_and(|n: u32| n == e.uid)))
    }

    fn group_id(&self, spec: &str) -> Result<u32> {
        match (self.group.iter().find(|g| g.name == spec), spec.parse()) {
            (Some(group), _) => Ok(group.gid),
            (None, Ok(gid)) => Ok(gid),
            (None, Err(_)) if self.is_root_of_nothing(spec) => Ok(0),
            (None, Err(_)) => Err(unknown("group", spec, "/etc/group")),
        }
    }
}

fn split(spec: &str) -> (&str, Option<&str>) {
    match spec.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|g| !g.is_empty())),
        None => (spec, None),
    }
}

fn unknown(kind: &str, name: &str, file: &str) -> Error {
    Error::failed(format!("there is no {kind} `{name}` in the image")).hint(format!(
        "add it in a RUN instruction before this one (it is looked up in the image's {file}), or give a number"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts::parse(
            b"root:x:0:0:root:/root:/bin/sh\n# no line\nkeystone:x:42425:42426::/var/lib/keystone:\nbad:x:y:z\n7:x:70:70::/seven:\n",
            b"root:x:0:\nkolla:x:42400:keystone,other\nkeystone:x:42426:\nadm:x:4: keystone\n",
        )
    }

    fn identity(spec: &str) -> (u32, u32, Vec<u32>, String) {
        let i = accounts().identity(spec).unwrap();
        (i.uid, i.gid, i.groups, i.home)
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        assert_eq!(identity(""), (0, 0, vec![0], "/root".into()));
        assert_eq!(identity("keystone"), (42425, 42426, vec![42426, 4, 42400], "/var/lib/keystone".into()));
        assert_eq!(identity("42425"), identity("keystone"));
        assert_eq!(identity("keystone:kolla"), (42425, 42400, vec![42400], "/var/lib/keystone".into()));
        assert_eq!(identity("1234"), (1234, 0, vec![0], "/".into()));
        assert_eq!(identity("1234:99"), (1234, 99, vec![99], "/".into()));
        // A name that looks like a number is a name first.
        assert_eq!(identity("7").0, 70);
        assert!(accounts().identity("nobody").unwrap_err().message().contains("`nobody`"));
        assert!(accounts().identity("root:none").unwrap_err().message().contains("group `none`"));
    }

    #[test]
    fn owners_have_a_group_of_their_own() {
        let owner = |spec: &str| accounts().owner(spec).map(|o| (o.uid, o.gid)).ok();
        assert_eq!(owner("keystone"), Some((42425, 42426)));
        assert_eq!(owner("1000"), Some((1000, 1000)));
        assert_eq!(owner("1000:kolla"), Some((1000, 42400)));
        assert_eq!(owner("keystone:0"), Some((42425, 0)));
        assert_eq!(owner(":kolla"), Some((0, 42400)));
        assert_eq!(owner("who"), None);
        let of_nothing = |spec: &str| Accounts::default().owner(spec).map(|o| (o.uid, o.gid)).ok();
        assert_eq!(of_nothing("root:root"), Some((0, 0)));
        assert_eq!(of_nothing("root:adm"), None);
    }
}
