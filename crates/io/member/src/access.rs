//! How a member is opened.

/// What the opener will do, and so which others it must keep out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// A look at metadata that another program may be using: no lock, no question which one holds it.
    /// What is read may be from any moment.
    Examine,
    /// Reading that must be consistent: other readers are welcome, a writer is not.
    ReadOnly,
    /// Reading and writing, alone.
    ReadWrite,
}
