//! The arguments of each instruction.

use super::ast::{
    ArgPair, CommandLine, Form, HealthcheckLine, InstructionKind, Pair, RunLine, Spanned, Transfer, Word,
};
use super::parse::Arguments;
use super::{duration, lines, mount, words};

impl Arguments<'_, '_> {
    /// Of any instruction but FROM and ONBUILD.
    pub fn kind(&mut self) -> Option<InstructionKind> {
        let kind = match self.keyword {
            "ADD" => InstructionKind::Add(self.transfer()?),
            "ARG" => InstructionKind::Arg(self.args()?),
            "CMD" => InstructionKind::Cmd(self.command()?),
            "COPY" => InstructionKind::Copy(self.transfer()?),
            "ENTRYPOINT" => InstructionKind::Entrypoint(self.command()?),
            "ENV" => InstructionKind::Env(self.pairs()?),
            "EXPOSE" => InstructionKind::Expose(self.words(false)?),
            "HEALTHCHECK" => InstructionKind::Healthcheck(self.healthcheck()?),
            "LABEL" => InstructionKind::Label(self.pairs()?),
            "MAINTAINER" => {
                let hint = "write `LABEL org.opencontainers.image.authors=…` instead";
                self.problems.warning("MAINTAINER is deprecated", self.line.span.clone(), "deprecated", hint);
                InstructionKind::Maintainer(self.rest()?)
            }
            "RUN" => InstructionKind::Run(self.run()?),
            "SHELL" => InstructionKind::Shell(self.shell()?),
            "STOPSIGNAL" => InstructionKind::Stopsignal(self.rest()?),
            "USER" => InstructionKind::User(self.rest()?),
            "VOLUME" => InstructionKind::Volume(self.words(true)?),
            "WORKDIR" => InstructionKind::Workdir(self.rest()?),
            _ => return None,
        };
        Some(kind)
    }

    fn nothing(&mut self, hint: &str) {
        let message = format!("{} needs an argument", self.keyword);
        self.error(message, self.place(), "nothing follows", hint);
    }

    /// Everything as one word, blanks included.
    fn rest(&mut self) -> Option<Word> {
        if self.range.is_empty() {
            self.nothing("");
            return None;
        }
        Some(self.word(self.range.clone()))
    }

    /// Words between blanks, or a JSON array.
    fn words(&mut self, json: bool) -> Option<Vec<Word>> {
        let words: Vec<Word> = match if json { self.json() } else { None } {
            Some(strings) => {
                let span = self.place();
                strings.ok()?.into_iter().map(|value| Spanned { value, span: span.clone() }).collect()
            }
            None => words::split(&self.line.text, self.range.clone()).into_iter().map(|r| self.word(r)).collect(),
        };
        if let Some(blank) = words.iter().find(|word| word.value.trim().is_empty()) {
            let message = format!("an empty argument of {}", self.keyword);
            self.error(message, blank.span.clone(), "empty", "");
            return None;
        }
        if words.is_empty() {
            self.nothing("");
            return None;
        }
        Some(words)
    }

    /// An array of anything but strings is an error; what isn't an array is not JSON at all, as Docker has it.
    fn json(&mut self) -> Option<Result<Vec<String>, ()>> {
        let found = words::json(self.text())?;
        Some(found.map_err(|why| {
            let message = format!("the array of {} may hold strings only: {why}", self.keyword);
            self.error(message, self.place(), "not only strings", "put each argument in double quotes");
        }))
    }

    fn command(&mut self) -> Option<CommandLine> {
        let span = self.place();
        if self.range.is_empty() {
            self.nothing(if self.keyword == "RUN" { "" } else { "write `[]` to have none" });
            return None;
        }
        let form = match self.json() {
            Some(strings) => Form::Exec(strings.ok()?),
            None => Form::Shell(self.text().to_owned()),
        };
        if let Form::Shell(text) = &form
            && text.starts_with('[')
            && text.ends_with(']')
            // `[ -f x ]` is a command; `['a', 'b']` was meant to be an array.
            && !text[1..].starts_with([' ', '['])
        {
            let message = format!("the array of {} is not JSON, so it is run by the shell", self.keyword);
            self.problems.warning(message, span.clone(), "not JSON", "use double quotes and no comma at the end");
        }
        Some(CommandLine { form, span })
    }

