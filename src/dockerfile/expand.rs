//! Variables, quotes and escapes in the words of a Dockerfile, with Docker's rules (a small part of a shell's).

use std::collections::BTreeSet;

use super::pattern;

/// Linux takes no longer string of an environment; keeps `ENV A=$A$A` on many lines from eating the memory.
const LONGEST: usize = 128 << 10;
/// `${a:-${b:-…}}` deeper than this is an accident or an attack.
const DEEPEST: usize = 64;

/// How text is taken apart. The default is what Docker does with the arguments of most instructions.
#[derive(Clone, Copy, Debug)]
pub struct Expander {
    pub escape: char,
    /// Quotes stay in the result.
    pub keep_quotes: bool,
    /// Escape characters stay in the result.
    pub keep_escapes: bool,
    /// Quotes mean nothing: bodies of heredocs.
    pub ignore_quotes: bool,
    /// A variable without a value stays as it is written.
    pub keep_unset: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    pub text: String,
    /// The text taken apart at blanks outside of quotes, after expansion.
    pub words: Vec<String>,
    /// Names that had no value.
    pub unset: BTreeSet<String>,
}

/// What a name stands for.
pub type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

impl Expander {
    pub fn new(escape: char) -> Self {
        Expander { escape, keep_quotes: false, keep_escapes: false, ignore_quotes: false, keep_unset: false }
    }

    /// For the body of a heredoc with an unquoted delimiter: variables and escapes only.
    pub fn heredoc() -> Self {
        Expander { ignore_quotes: true, ..Expander::new('\\') }
    }

    pub fn expand(&self, source: &str, lookup: &Lookup<'_>) -> Result<Expanded, String> {
        let mut run = Run {
            chars: source.chars().collect(),
            at: 0,
            options: *self,
            lookup,
            unset: BTreeSet::new(),
            depth: 0,
            budget: LONGEST,
        };
        let (text, words) = run.until(None, self.keep_escapes)?;
        Ok(Expanded { text, words: words.done(), unset: run.unset })
    }
}

#[derive(Default)]
struct Words {
    done: Vec<String>,
    word: String,
}

impl Words {
    fn push(&mut self, c: char) {
        if !c.is_whitespace() {
            self.word.push(c);
        } else if !self.word.is_empty() {
            self.done.push(std::mem::take(&mut self.word));
        }
    }

    fn done(mut self) -> Vec<String> {
        if !self.word.is_empty() {
            self.done.push(self.word);
        }
        self.done
    }
}

struct Run<'a> {
    chars: Vec<char>,
    at: usize,
    options: Expander,
    lookup: &'a Lookup<'a>,
    unset: BTreeSet<String>,
    depth: usize,
    budget: usize,
}

