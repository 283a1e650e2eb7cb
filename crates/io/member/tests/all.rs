//! The tests of members, in one program: a program for each file is linked for each file.

mod contract;
mod direct;
mod layers;
mod loop_device;
mod refusals;
mod two_processes;
