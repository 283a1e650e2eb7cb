//! How a member is opened.

/// The opener's intent, which decides which other processes the lock keeps out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// A look at metadata that another program may be using: no lock, no search for a holder. The
    /// bytes of one look may have been written at different moments.
    Examine,
    /// Consistent reading: other readers may have the member open, a writer may not.
    ReadOnly,
    /// Reading and writing, with no other reader or writer.
    ReadWrite,
}
