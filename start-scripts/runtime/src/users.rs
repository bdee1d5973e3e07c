//! Users and groups from the image's own /etc/passwd and /etc/group. Never by NSS: a static program can't load its
//! modules, and an image without libc has none.

use crate::config::Owner;
use crate::error::{Failure, Result};
use std::path::{Path, PathBuf};

/// What the image knows, and what an operator said about users that it doesn't know.
#[derive(Debug, Default, Clone)]
pub struct Users {
    users: Vec<User>,
    groups: Vec<Group>,
    stand_ins: Vec<(String, StandIn)>,
    /// Those who are stood in for although the image knows them.
    replaced: Vec<String>,
}

/// A user and the group of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbers {
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
}

#[derive(Debug, Clone)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

/// Whom a user is that the image lacks: another name, or numbers.
#[derive(Debug, Clone, PartialEq)]
enum StandIn {
    Name(String),
    Number(u32, u32),
}

impl Numbers {
    /// Who isn't root can only be who he is.
    pub fn of_ordinary_user() -> Option<Numbers> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        (uid != 0).then_some(Numbers { uid, gid })
    }
}

/// Whom to run as.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: PathBuf,
}

impl Users {
    /// From `passwd` and `group` in a directory; one that isn't there knows nobody.
    pub fn load(etc: &Path) -> Users {
        let read = |name: &str| std::fs::read(etc.join(name)).unwrap_or_default();
        Users::read(&read("passwd"), &read("group"))
    }

    pub fn read(passwd: &[u8], group: &[u8]) -> Users {
        let users = String::from_utf8_lossy(passwd).lines().filter_map(user).collect();
        let groups = String::from_utf8_lossy(group).lines().filter_map(group_line).collect();
        Users { users, groups, ..Users::default() }
    }

    /// `keystone=nova,glance=42424:42424,cinder=42424`: whom to take for users that the image lacks.
    pub fn with_stand_ins(mut self, text: &str) -> Result<Users> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = || Failure::wrong(format!("`{part}` is not NAME=USER, NAME=UID or NAME=UID:GID"));
            let (name, target) = part.split_once('=').ok_or_else(wrong)?;
            let stand_in = match target.split_once(':') {
                Some((uid, gid)) => {
                    StandIn::Number(uid.parse().map_err(|_| wrong())?, gid.parse().map_err(|_| wrong())?)
                }
                None => match target.parse() {
                    Ok(uid) => StandIn::Number(uid, uid),
                    Err(_) if target.is_empty() => return Err(wrong()),
                    Err(_) => StandIn::Name(target.into()),
                },
            };
            self.stand_ins.push((name.into(), stand_in));
        }
        Ok(self)
    }

    /// Whom to take for a user that the image lacks; what an operator said counts more.
    pub fn where_missing(mut self, name: &str, numbers: Numbers) -> Users {
        self.stand_ins.push((name.into(), StandIn::Number(numbers.uid, numbers.gid)));
        self
    }

    /// Whom to take for a user, and for the group of the same name, whatever the image says.
    pub fn where_always(mut self, name: &str, numbers: Numbers) -> Users {
        self.stand_ins.insert(0, (name.into(), StandIn::Number(numbers.uid, numbers.gid)));
        self.replaced.push(name.into());
        self
    }

    /// Whether there is such a user, or one that stands in.
    pub fn knows(&self, name: &str) -> bool {
        self.named(name).is_some() || self.stand_in(name).is_some()
    }

    fn is_replaced(&self, name: &str) -> bool {
        self.replaced.iter().any(|replaced| replaced == name)
    }

    fn named(&self, name: &str) -> Option<&User> {
        self.users.iter().find(|user| user.name == name && !self.is_replaced(name))
    }

    fn stand_in(&self, name: &str) -> Option<&StandIn> {
        self.stand_ins.iter().find(|(there, _)| there == name).map(|(_, stand_in)| stand_in)
    }

    fn uid(&self, name: &str) -> Result<u32> {
        if let Some(user) = self.named(name) {
            return Ok(user.uid);
        }
        match (name.parse(), self.stand_in(name)) {
            (Ok(uid), _) => Ok(uid),
            (_, Some(StandIn::Number(uid, _))) => Ok(*uid),
            (_, Some(StandIn::Name(other))) => match self.named(other) {
                Some(user) => Ok(user.uid),
                None => Err(unknown("user", other, self.users.iter().map(|user| &*user.name))),
            },
            _ => Err(unknown("user", name, self.users.iter().map(|user| &*user.name))),
        }
    }

    fn gid(&self, name: &str) -> Result<u32> {
        if let Some(group) = self.groups.iter().find(|group| group.name == name && !self.is_replaced(name)) {
            return Ok(group.gid);
        }
        match (name.parse(), self.stand_in(name)) {
            (Ok(gid), _) => Ok(gid),
            (_, Some(StandIn::Number(_, gid))) => Ok(*gid),
            // The group of a user who stands in is that user's own, whatever its name.
            (_, Some(StandIn::Name(other))) => match self.named(other) {
                Some(user) => Ok(user.gid),
                None => Err(unknown("user", other, self.users.iter().map(|user| &*user.name))),
            },
            _ => Err(unknown("group", name, self.groups.iter().map(|group| &*group.name))),
        }
    }

    /// The numbers of an entry's owner.
    pub fn owner(&self, owner: &Owner) -> Result<(u32, u32)> {
        Ok((self.uid(&owner.user)?, self.gid(&owner.group)?))
    }

    /// Whom to run as, from `USER`, `USER:GROUP` or numbers. Without a group, all groups of the user.
    pub fn identity(&self, text: &str) -> Result<Identity> {
        let (name, group) = match text.split_once(':') {
            Some((name, group)) => (name, Some(group)),
            None => (text, None),
        };
        let uid = self.uid(name)?;
        let user = self.named(name).or_else(|| self.users.iter().find(|user| user.uid == uid));
        let gid = match (group, user, self.stand_in(name)) {
            (Some(group), ..) => self.gid(group)?,
            (None, _, Some(StandIn::Number(_, gid))) if self.named(name).is_none() => *gid,
            (None, Some(user), _) => user.gid,
            (None, None, _) => uid,
        };
        let mut groups = vec![gid];
        if let (None, Some(user)) = (group, user) {
            let of_user = self.groups.iter().filter(|group| group.members.contains(&user.name)).map(|group| group.gid);
            groups.extend(of_user.filter(|more| *more != gid));
        }
        Ok(Identity { uid, gid, groups, home: user.map_or("/".into(), |user| user.home.clone()) })
    }
}

