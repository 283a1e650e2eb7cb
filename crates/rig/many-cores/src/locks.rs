//! Locks that take modelled time. The locks' content is in locks of the standard library, for which
//! no thread ever waits.
//!
//! The memory to which a lock's content points moves as well. The model remembers which lines of a
//! vector were written, and the thread that empties the vector must fetch them.

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, TryLockError, TryLockResult};

use crate::costs::{Cost, WaitPolicy};
use crate::lines::{Access, Line};
use crate::queues::Word;
use crate::world;

/// Turns of a spin loop before a thread sleeps, as in the standard library.
const SPINS: u32 = 100;

/// Memory that moves with a lock's content, in addition to the lock's own line.
pub trait Content {
    /// Bytes that the content has outside the lock, as in a vector.
    fn bytes(&self) -> usize {
        0
    }
}

impl<T> Content for Vec<T> {
    fn bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }
}

/// A lock that threads wait for.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// A held lock.
#[derive(Debug)]
pub struct MutexGuard<'a, T: Content> {
    lock: &'a Mutex<T>,
    inner: Option<std::sync::MutexGuard<'a, T>>,
    bytes: usize,
}

impl<T: Content> Mutex<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// Never, as a panic ends the whole run.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        take(&self.0);
        Ok(self.guard())
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// Another thread holds the lock.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if !try_take(&self.0) {
            return Err(TryLockError::WouldBlock);
        }
        Ok(self.guard())
    }

    fn guard(&self) -> MutexGuard<'_, T> {
        let inner = self.0.try_lock().expect("the owner in the model has the lock");
        MutexGuard { lock: self, bytes: inner.bytes(), inner: Some(inner) }
    }
}

impl<T: Content> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        let (before, after) = (self.bytes, inner.bytes());
        drop(inner);
        // Bytes that were added are written, and bytes that were removed are read.
        let (bytes, access) = match before < after {
            true => (before..after, Access::Store),
            false => (after..before, Access::Load),
        };
        for index in Line::indices(bytes) {
            world::access(Line::held_by(self.lock, index), access);
        }
        let_go(&self.lock.0);
    }
}

/// A lock that threads try to take and never wait for.
#[derive(Debug, Default)]
pub struct TryMutex<T>(std::sync::Mutex<T>);

/// A held lock.
#[derive(Debug)]
pub struct TryMutexGuard<'a, T> {
    lock: &'a TryMutex<T>,
    inner: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T> TryMutex<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// Never, as a panic ends the whole run.
    pub fn lock(&self) -> LockResult<TryMutexGuard<'_, T>> {
        take(&self.0);
        Ok(self.guard())
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// Another thread holds the lock.
    pub fn try_lock(&self) -> TryLockResult<TryMutexGuard<'_, T>> {
        if !try_take(&self.0) {
            return Err(TryLockError::WouldBlock);
        }
        Ok(self.guard())
    }

    fn guard(&self) -> TryMutexGuard<'_, T> {
        let inner = self.0.try_lock().expect("the owner in the model has the lock");
        TryMutexGuard { lock: self, inner: Some(inner) }
    }
}

impl<T> Drop for TryMutexGuard<'_, T> {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        drop(inner);
        let_go(&self.lock.0);
    }
}

macro_rules! guards {
    ($($guard:ident: $($bound:path)?,)*) => {$(
        impl<T $(: $bound)?> Deref for $guard<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                self.inner.as_ref().expect("held until it is dropped")
            }
        }

        impl<T $(: $bound)?> DerefMut for $guard<'_, T> {
            fn deref_mut(&mut self) -> &mut T {
                self.inner.as_mut().expect("held until it is dropped")
            }
        }
    )*};
}

guards! { MutexGuard: Content, TryMutexGuard:, }

fn address<T>(lock: &std::sync::Mutex<T>) -> usize {
    std::ptr::from_ref(lock).addr()
}

