//! What a template may not use here: Jinja2 and minijinja do something else there, and neither says so. Kolla's own trees
//! use none of it; where somebody's template does, that is an error and never another Dockerfile.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, SourceFile};
use crate::kolla::dialect::{literal_length, tag_after};

/// Methods that change a list or a dictionary where it is; values are never changed here.
const IN_PLACE: [&str; 11] =
    ["append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"];

/// Looks at all templates that were read; `changed` is the override, whose blocks go into any of them.
pub fn check<'a>(files: impl Iterator<Item = &'a Arc<SourceFile>>, changed: Option<&Arc<SourceFile>>) -> Diagnostics {
    let mut problems = Diagnostics::default();
    let mut outer: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files.filter(|file| changed.is_none_or(|changed| !Arc::ptr_eq(changed, file))) {
        let found = Found::read(&file.text);
        found.tell(file, &found.outer, &mut problems);
        for (block, names) in found.outer {
            outer.entry(block).or_default().extend(names);
        }
    }
    if let Some(file) = changed {
        Found::read(&file.text).tell(file, &outer, &mut problems);
    }
    problems
}

#[derive(Default)]
struct Found {
    problems: Vec<(Range<usize>, String)>,
    /// By block that stands in another: what that has set before it.
    outer: BTreeMap<String, BTreeSet<String>>,
    /// By block: names that it uses and has not set itself.
    used: BTreeMap<String, Vec<(String, Range<usize>)>>,
}

/// A name within a tag.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    at: usize,
    /// Behind a dot.
    attribute: bool,
    called: bool,
}

impl Found {
    fn read(text: &str) -> Found {
        let mut found = Found::default();
        // Blocks that are open, and what each has set so far.
        let mut open: Vec<(String, BTreeSet<String>)> = Vec::new();
        let mut macros = 0_usize;
        let mut at = 0;
        while let Some(tag) = tag_after(text, at) {
            at = tag.end;
            let words = words(&text[tag.clone()], tag.start);
            let statement = text[tag.start..].starts_with("{%");
            let keyword = words.first().filter(|_| statement).map_or("", |word| word.text);
            // Names that come to be here, which are no uses.
            let fresh: Vec<&str> = match keyword {
                "set" => words.iter().skip(1).take(1).map(|word| word.text).collect(),
                "for" => words.iter().skip(1).map(|word| word.text).take_while(|word| *word != "in").collect(),
                "macro" => words.iter().map(|word| word.text).collect(),
                _ => Vec::new(),
            };
            macros += usize::from(keyword == "macro");
            let is_use = |word: &&Word<'_>| !word.attribute && !fresh.contains(&word.text);
            for word in words.iter().skip(usize::from(statement)) {
                let span = word.at..word.at + word.text.len();
                if word.attribute && word.called && IN_PLACE.contains(&word.text) {
                    let why = format!("`{}` changes a value in place, which templates cannot do here", word.text);
                    found.problems.push((span, why));
                } else if macros > 0 && !word.attribute && matches!(word.text, "varargs" | "kwargs") {
                    let why = format!("`{}` of a macro is not known here; name the arguments", word.text);
                    found.problems.push((span, why));
                }
            }
            if let Some((block, own)) = open.last().filter(|_| !matches!(keyword, "block" | "endblock")) {
                let uses = words.iter().filter(is_use).filter(|word| !own.contains(word.text));
                let uses = uses.map(|word| (word.text.to_owned(), word.at..word.at + word.text.len()));
                found.used.entry(block.clone()).or_default().extend(uses);
            }
            match keyword {
                "block" => {
                    let name = words.get(1).map_or("", |word| word.text).to_owned();
                    let outer = open.iter().flat_map(|(_, own)| own.iter().cloned());
                    found.outer.entry(name.clone()).or_default().extend(outer);
                    open.push((name, BTreeSet::new()));
                }
                "endblock" => drop(open.pop()),
                "endmacro" => macros = macros.saturating_sub(1),
                _ => {
                    if let Some((_, own)) = open.last_mut() {
                        own.extend(fresh.into_iter().map(str::to_owned));
                    }
                }
            }
        }
        found
    }

