//! Problems in files, each with its place underlined; and errors with their causes.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use annotate_snippets::renderer::{AnsiColor, Effects, Renderer, Style};
use annotate_snippets::{AnnotationKind, Group, Level, Snippet};

use crate::diag::{Diagnostic, Diagnostics, Place, Severity};
use crate::error::Error;
use crate::fetch::address::mask_logins;
use crate::report::human::count;
use crate::report::style::{Look, Paint};
use crate::report::text;

/// Below this nothing sensible can be shown beside a line number.
const NARROWEST: usize = 40;

/// Errors before warnings, each in the order of files and lines, and how many there are at the end.
/// Ends with a line end; empty when there is nothing to tell.
pub fn render(diagnostics: &Diagnostics, color: bool, width: usize) -> String {
    if diagnostics.is_empty() {
        return String::new();
    }
    let mut sorted: Vec<&Diagnostic> = diagnostics.0.iter().collect();
    sorted.sort_by(|a, b| order(a, b));
    sorted.dedup_by(|a, b| order(a, b) == Ordering::Equal && a.message == b.message);

    let renderer = renderer(color, width.max(NARROWEST));
    let mut out = String::new();
    for diagnostic in &sorted {
        out.push_str(&render_one(&renderer, diagnostic, color, width.max(NARROWEST)));
        out.push_str("\n\n");
    }
    let errors = sorted.iter().any(|d| d.severity == Severity::Error);
    let paint = if errors { Paint::Failed } else { Paint::Warning };
    out.push_str(&Look { color, unicode: false }.paint(paint, total(&sorted)));
    out.push('\n');
    out
}

fn renderer(color: bool, width: usize) -> Renderer {
    if color {
        Renderer::styled()
            .error(AnsiColor::Red.on_default().effects(Effects::BOLD))
            .warning(AnsiColor::Yellow.on_default().effects(Effects::BOLD))
            .help(AnsiColor::Cyan.on_default())
            .line_num(Style::new().effects(Effects::DIMMED))
            .term_width(width)
    } else {
        Renderer::plain().term_width(width)
    }
}

fn render_one(renderer: &Renderer, diagnostic: &Diagnostic, color: bool, width: usize) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(text::one_line(&diagnostic.message));
    let hint = diagnostic.hint.as_deref().map(|hint| Level::HELP.with_name("hint").message(text::one_line(hint)));

    let excerpt = diagnostic.place.as_ref().map(|place| Excerpt::of(place, width));
    let related: Vec<(Excerpt, String)> =
        diagnostic.related.iter().map(|(place, label)| (Excerpt::of(place, width), text::one_line(label))).collect();
    let group: Group<'_> = match &excerpt {
        Some(excerpt) => {
            let label = diagnostic.label.as_deref().map(text::one_line);
            let annotation = AnnotationKind::Primary.span(excerpt.span.clone()).label(label);
            let snippet = Snippet::source(excerpt.line.as_str())
                .path(excerpt.path.as_str())
                .line_start(excerpt.number)
                .annotation(annotation);
            let others = related.iter().map(|(excerpt, label)| {
                let annotation = AnnotationKind::Context.span(excerpt.span.clone()).label(label.as_str());
                Snippet::source(excerpt.line.as_str())
                    .path(excerpt.path.as_str())
                    .line_start(excerpt.number)
                    .annotation(annotation)
            });
            title.element(snippet).elements(others).elements(hint)
        }
        None => {
            // Without a snippet a message is set in as if there were one; a hint reads better right below.
            let mut out = renderer.render(&[Group::with_title(title)]);
            if let Some(hint) = &diagnostic.hint {
                out.push('\n');
                out.push_str(&Look { color, unicode: false }.paint(Paint::Hint, "hint:"));
                out.push(' ');
                out.push_str(&text::one_line(hint));
            }
            return out;
        }
    };
    renderer.render(&[group])
}

/// The line that a place starts on, as much of it as is needed, and the part of it to underline.
struct Excerpt {
    path: String,
    number: usize,
    line: String,
    span: Range<usize>,
}

