//! The on-disk formats of Linux md: parse, validate, write.