/// Sets the lock's word to `to` if it is `from`; returns the old value.
fn exchange<T>(lock: &std::sync::Mutex<T>, from: Word, to: Word) -> Word {
    world::access(Line::of(lock), Access::Change);
    let change = |world: &mut world::World| {
        let word = &mut world.queues.lock(address(lock)).word;
        let before = *word;
        if before == from {
            *word = to;
        }
        before
    };
    world::with(change).unwrap_or(from)
}

fn swap<T>(lock: &std::sync::Mutex<T>, to: Word) -> Word {
    world::access(Line::of(lock), Access::Change);
    let change = |world: &mut world::World| {
        std::mem::replace(&mut world.queues.lock(address(lock)).word, to)
    };
    world::with(change).unwrap_or_default()
}

fn load<T>(lock: &std::sync::Mutex<T>) -> Word {
    world::access(Line::of(lock), Access::Load);
    world::with(|world| world.queues.lock(address(lock)).word).unwrap_or_default()
}

fn try_take<T>(lock: &std::sync::Mutex<T>) -> bool {
    exchange(lock, Word::Free, Word::Taken) == Word::Free
}

fn take<T>(lock: &std::sync::Mutex<T>) {
    if try_take(lock) {
        return;
    }
    match world::with(|world| world.costs.waiting) {
        None => {}
        Some(WaitPolicy::Queue) => stand_in_line(lock),
        Some(WaitPolicy::Futex) => spin_and_sleep(lock),
    }
}

fn spin<T>(lock: &std::sync::Mutex<T>) -> Word {
    let mut left = SPINS;
    loop {
        let word = load(lock);
        // A thread does not spin if another thread sleeps already.
        if word != Word::Taken || left == 0 {
            return word;
        }
        world::spend(Cost::Pause, 1);
        left -= 1;
    }
}

fn spin_and_sleep<T>(lock: &std::sync::Mutex<T>) {
    let mut word = spin(lock);
    if word == Word::Free {
        word = exchange(lock, Word::Free, Word::Taken);
        if word == Word::Free {
            return;
        }
    }
    loop {
        if word != Word::Wanted && swap(lock, Word::Wanted) == Word::Free {
            return;
        }
        world::spend(Cost::Yield, 1);
        world::turn();
        // As the kernel does, checks the word again before the thread sleeps.
        let sleeps = world::with(|world| {
            let thread = world.current();
            let lock = world.queues.lock(address(lock));
            let sleeps = lock.word == Word::Wanted;
            lock.sleepers.extend(sleeps.then_some(thread));
            sleeps
        });
        if sleeps == Some(true) {
            world::sleep();
        }
        word = spin(lock);
    }
}

fn stand_in_line<T>(lock: &std::sync::Mutex<T>) {
    world::access(Line::of(lock), Access::Change);
    let stands = world::with(|world| {
        let thread = world.current();
        let lock = world.queues.lock(address(lock));
        let stands = lock.word != Word::Free;
        lock.sleepers.extend(stands.then_some(thread));
        lock.word = Word::Taken;
        stands
    });
    // The holder has handed the lock on, so this thread owns it when it runs again.
    if stands == Some(true) {
        world::sleep();
    }
}

fn let_go<T>(lock: &std::sync::Mutex<T>) {
    match world::with(|world| world.costs.waiting) {
        None => {}
        Some(WaitPolicy::Futex) => free_and_wake(lock),
        Some(WaitPolicy::Queue) => hand_on(lock),
    }
}

fn free_and_wake<T>(lock: &std::sync::Mutex<T>) {
    if swap(lock, Word::Free) != Word::Wanted {
        return;
    }
    world::spend(Cost::Wake, 1);
    world::turn();
    world::with(|world| {
        if let Some(thread) = world.queues.lock(address(lock)).sleepers.pop_front() {
            world.wake(thread, world.costs.ps(Cost::Asleep));
        }
    });
}

fn hand_on<T>(lock: &std::sync::Mutex<T>) {
    world::access(Line::of(lock), Access::Change);
    world::with(|world| {
        let own = world.current();
        let held = world.queues.lock(address(lock));
        match held.sleepers.pop_front() {
            Some(next) => world.wake(next, world.costs.transfer_ps(own, next)),
            None => held.word = Word::Free,
        }
    });
}
