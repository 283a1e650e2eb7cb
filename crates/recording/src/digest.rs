//! One number for everything that a turn asked for: FNV-1a over how effects are printed.

use std::fmt::{Debug, Write};

/// A digest that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    hash: u64,
    effects: u32,
}

impl Default for Digest {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, effects: 0 }
    }
}

impl Digest {
    /// Adds an effect.
    pub fn add(&mut self, effect: &impl Debug) {
        write!(self, "{effect:?};").expect("hashing does not fail");
        self.effects += 1;
    }

    /// The number of effects, and the number over them.
    #[must_use]
    pub fn finish(self) -> (u32, u64) {
        (self.effects, self.hash)
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}
