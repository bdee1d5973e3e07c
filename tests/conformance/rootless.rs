//! What comes out otherwise for an ordinary user, and why: `rootless.toml`.

use serde::Deserialize;

use crate::case::Case;
use crate::user::RANGE;

const LIST: &str = include_str!("rootless.toml");

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ids {
    /// A range in /etc/subuid and /etc/subgid.
    Range,
    /// None there.
    Single,
}

impl Ids {
    pub fn name(self) -> &'static str {
        match self {
            Ids::Range => "range",
            Ids::Single => "single",
        }
    }

    /// What stands in /etc/subuid and /etc/subgid.
    pub fn ranges(self) -> &'static str {
        match self {
            Ids::Range => RANGE,
            Ids::Single => "",
        }
    }
}

/// Cases that come out otherwise in the same way.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excuse {
    pub ids: Vec<Ids>,
    pub why: String,
    /// What each line of the difference has to match.
    pub only: String,
    pub cases: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    difference: Vec<Excuse>,
}

pub fn excuses() -> Vec<Excuse> {
    toml::from_str::<List>(LIST).unwrap().difference
}

pub fn excuse<'e>(excuses: &'e [Excuse], ids: Ids, case: &Case) -> Option<&'e Excuse> {
    excuses.iter().find(|e| e.ids.contains(&ids) && e.cases.contains(&case.name))
}
