//! Progress on a terminal: what is done scrolls up, what runs is drawn over at the bottom.
//!
//! Events only change the board; a thread draws it ten times a second. So a step that writes thousands of lines costs
//! nothing, and a terminal that is stopped (Ctrl-S) stops no build.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::event::{Event, Outcome, Sink};
use crate::report::human;
use crate::report::progress::board::{self, Board};
use crate::report::progress::live::Live;
use crate::report::progress::{Options, Output, Progress, Size};
use crate::report::style::{Line, Look, Paint};
use crate::report::summary::{self, RunSummary};
use crate::report::text;

const FRAME: Duration = Duration::from_millis(100);
/// In larger runs a line for each reused node would push away what matters; the total counts them.
const REUSED_LINES_UP_TO: usize = 40;
/// Work behind the critical path is worth a glance, not the screen.
const BACKGROUND_LINES: usize = 3;
/// A column of names is not widened further by a single long one.
const WIDEST_NAME: usize = 32;
/// Columns that are left for the last line of output before it is shown at all.
const OUTPUT_ROOM: usize = 20;

pub struct Tty {
    shared: Arc<Shared>,
    ticker: Option<JoinHandle<()>>,
}

struct Shared {
    /// Taken before `state`, so that frames are written in the order in which they were made.
    screen: Mutex<Screen>,
    state: Mutex<State>,
    closed: Condvar,
    size: Size,
    options: Options,
}

struct Screen {
    out: Output,
    live: Live,
}

#[derive(Default)]
struct State {
    board: Board,
    /// Whole lines that are to stay, not yet written.
    permanent: String,
    name_width: usize,
    closed: bool,
}

impl Tty {
    pub fn new(out: Output, size: Size, options: Options) -> Self {
        let mut tty = Tty::still(out, size, options);
        let shared = tty.shared.clone();
        // Without the thread the terminal is drawn when the run ends: less to see, but nothing is lost.
        tty.ticker = std::thread::Builder::new().name("progress".into()).spawn(move || shared.tick()).ok();
        tty
    }

    /// Draws only when it is told to.
    pub(super) fn still(out: Output, size: Size, options: Options) -> Self {
        let state = State { name_width: options.name_width.min(WIDEST_NAME), ..State::default() };
        let shared = Shared {
            screen: Mutex::new(Screen { out, live: Live::default() }),
            state: Mutex::new(state),
            closed: Condvar::new(),
            size,
            options,
        };
        Tty { shared: Arc::new(shared), ticker: None }
    }

    #[cfg(test)]
    pub(super) fn draw(&self) {
        self.shared.draw();
    }
}

impl Sink for Tty {
    fn event(&self, event: Event) {
        let shared = &self.shared;
        let columns = usable(&shared.size).0;
        lock(&shared.state).event(&event, &shared.options, columns);
    }
}

impl Progress for Tty {
    fn finish(&self, summary: &RunSummary) {
        let columns = usable(&self.shared.size).0;
        let text = summary::render(summary, self.shared.options.look, Some(columns), self.shared.options.detail);
        {
            let mut state = lock(&self.shared.state);
            if !state.closed {
                if !state.permanent.is_empty() || state.board.done() > 0 {
                    state.permanent.push('\n');
                }
                state.permanent.push_str(&text);
            }
        }
        self.close();
    }

    fn close(&self) {
        lock(&self.shared.state).closed = true;
        self.shared.closed.notify_all();
        self.shared.draw();
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        self.close();
        if let Some(ticker) = self.ticker.take() {
            // It has nothing to say that matters here, whether or not it came to its end.
            let _ = ticker.join();
        }
    }
}

impl Shared {
    fn tick(&self) {
        loop {
            let state = lock(&self.state);
            if state.closed {
                return;
            }
            let (state, _) = self.closed.wait_timeout(state, FRAME).unwrap_or_else(PoisonError::into_inner);
            if state.closed {
                return;
            }
            drop(state);
            self.draw();
        }
    }

    fn draw(&self) {
        let mut screen = lock(&self.screen);
        let (columns, rows) = usable(&self.size);
        let (permanent, frame) = {
            let mut state = lock(&self.state);
            let frame = if state.closed {
                Vec::new()
            } else {
                state.frame(self.options.clock.elapsed(), columns, rows, self.options.look)
            };
            (std::mem::take(&mut state.permanent), frame)
        };
        // The lines are a column short of the edge, the terminal itself is not.
        let bytes = screen.live.draw(&permanent, frame, columns + 1);
        if !bytes.is_empty() {
            // A terminal that went away must not end the build.
            let _ = screen.out.write_all(bytes.as_bytes()).and_then(|()| screen.out.flush());
        }
    }
}

