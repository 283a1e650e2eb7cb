//! The `braid` command from the outside: real arrays of files, served to third-party clients
//! (libnbd's tools, QEMU's, fio, e2fsprogs).
//!
//! ```text
//!   kit                  arrays, the server as a child process, other programs
//!   export_properties    exports as nbdinfo sees them
//!   copies               nbdcopy, qemu-img
//!   unaligned_requests   qemu-io against a byte model
//!   load                 fio while a member goes
//!   file_system          mke2fs and e2fsck
//!   stopping             SIGTERM, SIGKILL, restart
//!   fuse                 the array as a file: users, a loss, ext4 on a loop, stops, twenty kills
//!   ublk                 the array as a block device, where no ublk is available
//!   vhost_user           the array as a guest's disk: a loss, kills, guests that go and come
//!   exclusive_access     two servers, sockets
//!   bad_input            everything that must be refused
//!   run_command          --run, TCP
//!   lost_writes          acknowledged writes that fail later
//!   extended_headers     requests of 64 bits, by QEMU as well
//!   several_arrays       two arrays in one server
//!   third_party_clients  libnbd from Python, modules of Go's, nbdkit between
//!   tls                  TLS, and which clients it admits
//!   failure_causes       why a member went out, and a request failed
//!   compose              three hosts by the recipe of packaging/compose
//!   control              status, list, get, set, stop, and the control API
//!   browser_page         the page for browsers, and the port that it is on
//!   top                  `top`, in a terminal
//!   events               the history, hooks, metrics, the service manager
//!   jobs                 check, pause, resume, rebuild, wait, and their lines in status
//!   grow                 other shapes while clients write, kills in the middle, and back
//!   striped              shapes of RAID-0, and levels that become RAID-0 or were RAID-0
//!   members              add, spare, fail, remove, under clients
//!   spare_groups         spares that are shared between arrays
//!   detach               a server in the background
//!   operator_mistakes    mistakes of operators, none of which loses a byte
//!   bitmaps              a write-intent bitmap created, dropped and resized while it is served
//!   check_schedule       scheduled checks, and jobs over restarts
//!   remedies, remedies_served
//!                        remedies of refusals, typed unchanged
//!   transcript           the sessions of docs/transcript*.md, and README's first minute, pasted
//!   remote_members       members on other hosts: lost connections, lost writes, silence, TLS
//!   undo                 overwritten bytes put back, and refusals to do so
//!   ppl_replay           partial parity logs, with a member missing
//!   write_journal        write journals, with a member or the journal missing
//!   rescue               arrays that do not start, read back without a write to their members
//!   nas                  NAS disks: volumes over several arrays, thin volumes, other byte orders
//!   reshape              arrays in the middle of a reshape, read back in both shapes at once
//!   containers           containers of Intel and of DDF, read back
//!   settings             the stripe cache, set under load
//!   elevators            elevators and the multiplexer, set under load
//!   two_writers          the same bytes by two names
//!   write_protected      write-protected disks: refused by name, and not failed if found later
//!   bare_roots           without /proc and /sys
//!   privacy              modes of files that braid makes
//!   output               complete or a failure, and safe for terminals
//!   signals              signals that stop the server, and others
//!   shortages            refusals of the operating system
//!   hostile_clients      clients that take memory, connections and descriptors, under limits
//! ```
//!
//! The oracle, not these tests, inspects the members' bytes, with md itself.
//!
//! Every case takes a few seconds; array sizes are small and random seeds are fixed.

mod answered_writes;
mod away_members;
mod bad_blocks;
mod bad_input;
mod bare_roots;
mod bitmap_files;
mod bitmaps;
mod broken_arrays;
mod browser_page;
mod check_schedule;
mod compose;
mod config_files;
mod confinement;
mod containers;
mod control;
mod copies;
mod damaged_superblocks;
mod detach;
mod elevators;
mod events;
mod exclusive_access;
mod export_properties;
mod extended_headers;
mod failure_causes;
mod file_system;
mod fuse;
mod grow;
mod hostile_clients;
mod hung_members;
mod image;
mod jobs;
mod kit;
mod load;
mod log_changes;
mod lost_sectors;
mod lost_writes;
mod members;
mod nas;
mod old_copies;
mod operator_mistakes;
mod output;
mod owners;
mod ppl_replay;
mod privacy;
mod raid10_reshape;
mod remedies;
mod remedies_served;
mod remote_members;
mod replacement;
mod rescue;
mod reshape;
mod reshape_backup;
mod run_command;
mod settings;
mod several_arrays;
mod shortages;
mod shrink;
mod signals;
mod solve;
mod spare_groups;
mod stopping;
mod striped;
mod third_party_clients;
mod tls;
mod top;
mod transcript;
mod two_writers;
mod ublk;
mod unaligned_requests;
mod undo;
mod vhost_user;
mod write_journal;
mod write_mostly;
mod write_protected;
