//! A member as NBD exports: one export for clients without a claim, and one for each claim.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use braid_frontend_nbd::{BlockSizes, ClientRequest, Completion, Export, Outcome, RequestError};
use braid_member::{Member, MemberError};
use braid_ownership::{Claim, Fence, Judgement, Mark, User, refused_words, served_words};

use super::mark_file::MarkFile;

/// The smallest block of an export, in bytes: one sector, as members have.
const BLOCK_BYTES: u32 = 512;

/// A member, and the fence that decides which clients' requests reach the device.
struct FencedMember {
    name: String,
    member: Arc<dyn Member>,
    fence: Mutex<Fence>,
    /// Signalled when the device has answered a request.
    came_back: Condvar,
    /// One claim is judged at a time; a later claim waits until the device has answered the
    /// requests of older claims.
    claims: Mutex<MarkFile>,
}

/// A request that the device is serving. Drop counts its end, even if the device's code panics.
struct Turn<'a> {
    member: &'a FencedMember,
    user: User,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.member.fence().end(self.user);
        self.member.came_back.notify_all();
    }
}

impl FencedMember {
    fn fence(&self) -> MutexGuard<'_, Fence> {
        self.fence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, user: User) -> Option<Turn<'_>> {
        let is_served = self.fence().begin(user);
        is_served.then(|| Turn { member: self, user })
    }

    /// Accepts a claim, and returns once only this claim is served. Returns the mark that the
    /// member had before.
    fn take(&self, claim: Claim) -> Result<Option<Mark>, String> {
        let mark_file = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let (judgement, before) = {
            let fence = self.fence();
            (fence.judge(&claim), fence.mark())
        };
        match judgement {
            Judgement::Joins => {}
            Judgement::Refused(mark) => return Err(refused_words(mark)),
            Judgement::Succeeds { mark } => {
                if let Some(mark) = mark {
                    let written = mark_file.write(mark);
                    written.map_err(|error| format!("the epoch cannot be kept: {error}"))?;
                }
                let mut fence = self.fence();
                fence.succeed(claim);
                while !fence.is_drained() {
                    fence = self.came_back.wait(fence).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        tracing::info!(target: "braid::member", name = self.name, claim = %claim, "claimed");
        Ok(before)
    }

    fn perform(&self, request: ClientRequest) -> Outcome {
        let member = &*self.member;
        let flushed = |durable: bool| if durable { member.flush() } else { Ok(()) };
        let (result, payload) = match request {
            ClientRequest::Read { offset, mut payload } => {
                (member.read_at(&mut payload, offset), Some(payload))
            }
            ClientRequest::Write { offset, payload, durable } => {
                (member.write_at(&payload, offset, durable), Some(payload))
            }
            ClientRequest::Flush => (member.flush(), None),
            ClientRequest::WriteZeroes { fast: true, .. } if !member.can_zero_fast() => {
                return Outcome { result: Err(RequestError::NotFast), payload: None };
            }
            ClientRequest::WriteZeroes { offset, length, may_punch, durable, .. } => {
                let zeroed = member.zero(offset, length, may_punch);
                (zeroed.and_then(|()| flushed(durable)), None)
            }
            ClientRequest::Trim { offset, length, durable } => {
                let trimmed = match member.can_zero_fast() {
                    true => member.zero(offset, length, true),
                    false => Ok(()),
                };
                (trimmed.and_then(|()| flushed(durable)), None)
            }
        };
        Outcome { result: result.map_err(error_of), payload }
    }
}

fn error_of(error: MemberError) -> RequestError {
    match error {
        MemberError::OutOfSpace { .. } => RequestError::NoSpace,
        MemberError::OutOfBounds { .. } => RequestError::OutOfRange,
        MemberError::Protected { .. } | MemberError::ReadOnly => RequestError::ReadOnly,
        _ => RequestError::Io("the member's device failed"),
    }
}

/// A member for the clients of one claim, or for clients without a claim.
pub(super) struct MemberExport {
    fenced: Arc<FencedMember>,
    /// The claim, and the mark that the member had before it.
    claim: Option<(Claim, Option<Mark>)>,
}

impl MemberExport {
    /// The export for clients without a claim.
    pub(super) fn new(
        name: String,
        member: Arc<dyn Member>,
        mark_file: MarkFile,
        mark: Option<Mark>,
    ) -> Self {
        let fence = Mutex::new(Fence::new(mark));
        let (came_back, claims) = (Condvar::new(), Mutex::new(mark_file));
        let fenced = Arc::new(FencedMember { name, member, fence, came_back, claims });
        Self { fenced, claim: None }
    }

    fn user(&self, request: &ClientRequest) -> User {
        match self.claim {
            Some((claim, _)) => User::Owner(claim),
            None => {
                let reads = matches!(request, ClientRequest::Read { .. } | ClientRequest::Flush);
                User::Plain { writes: !reads }
            }
        }
    }
}

impl Export for MemberExport {
    fn name(&self) -> &str {
        &self.fenced.name
    }

    fn description(&self) -> String {
        match self.claim {
            Some((_, before)) => served_words(before),
            None => "a member of an array".to_owned(),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.fenced.member.size_bytes()
    }

    /// A member that has had an owner is read-only for clients without a claim.
    fn read_only(&self) -> bool {
        self.claim.is_none() && self.fenced.fence().mark().is_some()
    }

    fn block_sizes(&self) -> BlockSizes {
        let usual = BlockSizes::BYTE_GRANULAR;
        let sizes = BlockSizes::new(BLOCK_BYTES, usual.preferred_bytes(), usual.maximum_bytes());
        sizes.expect("powers of two")
    }

    fn zeroes_fast(&self, _: u64, _: u64) -> bool {
        self.fenced.member.can_zero_fast()
    }

    fn takes_claims(&self) -> bool {
        true
    }

    fn claim(&self, words: &str) -> Result<Arc<dyn Export>, String> {
        let claim: Claim = words.parse().map_err(|error| format!("{error}"))?;
        let before = self.fenced.take(claim)?;
        Ok(Arc::new(Self { fenced: Arc::clone(&self.fenced), claim: Some((claim, before)) }))
    }

    fn submit(&self, request: ClientRequest, completion: Completion) {
        let outcome = match self.fenced.begin(self.user(&request)) {
            Some(_turn) => self.fenced.perform(request),
            None => {
                let payload = match request {
                    ClientRequest::Read { payload, .. } => Some(payload),
                    _ => None,
                };
                Outcome { result: Err(RequestError::ReadOnly), payload }
            }
        };
        completion.complete(outcome);
    }
}