impl Excerpt {
    /// A place over several lines is shown by its first one: what is wrong there is said in the message, and a
    /// reader looks for where to go. Places that don't lie in the file are moved to where they do.
    fn of(place: &Place, width: usize) -> Excerpt {
        let text = place.file.text.as_str();
        let start = floor(text, place.span.start);
        let end = floor(text, place.span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[line_start..].find('\n').map_or(text.len(), |at| line_start + at);
        let line = mask_logins(text[line_start..line_end].trim_end_matches('\r'));

        let start = (start - line_start).min(line.len());
        let mut end = (end - line_start).min(line.len()).max(start);
        // Underlining that is wider than the terminal would wrap and point nowhere.
        let widest = width.saturating_sub(20);
        if text::width(&line[start..end]) > widest {
            end = start + text::truncate(&line[start..end], widest, "").len();
        }
        Excerpt {
            path: shown_path(place.file.path()),
            number: text[..line_start].matches('\n').count() + 1,
            line,
            span: start..end,
        }
    }
}

fn shown_path(path: &Path) -> String {
    text::one_line(&path.to_string_lossy())
}

fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

fn order(a: &Diagnostic, b: &Diagnostic) -> Ordering {
    fn rank(d: &Diagnostic) -> (bool, Option<(&Path, usize, usize)>) {
        let place = d.place.as_ref().map(|p| (p.file.path(), p.span.start, p.span.end));
        (d.severity == Severity::Warning, place)
    }
    rank(a).cmp(&rank(b))
}

/// `3 problems in 2 files (2 errors, 1 warning)`
fn total(diagnostics: &[&Diagnostic]) -> String {
    let files: BTreeSet<&Path> =
        diagnostics.iter().filter_map(|d| d.place.as_ref()).map(|place| place.file.path()).collect();
    let warnings = diagnostics.iter().filter(|d| d.severity == Severity::Warning).count();
    let errors = diagnostics.len() - warnings;
    let mut line = if errors == 0 { count(warnings, "warning") } else { count(diagnostics.len(), "problem") };
    if !files.is_empty() {
        line.push_str(" in ");
        line.push_str(&count(files.len(), "file"));
    }
    if errors > 0 && warnings > 0 {
        line.push_str(&format!(" ({}, {})", count(errors, "error"), count(warnings, "warning")));
    }
    line
}

/// The sentence, its causes under it, and what to do. Problems that have a place of their own come first, so that the
/// sentence stands last, where the eye is. Ends with a line end.
pub fn render_error(error: &Error, color: bool, width: usize) -> String {
    let look = Look { color, unicode: false };
    let mut out = render(error.diagnostics(), color, width);
    if !out.is_empty() {
        out.push('\n');
    }
    entry(&mut out, "", &look.paint(Paint::Failed, "error:"), "error:", error.message());
    for cause in error.causes() {
        entry(&mut out, "  ", &look.paint(Paint::Dim, "cause:"), "cause:", cause);
    }
    if let Some(hint) = error.hint_text() {
        entry(&mut out, "", &look.paint(Paint::Hint, "hint:"), "hint:", hint);
    }
    out
}

/// `label text`, with further lines of the text set in under it.
fn entry(out: &mut String, indent: &str, label: &str, plain_label: &str, message: &str) {
    let mut lines = text::clean_lines(message).into_iter();
    out.push_str(indent);
    out.push_str(label);
    if let Some(first) = lines.next().filter(|l| !l.is_empty()) {
        out.push(' ');
        out.push_str(&first);
    }
    out.push('\n');
    for line in lines.filter(|l| !l.trim().is_empty()) {
        out.push_str(indent);
        out.push_str(&" ".repeat(plain_label.len() + 1));
        out.push_str(&line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use insta::assert_snapshot;
    use proptest::prelude::*;

    use super::*;
    use crate::diag::SourceFile;

    fn span(file: &SourceFile, needle: &str) -> Range<usize> {
        let at = file.text.find(needle).unwrap();
        at..at + needle.len()
    }

    fn image_toml() -> Arc<SourceFile> {
        SourceFile::new(
            "images/keystone/image.toml",
            "[image]\nkind = \"service\"\nparant = \"openstack-base\"\n\n[user]\nname\t= \"keystone\"\nuid = \"日本\" # 日本\n",
        )
    }

    #[test]
    fn one_problem_shows_line_column_text_label_and_hint() {
        let file = image_toml();
        let mut all = Diagnostics::default();
        all.push(
            Diagnostic::error("unknown key `parant` in [image]")
                .at(&file, span(&file, "parant"))
                .label("not a key of an image")
                .hint("did you mean `parent`?"),
        );
        assert_snapshot!(render(&all, false, 80), @r#"
        error: unknown key `parant` in [image]
         --> images/keystone/image.toml:3:1
          |
        3 | parant = "openstack-base"
          | ^^^^^^ not a key of an image
          |
          = hint: did you mean `parent`?

        1 problem in 1 file
        "#);
    }

    #[test]
    fn errors_come_before_warnings_and_both_in_file_order() {
        let (file, other) = (image_toml(), SourceFile::new("kollage.toml", "[build]\nbase = \"debain\"\n"));
        let mut all = Diagnostics::default();
        all.push(Diagnostic::warning("profile `main` is empty").at(&other, 0..7));
        all.push(Diagnostic::error("unknown base `debain`").at(&other, span(&other, "debain")));
        all.push(Diagnostic::error("`uid` is not a number").at(&file, span(&file, "\"日本\"")).label("text"));
        all.push(Diagnostic::error("`name` is odd").at(&file, span(&file, "\"keystone\"")));
        all.push(Diagnostic::error("`name` is odd").at(&file, span(&file, "\"keystone\"")));
        all.push(Diagnostic::error("no image matches `nova-*`").hint("`kollage list` shows them"));
        assert_snapshot!(render(&all, false, 80), @r#"
        error: no image matches `nova-*`
        hint: `kollage list` shows them

        error: `name` is odd
         --> images/keystone/image.toml:6:8
          |
        6 | name    = "keystone"
          |           ^^^^^^^^^^

        error: `uid` is not a number
         --> images/keystone/image.toml:7:7
          |
        7 | uid = "日本" # 日本
          |       ^^^^^^ text

        error: unknown base `debain`
         --> kollage.toml:2:9
          |
        2 | base = "debain"
          |         ^^^^^^

        warning: profile `main` is empty
         --> kollage.toml:1:1
          |
        1 | [build]
          | ^^^^^^^

        5 problems in 2 files (4 errors, 1 warning)
        "#);
    }

    #[test]
    fn the_other_place_of_a_contradiction_is_shown_below() {
        let (file, other) = (image_toml(), SourceFile::new("overlay.toml", "[[change]]\nuser.uid.override = 3\n"));
        let place = |file: &Arc<SourceFile>, needle: &str| Place { file: file.clone(), span: span(file, needle) };
        let mut all = Diagnostics::default();
        all.push(
            Diagnostic::error("`uid` is changed twice")
                .at(&other, span(&other, "3"))
                .also(&place(&file, "\"日本\""), "what the definition says")
                .hint("leave one out"),
        );
        assert_snapshot!(render(&all, false, 80), @r##"
        error: `uid` is changed twice
         --> overlay.toml:2:21
          |
        2 | user.uid.override = 3
          |                     ^
          |
         ::: images/keystone/image.toml:7:7
          |
        7 | uid = "日本" # 日本
          |       ------ what the definition says
          |
          = hint: leave one out

        1 problem in 1 file
        "##);
    }

    #[test]
    fn long_lines_are_trimmed_around_the_place() {
        let line = format!("RUN {} && false && {}\n", "true && ".repeat(30), "echo more ".repeat(30));
        let file = SourceFile::new("Dockerfile", format!("FROM scratch\n{line}"));
        let mut all = Diagnostics::default();
        all.push(Diagnostic::error("`false` fails").at(&file, span(&file, "false")).label("here"));
        all.push(Diagnostic::warning("a long one").at(&file, 13..500).label("all of this"));
        let text = render(&all, false, 80);
        for line in text.lines() {
            assert!(text::width(line) <= 100, "{line}");
        }
        assert_snapshot!(text, @r#"
        error: `false` fails
         --> Dockerfile:2:249
          |
        2 | ...& true && true && true &&  && false && echo more echo more echo more e...
          |                                  ^^^^^ here

        warning: a long one
         --> Dockerfile:2:1
          |
        2 | RUN true && true && true && true && true && true && true && true && true ...
          | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ all of this

        2 problems in 1 file (1 error, 1 warning)
        "#);
    }

    #[test]
    fn warnings_alone_are_called_so() {
        let mut all = Diagnostics::default();
        all.push(Diagnostic::warning("nothing uses `vars.x`"));
        assert_snapshot!(render(&all, false, 80), @r#"
        warning: nothing uses `vars.x`

        1 warning
        "#);
        assert_eq!(render(&Diagnostics::default(), false, 80), "");
    }

    #[test]
    fn colour_marks_what_to_read_first() {
        let file = image_toml();
        let mut all = Diagnostics::default();
        all.push(Diagnostic::error("unknown key").at(&file, span(&file, "parant")).label("this").hint("that"));
        assert_snapshot!(render(&all, true, 80).replace('\x1b', "^"), @r#"
        ^[1m^[31merror^[0m^[1m: unknown key^[0m
         ^[2m--> ^[0mimages/keystone/image.toml:3:1
          ^[2m|^[0m
        ^[2m3^[0m ^[2m|^[0m parant = "openstack-base"
          ^[2m|^[0m ^[1m^[31m^^^^^^^[0m ^[1m^[31mthis^[0m
          ^[2m|^[0m
          ^[2m= ^[0m^[1mhint^[0m: that

        ^[1;31m1 problem in 1 file^[0m
        "#);
    }

    #[test]
    fn an_error_names_its_causes_and_what_to_do() {
        let error = Error::unusable("cannot mount an overlay in /var/lib/kollage")
            .cause("mount: permission denied\nsecond line of it")
            .cause("\x1b[31mno CAP_SYS_ADMIN\x1b[0m")
            .hint("run it as root, or choose another store with --store DIR");
        assert_snapshot!(render_error(&error, false, 80), @r#"
        error: cannot mount an overlay in /var/lib/kollage
          cause: mount: permission denied
                 second line of it
          cause: no CAP_SYS_ADMIN
        hint: run it as root, or choose another store with --store DIR
        "#);
        assert_snapshot!(render_error(&error, true, 80).replace('\x1b', "^"), @r#"
        ^[1;31merror:^[0m cannot mount an overlay in /var/lib/kollage
          ^[2mcause:^[0m mount: permission denied
                 second line of it
          ^[2mcause:^[0m no CAP_SYS_ADMIN
        ^[36mhint:^[0m run it as root, or choose another store with --store DIR
        "#);
    }

    #[test]
    fn an_error_made_of_problems_shows_them_first() {
        let file = image_toml();
        let mut all = Diagnostics::default();
        all.push(Diagnostic::error("unknown key `parant`").at(&file, span(&file, "parant")));
        let error = Error::from_diagnostics("the catalogue in . cannot be used", all);
        assert_snapshot!(render_error(&error, false, 80), @r#"
        error: unknown key `parant`
         --> images/keystone/image.toml:3:1
          |
        3 | parant = "openstack-base"
          | ^^^^^^

        1 problem in 1 file

        error: the catalogue in . cannot be used
        "#);
    }

    proptest! {
        #[test]
        fn odd_places_and_texts_never_panic(
            text in "[a\t\r\n\u{0}\u{1b}\u{200d}日é🏳️‍🌈e\u{301} ]{0,80}",
            start in 0usize..100,
            end in 0usize..100,
            message in "\\PC{0,20}|[\n\t\u{1b}x]{0,5}",
            label in proptest::option::of("\\PC{0,20}"),
            width in 0usize..200,
            color: bool,
        ) {
            let file = SourceFile::new("a\u{1b}[31m/b", text);
            let mut diagnostic = Diagnostic::error(message.clone()).at(&file, start..end).hint(message);
            diagnostic.label = label.map(String::into_boxed_str);
            let mut all = Diagnostics::default();
            all.push(diagnostic);
            let shown = render(&all, color, width);
            prop_assert!(shown.contains("error"));
        }
    }
}
