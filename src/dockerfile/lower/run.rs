//! RUN: what is executed, its environment and its mounts.

use super::Lowering;
use crate::dockerfile::ast::{Form, Heredoc, MountFlag, RunLine};
use crate::dockerfile::mount::{self, Spec, Type};
use crate::dockerfile::resolve::{PROXIES, Reference};
use crate::dockerfile::step::{Action, From, Mount, MountKind, Network, Run, Security};
use crate::dockerfile::{lines, source};

impl Lowering<'_> {
    pub(super) fn run(&mut self, line: &RunLine) -> Option<()> {
        let mut mounts = Vec::new();
        for flag in &line.mounts {
            let mount = self.mount(flag, &mounts)?;
            mounts.push(mount);
        }
        let (argv, script, shown) = self.command(&line.command.form, &line.heredocs);
        let env = self.process_env();
        let run = Run {
            argv,
            script,
            proxy_env: self.proxy_env(),
            env,
            cwd: self.working_dir(),
            user: self.state.config.config.user.clone(),
            mounts,
            network: match line.network.as_ref().map(|word| word.value.as_str()) {
                Some("none") => Network::None,
                Some("host") => Network::Host,
                _ => Network::Default,
            },
            security: match line.security.as_ref().map(|word| word.value.as_str()) {
                Some("insecure") => Security::Insecure,
                _ => Security::Sandbox,
            },
        };
        let created_by = format!("RUN {}{} # buildkit", self.shown_args(), shown.join(" "));
        self.step(created_by, Action::Run(run));
        Some(())
    }

    /// What is executed, the script that it needs, and what the history says.
    fn command(&self, form: &Form, heredocs: &[Heredoc]) -> (Vec<String>, Option<Vec<u8>>, Vec<String>) {
        let shell = |text: String| {
            let argv = self.with_shell(&Form::Shell(text));
            (argv.clone(), None, argv)
        };
        let text = match (form, heredocs) {
            (Form::Exec(argv), _) => return (argv.clone(), None, argv.clone()),
            (Form::Shell(text), []) => return shell(text.clone()),
            (Form::Shell(text), _) => text,
        };
        match (lines::delimiter(text), heredocs) {
            // Nothing but a heredoc: it is the script itself, for the shell or for whatever its first line names.
            (Some(_), [only]) => {
                let content = only.content();
                if !content.starts_with("#!") {
                    return shell(content);
                }
                let name = Some(only.name.as_str()).filter(|name| !name.contains('/') && !matches!(*name, "." | ".."));
                let path = format!("/dev/pipes/{}", name.unwrap_or("script"));
                let shown = self.with_shell(&Form::Shell(path.clone()));
                (vec![path], Some(content.into_bytes()), shown)
            }
            // The shell knows what to do with heredocs within a command.
            _ => {
                let mut whole = text.clone();
                for heredoc in heredocs {
                    whole.push('\n');
                    whole.push_str(&heredoc.body);
                    whole.push_str(&heredoc.name);
                }
                shell(whole)
            }
        }
    }

    /// ENV in its own order, then what only ARG has set.
    fn process_env(&self) -> Vec<(String, String)> {
        let names = self.state.config.config.env.iter().filter_map(|entry| entry.split_once('=').map(|(name, _)| name));
        let mut env: Vec<(String, String)> = Vec::new();
        for name in names.chain(self.state.vars.0.iter().map(|(name, _)| name.as_str())) {
            if !env.iter().any(|(known, _)| known == name)
                && let Some(value) = self.state.vars.get(name)
            {
                env.push((name.to_owned(), value.to_owned()));
            }
        }
        env
    }

    /// Proxies that were given as build arguments reach the process in both spellings without being declared; those
    /// that are declared are ordinary variables by now.
    fn proxy_env(&self) -> Vec<(String, String)> {
        let mut env = Vec::new();
        for proxy in PROXIES {
            let mut given = self.resolved.inputs.build_args.iter().filter(|(name, _)| name.eq_ignore_ascii_case(proxy));
            let Some((_, value)) = given.next_back().filter(|(_, value)| !value.is_empty()) else { continue };
            for name in [proxy.to_owned(), proxy.to_ascii_lowercase()] {
                if self.state.vars.get(&name).is_none() {
                    env.push((name, value.clone()));
                }
            }
        }
        env
    }

    /// `|2 A=b C= `: the arguments in scope.
    fn shown_args(&self) -> String {
        if self.state.args.is_empty() {
            return String::new();
        }
        let mut shown = format!("|{} ", self.state.args.len());
        for name in &self.state.args {
            shown.push_str(&format!("{name}={} ", self.state.vars.get(name).unwrap_or_default()));
        }
        shown
    }

    /// `before` are the mounts of the same instruction that stand before it.
    fn mount(&mut self, flag: &MountFlag, before: &[Mount]) -> Option<Mount> {
        let span = Some(flag.span.clone());
        let expander = self.expander();
        let spec = match mount::spec(flag, &|value| self.expand_text(value, expander).map(|e| e.text)) {
            Ok(spec) => spec,
            Err((message, hint)) => {
                self.error(message, span, hint);
                return None;
            }
        };
        let from = match flag.from() {
            None => From::Context,
            Some("scratch") if spec.kind == Type::Bind => {
                let hint = Some("use `type=tmpfs` for an empty directory".to_owned());
                self.error("a mount from scratch holds nothing", span, hint);
                return None;
            }
            Some("scratch") => From::Context,
            Some(from) => self.refer(&Reference::Mount(from.to_owned()), span.clone())?,
        };
        let (target, kind) = match spec.kind {
            Type::Secret => secret(spec),
            Type::Ssh => {
                let number = before.iter().filter(|mount| matches!(mount.kind, MountKind::Ssh { .. })).count();
                let target = match spec.target.as_str() {
                    "" => format!("/run/buildkit/ssh_agent.{number}"),
                    target => source::join(&self.working_dir(), target),
                };
                let id = if spec.id.is_empty() { "default".to_owned() } else { spec.id };
                let (mode, uid, gid) = (spec.mode.unwrap_or(0o600), spec.uid.unwrap_or(0), spec.gid.unwrap_or(0));
                (target, MountKind::Ssh { id, required: spec.required, mode, uid, gid })
            }
            _ => {
                let target = source::join(&self.working_dir(), &spec.target);
                if target == "/" {
                    let hint = Some("say where with `target=<directory>`".to_owned());
                    self.error("nothing can be mounted over the root directory", span, hint);
                    return None;
                }
                (target, files(spec, from))
            }
        };
        Some(Mount { target, kind })
    }
}