impl Run<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek();
        self.at += usize::from(c.is_some());
        c
    }

    /// Up to `stop` (which is consumed) or the end of the text.
    fn until(&mut self, stop: Option<char>, keep_escapes: bool) -> Result<(String, Words), String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("substitutions are nested too deeply".into());
        }
        let before = std::mem::replace(&mut self.options.keep_escapes, keep_escapes);
        let mut text = String::new();
        let mut words = Words::default();
        let mut stopped = false;
        while let Some(c) = self.peek() {
            if Some(c) == stop {
                self.next();
                stopped = true;
                break;
            }
            match c {
                '$' => {
                    let value = self.dollar()?;
                    value.chars().for_each(|c| words.push(c));
                    text.push_str(&value);
                }
                '<' => {
                    let marker = self.heredoc_marker();
                    words.word.push_str(&marker);
                    text.push_str(&marker);
                }
                '\'' | '"' if !self.options.ignore_quotes => {
                    let quoted = if c == '"' { self.double_quoted()? } else { self.single_quoted()? };
                    words.word.push_str(&quoted);
                    text.push_str(&quoted);
                }
                _ => {
                    self.next();
                    if c != self.options.escape {
                        words.push(c);
                        text.push(c);
                        continue;
                    }
                    if self.options.keep_escapes {
                        words.word.push(c);
                        text.push(c);
                    }
                    // An escape character at the very end is dropped.
                    if let Some(escaped) = self.next() {
                        words.word.push(escaped);
                        text.push(escaped);
                    }
                }
            }
        }
        self.options.keep_escapes = before;
        self.depth -= 1;
        match stop {
            Some(stop) if !stopped => Err(format!("the closing `{stop}` is missing")),
            _ => Ok((text, words)),
        }
    }

    /// `<<` keeps the blanks after it, so that `<< EOF` stays one word.
    fn heredoc_marker(&mut self) -> String {
        self.next();
        if self.peek() != Some('<') {
            return "<".into();
        }
        self.next();
        let mut marker = String::from("<<");
        while let Some(c @ (' ' | '\t' | '\r')) = self.peek() {
            marker.push(c);
            self.next();
        }
        marker
    }

    fn single_quoted(&mut self) -> Result<String, String> {
        let mut text = String::new();
        if let Some(quote) = self.next().filter(|_| self.options.keep_quotes) {
            text.push(quote);
        }
        loop {
            match self.next() {
                None => return Err("the closing single quote is missing".into()),
                Some('\'') => {
                    if self.options.keep_quotes {
                        text.push('\'');
                    }
                    return Ok(text);
                }
                Some(c) => text.push(c),
            }
        }
    }

    fn double_quoted(&mut self) -> Result<String, String> {
        let mut text = String::new();
        if let Some(quote) = self.next().filter(|_| self.options.keep_quotes) {
            text.push(quote);
        }
        loop {
            match self.peek() {
                None => return Err("the closing double quote is missing".into()),
                Some('"') => {
                    self.next();
                    if self.options.keep_quotes {
                        text.push('"');
                    }
                    return Ok(text);
                }
                Some('$') => text.push_str(&self.dollar()?),
                Some(c) if c == self.options.escape => {
                    self.next();
                    if self.options.keep_escapes {
                        text.push(c);
                    }
                    match self.peek() {
                        None => {}
                        // Only these can be escaped here; before anything else the escape character is just itself.
                        Some(escaped) if escaped == '"' || escaped == '$' || escaped == c => {
                            self.next();
                            text.push(escaped);
                        }
                        Some(_) => text.push(c),
                    }
                }
                Some(c) => {
                    self.next();
                    text.push(c);
                }
            }
        }
    }

    fn dollar(&mut self) -> Result<String, String> {
        self.next();
        let value = if self.peek() == Some('{') {
            self.next();
            self.braced()?
        } else {
            match self.name() {
                name if name.is_empty() => "$".into(),
                name => match self.get(&name) {
                    Some(value) => value,
                    None if self.options.keep_unset => format!("${name}"),
                    None => String::new(),
                },
            }
        };
        self.budget = self.budget.checked_sub(value.len()).ok_or("the value becomes longer than 128 KiB")?;
        Ok(value)
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        match self.peek() {
            Some(c) if c.is_numeric() => {
                while let Some(c) = self.peek().filter(|c| c.is_numeric()) {
                    name.push(c);
                    self.next();
                }
            }
            Some(c @ ('@' | '*' | '#' | '?' | '-' | '$' | '!')) => {
                name.push(c);
                self.next();
            }
            _ => {
                while let Some(c) = self.peek().filter(|c| c.is_alphanumeric() || *c == '_') {
                    name.push(c);
                    self.next();
                }
            }
        }
        name
    }

    fn get(&mut self, name: &str) -> Option<String> {
        let value = (self.lookup)(name);
        if value.is_none() {
            self.unset.insert(name.to_owned());
        }
        value
    }

    /// After `${`.
    fn braced(&mut self) -> Result<String, String> {
        match self.peek() {
            None => return Err("the closing `}` is missing".into()),
            Some('{' | '}' | ':') => return Err("`${` is not followed by a name".into()),
            Some(_) => {}
        }
        let name = self.name();
        match self.next() {
            None => Err("the closing `}` is missing".into()),
            Some('}') => Ok(match self.get(&name) {
                Some(value) => value,
                None if self.options.keep_unset => format!("${{{name}}}"),
                None => String::new(),
            }),
            Some(':') => match self.next() {
                Some(operator @ ('-' | '+' | '?')) => self.conditional(&name, operator, true),
                Some(other) => Err(format!("`${{{name}:{other}…}}` is not a substitution that Dockerfiles know")),
                None => Err("the closing `}` is missing".into()),
            },
            Some(operator @ ('-' | '+' | '?')) => self.conditional(&name, operator, false),
            Some(operator @ ('#' | '%')) => self.trimmed(&name, operator),
            Some('/') => self.replaced(&name),
            Some(other) => Err(format!("`${{{name}{other}…}}` is not a substitution that Dockerfiles know")),
        }
    }

    fn conditional(&mut self, name: &str, operator: char, empty_is_unset: bool) -> Result<String, String> {
        let (word, _) = self.until(Some('}'), false)?;
        let value = self.get(name);
        if value.is_none() && self.options.keep_unset {
            let colon = if empty_is_unset { ":" } else { "" };
            return Ok(format!("${{{name}{colon}{operator}{word}}}"));
        }
        let set = value.filter(|v| !(empty_is_unset && v.is_empty()));
        match (operator, set) {
            ('-', Some(value)) => Ok(value),
            ('-', None) => Ok(word),
            ('+', Some(_)) => Ok(word),
            ('+', None) => Ok(String::new()),
            (_, Some(value)) => Ok(value),
            (_, None) if word.is_empty() => {
                let state = if empty_is_unset { "unset or empty" } else { "unset" };
                Err(format!("`{name}` must not be {state}"))
            }
            (_, None) => Err(format!("`{name}`: {word}")),
        }
    }

    fn trimmed(&mut self, name: &str, operator: char) -> Result<String, String> {
        let (word, _) = self.until(Some('}'), true)?;
        let Some(value) = self.get(name) else {
            let kept = format!("${{{name}{operator}{word}}}");
            return Ok(if self.options.keep_unset { kept } else { String::new() });
        };
        let (greedy, wanted) = match word.strip_prefix(operator) {
            Some(rest) => (true, rest),
            None => (false, word.as_str()),
        };
        if operator == '#' {
            pattern::trim_prefix(wanted, &value, greedy)
        } else {
            pattern::trim_suffix(wanted, &value, greedy)
        }
    }

    fn replaced(&mut self, name: &str) -> Result<String, String> {
        let all = self.peek() == Some('/');
        if all {
            self.next();
        }
        let (wanted, _) = self.until(Some('/'), true)?;
        let (replacement, _) = self.until(Some('}'), true)?;
        let Some(value) = self.get(name) else {
            let slash = if all { "//" } else { "/" };
            let kept = format!("${{{name}{slash}{wanted}/{replacement}}}");
            return Ok(if self.options.keep_unset { kept } else { String::new() });
        };
        pattern::replace(&wanted, &replacement, &value, all, LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lookup(name: &str) -> Option<String> {
        let value = match name {
            "A" => "a",
            "E" => "",
            "P" => "/usr/local/lib.tar.gz",
            "S" => "one  two",
            _ => return None,
        };
        Some(value.into())
    }

    fn word(source: &str) -> Result<String, String> {
        Expander::new('\\').expand(source, &lookup).map(|e| e.text)
    }

    #[test]
    fn variables_as_docker_expands_them() {
        for (source, expected) in [
            ("$A", "a"),
            ("${A}b", "ab"),
            ("$Ab", ""),
            ("x$", "x$"),
            ("$N", ""),
            ("${N:-d}", "d"),
            ("${E:-d}", "d"),
            ("${E-d}", ""),
            ("${N-d}", "d"),
            ("${A:+alt}", "alt"),
            ("${E:+alt}", ""),
            ("${E+alt}", "alt"),
            ("${N+alt}", ""),
            ("${A:?gone}", "a"),
            ("${E?gone}", ""),
            ("${N:-${A}${A}}", "aa"),
            ("${N:-\"q }\"}", "q }"),
            ("$1A", "A"),
            ("$$A", "A"),
            (r"\$A", "$A"),
            (r"\\$A", r"\a"),
            (r"a\ b", "a b"),
            ("'$A'", "$A"),
            ("\"$A\"", "a"),
            (r#""\$A \" \\ \n""#, r#"$A " \ \n"#),
            ("\"it's\"", "it's"),
            ("tail\\", "tail"),
        ] {
            assert_eq!(word(source).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn patterns_trim_and_replace() {
        for (source, expected) in [
            ("${P#*/}", "usr/local/lib.tar.gz"),
            ("${P##*/}", "lib.tar.gz"),
            ("${P%.*}", "/usr/local/lib.tar"),
            ("${P%%.*}", "/usr/local/lib"),
            ("${P%/*}", "/usr/local"),
            ("${P#/usr}", "/local/lib.tar.gz"),
            ("${P#nothing}", "/usr/local/lib.tar.gz"),
            (r"${P/\/usr/x}", "x/local/lib.tar.gz"),
            (r"${P//\//:}", ":usr:local:lib.tar.gz"),
            ("${P//l?/-}", "/usr/-ca--b.tar.gz"),
            ("${P/./_}", "/usr/local/lib_tar.gz"),
            ("${N#x}", ""),
        ] {
            assert_eq!(word(source).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (source, expected) in [
            ("${N:?give N}", "`N`: give N"),
            ("${N?}", "`N` must not be unset"),
            ("${E:?}", "`E` must not be unset or empty"),
            ("${A", "the closing `}` is missing"),
            ("${A:-x", "the closing `}` is missing"),
            ("${}", "`${` is not followed by a name"),
            ("${A^}", "`${A^…}` is not a substitution that Dockerfiles know"),
            ("${A:#x}", "`${A:#…}` is not a substitution that Dockerfiles know"),
            ("'x", "the closing single quote is missing"),
            ("\"x", "the closing double quote is missing"),
        ] {
            assert_eq!(word(source), Err(expected.to_owned()), "{source}");
        }
    }

    #[test]
    fn another_escape_character() {
        let expander = Expander::new('`');
        assert_eq!(expander.expand(r"c:\x`$A$A", &lookup).unwrap().text, r"c:\x$Aa");
    }

    #[test]
    fn words_are_split_after_expansion_but_not_in_quotes() {
        let words = |s: &str| Expander::new('\\').expand(s, &lookup).unwrap().words;
        assert_eq!(words("$S \"$S\" x\\ y"), ["one", "two", "one  two", "x y"]);
        assert_eq!(words("cat << EOF"), ["cat", "<< EOF"]);
        assert_eq!(words("  "), Vec::<String>::new());
    }

    #[test]
    fn heredoc_bodies_keep_their_quotes() {
        let body = "<?xml version=\"1.0\"?>\n'$A' \\$A\n";
        let expanded = Expander::heredoc().expand(body, &lookup).unwrap();
        assert_eq!(expanded.text, "<?xml version=\"1.0\"?>\n'a' $A\n");
    }

    #[test]
    fn growth_and_depth_are_bounded() {
        let big = "x".repeat(1000);
        let text = "$V".repeat(2000);
        assert!(Expander::new('\\').expand(&text, &|_| Some(big.clone())).is_err());
        assert!(word(&"${N:-".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "[$a-cA-E{}:/#%*?\\\\'\"<+ -]{0,60}", other in "\\PC{0,40}") {
            let _ = word(&text);
            let _ = word(&other);
            let _ = Expander::heredoc().expand(&text, &lookup);
            let keep = Expander { keep_quotes: true, keep_escapes: true, keep_unset: true, ..Expander::new('\\') };
            let _ = keep.expand(&text, &lookup);
        }

        #[test]
        fn plain_text_is_itself(text in "[a-z0-9./:=@ -]{0,40}") {
            prop_assert_eq!(word(&text), Ok(text));
        }
    }
}