/// Columns and rows that a frame may use: one less of each than there are, and some where there are none.
fn usable(size: &Size) -> (usize, usize) {
    let (columns, rows) = size();
    (columns.saturating_sub(1).max(1), rows.saturating_sub(1).max(1))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn event(&mut self, event: &Event, options: &Options, columns: usize) {
        if self.closed {
            return;
        }
        let (board, look) = (&mut self.board, options.look);
        board.apply(event, options.clock.elapsed());
        match event {
            Event::NodeStarted { node, .. } => self.widen(node),
            Event::NodeFinished { node, outcome, duration } => {
                let quiet = matches!(outcome, Outcome::Reused(_)) && board.total.unwrap_or(0) > REUSED_LINES_UP_TO;
                let verdict = board.verdict(node, outcome, *duration, look);
                let below = match outcome {
                    Outcome::Failed(error) => board.failure(node, error, options.logs.as_deref(), look),
                    _ => Vec::new(),
                };
                board.forget(node);
                if !quiet {
                    self.widen(node);
                    self.stay(&board::verdict_line(node, self.names(columns), &verdict).render(look, None));
                }
                for line in below {
                    self.stay(&line);
                }
            }
            Event::StepRetried { node, step, attempt, attempts, wait, reason } => {
                let text = board::retry_text(board.get(node), *step, (*attempt, *attempts), *wait, reason);
                for line in board::warning_lines(Some(node), &text, look) {
                    self.stay(&line);
                }
            }
            Event::Warning { node, message } => {
                for line in board::warning_lines(node.as_deref(), message, look) {
                    self.stay(&line);
                }
            }
            _ => {}
        }
    }

    fn stay(&mut self, line: &str) {
        self.permanent.push_str(line);
        self.permanent.push('\n');
    }

    fn widen(&mut self, name: &str) {
        self.name_width = self.name_width.max(text::width(name)).min(WIDEST_NAME);
    }

    /// Lines of at most `columns`, at most `rows` of them.
    fn frame(&self, now: Duration, columns: usize, rows: usize, look: Look) -> Vec<String> {
        let spinner = look.spinner((now.as_millis() / FRAME.as_millis()) as usize);
        let mut lines = Vec::new();

        let room = rows.saturating_sub(1);
        let running = self.board.running();
        let (count, shown) = (running.len(), shown(running.len(), room));
        lines.extend(running.take(shown).map(|(name, node)| self.running(name, node, spinner, now, columns, look)));
        if count > shown && room > 0 {
            let more = Line::new().with(Paint::Dim, format!("  {} and {} more", look.ellipsis(), count - shown));
            lines.push(more.render(look, Some(columns)));
        }

        let room = room.saturating_sub(lines.len()).min(BACKGROUND_LINES);
        let background = self.board.background();
        let (count, shown) = (background.len(), self::shown(background.len(), room));
        lines.extend(background.take(shown).map(|(name, title)| {
            let name = text::pad(&text::one_line(name), self.names(columns));
            Line::new().with(Paint::Dim, format!("  {name}  {title}")).render(look, Some(columns))
        }));
        if count > shown && room > 0 {
            let more = format!("  {} and {} more in the background", look.ellipsis(), count - shown);
            lines.push(Line::new().with(Paint::Dim, more).render(look, Some(columns)));
        }

        if self.board.total.is_some() || !lines.is_empty() || self.board.done() > 0 {
            lines.push(self.total(now, columns, look));
        }
        lines
    }

    /// Names take no more than a third of the terminal.
    fn names(&self, columns: usize) -> usize {
        self.name_width.min(columns / 3)
    }

    /// `⠹ keystone   12s  3/9  Install packages: memcached · Unpacking libevent…`
    fn running(
        &self,
        name: &str,
        node: Option<&board::Node>,
        spinner: &str,
        now: Duration,
        columns: usize,
        look: Look,
    ) -> String {
        let width = self.names(columns);
        let name = text::pad(&text::truncate(&text::one_line(name), width, look.ellipsis()), width);
        let mut line = Line::new().with(Paint::Running, format!("{spinner} ")).with(Paint::Strong, name);
        let Some(node) = node else { return line.render(look, Some(columns)) };

        let elapsed = human::elapsed(now.saturating_sub(node.started));
        line.push(Paint::Dim, format!("  {}", text::pad_left(&elapsed, 6)));
        match &node.step {
            Some(step) => {
                line.push(Paint::Dim, format!("  {}", text::pad_left(&format!("{}/{}", step.number, step.of), 5)));
                line.push(Paint::None, format!("  {}", step.title));
            }
            None => {
                let title = node.background.as_deref().unwrap_or(&node.reason);
                line.push(Paint::Dim, format!("  {title}"));
            }
        }
        if let Some(output) = node.last_line()
            && line.width() + OUTPUT_ROOM <= columns
        {
            line.push(Paint::Dim, format!("  {} {output}", look.dot()));
        }
        line.render(look, Some(columns))
    }

    /// `[====    ] 12/40  built 5, reused 7, running 2 · 1m03s, about 2m10s left`
    fn total(&self, now: Duration, columns: usize, look: Look) -> String {
        let board = &self.board;
        let done = board.done();
        let bar = match columns {
            0..40 => 8,
            40..80 => 14,
            _ => 22,
        };
        let mut line = Line::new();
        match board.total {
            Some(total) => line.bar(look, done, total, bar).push(Paint::Strong, format!(" {done}/{total}")),
            None => line.push(Paint::Strong, format!("{done} done")),
        }
        let counts = [
            (board.built, "built", Paint::Done),
            (board.reused, "reused", Paint::Dim),
            (board.failed, "failed", Paint::Failed),
            (board.left_out, "skipped", Paint::Warning),
            (board.running().len(), "running", Paint::Running),
        ];
        let mut separator = "  ";
        for (n, what, paint) in counts.into_iter().filter(|(n, ..)| *n > 0) {
            line.push(Paint::None, separator);
            line.push(paint, format!("{what} {n}"));
            separator = ", ";
        }
        line.push(Paint::Dim, format!(" {} {}", look.dot(), human::elapsed(now)));
        if let Some(remaining) = board.remaining(now) {
            line.push(Paint::Dim, format!(", {remaining}"));
        }
        line.render(look, Some(columns))
    }
}

/// How many of `count` lines are shown in `room` lines, when one of them says how many are not.
fn shown(count: usize, room: usize) -> usize {
    if count <= room { count } else { room.saturating_sub(1) }
}
