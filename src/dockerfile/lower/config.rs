//! Instructions that change nothing but the configuration.

use std::net::IpAddr;

use super::Lowering;
use crate::dockerfile::ast::{ArgPair, Form, HealthcheckLine, InstructionKind, Pair, Word};
use crate::dockerfile::step::Action;
use crate::dockerfile::{duration, history, source};
use crate::image::config::{Empty, Healthcheck};

impl Lowering<'_> {
    pub(super) fn configure(&mut self, kind: &InstructionKind) -> Option<()> {
        let created_by = match kind {
            InstructionKind::Arg(pairs) => self.arg(pairs)?,
            InstructionKind::Env(pairs) => self.env(pairs)?,
            InstructionKind::Label(pairs) => self.label(pairs)?,
            InstructionKind::Cmd(command) => {
                let argv = self.with_shell(&command.form);
                let created_by = format!("CMD {}", history::quoted_list(&argv));
                self.state.config.config.cmd = Some(argv).filter(|argv| !argv.is_empty());
                self.cmd_is_ours = true;
                created_by
            }
            InstructionKind::Entrypoint(command) => {
                let argv = self.with_shell(&command.form);
                let created_by = format!("ENTRYPOINT {}", history::quoted_list(&argv));
                self.state.config.config.entrypoint = Some(argv).filter(|argv| !argv.is_empty());
                // What the parent wanted to be run by its own entry point means nothing to this one.
                if !self.cmd_is_ours {
                    self.state.config.config.cmd = None;
                }
                created_by
            }
            InstructionKind::Expose(words) => self.expose(words)?,
            InstructionKind::Healthcheck(line) => self.healthcheck(line),
            InstructionKind::Maintainer(word) => {
                self.state.config.author = Some(word.value.clone());
                format!("MAINTAINER {}", word.value)
            }
            InstructionKind::Shell(shell) => {
                self.state.config.config.shell = Some(shell.clone());
                format!("SHELL {}", history::list(shell))
            }
            InstructionKind::Stopsignal(word) => {
                let signal = self.expand(word)?;
                if !is_signal(&signal) {
                    let message = format!("`{signal}` is not a signal");
                    self.error(message, Some(word.span.clone()), Some("write it as `SIGTERM` or `15`".into()));
                    return None;
                }
                self.state.config.config.stop_signal = Some(signal.clone());
                format!("STOPSIGNAL {signal}")
            }
            InstructionKind::User(word) => {
                let user = self.expand(word)?;
                self.state.config.config.user.clone_from(&user);
                format!("USER {user}")
            }
            InstructionKind::Volume(words) => {
                let mut volumes = Vec::new();
                for word in words {
                    let volume = self.expand(word)?;
                    if volume.is_empty() {
                        self.error("an empty argument of VOLUME", Some(word.span.clone()), None);
                        return None;
                    }
                    self.state.config.config.volumes.insert(volume.clone(), Empty {});
                    volumes.push(volume);
                }
                format!("VOLUME {}", history::list(&volumes))
            }
            InstructionKind::Workdir(word) => return self.workdir(word),
            // Kept for the children and not part of the history, as in BuildKit.
            InstructionKind::Onbuild(onbuild) => {
                self.state.config.config.on_build.push(onbuild.expression.clone());
                return Some(());
            }
            InstructionKind::Add(_) | InstructionKind::Copy(_) | InstructionKind::Run(_) => return None,
        };
        self.step(created_by, Action::Config);
        Some(())
    }

    pub(super) fn with_shell(&self, form: &Form) -> Vec<String> {
        match form {
            Form::Exec(argv) => argv.clone(),
            Form::Shell(text) => {
                let mut argv = self.shell();
                argv.push(text.clone());
                argv
            }
        }
    }

    pub(super) fn shell(&self) -> Vec<String> {
        match &self.state.config.config.shell {
            Some(shell) if !shell.is_empty() => shell.clone(),
            _ => vec!["/bin/sh".into(), "-c".into()],
        }
    }

    fn arg(&mut self, pairs: &[ArgPair]) -> Option<String> {
        let mut created_by = String::from("ARG");
        for pair in pairs {
            let name = pair.name.value.as_str();
            let value = match (self.resolved.inputs.build_args.get(name), &pair.value) {
                (Some(given), _) => Some(given.clone()),
                (None, Some(word)) => Some(self.expand(word)?),
                (None, None) => self.resolved.globals.get(name).cloned(),
            };
            created_by.push(' ');
            created_by.push_str(name);
            if let Some(value) = value {
                // Like BuildKit: whichever of ENV and ARG was set last is what is seen.
                self.state.vars.set(name, &value);
                created_by.push('=');
                created_by.push_str(&value);
            }
            if !self.state.args.iter().any(|known| known == name) {
                self.state.args.push(name.to_owned());
            }
        }
        Some(created_by)
    }

    /// All values see what was set before the line.
    fn pairs(&mut self, pairs: &[Pair]) -> Option<Vec<(String, String)>> {
        let mut expanded = Vec::new();
        for pair in pairs {
            let name = self.expand(&pair.name)?;
            if name.is_empty() {
                self.error("the name is empty once its variables are expanded", Some(pair.name.span.clone()), None);
                return None;
            }
            expanded.push((name, self.expand(&pair.value)?));
        }
        Some(expanded)
    }

    fn env(&mut self, pairs: &[Pair]) -> Option<String> {
        let mut created_by = String::from("ENV");
        for (name, value) in self.pairs(pairs)? {
            created_by.push_str(&format!(" {name}={value}"));
            self.state.vars.set(&name, &value);
            self.state.config.config.env_set(&name, &value);
        }
        Some(created_by)
    }

    fn label(&mut self, pairs: &[Pair]) -> Option<String> {
        let mut created_by = String::from("LABEL");
        for (name, value) in self.pairs(pairs)? {
            created_by.push_str(&format!(" {name}={value}"));
            self.state.config.config.labels.insert(name, value);
        }
        Some(created_by)
    }

    fn healthcheck(&mut self, line: &HealthcheckLine) -> String {
        let check = match line {
            HealthcheckLine::None => Healthcheck { test: vec!["NONE".into()], ..Healthcheck::default() },
            HealthcheckLine::Cmd { command, interval, timeout, start_period, start_interval, retries } => {
                let test = match &command.form {
                    Form::Exec(argv) => std::iter::once("CMD".to_owned()).chain(argv.iter().cloned()).collect(),
                    Form::Shell(text) => vec!["CMD-SHELL".to_owned(), text.clone()],
                };
                Healthcheck {
                    test,
                    interval: *interval,
                    timeout: *timeout,
                    start_period: *start_period,
                    start_interval: *start_interval,
                    retries: *retries,
                }
            }
        };
        let times = [check.interval, check.timeout, check.start_period, check.start_interval];
        let created_by = format!(
            "HEALTHCHECK &{{{} {} {}}}",
            history::quoted_list(&check.test),
            times.map(|time| history::quoted(&duration::format(time))).join(" "),
            history::quoted_number(u32::try_from(check.retries).unwrap_or_default())
        );
        self.state.config.config.healthcheck = Some(check);
        created_by
    }

    fn expose(&mut self, words: &[Word]) -> Option<String> {
        let mut words: Vec<&Word> = words.iter().collect();
        words.sort_by(|a, b| a.value.cmp(&b.value));
        let mut ports = Vec::new();
        for word in words {
            match self.expand_text(&word.value, self.expander()) {
                Ok(expanded) => {
                    for port in expanded.words {
                        match exposed(&port) {
                            Ok(found) => ports.extend(found),
                            Err(why) => {
                                let message = format!("`{port}` cannot be exposed: {why}");
                                let hint = "write `80`, `53/udp` or `8000-8010`".to_owned();
                                self.error(message, Some(word.span.clone()), Some(hint));
                                return None;
                            }
                        }
                    }
                }
                Err(why) => {
                    self.error(why, Some(word.span.clone()), None);
                    return None;
                }
            }
        }
        let created_by = format!("EXPOSE {}", history::list(&ports));
        self.state.config.config.exposed_ports.extend(ports.into_iter().map(|port| (port, Empty {})));
        Some(created_by)
    }

    fn workdir(&mut self, word: &Word) -> Option<()> {
        let written = self.expand(word)?;
        let current = self.working_dir();
        // An absolute path is kept as it was written, a relative one is joined and cleaned, as Docker does.
        let directory = if written.starts_with('/') { written } else { source::join(&current, &written) };
        self.state.config.config.working_dir.clone_from(&directory);
        let path = self.working_dir();
        let action = match path.as_str() {
            "/" => Action::Config,
            _ => Action::Workdir { path, user: self.state.config.config.user.clone() },
        };
        self.step(format!("WORKDIR {directory}"), action);
        Some(())
    }
}

