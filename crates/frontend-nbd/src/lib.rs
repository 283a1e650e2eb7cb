//! The NBD server: sockets around braid-nbd-proto.
