//! The eight error values of a reply.
//!
//! Where it stands: the server maps its errors onto these values, the client reads these values.
//! Source: `doc/proto.md`, "Error values"; the protocol defines them as Linux's errno, on any host.

/// An error value of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum ErrorCode {
    /// `NBD_EPERM`: a write to a read-only export.
    #[error("operation not permitted")]
    Permission,
    /// `NBD_EIO`: the storage failed.
    #[error("input/output error")]
    Io,
    /// `NBD_ENOMEM`: the server lacks memory for the request.
    #[error("cannot allocate memory")]
    Memory,
    /// `NBD_EINVAL`: a malformed, misaligned or out-of-range request.
    #[error("invalid argument")]
    Invalid,
    /// `NBD_ENOSPC`: a write beyond the end of the export.
    #[error("no space left on device")]
    NoSpace,
    /// `NBD_EOVERFLOW`: only in answer to a READ with "don't fragment".
    #[error("value too large")]
    Overflow,
    /// `NBD_ENOTSUP`: only in answer to a WRITE_ZEROES with FAST_ZERO.
    #[error("operation not supported")]
    Unsupported,
    /// `NBD_ESHUTDOWN`: the server is going away.
    #[error("server is being shut down")]
    Shutdown,
}

impl ErrorCode {
    /// Every code, in the order of [`ErrorCode::index`].
    pub const ALL: [Self; 8] = [
        Self::Permission,
        Self::Io,
        Self::Memory,
        Self::Invalid,
        Self::NoSpace,
        Self::Overflow,
        Self::Unsupported,
        Self::Shutdown,
    ];

    /// The error's value on the wire.
    #[must_use]
    pub const fn to_wire(self) -> u32 {
        match self {
            Self::Permission => 1,
            Self::Io => 5,
            Self::Memory => 12,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::Overflow => 75,
            Self::Unsupported => 95,
            Self::Shutdown => 108,
        }
    }

    /// Converts a non-zero value from the wire; an unknown value counts as `Invalid`, as the
    /// specification demands.
    #[must_use]
    pub fn from_wire(value: u32) -> Self {
        Self::ALL.into_iter().find(|code| code.to_wire() == value).unwrap_or(Self::Invalid)
    }

    /// The error's index in `0..ALL.len()`, for counters of each kind of error.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_wire_and_strangers_are_invalid() {
        for (index, code) in ErrorCode::ALL.into_iter().enumerate() {
            assert_eq!(ErrorCode::from_wire(code.to_wire()), code);
            assert_eq!(code.index(), index);
        }
        for stranger in [2, 13, 107, 109, u32::MAX] {
            assert_eq!(ErrorCode::from_wire(stranger), ErrorCode::Invalid);
        }
    }
}
