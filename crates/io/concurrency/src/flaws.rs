//! Flaws: lines of code that a model can leave out, to show that the model would notice.

/// Declares a crate's flaws: an enum; the function `has`, which each flawed line calls; and, for
/// models, the function `choose`. In the product `has` is a constant `false`, so the compiler
/// removes every trace.
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
            // Thread-local is enough: loom and shuttle both run all threads of a model on the
            // thread of its test.
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
