//! The accept thread: accepts clients while there is room, and hands their connections to a dealer.
//!
//! Where it stands: one for each server, above both transports ([`crate::ring`],
//! [`crate::threads`]). The thread polls every listener, and an eventfd by which the server stops
//! the thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::dealer::Dealer;
use crate::endpoint::Listener;
use crate::limits;
use crate::notice::Notice;
use crate::shared::Shared;
use crate::tls::Tls;

pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    dealer: Dealer,
    listeners: Vec<(Listener, Option<Tls>)>,
    wake: Arc<OwnedFd>,
    lacks_descriptors: bool,
}

impl Acceptor {
    /// `dealer` gets each accepted client; on a listener with TLS, after the handshake.
    pub(crate) fn new(
        dealer: Dealer,
        listeners: Vec<(Listener, Option<Tls>)>,
        wake: Arc<OwnedFd>,
    ) -> Self {
        Self {
            shared: Arc::clone(&dealer.shared),
            dealer,
            listeners,
            wake,
            lacks_descriptors: false,
        }
    }

    /// The body of the accept thread: runs until the server stops and signals `wake`.
    pub(crate) fn run(mut self) {
        while !self.shared.stopping.load(Ordering::Acquire) {
            let mut polled = vec![PollFd::new(&*self.wake, PollFlags::IN)];
            polled.extend(
                self.listeners
                    .iter()
                    .map(|(one, _)| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)),
            );
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => pause(), // no kernel memory: the next round may succeed
            }
            let ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
            drop(polled);
            for (index, _) in ready[1..].iter().enumerate().filter(|(_, ready)| **ready) {
                self.accept_from(index);
            }
        }
    }

    /// Accepts one client, so that a flood at one listener does not starve other listeners.
    fn accept_from(&mut self, index: usize) {
        let (listener, tls) = &self.listeners[index];
        self.shared.registry.wait_for_room(limits::STOP_GRACE);
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                if std::mem::take(&mut self.lacks_descriptors) {
                    self.shared.notices.tell(Notice::DescriptorsAgain);
                }
                match tls {
                    None => self.dealer.begin(socket, listener.is_tcp()),
                    Some(tls) if tls.serve((socket, listener.is_tcp()), self.dealer.clone()) => {}
                    Some(_) => drop(self.shared.counters.refused.add(1)),
                }
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => {
                // A descriptor becomes free when a connection ends, or the operator raises the
                // limit of descriptors.
                let lacks = matches!(errno, Errno::MFILE | Errno::NFILE);
                if lacks && !std::mem::replace(&mut self.lacks_descriptors, true) {
                    self.shared.notices.tell(Notice::NoDescriptors);
                }
                pause();
            }
        }
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}
