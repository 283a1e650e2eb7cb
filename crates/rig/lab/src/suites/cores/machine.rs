//! The modelled machine, under the name by which the files of the suite `elevator` use a machine.

pub(super) use braid_many_cores::{
    Content, Moment, Mutex, MutexGuard, TryLockError, atomic, thread,
};
pub(super) use braid_many_cores_dispatch as dispatch;
pub(super) use braid_many_cores_elevator as elevator;
