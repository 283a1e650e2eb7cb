//! The progress of a copy, on a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use braid_imaging::{Map, Plan, State, Step};

use braid_console::Globals;
use braid_console::output::size::format_size;

const EVERY: Duration = Duration::from_millis(500);
/// The copy's rate is averaged over this time.
const WINDOW: Duration = Duration::from_secs(10);

/// A progress line on the terminal that is overwritten in place.
pub(super) struct Progress {
    is_shown: bool,
    shown: Instant,
    /// Time and bytes read at the start of the rate's window.
    window: (Instant, u64),
    rate: Option<u64>,
}

impl Progress {
    pub(super) fn new(map: &Map, globals: &Globals) -> Self {
        let is_shown = !globals.json && std::io::stderr().is_terminal();
        let now = Instant::now();
        Self { is_shown, shown: now, window: (now, map.bytes(State::Done)), rate: None }
    }

    pub(super) fn show(&mut self, plan: &Plan) {
        if !self.is_shown || self.shown.elapsed() < EVERY {
            return;
        }
        self.shown = Instant::now();
        let done = plan.map().bytes(State::Done);
        let (since, before) = self.window;
        let passed = since.elapsed();
        if self.rate.is_none() || passed > WINDOW {
            let milliseconds = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).max(1);
            self.rate = Some(done.saturating_sub(before).saturating_mul(1000) / milliseconds);
        }
        if passed > WINDOW {
            self.window = (Instant::now(), done);
        }
        let line = line(plan, self.rate.unwrap_or(0));
        // A failed write of the progress line does not matter.
        let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
    }

    pub(super) fn end(&self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// `copying 1 of 3   37.4 %   12 GiB of 33 GiB   118 MiB/s   180 s left   2 bad places`
fn line(plan: &Plan, bytes_per_second: u64) -> String {
    let map = plan.map();
    let (size, done) = (map.size_bytes(), map.bytes(State::Done));
    let step = match plan.step() {
        Step::Copy(pass) => format!("copying {pass} of 3"),
        Step::Trim => "trimming".to_owned(),
        Step::Scrape => "scraping".to_owned(),
        Step::Retry(number) => format!("trying again, {number}"),
        Step::Over => "done".to_owned(),
    };
    let tenths = u128::from(done) * 1000 / u128::from(size.max(1));
    let mut words = vec![
        step,
        format!("{}.{} %", tenths / 10, tenths % 10),
        format!("{} of {}", format_size(done), format_size(size)),
        format!("{}/s", format_size(bytes_per_second)),
    ];
    // The time left is shown only for the copy passes; later passes count places, not bytes.
    if matches!(plan.step(), Step::Copy(_))
        && let Some(left) = map.bytes(State::Untried).checked_div(bytes_per_second)
    {
        words.push(format!("{left} s left"));
    }
    let failed = [State::Untrimmed, State::Unscraped, State::Bad].map(|state| map.bytes(state));
    let failed: u64 = failed.iter().sum();
    if failed > 0 {
        words.push(format!("{} not read so far", format_size(failed)));
    }
    words.join("   ")
}
