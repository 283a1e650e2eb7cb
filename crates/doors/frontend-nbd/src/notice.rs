//! Notices to the operator: problems of clients that only the operator can solve.
//!
//! Where it stands: any thread of the server raises notices; the program that started the server
//! listens. A notice is repeated only after a while, so that a flood of clients does not cause a
//! flood of lines.

use std::sync::PoisonError;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::limits::NOTICE_PAUSE;

/// A notice to the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The server turned a client away, because all connections are in use.
    Full {
        /// The limit of connections.
        connections_max: usize,
    },
    /// The process or the system has no descriptors left. Not repeated until `DescriptorsAgain`.
    NoDescriptors,
    /// A client can be accepted again.
    DescriptorsAgain,
    /// The server cut a client that stopped in the middle of a payload or a reply.
    Stalled {
        /// Number of clients cut so far because they had stopped in the middle.
        count: u64,
        /// True while the server is stopping, with a shorter deadline for clients.
        is_stopping: bool,
    },
    /// The server cut an idle connection to make room for a new one.
    Idled {
        /// Number of idle connections cut so far to make room.
        count: u64,
    },
}

/// The operator's callback for notices.
pub type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

pub(crate) struct Notices {
    listener: Option<Listener>,
    /// When a notice of each kind was last raised.
    told: Mutex<[Option<Instant>; KINDS]>,
}

const KINDS: usize = 5;

impl Notice {
    fn kind(self) -> usize {
        match self {
            Self::Full { .. } => 0,
            Self::NoDescriptors => 1,
            Self::DescriptorsAgain => 2,
            Self::Stalled { .. } => 3,
            Self::Idled { .. } => 4,
        }
    }

    /// Whether this notice marks the beginning or the end of a condition. Such a notice is reported
    /// at once, even shortly after the last notice of its kind.
    fn is_a_change(self) -> bool {
        matches!(self, Self::NoDescriptors | Self::DescriptorsAgain)
    }
}

impl Notices {
    pub(crate) fn new(listener: Option<Listener>) -> Self {
        Self { listener, told: Mutex::default() }
    }

    pub(crate) fn tell(&self, notice: Notice) {
        tracing::debug!(target: "braid_frontend_nbd::client", notice = ?notice, "notice");
        let Some(listener) = &self.listener else { return };
        let now = Instant::now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &mut told[notice.kind()];
        let is_early = last.is_some_and(|last| now.duration_since(last) < NOTICE_PAUSE);
        if is_early && !notice.is_a_change() {
            return;
        }
        *last = Some(now);
        drop(told);
        listener(notice);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_clients_is_one_notice() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ears = Arc::clone(&heard);
        let notices = Notices::new(Some(Arc::new(move |notice| ears.lock().unwrap().push(notice))));
        for count in 1..100 {
            notices.tell(Notice::Stalled { count, is_stopping: false });
            notices.tell(Notice::Full { connections_max: 3 });
        }
        notices.tell(Notice::NoDescriptors);
        notices.tell(Notice::DescriptorsAgain);
        notices.tell(Notice::NoDescriptors);
        let heard = heard.lock().unwrap();
        let stalled = Notice::Stalled { count: 1, is_stopping: false };
        let full = Notice::Full { connections_max: 3 };
        let changes = [Notice::NoDescriptors, Notice::DescriptorsAgain, Notice::NoDescriptors];
        assert_eq!(heard[..], [stalled, full, changes[0], changes[1], changes[2]]);
    }
}
