//! How a recipe of Kolla's installs what `plugins-archive` brings, read from its rendered Dockerfile, and whether that can be
//! done above the finished image as well.

use std::sync::LazyLock;

use regex::Regex;

use crate::kolla::pieces::{self, Kind, Piece};

/// What every recipe unpacks that has plugins, empty or not.
pub const ARCHIVE: &str = "plugins-archive";

/// Where the plugins of a layer are lent to the commands that install them. The recipe's own `/plugins` has those of other layers.
/// In what a step has of its own: an older BuildKit leaves behind a directory that it makes for a mount in the image, and an older
/// Podman removes one that was there.
const LENT: &str = "/dev/plugins";

/// The commands of a recipe that install its plugins.
#[derive(Clone, Debug, PartialEq)]
pub struct Install {
    /// From `if [ "$(ls /plugins)" ]` to `fi`.
    commands: String,
    /// Whether pip is all that there is.
    pub only_pip: bool,
    /// The ARG instructions above them.
    arguments: Vec<String>,
    /// Whether the recipe says who installs them: root.
    pub says_user: bool,
    /// Who the image runs as from then on.
    user: Option<String>,
}

/// Why plugins have to be installed where the recipe does it, and where in the Dockerfile that stands.
#[derive(Debug, PartialEq)]
pub struct Stays {
    pub why: String,
    pub at: usize,
}

/// What a recipe of this tree may do behind its plugins without having anything to do with them.
#[derive(Debug, Default)]
pub struct Around {
    /// The instruction of the tree's macro that gives up repositories which only a build needs.
    pub cleanup: String,
    /// Whether there are patches, which may be for what a plugin has installed.
    pub patched: bool,
}

