//! `braid top`: shows arrays live: members, their queues, the cache, the job and its pace.
//!
//! ```text
//!   poller (a thread) ──a look at every array──▶  view: two looks, which array, what keys do
//!                                                   │ rates (pure): the difference of two looks
//!                                                   ▼
//!   terminal  ◀── draw ── page (pure): lines of text with their styles
//! ```
//!
//! `top` sends the requests of `braid status` and `braid elevators`, and changes nothing. A
//! separate thread sends the requests, so that keys work while a server is slow.
//!
//! Invariants
//! - However `braid top` ends, the terminal is restored, and messages are printed after that
//!   `[check: q_ends_it_and_the_terminal_is_as_it_was, a_server_that_stops_ends_it_with_an_error]`.

mod page;
mod poller;
mod rates;
#[cfg(test)]
mod samples;
mod view;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_control::model::{Top, TopArray, VERSION};
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, poll};

use super::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::shell::shell_word;
use braid_console::signals::flag_ending;
use braid_discovery::status::words::Manner;
use poller::{Poller, look};
use view::{Next, View};

/// Interval of checking for keys, signals and answers.
const NAP: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, its UUID, or the path of its control socket; without it, all that are
    /// served here, one at a time.
    #[arg(value_name = "ARRAY")]
    array: Option<String>,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Look twice, print that as text, and end.
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    if args.once {
        return once(args, globals);
    }
    if globals.json || !std::io::stdout().is_terminal() {
        return Err(no_terminal(args, globals));
    }
    let word = args.array.as_deref();
    let first = look(word)?;
    let asked_to_end = Arc::new(AtomicBool::new(false));
    flag_ending(&asked_to_end).map_err(|error| system("signals cannot be watched", &error))?;
    let poller = Poller::start(word, Duration::from_secs(args.interval));
    let poller = poller
        .map_err(|error| system("the thread that watches arrays could not be started", &error))?;
    end_with_terminal().map_err(|error| system("the terminal cannot be watched", &error))?;
    let view = View::new(first, args.interval, globals.paint_out.is_on());
    let mut screen = Screen::open()?;
    let ended = screen.show(view, &poller, &asked_to_end);
    drop(screen);
    ended
}

/// Ends the process when the terminal is gone: a closed window or a broken connection. Without this
/// watch, crossterm reads such a terminal in an endless loop, and handles neither keys nor signals.
fn end_with_terminal() -> std::io::Result<()> {
    let watch = || {
        let output = std::io::stdout();
        loop {
            // No events of the terminal are requested: POLLHUP is always reported.
            let mut watched = [PollFd::new(&output, PollFlags::empty())];
            match poll(&mut watched, None) {
                Err(rustix::io::Errno::INTR) => {}
                // The terminal is gone, so it needs no restoring.
                Ok(_) => std::process::exit(i32::from(Exit::Interrupted.number())),
                Err(_) => return,
            }
        }
    };
    std::thread::Builder::new().name("braid-terminal".into()).spawn(watch).map(drop)
}

/// The terminal in raw mode; a drop restores its mode.
struct Screen(ratatui::DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, CliError> {
        // ratatui also restores the terminal before a panic message.
        ratatui::try_init().map(Self).map_err(|error| unusable(&error))
    }

    /// Shows arrays until a key or a signal ends `top`, or no array is left.
    fn show(
        &mut self,
        mut view: View,
        poller: &Poller,
        asked_to_end: &AtomicBool,
    ) -> Result<Exit, CliError> {
        let mut is_new = true;
        loop {
            if is_new {
                let drawn = self.0.draw(|frame| view.draw(frame.area(), frame.buffer_mut()));
                drawn.map_err(|error| unusable(&error))?;
            }
            if asked_to_end.load(Ordering::Relaxed) {
                return Ok(Exit::Interrupted);
            }
            is_new = false;
            if event::poll(NAP).map_err(|error| unusable(&error))? {
                match event::read().map_err(|error| unusable(&error))? {
                    Event::Key(key) => match view.handle_key(key) {
                        Next::Ends => return Ok(Exit::Done),
                        Next::GoesOn => is_new = true,
                    },
                    Event::Resize(..) => is_new = true,
                    _ => {}
                }
            }
            while let Some(answer) = poller.answer() {
                view.take(answer)?;
                is_new = true;
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = ratatui::try_restore();
    }
}

fn unusable(error: &std::io::Error) -> CliError {
    let error = system("the terminal cannot be used", error);
    error.remedy(Risk::Look, "See the same as text", "braid top --once")
}

fn no_terminal(args: &Args, globals: &Globals) -> CliError {
    let word = args.array.as_deref().map(|word| format!(" {}", shell_word(word)));
    let word = word.unwrap_or_default();
    let why = if globals.json {
        "--json needs an end, and top runs until it is closed"
    } else {
        "standard output is not a terminal, and top overwrites its own output"
    };
    let json = if globals.json { " --json" } else { "" };
    CliError::new(Code::NoTerminal, "top has no terminal")
        .because(why)
        .remedy(Risk::Look, "Sample twice, and end", format!("braid{json} top{word} --once"))
        .remedy(
            Risk::Look,
            "Print the state repeatedly",
            format!("braid{json} status{word} --watch"),
        )
}

/// Polls the arrays twice, and prints the second answers with the rates as text.
fn once(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let word = args.array.as_deref();
    let before = look(word)?;
    std::thread::sleep(Duration::from_secs(args.interval));
    let now = look(word)?;
    if !globals.json {
        out!("{}", view::text(&before, &now, Manner::now()));
        return Ok(Exit::Done);
    }
    let one = |seen: &poller::ArrayAnswers| TopArray {
        array: seen.running.array.clone(),
        elevators: seen.elevators.clone(),
        rates: rates::between(&before, &now, &seen.running.control),
    };
    let top = Top { version: VERSION, arrays: now.arrays.iter().map(one).collect() };
    outjson!(&serde_json::to_value(&top).expect("it is made of text and numbers"));
    Ok(Exit::Done)
}
