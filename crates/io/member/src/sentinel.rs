//! Learns from the kernel (inotify) that a file or a device node lost its name, without polling.
//!
//! Place in the flow: next to members. Code that checks members from time to time
//! ([`crate::Member::has_vanished`]) need not do so while they are idle. A report only means that a
//! check is due: a change of rights causes one as well.
//!
//! A sentinel does not see that a file is cut short, which the next read finds. Nor does it see
//! changes made on another machine that serves the file.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentinelEvent {
    /// A watched file may have lost its name.
    Look,
    /// [`Sentinel::end`] was called, so waits end.
    End,
}

/// Watches files for the loss of their names.
#[derive(Debug)]
pub struct Sentinel {
    watches: OwnedFd,
    bell: OwnedFd,
}

impl Sentinel {
    /// A sentinel that watches nothing yet.
    ///
    /// # Errors
    /// The kernel allows no more inotify instances or eventfds.
    pub fn new() -> io::Result<Self> {
        let watches = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { watches, bell })
    }

    /// Watches the file to which a path leads now. A second watch of the same file does no harm.
    ///
    /// # Errors
    /// The file does not exist, or the kernel allows no more watches.
    pub fn watch(&self, path: &Path) -> io::Result<()> {
        let what = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MASK_ADD;
        inotify::add_watch(&self.watches, path, what)?;
        Ok(())
    }

    /// Sleeps until there is something to report, however long that takes.
    ///
    /// # Errors
    /// The kernel cannot wait.
    pub fn wait(&self) -> io::Result<SentinelEvent> {
        let mut polled =
            [PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&self.watches, PollFlags::IN)];
        loop {
            match poll(&mut polled, None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !polled[0].revents().is_empty() {
            return Ok(SentinelEvent::End);
        }
        // All pending events make one report.
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.watches, &mut buffer);
        while reader.next().is_ok() {}
        Ok(SentinelEvent::Look)
    }

    /// Ends all waits, present and future.
    pub fn end(&self) {
        // A write to a full eventfd fails, and then the eventfd has been rung already.
        let _rung = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_name_is_heard_and_writes_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("member");
        std::fs::write(&path, [1; 4096]).expect("a file");
        let sentinel = Sentinel::new().expect("a sentinel");
        sentinel.watch(&path).expect("it is there");
        sentinel.watch(&path).expect("it is still there");
        assert!(sentinel.watch(&folder.path().join("absent")).is_err());
        let file = std::fs::File::options().write(true).open(&path).expect("it opens");
        std::os::unix::fs::FileExt::write_all_at(&file, &[2; 512], 0).expect("it is written");
        file.sync_all().expect("it is on the disk");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| sentinel.wait().expect("it waits"));
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!waiting.is_finished(), "a write is no word");
            std::fs::remove_file(&path).expect("it is deleted");
            assert_eq!(waiting.join().expect("it ends"), SentinelEvent::Look);
        });
        sentinel.end();
        assert_eq!(sentinel.wait().expect("it waits"), SentinelEvent::End);
        assert_eq!(
            sentinel.wait().expect("it waits"),
            SentinelEvent::End,
            "and so do all that come"
        );
    }
}
