//! The world's failures: it reports each to the engine, and checks the causes that the engine
//! names.

use braid_engine::array::MemberId;
use braid_engine::cause::{Answer, Cause, RequestKind};
use braid_engine::effect::FaultKind;

use super::Failure;
use crate::world::World;

impl World {
    /// A member's disk fails a request: notes the failure, and returns the cause to report to the
    /// engine.
    pub(crate) fn failed(
        &mut self,
        member: MemberId,
        (asked, kind): (RequestKind, FaultKind),
        (start, sectors): (u64, u64),
    ) -> Cause {
        let failure = Failure { disk: self.disk_index(member), asked, start, sectors, kind };
        let failures = &mut self.engine.failures.0;
        failures.push(failure);
        let answer = Answer::Os(i32::try_from(failures.len()).expect("far fewer failures"));
        Cause { member, asked, sector: start, sectors: sectors as u32, answer }
    }

    /// Checks that a cause matches the noted failure with its number.
    fn check_cause(&self, cause: &Cause) -> Failure {
        let number = cause.answer.os_error().expect("disks fail with a number");
        let number = usize::try_from(number).expect("numbers count from 1");
        let failure = self.engine.failures.0[number - 1];
        let found = (cause.asked, cause.sector, u64::from(cause.sectors));
        assert_eq!(
            (self.disk_index(cause.member), found),
            (failure.disk, (failure.asked, failure.start, failure.sectors)),
            "{cause:?} does not match the disk's failure {failure:?}"
        );
        failure
    }

    /// Checks the cause that the engine names when a member goes out, or is missed.
    pub(crate) fn check_loss(&mut self, member: MemberId, cause: &Cause) {
        assert_eq!(cause.member, member, "{cause:?} is no reason for another member's loss");
        if self.engine.plan.failed_by_person.contains(&member) {
            assert_eq!(*cause, Cause::person(member), "an operator failed the member");
            return;
        }
        let Failure { asked, kind, .. } = self.check_cause(cause);
        let is_bad_sector = asked == RequestKind::Read && kind == FaultKind::Media;
        assert!(!is_bad_sector, "disk {} is lost for a bad sector", self.disk_index(member));
        self.tally.count("losses-with-their-cause");
    }

    /// Checks the cause that the engine names for a client's error, or for a lost acknowledged
    /// write.
    pub(crate) fn check_error_cause(&mut self, cause: Option<&Cause>) {
        match cause {
            // The member left before its disk answered, so no failure was noted.
            Some(Cause { answer: Answer::Left, .. }) => self.tally.count("errors-of-members-left"),
            Some(cause) => {
                self.check_cause(cause);
                self.tally.count("errors-with-their-cause");
            }
            // No member request failed: too many members are out, or bad-block logs name the
            // sectors.
            None => self.tally.count("errors-without-a-cause"),
        }
    }
}
