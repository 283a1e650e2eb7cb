//! The state of the terminal: one of the polled arrays, and a line of keys under it.

use std::path::PathBuf;

use braid_control::model::Rates;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Row, Text};
use ratatui::widgets::{Paragraph, Widget};

use super::page::{Frame, Line, Tone, lines};
use super::poller::{ArrayAnswers, ArraysSnapshot};
use super::rates::between;
use braid_console::error::CliError;
use braid_console::error::code::Code;
use braid_console::output::printable::printable;
use braid_console::output::utc::format_utc;
use braid_discovery::status::words::Manner;

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    GoesOn,
    Ends,
}

pub(super) struct View {
    before: Option<ArraysSnapshot>,
    now: ArraysSnapshot,
    /// The socket of the shown array.
    chosen: PathBuf,
    /// The number of lines scrolled off above the terminal's first line.
    scrolled: usize,
    interval_seconds: u64,
    is_coloured: bool,
    /// The error of the last poll of the arrays, if it failed.
    trouble: Option<String>,
}

impl View {
    pub(super) fn new(now: ArraysSnapshot, interval_seconds: u64, is_coloured: bool) -> Self {
        let chosen = first(&now);
        let (before, trouble) = (None, None);
        Self { before, now, chosen, scrolled: 0, interval_seconds, is_coloured, trouble }
    }

    /// Takes the answers of the next poll.
    ///
    /// # Errors
    /// No array is left to show. A server that does not answer is no error: it may answer again.
    pub(super) fn take(
        &mut self,
        answer: Result<ArraysSnapshot, CliError>,
    ) -> Result<(), CliError> {
        match answer {
            Ok(look) => {
                self.before = Some(std::mem::replace(&mut self.now, look));
                self.trouble = None;
                if self.now.of(&self.chosen).is_none() {
                    self.chosen = first(&self.now);
                    self.scrolled = 0;
                }
            }
            Err(error) if matches!(error.code(), Code::NotServed | Code::ServerGone) => {
                return Err(error);
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
        Ok(())
    }

    pub(super) fn handle_key(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::GoesOn;
        }
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Next::Ends;
            }
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return Next::Ends,
            KeyCode::Tab | KeyCode::Right => self.choose(1),
            KeyCode::BackTab | KeyCode::Left => self.choose(self.now.arrays.len() - 1),
            KeyCode::Down => self.scrolled += 1,
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            _ => {}
        }
        Next::GoesOn
    }

    /// Moves the choice of the shown array forward by this many arrays.
    fn choose(&mut self, further: usize) {
        let place = (self.place() + further) % self.now.arrays.len();
        self.chosen.clone_from(&self.now.arrays[place].running.control);
        self.scrolled = 0;
    }

    fn place(&self) -> usize {
        let is_it = |seen: &ArrayAnswers| seen.running.control == self.chosen;
        self.now.arrays.iter().position(is_it).unwrap_or(0)
    }

    pub(super) fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        self.draw_as(area, buffer, Manner::now());
    }

    fn draw_as(&mut self, area: Rect, buffer: &mut Buffer, manner: Manner) {
        let [body, foot] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
        let rates = self.before.as_ref();
        let rates = rates.and_then(|before| between(before, &self.now, &self.chosen));
        let lines = shown(&self.now, self.place(), rates.as_ref(), (body.width.into(), manner));
        let most = lines.len().saturating_sub(body.height.into());
        self.scrolled = self.scrolled.min(most);
        let rows = lines.iter().skip(self.scrolled).map(|line| self.row(line));
        Paragraph::new(Text::from_iter(rows)).render(body, buffer);
        let (words, tone) = self.foot(most, manner);
        Paragraph::new(self.row(&Line { tone, text: words })).render(foot, buffer);
    }

    fn row<'a>(&self, line: &Line) -> Row<'a> {
        Row::styled(line.text.clone(), style(line.tone, self.is_coloured))
    }

    fn foot(&self, most: usize, manner: Manner) -> (String, Tone) {
        if let Some(trouble) = &self.trouble {
            return (format!("q quit   {}", printable(trouble)), Tone::Error);
        }
        let mut words = vec!["q quit".to_owned()];
        let count = self.now.arrays.len();
        if count > 1 {
            words.push(format!("tab array {} of {count}", self.place() + 1));
        }
        if most > 0 {
            words.push("up, down scroll".to_owned());
        }
        words.push(format!(
            "{}, every {} s",
            format_utc(manner.utc_seconds),
            self.interval_seconds
        ));
        (words.join("   "), Tone::Plain)
    }
}

