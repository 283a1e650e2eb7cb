//! Lines that a model can leave out, to show that it would notice.

/// Declares a crate's flaws: an enum, `has`, which each flawed line calls, and, for models,
/// `choose`. In the product `has` is a constant `false`, so the compiler removes every trace.
#[macro_export]
macro_rules! flaws {
    ($visibility:vis enum Flaw { $(#[doc = $what:literal] $name:ident,)* }) => {
        /// One deliberate error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum Flaw {
            $(#[doc = $what] $name,)*
        }

        #[cfg(not(any(loom, shuttle)))]
        #[inline]
        pub(crate) const fn has(_: Flaw) -> bool {
            false
        }

        #[cfg(any(loom, shuttle))]
        thread_local! {
            // Both checkers run all threads of a model on the thread of its test.
            static CHOSEN: ::std::cell::Cell<Option<Flaw>> = const { ::std::cell::Cell::new(None) };
        }

        #[cfg(any(loom, shuttle))]
        pub(crate) fn has(flaw: Flaw) -> bool {
            CHOSEN.get() == Some(flaw)
        }

        /// Activates a flaw for the rest of this test.
        #[cfg(any(loom, shuttle))]
        #[allow(dead_code, reason = "not every checker has models of every crate")]
        $visibility fn choose(flaw: Flaw) {
            CHOSEN.set(Some(flaw));
        }
    };
}
