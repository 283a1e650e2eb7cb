//! How the command speaks: colour, sizes, tables, and text that cannot do harm.
//!
//! Small, pure helpers; none of them prints. Data goes to standard output and everything else to
//! standard error: that is the commands' part.

/// `print!` for data. What cannot be written is found out about at the end: [`stdout::end`].
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::output::stdout::write(format_args!($($text)*), true) };
}

/// `println!` for data, in the manner of [`out`].
#[macro_export]
macro_rules! outln {
    () => { $crate::out!("\n") };
    ($($text:tt)*) => {
        // In one, so that lines of several threads do not meet in one.
        $crate::output::stdout::write(format_args!("{}\n", format_args!($($text)*)), false)
    };
}

/// One line of JSON, safe to look at.
#[macro_export]
macro_rules! outjson {
    ($value:expr) => {
        $crate::outln!("{}", $crate::output::printable::json_line($value))
    };
}

/// `eprint!` that does not mind when the terminal is gone.
#[macro_export]
macro_rules! err {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($text)*);
    }};
}

/// `eprintln!` that does not mind when the terminal is gone: a person may close a terminal, an array goes on.
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
