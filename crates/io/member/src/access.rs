//! How a member is opened.

/// The opener's intent, which decides whom the lock keeps out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// A look at metadata that another program may be using: no lock, no search for a holder. The
    /// bytes read may be of different moments.
    Examine,
    /// Consistent reading: other readers are welcome, a writer is not.
    ReadOnly,
    /// Reading and writing, alone.
    ReadWrite,
}
