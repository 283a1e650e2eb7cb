//! The thread that gives the device the array's size after a change of shape.
//!
//! The thread looks at the array's size twice a second. The kernel announces a new size to users of
//! the device.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};

use braid_runtime::Disk;
use braid_ublk_proto::wire::state;

use crate::control::{Control, ControlError};
use crate::limits::SIZE_LOOK;

/// Number of bits by which bytes are shifted to sectors of 512 bytes.
const SECTOR_SHIFT: u32 = 9;

/// The thread that follows the array's size, and the channel whose end ends the thread. Drop waits
/// for the thread.
pub(crate) struct SizeWatch(Option<(Sender<()>, JoinHandle<()>)>);

impl SizeWatch {
    /// Follows the size of `disk` for the device with this number and the array's word, whose size
    /// is `known_bytes`; `None` if that size is not known.
    pub(crate) fn new(
        (id, array): (u32, u64),
        disk: Arc<dyn Disk>,
        known_bytes: Option<u64>,
    ) -> io::Result<Self> {
        let mut control = Control::open().map_err(|error| match error {
            ControlError::Node(source) | ControlError::Ring(source) => source,
        })?;
        let (end, ended) = channel();
        let mut known_bytes = known_bytes;
        let body = move || {
            loop {
                let bytes = disk.size_bytes();
                if known_bytes != Some(bytes) {
                    if !is_ours(&mut control, id, array) {
                        return;
                    }
                    if let Err(error) = control.update_size(id, bytes >> SECTOR_SHIFT) {
                        tracing::warn!(target: "braid_frontend_ublk", %error, "the device keeps its size");
                        return;
                    }
                    known_bytes = Some(bytes);
                }
                if ended.recv_timeout(SIZE_LOOK) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = Builder::new().name("braid-ublk-size".into()).spawn(body)?;
        Ok(Self(Some((end, thread))))
    }
}

/// Whether the device is live and belongs to the array. Another program may have deleted the
/// device, and another device may have its number. Older kernels crash if a device without a disk
/// is resized.
fn is_ours(control: &mut Control, id: u32, array: u64) -> bool {
    let found = control.look(id).ok().flatten();
    found.is_some_and(|info| info.state == state::LIVE && info.ublksrv_flags == array)
}

impl Drop for SizeWatch {
    fn drop(&mut self) {
        let Some((end, thread)) = self.0.take() else { return };
        drop(end);
        if thread.join().is_err() {
            tracing::error!(target: "braid_frontend_ublk", "the thread for the size has panicked");
        }
    }
}