fn absolute(path: &str) -> Option<String> {
    (!path.is_empty()).then(|| source::join("/", path))
}

fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// A secret is a file, unless only a variable was asked for.
fn secret(spec: Spec) -> (String, MountKind) {
    let id = [&spec.source, &spec.id].into_iter().find(|id| !id.is_empty()).cloned();
    let id = id.unwrap_or_else(|| base_name(&spec.target).to_owned());
    let target = absolute(&spec.target).or_else(|| {
        // The default place, where no place was asked for.
        spec.env.is_none().then(|| source::join("/run/secrets", base_name(&id)))
    });
    let (mode, uid, gid) = (spec.mode.unwrap_or(0o400), spec.uid.unwrap_or(0), spec.gid.unwrap_or(0));
    let kind = MountKind::Secret { id, env: spec.env, required: spec.required, mode, uid, gid };
    (target.unwrap_or_default(), kind)
}

fn files(spec: Spec, from: From) -> MountKind {
    let source = source::below_root(&spec.source);
    match spec.kind {
        Type::Tmpfs => MountKind::Tmpfs { size: spec.size.filter(|size| *size > 0) },
        Type::Cache => MountKind::Cache {
            id: if spec.id.is_empty() { clean_id(&spec.target) } else { spec.id },
            sharing: spec.sharing.unwrap_or_default(),
            // A cache begins empty unless it is told where to begin from.
            from: Some(from).filter(|from| *from != From::Context),
            source,
            read_only: spec.read_only,
            mode: spec.mode.unwrap_or(0o755),
            uid: spec.uid.unwrap_or(0),
            gid: spec.gid.unwrap_or(0),
        },
        _ => MountKind::Bind { from, source, writable: !spec.read_only },
    }
}

/// Without an id, the target as it was written is one.
fn clean_id(target: &str) -> String {
    let clean = source::clean(&format!("/{target}"));
    if target.starts_with('/') { clean } else { clean[1..].to_owned() }
}
