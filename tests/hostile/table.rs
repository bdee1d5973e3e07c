//! Rows: what goes in, and what has to come of it.

use crate::place::{Place, Ran};

pub struct Row {
    pub group: &'static str,
    pub input: &'static str,
    pub outcome: Outcome,
    pub attempt: fn(&Place) -> Ran,
}

pub enum Outcome {
    /// Exit code, and words of the message.
    Refused(i32, &'static str),
    /// What happens instead, and whether it did.
    Contained(&'static str, fn(&Place) -> Result<(), String>),
}

pub fn refused(
    group: &'static str,
    input: &'static str,
    code: i32,
    says: &'static str,
    attempt: fn(&Place) -> Ran,
) -> Row {
    Row { group, input, outcome: Outcome::Refused(code, says), attempt }
}

pub fn contained(
    group: &'static str,
    input: &'static str,
    happens: &'static str,
    attempt: fn(&Place) -> Ran,
    holds: fn(&Place) -> Result<(), String>,
) -> Row {
    Row { group, input, outcome: Outcome::Contained(happens, holds), attempt }
}

impl Row {
    pub fn judge(&self, place: &Place, ran: &Ran) -> Result<(), String> {
        if ran.timed_out {
            return Err("it did not end".into());
        }
        // 101 is a panic, 134 an abort: of memory that was asked for in vain, or of a stack that was too small.
        if ran.stderr.contains("panicked") || !matches!(ran.code, 0..=3 | 130) {
            return Err(format!("exit code {}", ran.code));
        }
        place.untouched()?;
        match &self.outcome {
            Outcome::Refused(code, says) => {
                if ran.code != *code {
                    return Err(format!("exit code {} and not {code}", ran.code));
                }
                let said = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
                if !said.contains(says) {
                    return Err(format!("it does not say `{says}`"));
                }
                Ok(())
            }
            Outcome::Contained(_, holds) => holds(place),
        }
    }
}

/// The build went through.
pub fn built(place: &Place) -> Result<(), String> {
    match place.last_code() {
        0 => Ok(()),
        code => Err(format!("exit code {code} and not 0")),
    }
}

pub fn markdown(rows: &[Row]) -> String {
    let mut out = String::from(
        "# Hostile input\n\n\
         What becomes of input that was made to do harm; written by `cargo test --test hostile`, which tries all of it\n\
         on the program (see tests/hostile/main.rs).\n",
    );
    let mut group = "";
    for row in rows {
        if row.group != group {
            group = row.group;
            out.push_str(&format!("\n## {group}\n\n| input | what happens |\n| --- | --- |\n"));
        }
        let happens = match &row.outcome {
            Outcome::Refused(code, says) => format!("refused (exit code {code}): “{}”", says.replace('|', "\\|")),
            Outcome::Contained(happens, _) => (*happens).to_owned(),
        };
        out.push_str(&format!("| {} | {happens} |\n", row.input.replace('|', "\\|")));
    }
    out
}
