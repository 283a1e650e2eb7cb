//! Where events are taken: a command, a web server, mail.
//!
//! Each is an outlet of its own ([`crate::outlet`]), so that none waits for another. What stands in an event may come from a
//! disk (an array's name) or from a command line (a member's path): to a command it is given as its input and in its
//! environment, never as part of a line that a shell reads; in a mail it stands in the text, and in the subject without
//! anything that could begin another header.

pub mod apart;
pub mod command;
pub mod mail;
mod process;
pub mod webhook;