    fn run(&mut self) -> Option<RunLine> {
        let mut mounts = Vec::new();
        let mut wrong = false;
        for flag in self.flags.words("mount") {
            match mount::parse(&flag.value, flag.span.clone()) {
                Ok(mount) => mounts.push(mount),
                Err((message, hint)) => {
                    wrong = true;
                    self.problems.error(message, flag.span, "in this mount", hint);
                }
            }
        }
        for (name, known) in [("network", &["default", "none", "host"][..]), ("security", &["sandbox", "insecure"])] {
            if let Some(word) = self.flags.word(name).filter(|word| !known.contains(&word.value.as_str())) {
                wrong = true;
                let hint = super::nearest(&word.value, known.iter().map(|k| (*k).to_owned()))
                    .unwrap_or_else(|| format!("it is one of {}", known.join(", ")));
                self.error(format!("`--{name}` cannot be `{}`", word.value), word.span, "not known", &hint);
            }
        }
        let command = self.command()?;
        if command.form == Form::Exec(Vec::new()) {
            self.nothing("");
            return None;
        }
        Some(RunLine {
            command,
            heredocs: self.line.heredocs.clone(),
            mounts,
            network: self.flags.word("network"),
            security: self.flags.word("security"),
            devices: self.flags.words("device"),
        })
        .filter(|_| !wrong)
    }

    fn transfer(&mut self) -> Option<Transfer> {
        let words: Vec<Word> = match self.json() {
            Some(strings) => {
                let span = self.place();
                strings.ok()?.into_iter().map(|value| Spanned { value, span: span.clone() }).collect()
            }
            None => words::split(&self.line.text, self.range.clone()).into_iter().map(|r| self.word(r)).collect(),
        };
        let (sources, dest) = match words.as_slice() {
            [sources @ .., dest] if !sources.is_empty() => (sources, dest.clone()),
            _ => {
                let message = format!("{} needs a source and a destination", self.keyword);
                let hint = format!("write `{} <source>… <destination>`", self.keyword);
                self.error(message, self.place(), "not enough", &hint);
                return None;
            }
        };
        if lines::delimiter(&dest.value).is_some() {
            let message = format!("a heredoc cannot be the destination of {}", self.keyword);
            self.error(message, dest.span, "the destination", "put the destination behind it");
            return None;
        }
        let mut heredocs = self.line.heredocs.iter();
        let mut paths = Vec::new();
        let mut documents = Vec::new();
        for source in sources {
            if lines::delimiter(&source.value).is_some() {
                documents.extend(heredocs.next().cloned());
            } else if source.value.starts_with("<<") && !self.line.heredocs.is_empty() {
                let hint = "write the delimiter right behind `<<`";
                self.error("`<<` without a delimiter", source.span.clone(), "no delimiter", hint);
                return None;
            } else {
                paths.push(source.clone());
            }
        }
        let flags = &self.flags;
        Some(Transfer {
            sources: paths,
            heredocs: documents,
            dest,
            from: flags.word("from"),
            chown: flags.word("chown"),
            chmod: flags.word("chmod"),
            link: flags.switch("link").unwrap_or(false),
            parents: flags.switch("parents").unwrap_or(false),
            excludes: flags.words("exclude"),
            checksum: flags.word("checksum"),
            keep_git_dir: flags.switch("keep-git-dir"),
            unpack: flags.switch("unpack"),
        })
    }

