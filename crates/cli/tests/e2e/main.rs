//! The `braid` command from the outside: real arrays of files, served to third-party clients
//! (libnbd's tools, QEMU's, fio, e2fsprogs).
//!
//! ```text
//!   kit          arrays, the server as a child process, other programs
//!   advertised   exports as nbdinfo sees them   copies     nbdcopy, qemu-img
//!   odd_places   qemu-io against a byte model   load       fio while a member goes
//!   file_system  mke2fs and e2fsck              stopping   SIGTERM, SIGKILL, restart
//!   fuse         the array as a file: users, a loss, ext4 on a loop device, stops, twenty kills
//!   ublk         the array as a block device, where no ublk is available
//!   vhost_user   the array as a disk of a virtual machine: a loss, kills, machines that go and come
//!   exclusive    two servers, sockets           bad_input  everything that must be refused
//!   captive      --run, TCP                     lost       acknowledged writes that fail later
//!   extended     requests of 64 bits, by QEMU as well
//!   several      two arrays in one server
//!   strangers    libnbd from Python, modules of Go's, nbdkit between
//!   secured      TLS, and which clients it admits
//!   causes       why a member went out, and a request failed
//!   managed      status, list, get, set, stop, and the control API
//!   paged        the page for browsers, and the port that it is on
//!   shown        `top`, in a terminal
//!   told         the history, hooks, metrics, the service manager
//!   living       jobs: check, pause, resume, rebuild, wait, and their lines in status
//!   members      add, spare, fail, remove, under clients
//!   spare_groups spares that are shared between arrays
//!   detached     a server in the background
//!   drills       mistakes of operators, none of which loses a byte
//!   bitmaps      a write-intent bitmap created, dropped and resized while it is served
//!   dated        scheduled checks, and jobs over restarts
//!   remedies, remedies_served
//!                remedies of refusals, typed unchanged
//!   transcript   the session of docs/transcript.md, and README's first minute, pasted
//!   undone       overwritten bytes put back, and refusals to do so
//!   replayed     partial parity logs, with a member missing
//!   journaled    write journals, with a member or the journal missing
//!   rescue       arrays that do not start, read back without a write to their members
//!   nas          the same of a NAS: its volumes, over several arrays, thin ones, other byte orders
//!   reshaped     arrays in the middle of a reshape, read back in both shapes at once
//!   foreign      containers of Intel and of DDF, read back
//!   tuned        the stripe cache, set under load
//!   scheduled    elevators and the multiplexer, set under load
//!   two_writers  the same bytes by two names
//!   write_protected
//!                write-protected disks: refused by name, and not failed if found later
//!   bare_roots   without /proc and /sys
//!   privacy      modes of files that braid makes
//!   output       complete or a failure, and safe for terminals
//!   signals      signals that stop the server, and others
//!   shortages    refusals of the operating system
//!   hostile      clients that take memory, connections and descriptors, under limits
//! ```
//!
//! The oracle, not these tests, inspects the members' bytes, with md itself.
//!
//! Every case takes a few seconds; the sizes are small and the seeds fixed.

mod advertised;
mod answered;
mod away;
mod bad_blocks;
mod bad_input;
mod bare_roots;
mod bitmap_files;
mod bitmaps;
mod broken;
mod captive;
mod causes;
mod confined;
mod copies;
mod damaged_superblocks;
mod dated;
mod detached;
mod drills;
mod exclusive;
mod extended;
mod file_system;
mod foreign;
mod fuse;
mod hostile;
mod hung;
mod imaged;
mod journaled;
mod kit;
mod living;
mod load;
mod log_changes;
mod lost;
mod managed;
mod members;
mod named;
mod nas;
mod odd_places;
mod old_copies;
mod output;
mod paged;
mod privacy;
mod remedies;
mod remedies_served;
mod replaced;
mod replayed;
mod rescue;
mod reshaped;
mod scheduled;
mod secured;
mod several;
mod shortages;
mod shown;
mod signals;
mod solving;
mod spare_groups;
mod stopping;
mod strangers;
mod told;
mod transcript;
mod tuned;
mod two_writers;
mod ublk;
mod undone;
mod vhost_user;
mod write_mostly;
mod write_protected;
