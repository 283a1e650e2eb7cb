//! Threads around the engine: combiners, payload memory, member I/O, the Volume.
