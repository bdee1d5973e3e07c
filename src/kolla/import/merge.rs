//! The recipes of several distributions as one, with conditions where they differ.

use crate::catalogue::PackageType;

/// A part of a recipe, with the comment above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub comment: Vec<String>,
    pub text: String,
    /// Whether it is an instruction of Kolla's as it was.
    pub kept: bool,
}

/// A part, and for which of the distributions it is.
#[derive(Clone, Debug)]
pub struct Line {
    pub part: Part,
    pub sides: Vec<bool>,
}

/// Lays sequences over each other so that each stays as it is and what is equal stands once. None: that distribution has no such
/// image.
pub fn merge(all: Vec<Option<Vec<Part>>>) -> Vec<Line> {
    let count = all.len();
    let mut merged: Vec<Line> = Vec::new();
    for (side, parts) in all.into_iter().enumerate() {
        let Some(parts) = parts else { continue };
        let mut sides = vec![false; count];
        sides[side] = true;
        merged = laid_over(merged, parts, side, &sides);
    }
    merged
}

fn laid_over(old: Vec<Line>, new: Vec<Part>, side: usize, only: &[bool]) -> Vec<Line> {
    // Longest common subsequence, from the back.
    let width = new.len() + 1;
    let mut lengths = vec![0_usize; (old.len() + 1) * width];
    for (i, line) in old.iter().enumerate().rev() {
        for (j, part) in new.iter().enumerate().rev() {
            lengths[i * width + j] = match line.part.text == part.text {
                true => lengths[(i + 1) * width + j + 1] + 1,
                false => lengths[(i + 1) * width + j].max(lengths[i * width + j + 1]),
            };
        }
    }
    let mut out = Vec::with_capacity(old.len() + new.len());
    let mut old = old.into_iter().enumerate().peekable();
    let mut new = new.into_iter().enumerate().peekable();
    loop {
        match (old.peek(), new.peek()) {
            (Some((i, line)), Some((j, part))) => {
                if line.part.text == part.text {
                    if let (Some((_, mut line)), Some(_)) = (old.next(), new.next()) {
                        line.sides[side] = true;
                        out.push(line);
                    }
                } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
                    out.extend(old.next().map(|(_, line)| line));
                } else {
                    out.extend(new.next().map(|(_, part)| Line { part, sides: only.to_vec() }));
                }
            }
            (Some(_), None) => out.extend(old.next().map(|(_, line)| line)),
            (None, Some(_)) => out.extend(new.next().map(|(_, part)| Line { part, sides: only.to_vec() })),
            (None, None) => return out,
        }
    }
}

/// What a recipe asks to tell the distributions apart.
pub struct Names<'a> {
    pub bases: &'a [(&'a str, PackageType)],
    /// Those that have the image.
    pub there: &'a [bool],
}

impl Names<'_> {
    /// None: it is for all of them.
    fn condition(&self, sides: &[bool]) -> Option<String> {
        if sides == self.there {
            return None;
        }
        for kind in [PackageType::Deb, PackageType::Rpm] {
            let those = |(side, there): (usize, &bool)| *there && self.bases[side].1 == kind;
            let of_kind: Vec<bool> = self.there.iter().enumerate().map(those).collect();
            if sides == of_kind {
                return Some(format!("build.base_package_type == \"{}\"", kind.as_str()));
            }
        }
        let names: Vec<String> =
            (self.bases.iter().zip(sides)).filter(|(_, is)| **is).map(|((name, _), _)| format!("\"{name}\"")).collect();
        Some(match names.as_slice() {
            [one] => format!("build.base == {one}"),
            several => format!("build.base in [{}]", several.join(", ")),
        })
    }

    pub fn written(&self, lines: &[Line]) -> String {
        let mut out = String::new();
        let mut open: Option<&[bool]> = None;
        for line in lines {
            let sides = line.sides.as_slice();
            if open != Some(sides) {
                let opposite = open.is_some_and(|open| {
                    open != self.there
                        && (open.iter().zip(sides).zip(self.there)).all(|((a, b), there)| (*a != *b) == *there)
                });
                let was = open.and_then(|open| self.condition(open));
                match (was, self.condition(sides)) {
                    (Some(_), Some(_)) if opposite => out.push_str("{% else %}\n"),
                    (was, now) => {
                        out.push_str(was.map_or("", |_| "{% endif %}\n"));
                        out.extend(now.map(|now| format!("{{% if {now} %}}\n")));
                    }
                }
                open = Some(sides);
            }
            for comment in &line.part.comment {
                out.push_str(comment);
                out.push('\n');
            }
            out.push_str(&line.part.text);
            out.push('\n');
        }
        if open.and_then(|open| self.condition(open)).is_some() {
            out.push_str("{% endif %}\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<Vec<Part>> {
        Some(text.split(' ').map(|text| Part { comment: Vec::new(), text: text.to_owned(), kept: true }).collect())
    }

    const BASES: [(&str, PackageType); 3] =
        [("debian", PackageType::Deb), ("ubuntu", PackageType::Deb), ("rocky", PackageType::Rpm)];

    #[test]
    fn what_differs_is_told_apart_by_the_shortest_condition() {
        let merged = merge(vec![parts("a b c"), parts("a b u c"), parts("a r c")]);
        let text = Names { bases: &BASES, there: &[true; 3] }.written(&merged);
        assert_eq!(
            text,
            "a\n{% if build.base_package_type == \"deb\" %}\nb\n{% endif %}\n{% if build.base == \"ubuntu\" %}\nu\n\
             {% endif %}\n{% if build.base_package_type == \"rpm\" %}\nr\n{% endif %}\nc\n"
        );
        let merged = merge(vec![parts("a b"), None, parts("a r")]);
        let text = Names { bases: &BASES, there: &[true, false, true] }.written(&merged);
        assert_eq!(text, "a\n{% if build.base_package_type == \"deb\" %}\nb\n{% else %}\nr\n{% endif %}\n");
    }

    proptest::proptest! {
        #[test]
        fn each_side_stays_as_it_was(sides in proptest::collection::vec("[a-d]{0,8}", 1..4)) {
            let part = |c: char| Part { comment: Vec::new(), text: c.to_string(), kept: true };
            let merged = merge(sides.iter().map(|side| Some(side.chars().map(part).collect())).collect());
            for (side, text) in sides.iter().enumerate() {
                let mine = merged.iter().filter(|line| line.sides[side]);
                let mine: String = mine.map(|line| line.part.text.as_str()).collect();
                proptest::prop_assert_eq!(&mine, text);
            }
        }
    }
}
