//! Loom's names, and additions for names that loom lacks.

use std::cell::Cell;
use std::sync::{LockResult, TryLockError, TryLockResult};

use loom::sync::atomic::{AtomicUsize, Ordering};

pub use loom::sync::{Arc, Mutex, MutexGuard, atomic};
pub use loom::thread;

/// Loom's condition variable, with a method of the standard library's that loom lacks.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    /// A new condition variable.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits for a notification.
    ///
    /// # Errors
    /// A holder of the lock has panicked.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    /// Waits while `condition` holds.
    ///
    /// # Errors
    /// A holder of the lock has panicked.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.0.wait(guard)?;
        }
        Ok(guard)
    }
}

// Loom runs all threads of a model on one operating system thread, and runs a model again and
// again. So numbers start anew with each run.
std::thread_local! {
    static NEXT: Cell<usize> = const { Cell::new(0) };
}

loom::thread_local! {
    static NUMBER: usize = NEXT.replace(NEXT.get() + 1);
}

/// Starts a run of a model: resets the thread numbers.
pub(crate) fn begin() {
    NEXT.set(0);
}

/// This thread's own number; threads are numbered in the order in which they first ask.
#[must_use]
pub fn thread_number() -> usize {
    NUMBER.with(|number| *number)
}

/// Loom's mutex for machines that threads try to lock and never wait for. Loom ignores an unlock,
/// since a thread that waits for the lock sees no difference; `try_lock` does see one. So unlocking
/// is modelled as an access on which `try_lock` depends.
#[derive(Debug)]
pub struct TryMutex<T> {
    inner: Mutex<T>,
    let_go: AtomicUsize,
}

pub struct TryMutexGuard<'a, T> {
    inner: MutexGuard<'a, T>,
    let_go: &'a AtomicUsize,
}

impl<T> TryMutex<T> {
    pub fn new(value: T) -> Self {
        Self { inner: Mutex::new(value), let_go: AtomicUsize::new(0) }
    }

    pub fn lock(&self) -> LockResult<TryMutexGuard<'_, T>> {
        let inner = self.inner.lock().expect("a model's locks are not poisoned");
        Ok(TryMutexGuard { inner, let_go: &self.let_go })
    }

    pub fn try_lock(&self) -> TryLockResult<TryMutexGuard<'_, T>> {
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