/// What pip and the copying of a plugin's files write below, so that what else writes there has to stay in order with them.
const WRITTEN: [&str; 5] = ["/plugins", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/var/lib/kolla/venv"];

impl Install {
    /// From the instructions of a Dockerfile and its text.
    pub fn find(pieces: &[Piece], text: &str, around: &Around) -> Result<Install, Stays> {
        let stays = |why: &str, at: usize| Err(Stays { why: why.into(), at });
        let unpacks = |piece: &Piece| match &piece.kind {
            Kind::Transfer { source, dest } => piece.keyword == "ADD" && source == ARCHIVE && dest == "/",
            _ => false,
        };
        let target = pieces.iter().rposition(|piece| piece.keyword == "FROM").unwrap_or_default();
        let Some(archive) = pieces.iter().rposition(unpacks).filter(|number| *number > target) else {
            return stays("its recipe does not unpack `plugins-archive` into `/`", 0);
        };
        let mut found: Option<(Install, Vec<String>)> = None;
        for (number, piece) in pieces.iter().enumerate().filter(|(number, _)| *number != archive) {
            if let Some((install, written)) = &mut found {
                behind(piece, install, written, text, around)?;
                continue;
            }
            let place = form().filter(|_| piece.keyword == "RUN").and_then(|form| form.captures(&piece.line));
            let Some((place, whole)) = place.and_then(|place| Some((place.get(0)?, place))) else {
                if speaks_of_plugins(&piece.line) {
                    return stays(
                        "its recipe does something else with `/plugins` than to install what is there",
                        piece.at,
                    );
                }
                continue;
            };
            if number < archive {
                return stays("its recipe unpacks `plugins-archive` only after it has installed plugins", piece.at);
            }
            let first = piece.line[..place.start()].trim_start_matches("RUN ");
            if first.starts_with("--") {
                return stays("what the instruction is lent with `--mount` and the like would be missing", piece.at);
            }
            if let Some(command) = first.split("&&").map(str::trim).find(|command| changes_the_shell(command)) {
                let why = format!("`{command}` before the plugins counts for them as well");
                return Err(Stays { why, at: at(piece, command, text) });
            }
            if speaks_of_plugins(first) {
                return stays("its recipe does something else with `/plugins` than to install what is there", piece.at);
            }
            let above = &pieces[target..number];
            let user = above.iter().rev().find_map(|piece| match &piece.kind {
                Kind::User(name) => Some((name, piece.at)),
                _ => None,
            });
            if let Some((name, at)) = user.filter(|(name, _)| !is_root(name)) {
                return Err(Stays { why: format!("they are installed by the user `{name}`"), at });
            }
            let variable = |group: usize| whole.get(group).map(|part| part.as_str());
            if variable(2).is_some_and(|name| [3, 4].iter().any(|group| variable(*group) != Some(name))) {
                return stays("its recipe does something else with `/plugins` than to install what is there", piece.at);
            }
            let install = Install {
                commands: place.as_str().to_owned(),
                only_pip: variable(2).is_none(),
                arguments: above.iter().filter(|p| p.keyword == "ARG").map(|p| p.raw.clone()).collect(),
                says_user: user.is_some(),
                user: None,
            };
            let mut written: Vec<String> = WRITTEN.map(str::to_owned).to_vec();
            written.extend(variable(5).map(str::to_owned));
            commands(&piece.line[place.end()..], piece, &written, text)?;
            found = Some((install, written));
        }
        match found {
            Some((install, _)) => Ok(install),
            None => stays("its recipe installs nothing of what it unpacks into `/plugins`", pieces[archive].at),
        }
    }

    /// A Dockerfile for one plugin above the image that FROM of it names. `archive` has nothing but this plugin.
    pub fn dockerfile(&self, plugin: &str, parent: &str, archive: &str, escape: impl Fn(&str) -> String) -> String {
        let commands = self.commands.replace("$(ls /plugins)", &format!("$(ls {LENT})"));
        // The plugin's own directories, and nobody else's.
        let own = format!(" $(cd {LENT} && printf '/plugins/%s ' *)");
        let commands = commands.replace(" /plugins/*", &own);
        let mut text = format!("FROM scratch AS plugin\nADD {archive} /\n\nFROM {parent}\n");
        for argument in &self.arguments {
            text.push_str(&format!("{}\n", escape(argument)));
        }
        if self.user.is_some() {
            text.push_str("USER root\n");
        }
        text.push_str(&format!(
            "# title: Install {plugin}\nRUN --mount=type=bind,from=plugin,source=/plugins,target={LENT} \\\n    \
             cp -a {LENT}/. /plugins \\\n    && {}\n",
            escape(&commands)
        ));
        if let Some(user) = &self.user {
            text.push_str(&format!("USER {}\n", escape(user)));
        }
        text
    }
}

/// The form in which all recipes do it. Groups: pip; the variable of neutron's loop over the plugins (2, and where it is used: 3 and
/// 4), which copies files out of them to a directory (5).
fn form() -> Option<&'static Regex> {
    static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let pip = r"(python[0-9.]* -m pip [^;&|$`()<>]*/plugins/\*)";
        let copied = r#"for (\w+) in \$\(ls /plugins\); do if \[ -d "/plugins/\$(\w+)/[\w./-]+" \]; then cp (?:-r )?/plugins/\$(\w+)/[\w./-]+\* (/[\w./-]+); fi; done"#;
        Regex::new(&format!(r#"if \[ "\$\(ls /plugins\)" \]; then {pip}(?: && {copied})? ?; ?fi"#)).ok()
    });
    FORM.as_ref()
}

pub fn is_root(user: &str) -> bool {
    ["root", "0"].contains(&user.split(':').next().unwrap_or_default())
}

fn speaks_of_plugins(line: &str) -> bool {
    let alone = |c: char| c.is_whitespace() || "\"'=(:;,&|<>".contains(c);
    let after = |c: char| alone(c) || "/)`*".contains(c);
    line.match_indices("/plugins").any(|(at, word)| {
        line[..at].chars().next_back().is_none_or(alone) && line[at + word.len()..].chars().next().is_none_or(after)
    })
}

/// Commands that the ones behind them in the same shell are different for.
fn changes_the_shell(command: &str) -> bool {
    let words = [".", "alias", "cd", "eval", "exec", "export", "set", "source", "trap", "ulimit", "umask", "unset"];
    words.contains(&command.split(' ').next().unwrap_or_default())
}

