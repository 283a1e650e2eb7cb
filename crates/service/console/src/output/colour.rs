//! Decides whether output has colour, and colours text.
//!
//! The first line that applies decides whether output has colour:
//!
//! | Condition | Colour |
//! |---|---|
//! | `--color never` / `always` | no / yes |
//! | `NO_COLOR` is set and not empty (no-color.org) | no |
//! | `CLICOLOR_FORCE` is set, not empty and not `0` (bixense.com/clicolors) | yes |
//! | `TERM` is `dumb` | no |
//! | the stream is a terminal | yes |
//! | otherwise | no |
//!
//! Invariant: the first line of the table that applies decides
//! `[check: the_first_condition_that_applies_decides]`.

use std::io::IsTerminal;

/// The argument of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourWhen {
    /// The environment and the terminal decide whether output has colour.
    #[default]
    Auto,
    /// Output always has colour.
    Always,
    /// Output never has colour.
    Never,
}

/// Environment variables that affect the colour of output.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `NO_COLOR`.
    pub no_color: Option<String>,
    /// `CLICOLOR_FORCE`.
    pub clicolor_force: Option<String>,
    /// `TERM`.
    pub term: Option<String>,
}

impl Environment {
    /// Reads these variables from the process's environment.
    pub fn read() -> Self {
        let get = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
        Self { no_color: get("NO_COLOR"), clicolor_force: get("CLICOLOR_FORCE"), term: get("TERM") }
    }
}

/// Kinds of text that have a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// An error's code, such as `error[B031]`.
    Error,
    /// A warning, such as degraded, stale, dangerous.
    Warning,
    /// A good state, such as healthy, done.
    Good,
    /// A command to copy.
    Command,
    /// A heading or a name.
    Strong,
}

/// Colours text, or returns text unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    is_on: bool,
}

impl Paint {
    /// Decides by the table in the module's comment.
    pub fn decide(when: ColourWhen, environment: &Environment, is_terminal: bool) -> Self {
        let is_set = |value: &Option<String>| value.as_deref().is_some_and(|v| !v.is_empty());
        let is_forced = is_set(&environment.clicolor_force)
            && environment.clicolor_force.as_deref() != Some("0");
        let is_on = match when {
            ColourWhen::Always => true,
            ColourWhen::Never => false,
            ColourWhen::Auto if is_set(&environment.no_color) => false,
            ColourWhen::Auto if is_forced => true,
            ColourWhen::Auto => is_terminal && environment.term.as_deref() != Some("dumb"),
        };
        Self { is_on }
    }

    /// Decides by the table in the module's comment, for a stream of this process.
    pub fn for_stream(when: ColourWhen, stream: &impl IsTerminal) -> Self {
        Self::decide(when, &Environment::read(), stream.is_terminal())
    }

    /// Whether text gets colour.
    pub const fn is_on(self) -> bool {
        self.is_on
    }

    /// A `Paint` that never colours text: for files and tests.
    pub const fn plain() -> Self {
        Self { is_on: false }
    }

    /// The text in its colour; unchanged if colour is off.
    pub fn paint(self, style: Style, text: &str) -> String {
        if !self.is_on || text.is_empty() {
            return text.to_string();
        }
        let code = match style {
            Style::Error => "1;31",
            Style::Warning => "33",
            Style::Good => "32",
            Style::Command => "36",
            Style::Strong => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(no_color: &str, force: &str, term: &str) -> Environment {
        let some = |value: &str| (value != "-").then(|| value.to_string());
        Environment { no_color: some(no_color), clicolor_force: some(force), term: some(term) }
    }

    #[test]
    fn the_first_condition_that_applies_decides() {
        use ColourWhen::{Always, Auto, Never};
        let table = [
            (Always, ("1", "-", "dumb"), false, true),
            (Never, ("-", "1", "xterm"), true, false),
            (Auto, ("1", "1", "xterm"), true, false),
            (Auto, ("", "-", "xterm"), true, true),
            (Auto, ("-", "1", "dumb"), false, true),
            (Auto, ("-", "0", "xterm"), false, false),
            (Auto, ("-", "", "xterm"), false, false),
            (Auto, ("-", "-", "dumb"), true, false),
            (Auto, ("-", "-", "xterm"), true, true),
            (Auto, ("-", "-", "-"), true, true),
            (Auto, ("-", "-", "xterm"), false, false),
        ];
        for (when, (no_color, force, term), is_terminal, expected) in table {
            let paint = Paint::decide(when, &environment(no_color, force, term), is_terminal);
            assert_eq!(paint.is_on, expected, "{when:?} {no_color} {force} {term} {is_terminal}");
        }
    }

    #[test]
    fn paint_that_is_off_changes_nothing() {
        let on = Paint { is_on: true };
        assert_eq!(Paint::plain().paint(Style::Error, "error"), "error");
        assert_eq!(on.paint(Style::Error, "error"), "\u{1b}[1;31merror\u{1b}[0m");
        assert_eq!(on.paint(Style::Error, ""), "");
    }
}
