//! .dockerignore: the file and the rules of its patterns, which are neither gitignore's nor those of COPY. A pattern
//! that matches a directory matches all that is in it, and of several patterns the last one that matches decides.

use regex::Regex;

use super::glob;

/// Results of every pattern for one path, so that what is below need not ask again about what is above.
pub(super) type State = Vec<bool>;

#[derive(Debug, Default)]
pub(super) struct Matcher {
    patterns: Vec<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    /// Written with `!`: what it matches is not left out after all.
    exception: bool,
    rule: Rule,
    /// For exceptions: what its components may be, to know which directories may hold a match. None matches any depth.
    components: Vec<Option<Regex>>,
}

#[derive(Debug)]
enum Rule {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Regex(Regex),
}

/// Patterns and their one-based lines.
pub(super) fn lines(text: &str) -> Vec<(String, usize)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|(number, line)| (line.trim().to_owned(), number + 1)).collect()
}

impl Matcher {
    /// What is wrong comes with the position of the pattern.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Matcher, (usize, String)> {
        let mut matcher = Matcher::default();
        for (position, pattern) in patterns.into_iter().enumerate() {
            let pattern = pattern.trim();
            let (exception, pattern) = match pattern.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, pattern),
            };
            match pattern {
                "" if exception => return Err((position, "nothing follows `!`".into())),
                "" => {}
                pattern => {
                    let pattern = Pattern::new(&clean(pattern), exception).map_err(|why| (position, why))?;
                    matcher.patterns.push(pattern);
                }
            }
        }
        Ok(matcher)
    }

    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether `path` is left out. `parent` is the state of the directory that it is in, None at the top.
    pub fn matches(&self, path: &str, parent: Option<&State>) -> (bool, State) {
        let mut matched = false;
        let mut state = vec![false; self.patterns.len()];
        for (index, pattern) in self.patterns.iter().enumerate() {
            let inherited = parent.and_then(|parent| parent.get(index)).copied().unwrap_or(false);
            // What would change nothing isn't asked; it is as if it didn't match, below as well. Docker does the same.
            state[index] = inherited || (pattern.exception == matched && pattern.rule.matches(path));
            if state[index] {
                matched = !pattern.exception;
            }
        }
        (matched, state)
    }

    /// Whether an exception could bring back something below a directory that is left out.
    pub fn may_bring_back_below(&self, directory: &str) -> bool {
        let exceptions = self.patterns.iter().filter(|pattern| pattern.exception);
        exceptions.into_iter().any(|pattern| pattern.may_match_below(directory))
    }
}

/// No `.`, `..` or doubled slashes, no slash at either end.
fn clean(pattern: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            // Above the root there is nothing.
            ".." if pattern.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    match parts.join("/") {
        clean if clean.is_empty() => ".".into(),
        clean => clean,
    }
}

impl Pattern {
    fn new(pattern: &str, exception: bool) -> Result<Pattern, String> {
        // Docker wants every pattern to be one that filepath.Match understands, whatever it is then used for.
        glob::compile(pattern)?;
        let mut components = Vec::new();
        if exception {
            for component in pattern.split('/') {
                let plain = !component.contains("**");
                components.push(plain.then(|| glob::compile(component).ok()).flatten());
            }
        }
        Ok(Pattern { exception, rule: Rule::new(pattern)?, components })
    }

    fn may_match_below(&self, directory: &str) -> bool {
        let mut components = self.components.iter();
        for part in directory.split('/') {
            match components.next() {
                None => return false,
                Some(None) => return true,
                Some(Some(component)) if !component.is_match(part) => return false,
                Some(Some(_)) => {}
            }
        }
        components.next().is_some()
    }
}