    fn tell(&self, file: &Arc<SourceFile>, outer: &BTreeMap<String, BTreeSet<String>>, problems: &mut Diagnostics) {
        for (span, why) in &self.problems {
            problems.push(Diagnostic::error(why.clone()).at(file, span.clone()).hint(match why.contains("in place") {
                true => "make a new list: `{% set l = l + ['more'] %}`",
                false => "a list is one argument",
            }));
        }
        for (block, uses) in &self.used {
            let Some(outer) = outer.get(block) else { continue };
            for (name, span) in uses.iter().filter(|(name, _)| outer.contains(name)) {
                let why = format!("block `{block}` uses `{name}`, which is set in the block around it");
                let problem = Diagnostic::error(why).at(file, span.clone());
                problems.push(problem.hint("Jinja2 gives a block only what is set outside all blocks: set it there"));
            }
        }
    }
}

fn words(tag: &str, start: usize) -> Vec<Word<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(c) = tag[at..].chars().next() {
        if c == '"' || c == '\'' {
            at += literal_length(&tag[at..], c);
        } else if is_word(c) {
            let length = tag[at..].find(|c| !is_word(c)).unwrap_or(tag.len() - at);
            let attribute = tag[..at].trim_end().ends_with('.');
            let called = tag[at + length..].trim_start().starts_with('(');
            if !c.is_numeric() {
                words.push(Word { text: &tag[at..at + length], at: start + at, attribute, called });
            }
            at += length;
        } else {
            at += c.len_utf8();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(templates: &[&str], changed: Option<&str>) -> Vec<String> {
        let file = |text: &&str| SourceFile::new("t.j2", *text);
        let files: Vec<Arc<SourceFile>> = templates.iter().map(file).collect();
        let changed = changed.as_ref().map(file);
        let problems = check(files.iter(), changed.as_ref());
        problems
            .0
            .into_iter()
            .map(|problem| format!("{}: {}", problem.place.unwrap().line(), problem.message))
            .collect()
    }

    #[test]
    fn what_is_changed_in_place_is_refused() {
        let told = told(&["{% set l = [] %}\n{% if l.append('x') %}{% endif %}\n{{ d . update({'a': 1}) }}"], None);
        assert_eq!(told.len(), 2);
        assert!(told[0].starts_with("t.j2:2: `append` changes") && told[1].starts_with("t.j2:3: `update`"), "{told:?}");
        // Words of texts, comments, attributes and text outside of tags are none of it.
        let text = "{{ 'l.append(x)' }} l.append(x) {# l.append(x) #}{{ l.append }}{% raw %}{{ l.pop() }}{% endraw %}";
        assert!(super::tests::told(&[text], None).is_empty());
    }

    #[test]
    fn arguments_without_names_are_refused() {
        let told = told(&["{% macro m(a) %}\n{{ varargs }}{% endmacro %}{{ varargs }}{{ x.kwargs }}"], None);
        assert_eq!(told, ["t.j2:2: `varargs` of a macro is not known here; name the arguments"]);
    }

    #[test]
    fn a_block_that_would_see_what_another_sets_is_refused() {
        let outer = "{% set y = 1 %}{% block a %}{% set x = 1 %}\n{% block b %}{{ y }}{% endblock %}{% set z = 1 %}\
                     {% endblock %}";
        assert!(told(&[outer], None).is_empty());
        let changed = "{% extends parent_template %}\n{% block b %}{{ x }}{% endblock %}";
        let told_of = told(&[outer], Some(changed));
        assert_eq!(told_of, ["t.j2:2: block `b` uses `x`, which is set in the block around it"]);
        let own = "{% extends parent_template %}{% block b %}{% set x = 2 %}{{ x }}{{ z }}{{ q.x }}{% endblock %}";
        assert!(told(&[outer], Some(own)).is_empty());
        let inside = "{% block a %}{% set x = 1 %}{% block b %}{{ x }}{% endblock %}{% endblock %}";
        assert_eq!(told(&[inside], None).len(), 1);
        // Another template's block of the same name has nothing to do with it.
        assert!(told(&[outer, "{% block b %}{{ x }}{% endblock %}"], None).is_empty());
    }
}
