//! The negotiated style of messages in the transmission phase, one of three.
//!
//! Where it stands: below requests and replies, whose layout depends on the style. The sessions
//! choose the style by options.
//!
//! | style | negotiated with | request header | reply header |
//! |---|---|---|---|
//! | simple | nothing | 28 bytes | 16 bytes, without a length |
//! | structured | STRUCTURED_REPLY | 28 bytes | chunks, 20 bytes; or simple without data |
//! | extended | EXTENDED_HEADERS | 32 bytes, length of 64 bits | chunks, 32 bytes |

use crate::wire;

/// The style of messages: see the module's comment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The style that every client supports: replies are simple.
    #[default]
    Simple,
    /// Replies are chunks.
    Structured,
    /// Replies are chunks, and lengths have 64 bits.
    Extended,
}

impl Style {
    /// Whether replies are chunks, which block status and "don't fragment" need.
    #[must_use]
    pub const fn has_chunks(self) -> bool {
        !matches!(self, Self::Simple)
    }

    /// Whether headers of this style are extended.
    #[must_use]
    pub const fn is_extended(self) -> bool {
        matches!(self, Self::Extended)
    }

    /// Length of a request's header in this style, in bytes.
    #[must_use]
    pub const fn request_bytes(self) -> usize {
        if self.is_extended() { wire::EXTENDED_REQUEST_BYTES } else { wire::REQUEST_BYTES }
    }

    /// The longest range that a request in this style can name, in bytes.
    #[must_use]
    pub const fn length_max(self) -> u64 {
        if self.is_extended() { u64::MAX } else { u32::MAX as u64 }
    }
}