impl Rule {
    /// Most patterns need no regular expression: a name, `**/name`, `directory/**`.
    fn new(pattern: &str) -> Result<Rule, String> {
        let special = |text: &str| text.contains(['*', '?', '[', ']', '\\']);
        if !special(pattern) {
            return Ok(Rule::Exact(pattern.to_owned()));
        }
        if let Some(suffix) = pattern.strip_prefix("**").filter(|rest| !special(rest)) {
            return Ok(Rule::Suffix(suffix.to_owned()));
        }
        if let Some(prefix) = pattern.strip_suffix("**").filter(|rest| !special(rest)) {
            return Ok(Rule::Prefix(prefix.to_owned()));
        }
        let mut regex = String::from("(?s)^");
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '*' if chars.next_if_eq(&'*').is_some() => {
                    // `**/` is as good as `**`.
                    chars.next_if_eq(&'/');
                    regex.push_str(if chars.peek().is_none() { ".*" } else { "(.*/)?" });
                }
                '*' => regex.push_str("[^/]*"),
                '?' => regex.push_str("[^/]"),
                '[' => regex.push_str(&glob::class(&mut chars)?),
                '\\' => glob::literal(&mut regex, chars.next().unwrap_or('\\')),
                c => glob::literal(&mut regex, c),
            }
        }
        regex.push('$');
        Regex::new(&regex).map(Rule::Regex).map_err(|e| e.to_string())
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Rule::Exact(exact) => path == exact,
            Rule::Prefix(prefix) => path.starts_with(prefix.as_str()),
            // `**/name` is `name` at the top as well.
            Rule::Suffix(suffix) => path.ends_with(suffix.as_str()) || suffix.strip_prefix('/') == Some(path),
            Rule::Regex(regex) => regex.is_match(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Asks from the top down, as the walk does.
    fn left_out(patterns: &[&str], path: &str) -> bool {
        let matcher = Matcher::new(patterns.iter().copied()).unwrap();
        let mut state: Option<State> = None;
        let mut matched = false;
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let (m, s) = matcher.matches(&path[..at], state.as_ref());
            (matched, state) = (m, Some(s));
        }
        matched
    }

    /// The values of the tests of Docker's own matcher.
    #[test]
    fn single_patterns() {
        for (pattern, path, expected) in [
            ("**", "file", true),
            ("**", "dir/file", true),
            ("**/", "file", true),
            ("**/**", "dir/file", true),
            ("dir/**", "dir/file", true),
            ("dir/**", "dir/dir2/file", true),
            ("dir/**", "dir", false),
            ("**/dir", "dir", true),
            ("**/dir", "dir/file", true),
            ("**/dir2/*", "dir/dir2/file", true),
            ("**/dir2/**", "dir/dir2/dir2/file", true),
            ("**file", "file", true),
            ("**file", "dir/file", true),
            ("**/file", "dir/dir/file", true),
            ("**/file*", "dir/dir/file.txt", true),
            ("**/file*txt", "dir/dir/file.txt", true),
            ("**/file*.txt*", "dir/dir/file.txt", true),
            ("**/**/*.txt", "dir/dir/file.txt", true),
            ("**/**/*.txt2", "dir/dir/file.txt", false),
            ("**/*.txt", "file.txt", true),
            ("**/**/*.txt", "file.txt", true),
            ("a**/*.txt", "a/file.txt", true),
            ("a**/*.txt", "a/dir/file.txt", true),
            ("a/*.txt", "a/dir/file.txt", false),
            ("a/**/*.txt", "a/file.txt", true),
            ("a/**/*.txt", "a/dir/dir/file.txt", true),
            ("a[b-d]e", "ae", false),
            ("a[b-d]e", "ace", true),
            ("abc/", "abc", true),
            (".*", ".foo", true),
            (".*", "foo", false),
            ("abc.def", "abcdef", false),
            ("abc.def", "abc.def", true),
            ("a\\*", "a*", true),
            ("a(b)c/def", "a(b)c/def", true),
            ("a{|}c", "a{|}c", true),
            ("**/.foo", "test.foo", false),
            ("**/.foo", "bar/.foo", true),
            ("/a/b", "a/b", true),
            ("./a", "a", true),
            ("a/../b", "b", true),
            ("*", "a/b", true),
            ("a", "a/b/c", true),
            ("foo", "foobar", false),
            ("**foo", "xfoo", true),
        ] {
            assert_eq!(left_out(&[pattern], path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn the_last_one_that_matches_decides() {
        for (patterns, path, expected) in [
            (&["*", "!a"][..], "a", false),
            (&["!a", "*"], "a", true),
            (&["*", "!a/b"], "a/b", false),
            (&["*", "!a/b"], "a/c", true),
            (&["a", "!a/b", "a/b/c"], "a/b/c", true),
            (&["a", "!a/b", "a/b/c"], "a/b/d", false),
            (&["*.md", "!README*.md", "README-secret.md"], "README-secret.md", true),
            (&["*.md", "README-secret.md", "!README*.md"], "README-secret.md", false),
            (&["**", "!util/docker/web"], "util/docker/web/foo", false),
            (&["**", "!util/docker/web"], "util/docker/x", true),
            (&["foo/bar", "!foo"], "foo/bar", true),
            (&["**/node_modules", "!**/node_modules/keep"], "x/node_modules/keep/y", false),
        ] {
            assert_eq!(left_out(patterns, path), expected, "{patterns:?} {path}");
        }
    }

    #[test]
    fn which_directories_are_worth_a_look() {
        let below =
            |pattern: &str, directory: &str| Matcher::new(["*", pattern]).unwrap().may_bring_back_below(directory);
        assert!(below("!a/b/c", "a"));
        assert!(below("!a/b/c", "a/b"));
        assert!(!below("!a/b/c", "a/b/c"));
        assert!(!below("!a/b/c", "b"));
        assert!(below("!*/x", "anything"));
        assert!(!below("!*/x", "anything/deeper"));
        assert!(below("!**/x", "anything/deeper"));
        assert!(!below("a/b", "a"));
    }

    #[test]
    fn the_file() {
        let text = "\u{feff}# comment\n  /a/ \n\n ! b/./c\n #not a comment\r\n";
        let lines = lines(text);
        assert_eq!(lines, [("/a/".into(), 2), ("! b/./c".into(), 4), ("#not a comment".into(), 5)]);
        assert!(!left_out(&["*", "! b/./c"], "b/c"));
        assert_eq!(Matcher::new(["a", "!"]).unwrap_err(), (1, "nothing follows `!`".into()));
        assert_eq!(Matcher::new(["a["]).unwrap_err().0, 0);
    }

    proptest! {
        // Each case compiles regular expressions.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn never_panics(
            patterns in prop::collection::vec("[!a-c*?/.\\\\\\[\\]^ -]{0,12}", 0..5),
            other in "\\PC{0,20}",
            path in "[a-c./]{1,12}",
        ) {
            let patterns = patterns.iter().map(String::as_str).chain([other.as_str()]);
            if let Ok(matcher) = Matcher::new(patterns) {
                let (_, state) = matcher.matches(&path, None);
                matcher.matches(&format!("{path}/x"), Some(&state));
                matcher.may_bring_back_below(&path);
            }
        }

        /// What isn't worth a look really holds nothing that comes back.
        #[test]
        fn nothing_is_overlooked(
            exceptions in prop::collection::vec("!([ab*]|\\*\\*)(/([ab?]|\\*\\*)){0,2}", 1..3),
            directory in "[ab](/[ab]){0,1}",
            below in "[ab](/[ab]){0,1}",
        ) {
            let patterns: Vec<&str> = ["*"].into_iter().chain(exceptions.iter().map(String::as_str)).collect();
            let matcher = Matcher::new(patterns.iter().copied()).unwrap();
            if left_out(&patterns, &directory) && !matcher.may_bring_back_below(&directory) {
                let path = format!("{directory}/{below}");
                prop_assert!(left_out(&patterns, &path), "{}", path);
            }
        }
    }
}
