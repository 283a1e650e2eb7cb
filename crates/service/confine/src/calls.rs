//! System calls: allows only those that a server makes while it serves (seccomp, on all threads at
//! once).
//!
//! Any other call fails with EPERM. The list holds the calls of Rust's library, tokio, rustls and
//! braid itself once all files and sockets are open: bytes in and out, time, memory, threads, files
//! by path (landlock limits which). No call runs a program, listens, connects or binds a socket,
//! mounts, traces or signals, makes a ring, or makes memory executable.

use std::collections::BTreeMap;

use seccompiler::{
    SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};

use crate::ConfineError;

/// System calls that are allowed in addition to those that every server makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllowedCalls {
    /// Calls that connect to Unix sockets of other processes.
    pub connect: bool,
    /// Calls that make memory files (memfd) to share with other processes.
    pub memory_files: bool,
}

/// System calls that are allowed with any arguments.
const PLAIN: &[libc::c_long] = &[
    // Calls that read and write bytes.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fadvise64,
    libc::SYS_copy_file_range,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Calls on files by path, and on their metadata.
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_getcwd,
    libc::SYS_umask,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    // Calls that serve clients' connections.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    // Calls for memory and threads.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    // If a filter refuses clone3, the C library uses clone.
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Calls that return the identity of the process.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Older names of the calls in `PLAIN`, which this processor's kernels also offer.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

#[cfg(target_arch = "x86_64")]
const PROCESSOR: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const PROCESSOR: TargetArch = TargetArch::aarch64;

/// `TIOCSTI` and `TIOCLINUX` insert words into a terminal as if typed.
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// `PR_SET_VMA`, with which the allocator names its memory.
const PR_SET_VMA: u64 = 0x5356_4d41;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type BackendResult<T> = Result<T, seccompiler::BackendError>;

/// Blocks all system calls that are not allowed, for all threads, permanently.
///
/// # Errors
/// The kernel refused the filter, perhaps for a single thread.
pub fn restrict(allowed: AllowedCalls) -> Result<(), ConfineError> {
    // The arguments of clone3 are in memory, so no filter can tell whether clone3 starts a thread.
    // If clone3 returns ENOSYS, the C library uses clone.
    let unknown = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let no_such_call = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    apply(unknown, SeccompAction::Allow, no_such_call)?;
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    apply(rules(allowed)?, refused, SeccompAction::Allow)
}

fn apply(rules: Rules, else_do: SeccompAction, then_do: SeccompAction) -> Result<(), ConfineError> {
    let filter = SeccompFilter::new(rules, else_do, then_do, PROCESSOR)?;
    let program: seccompiler::BpfProgram = filter.try_into()?;
    Ok(apply_filter_all_threads(&program)?)
}

fn rules(allowed: AllowedCalls) -> BackendResult<Rules> {
    let mut rules: Rules = PLAIN.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    if allowed.connect {
        rules.insert(libc::SYS_connect, Vec::new());
    }
    if allowed.memory_files {
        rules.insert(libc::SYS_memfd_create, Vec::new());
    }
    let unsigned = |number: i32| u64::from(number.cast_unsigned());
    let mut only = |call, of: Vec<SeccompRule>| rules.insert(call, of);
    only(libc::SYS_socket, vec![one(0, Compare::Eq, unsigned(libc::AF_UNIX))?]);
    only(libc::SYS_socketpair, vec![one(0, Compare::Eq, unsigned(libc::AF_UNIX))?]);
    let thread = unsigned(libc::CLONE_THREAD);
    only(libc::SYS_clone, vec![one(0, Compare::MaskedEq(thread), thread)?]);
    let executable = Compare::MaskedEq(unsigned(libc::PROT_EXEC));
    only(libc::SYS_mmap, vec![one(2, executable.clone(), 0)?]);
    only(libc::SYS_mprotect, vec![one(2, executable, 0)?]);
    let name = one(0, Compare::Eq, unsigned(libc::PR_SET_NAME))?;
    only(libc::SYS_prctl, vec![name, one(0, Compare::Eq, PR_SET_VMA)?]);
    let itself = u64::from(std::process::id());
    only(libc::SYS_tgkill, vec![one(0, Compare::Eq, itself)?]);
    // A resource limit may be queried but not set, so the argument with a new limit must be null.
    let none = SeccompCondition::new(2, Length::Qword, Compare::Eq, 0)?;
    only(libc::SYS_prlimit64, vec![SeccompRule::new(vec![none])?]);
    let not_typing =
        TYPING.map(|number| SeccompCondition::new(1, Length::Dword, Compare::Ne, number));
    let not_typing = not_typing.into_iter().collect::<BackendResult<Vec<_>>>()?;
    only(libc::SYS_ioctl, vec![SeccompRule::new(not_typing)?]);
    Ok(rules)
}

fn one(argument: u8, compare: Compare, value: u64) -> BackendResult<SeccompRule> {
    SeccompRule::new(vec![SeccompCondition::new(argument, Length::Dword, compare, value)?])
}
