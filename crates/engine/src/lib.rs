//! The RAID machine: events in, effects out; no clock, no I/O, no threads.
