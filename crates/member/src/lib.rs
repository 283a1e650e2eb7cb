//! One device: a file, a block device or memory, opened so that nobody else writes it.
