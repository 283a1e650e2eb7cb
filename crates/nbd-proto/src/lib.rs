//! The NBD protocol as values: wire formats and session states, no sockets.
