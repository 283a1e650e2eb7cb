//! Output of the command: colour, sizes, tables, and text that cannot do harm.
//!
//! Small, pure helpers; none of them prints. The commands print: data to standard output,
//! everything else to standard error.

/// `print!` for data. If data could not be written, `main` reports that at its end:
/// [`stdout::end`].
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::output::stdout::write(format_args!($($text)*), true) };
}

/// `println!` for data. If data could not be written, `main` reports that at its end, as for
/// [`out`].
#[macro_export]
macro_rules! outln {
    () => { $crate::out!("\n") };
    ($($text:tt)*) => {
        // Writes the line by one call, so that lines of several threads do not mix.
        $crate::output::stdout::write(format_args!("{}\n", format_args!($($text)*)), false)
    };
}

/// Prints one line of JSON that is safe for terminals.
#[macro_export]
macro_rules! outjson {
    ($value:expr) => {
        $crate::outln!("{}", $crate::output::printable::json_line($value))
    };
}

/// An `eprint!` that ignores a closed terminal.
#[macro_export]
macro_rules! err {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($text)*);
    }};
}

/// An `eprintln!` that ignores a closed terminal: the operator may close the terminal while the
/// array is served.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

pub mod bar;
pub mod colour;
pub mod printable;
pub mod shell;
pub mod size;
pub mod stdout;
pub mod table;
pub mod utc;