/// Whether an instruction behind the plugins could as well stand before them.
fn behind(piece: &Piece, install: &mut Install, written: &[String], text: &str, around: &Around) -> Result<(), Stays> {
    let stays = |why: &str| Err(Stays { why: why.into(), at: piece.at });
    if speaks_of_plugins(&piece.line) {
        return stays("its recipe does something else with `/plugins` than to install what is there");
    }
    match piece.keyword {
        "RUN" if pieces::squeezed(&around.cleanup.replace("\\\n", " ")) == piece.line => Ok(()),
        "RUN" if piece.line == "RUN kolla_patch" => match around.patched {
            true => stays("it has patches, which may be for what its plugins install"),
            false => Ok(()),
        },
        "RUN" => commands(piece.line.trim_start_matches("RUN "), piece, written, text),
        "COPY" | "ADD" => {
            let dest = piece.line.rsplit(' ').next().unwrap_or_default();
            let additions =
                matches!(&piece.kind, Kind::Transfer { source, dest } if source == "additions-archive" && dest == "/");
            match additions || (is_apart(dest, written) && !piece.line.contains("<<")) {
                true => Ok(()),
                false => stays("files that are copied behind the plugins may be for what they install"),
            }
        }
        "ARG" | "ENV" | "SHELL" | "WORKDIR" => stays("it is set behind the plugins and would count for them"),
        "USER" => {
            if let Kind::User(name) = &piece.kind {
                install.user = Some(name.clone());
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether commands behind the plugins, in one instruction, have nothing to do with them.
fn commands(all: &str, piece: &Piece, written: &[String], text: &str) -> Result<(), Stays> {
    for command in all.split("&&").map(str::trim).filter(|command| !command.is_empty()) {
        if !is_harmless(command, written) {
            let shown: String = command.chars().take(60).collect();
            let more = if shown.len() < command.len() { "…" } else { "" };
            let why = format!("`{shown}{more}` behind the plugins may depend on what they install");
            return Err(Stays { why, at: at(piece, command, text) });
        }
    }
    Ok(())
}

/// Modes, owners and existence of single files elsewhere.
fn is_harmless(command: &str, written: &[String]) -> bool {
    let mut words = command.split(' ');
    let name = words.next().unwrap_or_default();
    let (options, named): (&[&str], usize) = match name {
        "true" => return command == "true",
        "chmod" | "chown" | "chgrp" => (&[], 1),
        "touch" => (&[], 0),
        "rm" => (&["-f"], 0),
        "mkdir" => (&["-p"], 0),
        _ => return false,
    };
    let mut paths = words.filter(|word| !options.contains(word)).skip(named).peekable();
    paths.peek().is_some() && paths.all(|path| is_apart(path, written))
}

/// A plain absolute path that has nothing of what plugins write in it, and isn't in it.
fn is_apart(path: &str, written: &[String]) -> bool {
    let plain = path.starts_with('/') && path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@".contains(c));
    let within = |a: &str, b: &str| std::path::Path::new(a).starts_with(b);
    plain && !path.contains("..") && written.iter().all(|place| !within(path, place) && !within(place, path))
}

/// Where a command of an instruction begins.
fn at(piece: &Piece, command: &str, text: &str) -> usize {
    let mut words = command.split(' ');
    let first: Vec<&str> = words.by_ref().take(2).collect();
    text.get(piece.at..).and_then(|rest| rest.find(&first.join(" "))).map_or(piece.at, |at| piece.at + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIP: &str =
        "python3 -m pip --no-cache-dir install --upgrade -c /requirements/upper-constraints.txt /plugins/*";

    fn found(rest: &str, around: &Around) -> Result<Install, (String, usize)> {
        let text = format!("FROM a\nADD plugins-archive /\n{}\n", rest.replace("@PIP@", PIP));
        Install::find(&pieces::read("x", &text).unwrap(), &text, around)
            .map_err(|stays| (stays.why, text[..stays.at].matches('\n').count() + 1))
    }

    fn stays(rest: &str) -> String {
        let (why, line) = found(rest, &Around::default()).unwrap_err();
        format!("{line}: {why}")
    }

    #[test]
    fn an_install_can_go_above_when_what_is_behind_it_has_nothing_to_do_with_it() {
        let install =
            "RUN one && if [ \"$(ls /plugins)\" ]; then \\\n   @PIP@; \\\n  fi \\\n && chmod 644 /usr/local/bin/x /y";
        let here = |rest: &str| found(&format!("{install}{rest}"), &Around::default());
        let plain = here("").unwrap();
        assert!(plain.only_pip && plain.user.is_none());
        assert_eq!(here(" && touch /a && rm -f /etc/machine-id\nUSER x\nCMD y").unwrap().user.as_deref(), Some("x"));
        here("\nCOPY a /usr/local/bin/\nADD additions-archive /\nCOPY patches /patches\nRUN kolla_patch").unwrap();
        assert_eq!(found(&format!("ARG A=b\n{install}"), &Around::default()).unwrap().arguments, ["ARG A=b"]);
        let around = Around { cleanup: "RUN [ -f /x ] \\\n    && rm -rf /x".into(), patched: true };
        found(&format!("{install}\nRUN [ -f /x ] && rm -rf /x"), &around).unwrap();
        assert!(found(&format!("{install}\nRUN kolla_patch"), &around).unwrap_err().0.contains("patches"));
    }

    #[test]
    fn what_cannot_go_above_is_said_with_its_line() {
        let install = "RUN if [ \"$(ls /plugins)\" ]; then @PIP@; fi";
        for (rest, why) in [
            (" \\\n && django compile", "4: `django compile` behind"),
            (" \\\n && chmod -R 755 /etc", "4: `chmod -R 755 /etc` behind"),
            (" && chmod 755 /var/lib/kolla/venv/bin/x", "3: `chmod 755"),
            (" && chown a: /var", "3: `chown a: /var`"),
            (" && rm -f /etc/*", "3: `rm -f /etc/*`"),
            (" || true", "3: `|| true`"),
            ("\nRUN apt-get install x", "4: `apt-get install x`"),
            ("\nRUN cp -r /plugins/x /y", "4: its recipe does something else"),
            ("\nCOPY a /var/lib/kolla/venv/", "4: files that are copied"),
            ("\nCOPY a /", "4: files that are copied"),
            ("\nENV A=b", "4: it is set behind"),
        ] {
            let told = stays(&format!("{install}{rest}"));
            assert!(told.starts_with(why), "{rest:?}: {told}");
        }
        let with = |before: &str| stays(&install.replace("RUN ", before));
        assert!(with("RUN cd /x && ").contains("`cd /x` before"));
        assert!(with("RUN --mount=type=cache,target=/c ").contains("--mount"));
        assert!(with("USER x\nRUN ").starts_with("3: they are installed by the user `x`"));
        assert!(with("RUN cp /plugins/a /b && ").contains("something else"));
        assert!(stays("RUN cp /plugins/linux/helm /usr/local/bin/helm").contains("something else"));
        assert!(stays("RUN mv /etc/a /etc/plugins/").starts_with("2: its recipe installs nothing"));
        let text = "FROM a\nRUN if [ \"$(ls /plugins)\" ]; then true; fi\n";
        let pieces = pieces::read("x", text).unwrap();
        assert!(Install::find(&pieces, text, &Around::default()).unwrap_err().why.contains("does not unpack"));
    }

    #[test]
    fn a_layer_installs_its_own_plugin_alone() {
        let copied =
            "for p in $(ls /plugins); do if [ -d \"/plugins/$p/etc/d\" ]; then cp /plugins/$p/etc/d/* /etc/d; fi; done";
        let run = format!("RUN if [ \"$(ls /plugins)\" ]; then @PIP@ && {copied}; fi && chmod 750 /x\nUSER me");
        let install = found(&run, &Around::default()).unwrap();
        assert!(!install.only_pip);
        let text = install.dockerfile("one", "{{ parent }}", "x/plugins-archive", str::to_owned);
        insta::assert_snapshot!(text, @r#"
        FROM scratch AS plugin
        ADD x/plugins-archive /

        FROM {{ parent }}
        USER root
        # title: Install one
        RUN --mount=type=bind,from=plugin,source=/plugins,target=/dev/plugins \
            cp -a /dev/plugins/. /plugins \
            && if [ "$(ls /dev/plugins)" ]; then python3 -m pip --no-cache-dir install --upgrade -c /requirements/upper-constraints.txt $(cd /dev/plugins && printf '/plugins/%s ' *) && for p in $(ls /dev/plugins); do if [ -d "/plugins/$p/etc/d" ]; then cp /plugins/$p/etc/d/* /etc/d; fi; done; fi
        USER me
        "#);
        // What is copied behind the loop may be for its directory.
        assert!(stays(&run.replace("USER me", "COPY a /etc/d/b")).contains("files that are copied"));
        assert!(stays(&run.replace("$p/etc/d/*", "$q/etc/d/*")).contains("something else"));
    }
}
