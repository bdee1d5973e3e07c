//! COPY and ADD.

use super::Lowering;
use crate::dockerfile::ast::Transfer;
use crate::dockerfile::expand::Expander;
use crate::dockerfile::resolve::Reference;
use crate::dockerfile::source;
use crate::dockerfile::step::{Action, Copy, From, Source};

impl Lowering<'_> {
    pub(super) fn transfer(&mut self, transfer: &Transfer, add: bool) -> Option<()> {
        let keyword = if add { "ADD" } else { "COPY" };
        let chown = self.expand_optional(transfer.chown.as_ref())?;
        let chmod = self.expand_optional(transfer.chmod.as_ref())?;
        let checksum = self.expand_optional(transfer.checksum.as_ref())?;
        let mut created_by = keyword.to_owned();
        if transfer.parents {
            created_by.push_str(" --parents");
        }
        for (flag, value) in [("chown", &chown), ("chmod", &chmod)] {
            if let Some(value) = value {
                created_by.push_str(&format!(" --{flag}={value}"));
            }
        }
        if let Some(chmod) = &chmod
            && !is_mode(chmod)
        {
            let span = transfer.chmod.as_ref().map(|word| word.span.clone());
            let hint = "write it in octal, between 0 and 7777, as in `--chmod=0755`".to_owned();
            self.error(format!("`{chmod}` is not a mode"), span, Some(hint));
            return None;
        }
        let from = match transfer.from.as_ref().filter(|from| !from.value.is_empty()) {
            Some(from) => self.refer(&Reference::Copy(from.value.clone()), Some(from.span.clone()))?,
            None => From::Context,
        };
        let mut sources = Vec::new();
        for word in &transfer.sources {
            let written = self.expand(word)?;
            if written.is_empty() {
                let hint = Some("an empty path would copy everything: write `.` for that".to_owned());
                let message = format!("a source of {keyword} is empty once its variables are expanded");
                self.error(message, Some(word.span.clone()), hint);
                return None;
            }
            let source = source::classify(&written);
            if !add && !matches!(source, Source::Path(_)) {
                let message = format!("COPY cannot fetch `{}`", source::without_secrets(&written));
                self.error(message, Some(word.span.clone()), Some("use ADD for URLs and git repositories".into()));
                return None;
            }
            created_by.push(' ');
            created_by.push_str(&written);
            sources.push(source);
        }
        if let Some(word) = &transfer.checksum
            && checksum.is_some()
            && !matches!(sources.as_slice(), [Source::Url(_) | Source::Git(_)])
        {
            let message = "`--checksum` is for one URL or one git repository";
            self.error(message, Some(word.span.clone()), None);
            return None;
        }
        for heredoc in &transfer.heredocs {
            let name = heredoc.name.rsplit('/').next().unwrap_or_default().to_owned();
            if matches!(name.as_str(), "" | "." | "..") {
                let message = format!("`{}` cannot be the name of a file", heredoc.name);
                self.error(message, None, Some("choose another delimiter".into()));
                return None;
            }
            let mut content = heredoc.content();
            if heredoc.expand {
                content = match self.expand_text(&content, Expander::heredoc()) {
                    Ok(expanded) => expanded.text,
                    Err(why) => {
                        let hint = format!("quote the delimiter, as in `<<\"{name}\"`, to have the text as it is");
                        self.error(why, Some(heredoc.span.clone()), Some(hint));
                        return None;
                    }
                };
            }
            created_by.push_str(" <<");
            created_by.push_str(&heredoc.name);
            sources.push(Source::Inline { name, content: content.into_bytes() });
        }
        let written = self.expand(&transfer.dest)?;
        created_by.push_str(&format!(" {written} # buildkit"));
        let copy = Copy {
            add,
            from,
            sources,
            dest: source::destination(&self.working_dir(), &written),
            chown,
            chmod,
            link: transfer.link,
            parents: transfer.parents,
            excludes: transfer.excludes.iter().map(|word| word.value.clone()).collect(),
            checksum,
            keep_git_dir: transfer.keep_git_dir.unwrap_or(false),
            unpack: transfer.unpack,
        };
        self.step(created_by, Action::Copy(copy));
        Some(())
    }
}

/// `0755`, or symbolic as chmod(1) has it: `u=rwX,go=rX`.
fn is_mode(mode: &str) -> bool {
    if mode.bytes().all(|b| b.is_ascii_digit()) {
        return u32::from_str_radix(mode, 8).is_ok_and(|mode| mode <= 0o7777);
    }
    mode.split(',').all(|clause| {
        let change = clause.trim_start_matches(['u', 'g', 'o', 'a']);
        change.starts_with(['+', '-', '='])
            && change
                .chars()
                .all(|c| matches!(c, '+' | '-' | '=' | 'r' | 'w' | 'x' | 'X' | 's' | 't' | 'u' | 'g' | 'o'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        for mode in ["755", "0644", "4755", "u=rwX,go=rX", "a+x", "+x", "g=u"] {
            assert!(is_mode(mode), "{mode}");
        }
        for mode in ["99", "17777", "u", "rwx", "u=rwz", "0o755", ""] {
            assert!(!is_mode(mode) || mode.is_empty(), "{mode}");
        }
    }
}
