//! Members that leave the array with requests in flight. Their requests end as failed. The frames
//! and payloads that these requests name stay reserved until the member answers.

use super::in_flight::{DirectRead, IoOwner, ReadIoKind};
use super::machine::Stripes;
use crate::context::{Common, Departures, OrphanRequest, ReservedMemory};
use crate::ids::IoId;

impl Stripes {
    /// Ends the requests at members that left, for the requests' owners. Returns the requests whose
    /// memory stays reserved.
    pub(crate) fn leave(
        &mut self,
        common: &mut Common,
        departures: &Departures,
    ) -> Vec<OrphanRequest> {
        self.abandon_direct(common, |_, slot| departures.has(slot));
        self.with_reads(common, |reads, context| reads.leave_reads(context, departures));
        let mut orphans = Vec::new();
        for (name, owner) in self.in_flight.iter() {
            let (slot, memory, is_copy) = match owner {
                IoOwner::Column(io) => {
                    let frame = self.pool.frame(io.number).expect("a batch has memory");
                    (io.slot, ReservedMemory::Frame(frame), false)
                }
                IoOwner::Reconstruct(io) => {
                    (io.slot, ReservedMemory::Place(io.place), io.kind == ReadIoKind::Copy)
                }
                // No client looks at the bytes of a probe.
                IoOwner::Probe(slot) => (*slot, ReservedMemory::Nothing, false),
                IoOwner::Direct(DirectRead { slot, .. }) | IoOwner::Abandoned(slot) => {
                    common.forget_pace_at(departures, (IoId(name), *slot));
                    continue;
                }
            };
            orphans.extend(common.out_at(departures, (IoId(name), slot), (memory, is_copy)));
        }
        for OrphanRequest { memory, .. } in &orphans {
            match *memory {
                ReservedMemory::Frame(frame) => self.hold_frame(common, frame),
                ReservedMemory::Place(place) => self.reads.hold(place),
                ReservedMemory::Nothing | ReservedMemory::Payload(_) => {}
            }
        }
        orphans
    }

    fn hold_frame(&mut self, common: &mut Common, frame: u32) {
        let Self { orphan_frames, pool, .. } = self;
        let number = pool.holder(frame).expect("a batch has it");
        orphan_frames.hold(frame, || {
            let payloads = pool.stripe_mut(number).leave();
            payloads.iter().for_each(|piece| common.hold_payload(*piece));
            payloads
        });
    }

    /// Frees the memory of a request that ended only after its member had left.
    pub(crate) fn let_go_of(&mut self, common: &mut Common, memory: ReservedMemory) {
        match memory {
            ReservedMemory::Frame(frame) => self.let_go_of_frame(common, frame),
            ReservedMemory::Place(place) => {
                self.with_reads(common, |reads, _| reads.let_go_of(place));
            }
            ReservedMemory::Nothing | ReservedMemory::Payload(_) => {
                unreachable!("no memory of stripes")
            }
        }
        self.settle(common);
    }

    fn let_go_of_frame(&mut self, common: &mut Common, frame: u32) {
        let Some(payloads) = self.orphan_frames.let_go(frame) else { return };
        payloads.into_iter().for_each(|piece| common.let_go_of_payload(piece));
        self.pool.take_back(frame);
        self.serve_line(common);
    }
}
