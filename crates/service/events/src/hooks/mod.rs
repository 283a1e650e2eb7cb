//! Targets of events: a command, a web server, mail.
//!
//! Each target has its own outlet ([`crate::outlet`]), so that no target waits for another. Text in
//! an event may come from a disk (an array's name) or from a command line (a member's path). A
//! command gets this text as input and in its environment, never in a line that a shell reads. A
//! mail has the text in its body, and in the subject without characters that could begin another
//! header.

pub mod command;
pub mod hook_process;
pub mod mail;
mod process;
pub mod webhook;
