//! How the command speaks: colour, sizes, tables, and text that cannot do harm.
//!
//! Small, pure helpers; none of them prints. Data goes to standard output and everything else to
//! standard error: that is the commands' part.

/// `print!` for data: a reader that has seen enough and closed the pipe is no error.
macro_rules! out {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let mut out = std::io::stdout();
        let _ = write!(out, $($text)*).and_then(|()| out.flush());
    }};
}

/// `println!` for data, in the manner of [`out`].
macro_rules! outln {
    () => { out!("\n") };
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// `eprintln!` that does not mind when nobody listens: a person may close a terminal, an array goes on.
macro_rules! errln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

pub(crate) mod colour;
pub(crate) mod printable;
pub(crate) mod shell;
pub(crate) mod size;
pub(crate) mod table;
pub(crate) mod utc;
