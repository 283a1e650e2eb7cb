//! Targets of events: a command, a web server, mail.
//!
//! Each is its own outlet ([`crate::outlet`]), so that none waits for another. Text in an event may
//! come from a disk (an array's name) or from a command line (a member's path). A command gets it
//! as input and in its environment, never in a line that a shell reads. A mail has it in the text,
//! and in the subject without characters that could begin another header.

pub mod command;
pub mod hook_process;
pub mod mail;
mod process;
pub mod webhook;
