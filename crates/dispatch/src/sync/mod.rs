//! Locks and atomics: the operating system's, or those of a model checker.
//!
//! Where it stands: everything in this crate that one thread hands to another goes through the names below. In the product
//! they are the standard library's. Under `--cfg loom` and `--cfg shuttle` they are those crates', so that the very code that
//! ships is run under every schedule of a small model, or under many of a larger one. What it does not do: decide anything.
//!
//! [`flaw`] leaves single lines out on purpose: the proof that a model would notice.

#[cfg_attr(not(any(loom, shuttle)), allow(unreachable_pub))]
pub mod flaw;

#[cfg(not(any(loom, shuttle)))]
mod product {
    pub(crate) use std::sync::{Mutex as TryMutex, MutexGuard as TryMutexGuard};
    pub(crate) use std::sync::{Mutex, atomic};

    use atomic::{AtomicUsize, Ordering};

    /// A number of this thread's, dealt out one after the other.
    pub(crate) fn thread_number() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        // A thread that is ending has none any more.
        NUMBER.try_with(|number| *number).unwrap_or_default()
    }
}
#[cfg(not(any(loom, shuttle)))]
pub(crate) use product::*;

#[cfg(shuttle)]
mod with_shuttle {
    pub(crate) use shuttle::sync::{Mutex as TryMutex, MutexGuard as TryMutexGuard};
    pub(crate) use shuttle::sync::{Mutex, atomic};

    pub(crate) fn thread_number() -> usize {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        shuttle::thread::current().id().hash(&mut hasher);
        usize::try_from(hasher.finish() >> 32).expect("addresses have 64 bits here")
    }
}
#[cfg(shuttle)]
pub(crate) use with_shuttle::*;

#[cfg(loom)]
mod with_loom {
    use std::cell::Cell;
    use std::sync::{LockResult, TryLockError, TryLockResult};

    use loom::sync::MutexGuard;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Mutex, atomic};

    // Loom runs all threads of a model on one, and a model again and again: the numbers start anew.
    std::thread_local! {
        static NEXT: Cell<usize> = const { Cell::new(0) };
    }

    loom::thread_local! {
        static NUMBER: usize = NEXT.replace(NEXT.get() + 1);
    }

    /// A model begins.
    pub(crate) fn begin() {
        NEXT.set(0);
    }

    pub(crate) fn thread_number() -> usize {
        NUMBER.with(|number| *number)
    }

    /// Loom's, for machines that are tried, not waited for. Loom takes no notice of a mutex that is
    /// let go, since whoever waits for it sees no difference; but whoever tries does. So letting go
    /// is an access that a try depends on.
    #[derive(Debug)]
    pub(crate) struct TryMutex<T> {
        inner: Mutex<T>,
        let_go: AtomicUsize,
    }

    pub(crate) struct TryMutexGuard<'a, T> {
        inner: MutexGuard<'a, T>,
        let_go: &'a AtomicUsize,
    }

    impl<T> TryMutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { inner: Mutex::new(value), let_go: AtomicUsize::new(0) }
        }

        pub(crate) fn lock(&self) -> LockResult<TryMutexGuard<'_, T>> {
            let inner = self.inner.lock().expect("a model's locks are not poisoned");
            Ok(TryMutexGuard { inner, let_go: &self.let_go })
        }

        pub(crate) fn try_lock(&self) -> TryLockResult<TryMutexGuard<'_, T>> {
            self.let_go.load(Ordering::Relaxed);
            match self.inner.try_lock() {
                Ok(inner) => Ok(TryMutexGuard { inner, let_go: &self.let_go }),
                Err(_) => Err(TryLockError::WouldBlock),
            }
        }
    }

    impl<T> Drop for TryMutexGuard<'_, T> {
        fn drop(&mut self) {
            self.let_go.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl<T> std::ops::Deref for TryMutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.inner
        }
    }

    impl<T> std::ops::DerefMut for TryMutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.inner
        }
    }
}
#[cfg(loom)]
pub(crate) use with_loom::*;
