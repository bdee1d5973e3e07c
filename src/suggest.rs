//! "Did you mean": the known word that is nearest to a mistyped one.

/// The nearest of `known`, when it is near enough to be worth naming.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    known
        .into_iter()
        .filter(|k| *k != word)
        .map(|k| (strsim::damerau_levenshtein(word, k), k))
        // A third of the letters may differ; in a short word that is one.
        .filter(|(distance, k)| *distance <= (length.max(k.chars().count()) / 3).max(1))
        .min()
        .map(|(_, k)| k)
}

/// A hint that names the nearest of `known`.
pub fn near<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|near| format!("did you mean `{near}`?"))
}

/// A hint for a word that isn't one of `known`: the nearest, or all of them when there are few.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(near) = near(word, known.clone()) {
        return Some(near);
    }
    let all: Vec<String> = known.into_iter().map(|k| format!("`{k}`")).collect();
    match all.len() {
        0 => None,
        1 => Some(format!("there is only {}", all[0])),
        2..=16 => Some(format!("there are {}", all.join(", "))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_near_and_nothing_else() {
        assert_eq!(nearest("parnet", ["parent", "from", "recipe"]), Some("parent"));
        assert_eq!(nearest("form", ["parent", "from"]), Some("from"));
        assert_eq!(nearest("uid", ["gid", "home"]), Some("gid"));
        assert_eq!(nearest("zzz", ["parent", "from"]), None);
    }

    #[test]
    fn lists_a_few_when_none_is_near() {
        assert_eq!(hint("zzz", ["aaaa", "bbbb"]).as_deref(), Some("there are `aaaa`, `bbbb`"));
        assert_eq!(hint("zzz", []), None);
    }
}
