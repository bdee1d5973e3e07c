//! Starts a helper, hands it a request, reads its output and its report, and passes a cancellation on.

use std::io::{PipeReader, PipeWriter, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::disk::Watch;
use super::helper::COMMAND;
use super::helper::spec::{Command, Report, Request};
use super::helper::wire::Wire;
use super::output::Lines;
use super::terminal::{Shown, Terminal};
use crate::error::{Context as _, Error, Result};
use crate::event::{Cancel, Stream};

/// How long a step has to clean up when the run is cancelled.
const GRACE: Duration = Duration::from_secs(5);
/// How often a cancelled run is asked whether it is to stop at once.
const GLANCE: Duration = Duration::from_millis(50);

/// What happens to the standard streams of a step.
pub enum Streams<'a> {
    /// Nothing to read; output comes here, line by line.
    Capture(&'a mut dyn FnMut(Stream, String)),
    /// Standard output is no text: it goes to a pipe of the caller's. Lines come from standard error.
    Pipe(PipeWriter, &'a mut dyn FnMut(Stream, String)),
    /// The caller's own, and its standard input when it is given.
    Inherit(Option<BorrowedFd<'a>>),
    /// A terminal of the step's own, shown on the caller's.
    Terminal(Terminal),
}

/// How a helper came to its end.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Reported(Report),
    /// It was ended because it took too long.
    OutOfTime,
}

/// As [`call_within`], with all the time in the world.
pub fn call(program: &Path, request: &Request, streams: Streams<'_>, cancel: &Cancel) -> Result<Report> {
    match call_within(program, request, streams, cancel, Bounds::default())? {
        End::Reported(report) => Ok(report),
        End::OutOfTime => Err(Error::failed("the helper of a step was ended for want of time")),
    }
}

/// What a step may take; it is stopped when it wants more.
#[derive(Default)]
pub struct Bounds<'w, 'd> {
    pub time: Option<Duration>,
    pub disk: Option<&'w mut Watch<'d>>,
}

/// Returns when nothing of the helper or its step is left. `Report::Failure` comes as an error.
pub fn call_within(
    program: &Path,
    request: &Request,
    streams: Streams<'_>,
    cancel: &Cancel,
    bounds: Bounds<'_, '_>,
) -> Result<End> {
    cancel.check()?;
    let what = || "cannot start the helper of a step".to_owned();
    let (wire, theirs) = Wire::pair().unusable(what)?;
    let mut command = Process::new(program);
    command.args([COMMAND, "outer"]).env_clear().current_dir("/").stdin(Stdio::from(theirs));
    // Signals of the terminal reach the main process alone, which decides what they mean.
    command.process_group(0);
    let mut outputs: [Option<(Stream, PipeReader, Lines)>; 2] = [None, None];
    let mut sink: Option<&mut dyn FnMut(Stream, String)> = None;
    let (mut stdin, mut terminal) = (None, None);
    match streams {
        Streams::Capture(lines) => {
            let (out, out_writer) = std::io::pipe().unusable(what)?;
            let (err, err_writer) = std::io::pipe().unusable(what)?;
            command.stdout(out_writer).stderr(err_writer);
            outputs = [Some((Stream::Stdout, out, Lines::default())), Some((Stream::Stderr, err, Lines::default()))];
            sink = Some(lines);
        }
        Streams::Pipe(out, lines) => {
            let (err, err_writer) = std::io::pipe().unusable(what)?;
            command.stdout(out).stderr(err_writer);
            outputs[1] = Some((Stream::Stderr, err, Lines::default()));
            sink = Some(lines);
        }
        Streams::Inherit(input) => stdin = input,
        Streams::Terminal(given) => {
            // Of the caller's terminal nothing but what is shown on it reaches the step.
            command.stdout(Stdio::null()).stderr(Stdio::null());
            terminal = Some(given);
        }
    }
    let child = command.spawn().unusable(what)?;
    // The pipes' other ends would keep the output open.
    drop(command);
    // If it ended before it could read this, its report says why.
    let _ = wire.send_with_fd(request, stdin);
    let mut call = Call {
        wire,
        child,
        outputs,
        terminal,
        shown: None,
        report: None,
        listening: true,
        killable: !matches!(request, Request::Run(_) | Request::Tool(_)),
        stopping: Stopping::No,
        // A limit beyond the end of time is none.
        deadline: bounds.time.and_then(|limit| Instant::now().checked_add(limit)),
        watch: bounds.disk,
        no_room: None,
    };
    let result = call.run(
        &mut |stream, line| {
            if let Some(sink) = &mut sink {
                sink(stream, line);
            }
        },
        cancel,
    );
    let stopped = !matches!(call.stopping, Stopping::No);
    if result.is_err() {
        // Its death takes everything below it along.
        let _ = call.child.kill();
    }
    let status = call.child.wait().unusable(|| "cannot wait for the helper of a step".into())?;
    if let Some(shown) = call.shown.take() {
        shown.finish();
    }
    result?;
    if let Some(error) = call.no_room {
        return Err(error);
    }
    if stopped && cancel.is_cancelled() {
        return Err(Error::interrupted());
    }
    match call.report {
        _ if stopped => Ok(End::OutOfTime),
        Some(Report::Failure(failure)) => Err(failure.into()),
        Some(report) => Ok(End::Reported(report)),
        None => Err(Error::unusable("the helper of a step ended without a word").cause(status)),
    }
}

enum Stopping {
    No,
    Asked(Instant),
    Now,
}

struct Call<'w, 'd> {
    wire: Wire,
    child: Child,
    outputs: [Option<(Stream, PipeReader, Lines)>; 2],
    /// Until the helper has made the step's.
    terminal: Option<Terminal>,
    shown: Option<Shown>,
    report: Option<Report>,
    /// The helper has not closed its end.
    listening: bool,
    /// It has no step that could be asked to end: it can be killed as it is.
    killable: bool,
    stopping: Stopping,
    deadline: Option<Instant>,
    watch: Option<&'w mut Watch<'d>>,
    /// Why it is stopped, when nobody has asked for that.
    no_room: Option<Error>,
}

impl Call<'_, '_> {
    fn run(&mut self, line: &mut dyn FnMut(Stream, String), cancel: &Cancel) -> Result<()> {
        let mut buffer = vec![0u8; 64 * 1024];
        while self.listening || self.outputs.iter().any(Option::is_some) {
            self.stop_if_asked(cancel);
            self.stop_if_full();
            let (wire_ready, output_ready) = self.wait(cancel)?;
            if wire_ready {
                match self.wire.receive_with_fd::<Report>() {
                    Ok(Some((Report::Terminal, Some(theirs)))) => {
                        self.shown = self.terminal.take().map(|ours| ours.show(theirs)).transpose()?;
                    }
                    Ok(Some((report, _))) => self.report = Some(report),
                    Ok(None) | Err(_) => self.listening = false,
                }
            }
            for (output, ready) in self.outputs.iter_mut().zip(output_ready) {
                let Some((stream, pipe, lines)) = output.as_mut().filter(|_| ready) else { continue };
                let stream = *stream;
                match pipe.read(&mut buffer) {
                    Ok(0) => {
                        lines.finish(|text| line(stream, text));
                        *output = None;
                    }
                    Ok(n) => lines.push(&buffer[..n], |text| line(stream, text)),
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(Error::unusable("cannot read the output of a step").cause(e)),
                }
            }
        }
        Ok(())
    }

    /// What can be read: the helper's report, the two outputs.
    fn wait(&self, cancel: &Cancel) -> Result<(bool, [bool; 2])> {
        // A cancelled run stays cancelled: its descriptor says nothing new.
        let stopping = !matches!(self.stopping, Stopping::No);
        let [out, err] = self.outputs.each_ref().map(|o| o.as_ref().map(|(_, pipe, _)| pipe.as_fd()));
        let wanted = [self.listening.then(|| self.wire.as_fd()), out, err, (!stopping).then(|| cancel.fd())];
        let mut fds: Vec<PollFd<'_>> =
            wanted.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let look = self.watch.as_ref().map(|watch| watch.pause());
        let time = if stopping { Some(GLANCE) } else { left.into_iter().chain(look).min() };
        // A time that the kernel cannot take is longer than anybody waits.
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut fds, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::unusable("cannot wait for the helper of a step").cause(e)),
        }
        let mut answers = fds.iter().map(|fd| !fd.revents().is_empty());
        let [wire, out, err, _] = wanted.map(|fd| fd.is_some() && answers.next().unwrap_or(false));
        Ok((wire, [out, err]))
    }

    fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn stop_if_full(&mut self) {
        if !matches!(self.stopping, Stopping::No) {
            return;
        }
        if let Some(watch) = &mut self.watch
            && let Err(error) = watch.look()
        {
            self.no_room = Some(error);
            self.stopping = Stopping::Now;
            self.tell(Command::Kill);
        }
    }

    fn tell(&mut self, command: Command) {
        let told = !self.killable && self.wire.send(&command).is_ok();
        if !told && command == Command::Kill {
            let _ = self.child.kill();
        }
    }

    fn stop_if_asked(&mut self, cancel: &Cancel) {
        let command = match self.stopping {
            Stopping::Now => return,
            _ if !cancel.is_cancelled() && !self.is_overdue() => return,
            _ if cancel.is_forced() || self.killable => Command::Kill,
            Stopping::Asked(since) if since.elapsed() < GRACE => return,
            Stopping::Asked(_) => Command::Kill,
            Stopping::No => Command::Terminate,
        };
        self.stopping = match command {
            Command::Terminate => Stopping::Asked(Instant::now()),
            Command::Kill => Stopping::Now,
        };
        self.tell(command);
    }
}