fn user(line: &str) -> Option<User> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, ..] = fields[..] else { return None };
    let home = if home.is_empty() { "/" } else { home };
    Some(User { name: name.into(), uid: uid.parse().ok()?, gid: gid.parse().ok()?, home: home.into() })
}

fn group_line(line: &str) -> Option<Group> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, gid, members, ..] = fields[..] else { return None };
    let members = members.split(',').map(|member| member.trim().to_string()).collect();
    Some(Group { name: name.into(), gid: gid.parse().ok()?, members })
}

fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let file = if kind == "user" { "/etc/passwd" } else { "/etc/group" };
    let near = known.map(|known| (strsim::damerau_levenshtein(name, known), known)).min();
    let hint = match near {
        Some((distance, near)) if distance <= 1 + name.len() / 4 => format!("; did you mean `{near}`?"),
        _ => format!(" (KOLLAGE_USERS={name}=UID:GID says whom to take)"),
    };
    Failure::wrong(format!("the {kind} `{name}` is not in {file}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\n# odd\nnova:x:42436:42436::/var/lib/nova:/x\n\
        7:x:1007:1008::/seven:/x\nbroken:x:::\nloci:x:42424:42425:\xff:/var/lib/loci:\n";
    const GROUP: &[u8] = b"root:x:0:\nnova:x:42436:\nkolla:x:42400:nova,glance\nqemu:x:42427:nova\nloci:x:42425:\n";

    fn owner(user: &str, group: &str) -> Owner {
        Owner { user: user.into(), group: group.into() }
    }

    #[test]
    fn owners_are_names_before_they_are_numbers() {
        let users = Users::read(PASSWD, GROUP);
        assert_eq!(users.owner(&owner("nova", "kolla")).unwrap(), (42436, 42400));
        assert_eq!(users.owner(&owner("42", "43")).unwrap(), (42, 43));
        assert_eq!(users.owner(&owner("7", "0")).unwrap(), (1007, 0));
        let failure = users.owner(&owner("novva", "nova")).unwrap_err();
        assert_eq!(failure.problems, ["the user `novva` is not in /etc/passwd; did you mean `nova`?"]);
        let failure = users.owner(&owner("nova", "mysql")).unwrap_err();
        assert!(failure.problems[0].starts_with("the group `mysql` is not in /etc/group"), "{failure:?}");
    }

    #[test]
    fn a_user_that_the_image_lacks_is_mapped_as_told() {
        let users = Users::read(PASSWD, GROUP).with_stand_ins("keystone=loci, glance=1:2,cinder=5,nova=9:9").unwrap();
        assert_eq!(users.owner(&owner("keystone", "keystone")).unwrap(), (42424, 42425));
        assert_eq!(users.owner(&owner("glance", "kolla")).unwrap(), (1, 42400));
        assert_eq!(users.owner(&owner("cinder", "cinder")).unwrap(), (5, 5));
        // The image has this one.
        assert_eq!(users.owner(&owner("nova", "nova")).unwrap(), (42436, 42436));
        let home = PathBuf::from("/var/lib/loci");
        let loci = Identity { uid: 42424, gid: 42425, groups: vec![42425], home };
        assert_eq!(users.identity("keystone").unwrap(), loci);
        let glance = Identity { uid: 1, gid: 2, groups: vec![2], home: "/".into() };
        assert_eq!(users.identity("glance").unwrap(), glance);
        for wrong in ["x", "x=", "x=1:y"] {
            assert!(Users::default().with_stand_ins(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_identity_has_all_groups_unless_one_is_named() {
        let users = Users::read(PASSWD, GROUP);
        let nova = users.identity("nova").unwrap();
        assert_eq!((nova.uid, nova.gid, nova.groups), (42436, 42436, vec![42436, 42400, 42427]));
        assert_eq!(nova.home, Path::new("/var/lib/nova"));
        assert_eq!(users.identity("nova:kolla").unwrap().groups, [42400]);
        let number = users.identity("42436").unwrap();
        assert_eq!((number.gid, number.groups.len()), (42436, 3));
        assert_eq!(
            users.identity("5000:6000").unwrap(),
            Identity { uid: 5000, gid: 6000, groups: vec![6000], home: "/".into() }
        );
        assert!(users.identity("nobody").is_err());
    }
}