    fn args(&mut self) -> Option<Vec<ArgPair>> {
        let words = words::quoted(&self.line.text, self.range.clone(), self.escape);
        if words.is_empty() {
            self.nothing("write `ARG <name>` or `ARG <name>=<default>`");
            return None;
        }
        let mut args = Vec::new();
        for (word, range) in words {
            let span = self.line.place(range);
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(Spanned { value: value.to_owned(), span: span.clone() })),
                None => (word.as_str(), None),
            };
            if name.is_empty() {
                self.error("an ARG without a name", span, "no name", "write `ARG <name>=<default>`");
                return None;
            }
            args.push(ArgPair { name: Spanned { value: name.to_owned(), span }, value });
        }
        Some(args)
    }

    /// ENV and LABEL: `name=value …`, or `name` and the rest of the line as its value.
    fn pairs(&mut self) -> Option<Vec<Pair>> {
        let words = words::quoted(&self.line.text, self.range.clone(), self.escape);
        let Some((first, _)) = words.first() else {
            self.nothing(&format!("write `{} <name>=<value>`", self.keyword));
            return None;
        };
        if !first.contains('=') {
            let (name, value) = words::keyword(&self.line.text, self.range.clone());
            let (name, value) = (self.word(name), self.word(value));
            if value.value.is_empty() {
                let message = format!("{} `{}` has no value", self.keyword, name.value);
                let hint = format!("write `{}=` for an empty one", name.value);
                self.error(message, name.span, "no value", &hint);
                return None;
            }
            let message = format!("{} without an equals sign is an old form", self.keyword);
            let hint = format!("write `{} {}=…`", self.keyword, name.value);
            self.problems.warning(message, self.line.span.clone(), "old form", &hint);
            return Some(vec![Pair { name, value }]);
        }
        let mut pairs = Vec::new();
        for (word, range) in &words {
            let span = self.line.place(range.clone());
            match word.split_once('=') {
                Some((name, value)) if !name.is_empty() => pairs.push(Pair {
                    name: Spanned { value: name.to_owned(), span: span.clone() },
                    value: Spanned { value: value.to_owned(), span },
                }),
                Some(_) => {
                    let message = format!("a name of {} cannot be empty", self.keyword);
                    self.error(message, span, "no name", "");
                    return None;
                }
                None => {
                    let message = format!("`{}` has no equals sign", super::shorten(word, 40));
                    let hint = "write `name=value`; put a value with blanks in double quotes";
                    self.error(message, span, "no value", hint);
                    return None;
                }
            }
        }
        Some(pairs)
    }

    fn shell(&mut self) -> Option<Vec<String>> {
        match self.json() {
            Some(Ok(shell)) if !shell.is_empty() => Some(shell),
            Some(Err(())) => None,
            _ => {
                let hint = "write it as an array: `SHELL [\"/bin/sh\", \"-c\"]`";
                self.error("SHELL needs an array with the shell in it", self.place(), "not such an array", hint);
                None
            }
        }
    }

    fn healthcheck(&mut self) -> Option<HealthcheckLine> {
        let (kind, rest) = words::keyword(&self.line.text, self.range.clone());
        let written = self.line.text[kind.clone()].to_ascii_uppercase();
        let unexpected = match written.as_str() {
            "" => {
                self.nothing("write `HEALTHCHECK CMD <command>` or `HEALTHCHECK NONE`");
                return None;
            }
            "NONE" if !rest.is_empty() => Some(self.line.place(rest.clone())),
            "NONE" => self.flags.first_place(),
            _ => None,
        };
        if let Some(span) = unexpected {
            self.error("HEALTHCHECK NONE takes nothing else", span, "too much", "");
            return None;
        }
        match written.as_str() {
            "NONE" => Some(HealthcheckLine::None),
            "CMD" => {
                self.range = rest;
                let retries = match self.flags.word("retries") {
                    Some(word) => match word.value.parse::<u32>() {
                        Ok(retries) => i64::from(retries),
                        Err(_) => {
                            let message = format!("`{}` is not a number of retries", word.value);
                            self.error(message, word.span, "not a number", "");
                            return None;
                        }
                    },
                    None => 0,
                };
                let interval = self.duration("interval")?;
                let timeout = self.duration("timeout")?;
                let start_period = self.duration("start-period")?;
                let start_interval = self.duration("start-interval")?;
                let command = self.command()?;
                if command.form == Form::Exec(Vec::new()) {
                    self.nothing("");
                    return None;
                }
                Some(HealthcheckLine::Cmd { command, interval, timeout, start_period, start_interval, retries })
            }
            _ => {
                let message = format!("HEALTHCHECK does not know `{written}`");
                let hint = "write `HEALTHCHECK CMD <command>` or `HEALTHCHECK NONE`";
                self.error(message, self.line.place(kind), "neither CMD nor NONE", hint);
                None
            }
        }
    }

    fn duration(&mut self, flag: &str) -> Option<i64> {
        let Some(word) = self.flags.word(flag) else { return Some(0) };
        match duration::parse(&word.value) {
            Some(0) => Some(0),
            // Docker's own limit.
            Some(nanoseconds) if nanoseconds >= 1_000_000 => Some(nanoseconds),
            Some(_) => {
                self.error(format!("`--{flag}` is shorter than a millisecond"), word.span, "too short", "");
                None
            }
            None => {
                let message = format!("`{}` is not a duration", word.value);
                self.error(message, word.span, "not a duration", "write it as `30s` or `1m30s`");
                None
            }
        }
    }
}
