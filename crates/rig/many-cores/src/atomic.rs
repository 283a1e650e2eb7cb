//! The standard library's atomics, in a form in which each access takes modelled time.
//!
//! These atomics have the sizes of the standard library's, so that variables share a cache line
//! here if they do in the product.

pub use std::sync::atomic::Ordering;

use crate::lines::{Access, Line};
use crate::world;

macro_rules! atomics {
    ($($name:ident($value:ty),)*) => {$(
        /// An atomic of the modelled machine.
        #[derive(Debug, Default)]
        pub struct $name(std::sync::atomic::$name);

        impl $name {
            /// A new atomic with this value.
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            /// Reads the variable.
            pub fn load(&self, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Load);
                self.0.load(order)
            }

            /// Writes the variable; a locked instruction if the order is total.
            pub fn store(&self, value: $value, order: Ordering) {
                let is_total = order == Ordering::SeqCst;
                world::access(Line::of(self), if is_total { Access::Change } else { Access::Store });
                self.0.store(value, order);
            }

            /// Writes the variable; returns the old value.
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Change);
                self.0.swap(value, order)
            }

            /// Keeps only these bits of the variable; returns the old value.
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Change);
                self.0.fetch_and(value, order)
            }

            /// Sets bits of the variable; returns the old value.
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
            /// Adds to the variable; returns the old value.
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Change);
                self.0.fetch_add(value, order)
            }

            /// Subtracts from the variable; returns the old value.
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                world::access(Line::of(self), Access::Change);
                self.0.fetch_sub(value, order)
            }
        }
    )*};
}

numbers! { AtomicU32(u32), AtomicU64(u64), AtomicUsize(usize), }