/// `[[ip:]host:]container[-last][/protocol]`: only the last part counts.
fn exposed(port: &str) -> Result<Vec<String>, String> {
    let (before, container) = match port.rsplit_once(':') {
        Some((before, container)) => (Some(before), container),
        None => (None, port),
    };
    let (numbers, protocol) = container.split_once('/').unwrap_or((container, "tcp"));
    let protocol = if protocol.is_empty() { "tcp".into() } else { protocol.to_ascii_lowercase() };
    if !matches!(protocol.as_str(), "tcp" | "udp" | "sctp") {
        return Err(format!("`{protocol}` is none of tcp, udp and sctp"));
    }
    let (first, last) = range(numbers)?;
    if let Some(before) = before {
        let (address, host) = before.rsplit_once(':').map_or((None, before), |(a, h)| (Some(a), h));
        let address = address.map(|a| a.trim_start_matches('[').trim_end_matches(']')).filter(|a| !a.is_empty());
        if address.is_some_and(|a| a.parse::<IpAddr>().is_err()) {
            return Err("what stands before the port is no address".into());
        }
        if !host.is_empty() {
            let (host_first, host_last) = range(host)?;
            if last != first && host_last - host_first != last - first {
                return Err("the two ranges differ in length".into());
            }
        }
    }
    Ok((first..=last).map(|port| format!("{port}/{protocol}")).collect())
}

