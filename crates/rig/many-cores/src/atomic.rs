//! The standard library's atomics, each access of which takes the modelled time.
//!
//! They are as large as those, so that what shares a line in the product shares one here.

pub use std::sync::atomic::Ordering;

use crate::lines::{Access, Line};
use crate::world;

macro_rules! atomics {
    ($($name:ident($value:ty),)*) => {$(
        /// See the module.
        #[derive(Debug, Default)]
        pub struct $name(std::sync::atomic::$name);

        impl $name {
            /// With a value.
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            /// Reads it.
            pub fn load(&self, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Load);
                self.0.load(order)
            }

            /// Writes it; a locked instruction where the order is total.
            pub fn store(&self, value: $value, order: Ordering) {
                let is_total = order == Ordering::SeqCst;
                world::access(Line::of(self), if is_total { Access::Change } else { Access::Store });
                self.0.store(value, order);
            }

            /// Writes it; what it was.
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Change);
                self.0.swap(value, order)
            }

            /// Leaves these bits only; what it was.
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Change);
                self.0.fetch_and(value, order)
            }

            /// Adds bits; what it was.
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Change);
                self.0.fetch_or(value, order)
            }
        }
    )*};
}

atomics! { AtomicBool(bool), AtomicU32(u32), AtomicU64(u64), AtomicUsize(usize), }

macro_rules! numbers {
    ($($name:ident($value:ty),)*) => {$(
        impl $name {
            /// Adds; what it was.
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Change);
                self.0.fetch_add(value, order)
            }

            /// Subtracts; what it was.
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Change);
                self.0.fetch_sub(value, order)
            }
        }
    )*};
}

numbers! { AtomicU32(u32), AtomicU64(u64), AtomicUsize(usize), }
