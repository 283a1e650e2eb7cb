//! Aligned columns, two spaces apart, without lines around them.
//!
//! This module makes cells printable, so that callers can pass names from disks unchanged. Width is
//! counted in characters. The last column is never padded, so that lines end where their text ends
//! `[check: lines_have_no_trailing_spaces]`.

use super::printable::printable;

/// The side to which a column's cells are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The left side, for words.
    Left,
    /// The right side, for numbers.
    Right,
}

/// A table of rows under headings.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes an empty table with these headings.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        assert!(!columns.is_empty(), "a table has columns");
        let headings = columns.iter().map(|(heading, _)| (*heading).to_string()).collect();
        Self { columns: columns.iter().map(|&(_, align)| align).collect(), rows: vec![headings] }
    }

    /// Adds a row with a cell for each column.
    pub fn row<Cell: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<String> =
            cells.into_iter().map(|cell| printable(cell.as_ref()).into_owned()).collect();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// The table as text: each line begins with `indent` and ends with a newline.
    pub fn render(&self, indent: &str) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| self.rows.iter().map(|row| width(row, column)).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::from(indent);
            let columns = row.iter().zip(&self.columns).zip(&widths);
            for (column, ((cell, &align), &width)) in columns.enumerate() {
                if column > 0 {
                    line.push_str("  ");
                }
                match align {
                    Align::Left => line.push_str(&format!("{cell:<width$}")),
                    Align::Right => line.push_str(&format!("{cell:>width$}")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn width(row: &[String], column: usize) -> usize {
    row.get(column).map_or(0, |cell| cell.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table =
            Table::new(&[("slot", Align::Right), ("member", Align::Left), ("state", Align::Left)]);
        table.row(["0", "größe.img", "ok"]);
        table.row(["10", "b", ""]);
        table
    }

    #[test]
    fn columns_line_up() {
        let text = table().render("  ");
        assert_eq!(text, "  slot  member     state\n     0  größe.img  ok\n    10  b\n");
    }

    #[test]
    fn lines_have_no_trailing_spaces() {
        assert!(table().render("").lines().all(|line| line == line.trim_end()));
    }

    #[test]
    #[should_panic(expected = "a cell for each column")]
    fn a_row_of_another_length_is_our_mistake() {
        table().row(["1"]);
    }

    #[test]
    fn cells_from_disks_cannot_break_the_table() {
        let mut table = Table::new(&[("name", Align::Left)]);
        table.row(["a\nb"]);
        assert_eq!(table.render("").lines().count(), 2);
    }
}