fn range(text: &str) -> Result<(u16, u16), String> {
    let number = |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is not a port"));
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    if last < first { Err("the range runs backwards".into()) } else { Ok((first, last)) }
}

fn is_signal(text: &str) -> bool {
    const NAMES: [&str; 36] = [
        "ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL", "PIPE", "POLL",
        "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "UNUSED",
        "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ", "EMT",
    ];
    if let Ok(number) = text.parse::<u32>() {
        return (1..=64).contains(&number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let offset = |rest: &str, sign: char, most: u32| {
        rest.is_empty() || rest.strip_prefix(sign).and_then(|n| n.parse().ok()).is_some_and(|n| (1..=most).contains(&n))
    };
    NAMES.contains(&name)
        || name.strip_prefix("RTMIN").is_some_and(|rest| offset(rest, '+', 15))
        || name.strip_prefix("RTMAX").is_some_and(|rest| offset(rest, '-', 14))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        assert_eq!(exposed("80").unwrap(), ["80/tcp"]);
        assert_eq!(exposed("53/UDP").unwrap(), ["53/udp"]);
        assert_eq!(exposed("100-102/sctp").unwrap(), ["100/sctp", "101/sctp", "102/sctp"]);
        assert_eq!(exposed("127.0.0.1:8080:80").unwrap(), ["80/tcp"]);
        assert_eq!(exposed("[::1]:8080:80").unwrap(), ["80/tcp"]);
        assert_eq!(exposed("8080:80").unwrap(), ["80/tcp"]);
        for port in ["", "x", "80/icmp", "3-1", "70000", "a:1:2", "1-2:3-5", "-1", "80-"] {
            assert!(exposed(port).is_err(), "{port}");
        }
    }

    #[test]
    fn signals() {
        for signal in ["SIGTERM", "term", "9", "64", "SIGRTMIN+3", "RTMAX-1", "SIGRTMIN"] {
            assert!(is_signal(signal), "{signal}");
        }
        for signal in ["", "0", "65", "SIGFOO", "SIGRTMIN+16", "RTMIN-1", "SIG"] {
            assert!(!is_signal(signal), "{signal}");
        }
    }
}