fn first(look: &ArraysSnapshot) -> PathBuf {
    look.arrays.first().expect("a look sees an array").running.control.clone()
}

/// The lines of an array, and notes about arrays that did not answer.
fn shown(
    look: &ArraysSnapshot,
    place: usize,
    rates: Option<&Rates>,
    (columns, manner): (usize, Manner),
) -> Vec<Line> {
    let seen = &look.arrays[place];
    let all: Vec<_> = look.arrays.iter().map(|seen| seen.running.clone()).collect();
    let word = seen.running.word(&all);
    let mut shown = lines(seen, rates, Frame { word: &word, manner, columns });
    let silent = look.silent.iter().map(|why| printable(why).into_owned());
    shown.extend(silent.map(|text| Line { tone: Tone::Error, text }));
    shown
}

fn style(tone: Tone, is_coloured: bool) -> Style {
    let coloured = |colour| {
        if is_coloured { Style::new().fg(colour) } else { Style::new() }
    };
    match tone {
        Tone::Plain => Style::new(),
        Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
        Tone::Good => coloured(Color::Green).add_modifier(Modifier::BOLD),
        Tone::Warning => coloured(Color::Yellow),
        Tone::Error => coloured(Color::Red).add_modifier(Modifier::BOLD),
    }
}

pub(super) fn text(before: &ArraysSnapshot, now: &ArraysSnapshot, manner: Manner) -> String {
    let page = |place: usize, seen: &ArrayAnswers| {
        let rates = between(before, now, &seen.running.control);
        let look = ArraysSnapshot { silent: Vec::new(), ..now.clone() };
        let lines = shown(&look, place, rates.as_ref(), (usize::MAX, manner));
        lines.iter().map(|line| line.text.trim_end().to_owned() + "\n").collect::<String>()
    };
    let pages = now.arrays.iter().enumerate().map(|(place, seen)| page(place, seen));
    let mut text = pages.collect::<Vec<_>>().join("\n");
    now.silent.iter().for_each(|why| text.push_str(&format!("{}\n", printable(why))));
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::samples::{NOW, seen};
    use super::*;

    fn look(names: &[&str], at_ms: u64) -> ArraysSnapshot {
        let one = |name: &&str| {
            let mut seen = seen();
            seen.running.array.name = (*name).to_owned();
            seen.running.control = format!("/run/braid/{name}.control").into();
            seen.running.array.clients.requests += at_ms;
            seen
        };
        let arrays = names.iter().map(one).collect();
        ArraysSnapshot { at: Duration::from_millis(at_ms), arrays, silent: Vec::new() }
    }

    fn screen(view: &mut View, columns: u16, rows: u16) -> Vec<String> {
        let mut terminal =
            Terminal::new(TestBackend::new(columns, rows)).expect("it has no errors");
        let drawn = terminal
            .draw(|frame| view.draw_as(frame.area(), frame.buffer_mut(), NOW))
            .expect("it has no errors");
        let row = |y| (0..columns).map(|x| drawn.buffer[(x, y)].symbol()).collect::<String>();
        (0..rows).map(|y| row(y).trim_end().to_owned()).collect()
    }

    fn press(view: &mut View, code: KeyCode) -> Next {
        view.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn a_frame_has_the_array_its_members_and_the_keys() {
        let mut view = View::new(look(&["tank"], 0), 1, true);
        view.take(Ok(look(&["tank"], 2000))).expect("a look");
        let rows = screen(&mut view, 110, 24);
        assert!(rows[0].starts_with("tank  RAID-6  4 GiB  DEGRADED"), "{rows:?}");
        assert!(rows[1].contains("1000 requests/s"), "two looks make a rate: {rows:?}");
        let slow = rows.iter().find(|row| row.contains("SLOW")).expect("the slow one is marked");
        assert!(slow.contains("/dev/sdc") && slow.contains("deadline"), "{slow}");
        assert_eq!(rows[23], "q quit   2026-11-22 15:48:00 UTC, every 1 s");
    }

    #[test]
    fn a_small_terminal_shows_a_part_and_scrolls() {
        let mut view = View::new(look(&["tank"], 0), 1, false);
        let rows = screen(&mut view, 40, 5);
        assert!(rows[0].starts_with("tank") && rows[4].contains("up, down scroll"), "{rows:?}");
        for _ in 0..100 {
            press(&mut view, KeyCode::Down);
        }
        let rows = screen(&mut view, 40, 5);
        assert!(rows[3].contains("spare"), "the last one, and nothing behind it: {rows:?}");
        press(&mut view, KeyCode::Up);
        assert!(!screen(&mut view, 40, 5)[3].contains("spare"));
        for (columns, rows) in [(1, 1), (0, 0), (3, 2), (400, 1)] {
            assert_eq!(screen(&mut view, columns, rows).len(), usize::from(rows));
        }
    }

    #[test]
    fn keys_choose_the_array_and_one_that_goes_is_shown_no_more() {
        let mut view = View::new(look(&["a", "b", "c"], 0), 1, false);
        let name = |view: &mut View| screen(view, 80, 9)[0].chars().next();
        assert_eq!(name(&mut view), Some('a'));
        press(&mut view, KeyCode::Tab);
        press(&mut view, KeyCode::Right);
        assert_eq!(name(&mut view), Some('c'));
        press(&mut view, KeyCode::Right);
        assert_eq!(name(&mut view), Some('a'));
        press(&mut view, KeyCode::Left);
        assert_eq!(name(&mut view), Some('c'));
        view.take(Ok(look(&["a", "b"], 1000))).expect("a look");
        assert_eq!(name(&mut view), Some('a'));
    }

    #[test]
    fn keys_end_it_and_others_do_not() {
        let mut view = View::new(look(&["tank"], 0), 1, false);
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert_eq!(press(&mut view, code), Next::Ends);
        }
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.handle_key(interrupt), Next::Ends);
        for code in [KeyCode::Char('c'), KeyCode::Tab, KeyCode::BackTab, KeyCode::Home] {
            assert_eq!(press(&mut view, code), Next::GoesOn);
        }
    }

    #[test]
    fn a_server_that_is_gone_ends_it_and_one_that_is_silent_does_not() {
        let mut view = View::new(look(&["tank"], 0), 1, false);
        let silent = CliError::new(Code::ServerSilent, "the server\u{1b} does not answer");
        view.take(Err(silent)).expect("it may answer again");
        let rows = screen(&mut view, 80, 9);
        assert_eq!(rows[8], "q quit   B078: the server\\u{1b} does not answer");
        view.take(Ok(look(&["tank"], 1000))).expect("a look");
        assert!(!screen(&mut view, 80, 9)[8].contains("B078"));
        for code in [Code::NotServed, Code::ServerGone] {
            let ended = view.take(Err(CliError::new(code, "gone"))).expect_err("it is over");
            assert_eq!(ended.code(), code);
        }
    }

    #[test]
    fn two_looks_are_text_without_a_terminal() {
        let text = text(&look(&["a", "b"], 0), &look(&["a", "b"], 1000), NOW);
        assert!(text.starts_with("a  RAID-6") && text.contains("\n\nb  RAID-6"), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
    }
}
