//! Modes as `--chmod` gives them: one for everything, or changes to what each file has.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModeChange {
    Fixed(u32),
    /// In chmod(1)'s language: `u=rwX,go=rX`.
    Symbolic(Vec<Clause>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clause {
    /// The bits of those that are meant: `u`, `g`, `o`, or all of them.
    who: u32,
    operator: char,
    permissions: String,
}

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const STICKY: u32 = 0o1000;

impl ModeChange {
    /// None for what is neither an octal number up to 7777 nor a list of clauses.
    pub fn parse(text: &str) -> Option<ModeChange> {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777).map(ModeChange::Fixed);
        }
        let mut clauses = Vec::new();
        for clause in text.split(',') {
            let rest = clause.trim_start_matches(['u', 'g', 'o', 'a']);
            let named = &clause[..clause.len() - rest.len()];
            let who = named.chars().fold(0, |who, c| who | bits_of(c));
            // Without a name it is all of them; there is no umask here.
            let who = if named.is_empty() { bits_of('a') } else { who };
            let mut rest = rest.chars().peekable();
            rest.peek()?;
            while let Some(operator) = rest.next() {
                if !matches!(operator, '+' | '-' | '=') {
                    return None;
                }
                let mut permissions = String::new();
                while let Some(c) = rest.next_if(|c| !matches!(c, '+' | '-' | '=')) {
                    if !matches!(c, 'r' | 'w' | 'x' | 'X' | 's' | 't' | 'u' | 'g' | 'o') {
                        return None;
                    }
                    permissions.push(c);
                }
                clauses.push(Clause { who, operator, permissions });
            }
        }
        Some(ModeChange::Symbolic(clauses))
    }

    /// What a file with this mode gets.
    pub fn apply(&self, mode: u32, directory: bool) -> u32 {
        match self {
            ModeChange::Fixed(fixed) => *fixed,
            ModeChange::Symbolic(clauses) => {
                clauses.iter().fold(mode & 0o7777, |mode, clause| clause.apply(mode, directory))
            }
        }
    }

    /// What something gets that the instruction makes and that has no mode of its own.
    pub fn fixed(&self) -> Option<u32> {
        match self {
            ModeChange::Fixed(mode) => Some(*mode),
            ModeChange::Symbolic(_) => None,
        }
    }
}

impl Clause {
    fn apply(&self, mode: u32, directory: bool) -> u32 {
        let mut bits = 0;
        for permission in self.permissions.chars() {
            bits |= match permission {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                'X' if directory || mode & 0o111 != 0 => 0o111,
                's' => SET_USER | SET_GROUP,
                't' => STICKY,
                'u' => spread(mode >> 6),
                'g' => spread(mode >> 3),
                'o' => spread(mode),
                _ => 0,
            };
        }
        bits &= self.who;
        match self.operator {
            '+' => mode | bits,
            '-' => mode & !bits,
            _ => (mode & !(self.who & 0o777)) | bits,
        }
    }
}

/// Which bits of a mode are somebody's: the set-user-ID bit is the owner's, the sticky bit everybody's.
fn bits_of(who: char) -> u32 {
    match who {
        'u' => 0o700 | SET_USER,
        'g' => 0o070 | SET_GROUP,
        'o' => 0o007,
        _ => 0o7777,
    }
}

/// Permissions of one of the three, given to all three.
fn spread(permissions: u32) -> u32 {
    (permissions & 7) * 0o111
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn change(text: &str, mode: u32, directory: bool) -> u32 {
        ModeChange::parse(text).unwrap().apply(mode, directory)
    }

    #[test]
    fn clauses_change_what_they_name() {
        for (text, mode, expected) in [
            ("0755", 0o644, 0o755),
            ("u=rwX,go=rX", 0o600, 0o644),
            ("u=rwX,go=rX", 0o700, 0o755),
            ("a+x", 0o644, 0o755),
            ("+x", 0o644, 0o755),
            ("go-rwx,u+s", 0o755, 0o4700),
            ("g=u", 0o640, 0o660),
            ("u=rw,go=", 0o755, 0o600),
            ("+t", 0o777, 0o1777),
            ("g+s", 0o755, 0o2755),
            ("u+x-w", 0o644, 0o544),
        ] {
            assert_eq!(change(text, mode, false), expected, "{text} on {mode:o}");
        }
        assert_eq!(change("go=rX", 0o700, true), 0o755);
        assert_eq!(change("a=X", 0o600, true), 0o111);
    }

    #[test]
    fn others_are_refused() {
        for text in ["8", "17777", "u", "rwx", "u=rwz", "0o755", "u+x,", ",", "=,x"] {
            assert_eq!(ModeChange::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_no_mode_grows_too_large(text in "[ugoarwxXst+=,-]{0,12}", mode in 0u32..0o10000) {
            if let Some(change) = ModeChange::parse(&text) {
                prop_assert!(change.apply(mode, false) <= 0o7777);
            }
        }
    }
}
