//! An error as text for people and as JSON for programs.
//!
//! JSON has exactly the keys `code`, `title`, `cause`, `subject` and `remedies`, each remedy has
//! `label`, `command` and `risk`; `subject` is null if the error has no subject. Text escapes
//! control characters; JSON has names unchanged, since its own escapes make them safe.

use braid_control::model::{Problem, ProblemRemedy, RemedyRisk};
use serde_json::Value;

use super::code::Code;
use super::{CliError, Remedy, Risk};
use crate::output::colour::{Paint, Style};
use crate::output::printable::printable;

impl CliError {
    /// The error's text for standard error, which ends with a newline.
    pub fn to_text(&self, paint: Paint) -> String {
        let mark = paint.paint(Style::Error, &format!("error[{}]:", self.code));
        let mut text = format!("{mark} {}\n", paint.paint(Style::Strong, &printable(&self.what)));
        for line in &self.why {
            text.push_str(&format!("  {}\n", printable(line)));
        }
        let remedies = self.remedies();
        let in_column = remedies.iter().filter(|remedy| !remedy.command.is_empty());
        let labels = in_column.map(|remedy| remedy.label.chars().count() + 1);
        let width = labels.max().unwrap_or(0);
        for remedy in &remedies {
            let label = printable(&remedy.label);
            if remedy.command.is_empty() {
                text.push_str(&format!("  {label}\n"));
                continue;
            }
            let label = format!("{:<width$}", format!("{label}:"));
            let style = if remedy.risk == Risk::Destroy { Style::Warning } else { Style::Command };
            let command = paint.paint(style, &printable(&remedy.command));
            text.push_str(&format!("  {label}  {command}\n"));
        }
        text
    }

    /// Converts the error to an answer of the control API.
    pub fn to_problem(&self) -> Problem {
        let remedy = |remedy: &Remedy| ProblemRemedy {
            label: remedy.label.clone(),
            command: remedy.command.clone(),
            risk: match remedy.risk {
                Risk::Look => RemedyRisk::Look,
                Risk::Change => RemedyRisk::Change,
                Risk::Destroy => RemedyRisk::Destroy,
            },
        };
        Problem {
            code: self.code.to_string(),
            title: self.what.clone(),
            cause: self.why.join("\n"),
            subject: self.subject.clone(),
            remedies: self.remedies().iter().map(remedy).collect(),
        }
    }

    /// Converts a server's refusal to an error of the command that sent the request.
    pub fn from_problem(problem: &Problem) -> Self {
        let code = problem.code.parse::<Code>();
        let mut error = Self::new(code.unwrap_or(Code::ServerSilent), &problem.title);
        if code.is_err() {
            let code = &problem.code;
            error =
                error.because(format!("the server says {code}, which this braid does not know"));
        }
        error = problem.cause.lines().fold(error, Self::because);
        if let Some(subject) = &problem.subject {
            error = error.about(subject);
        }
        problem.remedies.iter().fold(error, |error, remedy| {
            let risk = match remedy.risk {
                RemedyRisk::Look => Risk::Look,
                RemedyRisk::Change => Risk::Change,
                RemedyRisk::Destroy => Risk::Destroy,
            };
            error.remedy(risk, &remedy.label, &remedy.command)
        })
    }

    /// The error as the JSON object for `--json`.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self.to_problem()).expect("it is made of text")
    }
}

/// The text of `braid help B031`: title, exit status, explanation.
pub fn explain(code: Code, paint: Paint) -> String {
    let entry = code.entry();
    let mark = paint.paint(Style::Strong, &format!("{code}  {}", entry.title));
    let exit = entry.exit.number();
    format!("{mark}\nexit status {exit}\n\n{}\n", wrap(entry.explanation, 78))
}

/// Breaks lines between words at `columns`, if words allow.
fn wrap(text: &str, columns: usize) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > columns {
            lines.push('\n');
            used = 0;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two  three", 7), "one two\nthree");
        assert_eq!(wrap("incomprehensible", 4), "incomprehensible");
        assert_eq!(wrap("", 4), "");
    }
}
