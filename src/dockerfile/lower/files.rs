//! COPY and ADD.

use super::Lowering;
use crate::dockerfile::ast::Transfer;
use crate::dockerfile::expand::Expander;
use crate::dockerfile::resolve::Reference;
use crate::dockerfile::source;
use crate::dockerfile::step::{Action, Copy, From, Source};
use crate::fetch::address::{without_logins, without_secrets};
use crate::image::digest::Digest;

impl Lowering<'_> {
    pub(super) fn transfer(&mut self, transfer: &Transfer, add: bool) -> Option<()> {
        let keyword = if add { "ADD" } else { "COPY" };
        let chown = self.expand_optional(transfer.chown.as_ref())?;
        let chmod = self.expand_optional(transfer.chmod.as_ref())?;
        let written_checksum = self.expand_optional(transfer.checksum.as_ref())?;
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
            // As in Docker, a source that comes to nothing is the whole context.
            let source = match source::classify(&written) {
                Ok(source) => source,
                Err(why) => {
                    let message = format!("`{}` cannot be understood: {why}", without_secrets(&written));
                    self.error(message, Some(word.span.clone()), None);
                    return None;
                }
            };
            if !add && !matches!(source, Source::Path(_)) {
                let message = format!("COPY cannot fetch `{}`", without_secrets(&written));
                self.error(message, Some(word.span.clone()), Some("use ADD for URLs and git repositories".into()));
                return None;
            }
            created_by.push(' ');
            // What unlocks a repository or a server is no part of an image.
            created_by.push_str(&without_logins(&written));
            sources.push(if transfer.parents { source::with_parents(&written) } else { source });
        }
        let keep_git_dir = self.settle_git(&mut sources, transfer)?;
        let checksum = self.settle_checksum(&mut sources, transfer, written_checksum)?;
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
            excludes: transfer.excludes.iter().map(|word| word.value.clone()).collect(),
            checksum,
            keep_git_dir,
            unpack: transfer.unpack,
        };
        if copy.stands_alone()
            && let Some(name) = copy.chown.as_deref().and_then(name_in)
        {
            let message = format!("`{name}` cannot be looked up: with `--link` files don't depend on the image below");
            let hint = "give numbers, as in `--chown=1000:1000`, or leave `--link` out".to_owned();
            self.error(message, transfer.chown.as_ref().map(|word| word.span.clone()), Some(hint));
            return None;
        }
        self.step(created_by, Action::Copy(copy));
        Some(())
    }
}

impl Lowering<'_> {
    /// Whether `.git` is kept; the flag and the address must not say different things.
    fn settle_git(&mut self, sources: &mut [Source], transfer: &Transfer) -> Option<bool> {
        let mut keep = transfer.keep_git_dir;
        for source in sources {
            let Source::Git(address) = source else { continue };
            match (transfer.keep_git_dir, address.keep_git_dir) {
                (Some(flag), Some(own)) if flag != own => {
                    let message = "`--keep-git-dir` says another thing than the address does".to_owned();
                    self.error(message, None, Some("leave one of the two out".into()));
                    return None;
                }
                (_, Some(own)) => keep = Some(own),
                _ => {}
            }
        }
        Some(keep.unwrap_or(false))
    }

    /// A digest for a URL; a commit, which goes to the address, for a repository.
    fn settle_checksum(
        &mut self,
        sources: &mut [Source],
        transfer: &Transfer,
        written: Option<String>,
    ) -> Option<Option<Digest>> {
        let Some(written) = written else { return Some(None) };
        let span = transfer.checksum.as_ref().map(|word| word.span.clone());
        let (message, hint) = match sources {
            [Source::Url(_)] if transfer.heredocs.is_empty() => match written.parse::<Digest>() {
                Ok(digest) => return Some(Some(digest)),
                Err(why) => (why, "write it as `--checksum=sha256:` and 64 hexadecimal digits".to_owned()),
            },
            [Source::Git(address)] if transfer.heredocs.is_empty() => {
                if !written.bytes().all(|b| b.is_ascii_hexdigit()) {
                    let hint = "of a repository it is the number of a commit, or the beginning of one".to_owned();
                    (format!("`{written}` is not a commit"), hint)
                } else if address.checksum.as_ref().is_some_and(|own| *own != written) {
                    ("`--checksum` says another thing than the address does".to_owned(), "leave one out".to_owned())
                } else {
                    address.checksum = Some(written);
                    return Some(None);
                }
            }
            _ => {
                let message = "`--checksum` is for one URL or one git repository".to_owned();
                (message, "write an ADD for each source".to_owned())
            }
        };
        self.error(message, span, Some(hint));
        None
    }
}

/// What of a `--chown` only an image can tell; root is 0 everywhere.
fn name_in(chown: &str) -> Option<&str> {
    let mut names = chown.splitn(2, ':').filter(|name| !name.is_empty() && *name != "root");
    names.find(|name| name.parse::<u32>().is_err())
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
