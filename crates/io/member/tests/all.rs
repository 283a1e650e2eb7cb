//! All tests of members in one program, since linking a program for each file takes long.

mod contract;
mod direct;
mod layers;
mod loop_device;
mod refusals;
mod two_processes;
