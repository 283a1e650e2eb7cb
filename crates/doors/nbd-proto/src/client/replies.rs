//! Replies of the transmission phase, as a client reads them.
//!
//! Where it stands: the session calls this module with whole headers and chunk bodies. The module
//! checks every number from the server against the request before it makes an event. So a driver
//! can write [`ClientEvent::Data`] into its buffer without a check of its own.

use super::{ClientEvent, ClientSession, InFlight, Phase};
use crate::collect::Cursor;
use crate::error::ErrorCode;
use crate::limits::CHUNK_BYTES_MAX;
use crate::reply::Extent;
use crate::request::Command;
use crate::style::Style;
use crate::wire;

impl InFlight {
    /// Marks `length` bytes at `offset` as arrived; false if these bytes are outside the request,
    /// or have arrived before.
    fn take_range(&mut self, offset: u64, length: u32) -> bool {
        let Command::Read { offset: wanted, length: wanted_length, .. } = self.command else {
            return false;
        };
        let end = offset.checked_add(u64::from(length));
        let wanted_end = wanted.checked_add(u64::from(wanted_length));
        match (end, wanted_end) {
            (Some(end), Some(wanted_end)) if offset >= wanted && end <= wanted_end => {
                self.coverage.add(offset, end)
            }
            _ => false,
        }
    }

    /// Whether the data that a successful reply must bring has arrived.
    fn is_answered(&self) -> bool {
        match self.command {
            Command::Read { offset, length, .. } => offset
                .checked_add(u64::from(length))
                .is_some_and(|end| self.coverage.is_complete(offset, end)),
            Command::BlockStatus { .. } => self.status_seen,
            _ => true,
        }
    }
}

impl ClientSession {
    pub(super) fn on_magic(&mut self) {
        match Cursor::new(self.collector.bytes()).u32() {
            Some(wire::SIMPLE_REPLY_MAGIC) if !self.info.style.is_extended() => {
                self.collect_in(Phase::SimpleHeader, 12);
            }
            Some(wire::CHUNK_MAGIC) if self.info.style == Style::Structured => {
                self.collect_in(Phase::ChunkHeader, 16);
            }
            Some(wire::EXTENDED_CHUNK_MAGIC) if self.info.style.is_extended() => {
                self.collect_in(Phase::ExtendedChunkHeader, 28);
            }
            _ => self.broken("a reply without its magic"),
        }
    }

    pub(super) fn on_simple_header(&mut self) {
        let mut cursor = Cursor::new(self.collector.bytes());
        let (Some(error), Some(cookie)) = (cursor.u32(), cursor.u64()) else {
            unreachable!("twelve bytes were collected");
        };
        let structured = self.info.style.has_chunks();
        let Some(entry) = self.in_flight.get_mut(&cookie) else {
            return self.broken("a reply to a request that was not made");
        };
        match entry.command {
            Command::Read { .. } | Command::BlockStatus { .. } if structured => {
                self.broken("a simple reply where a structured one is due");
            }
            Command::Read { offset, length, .. } if error == 0 => {
                if !entry.take_range(offset, length) {
                    return self.broken("data twice");
                }
                self.start_data(cookie, offset, length, true);
            }
            _ => {
                entry.error = (error != 0).then(|| ErrorCode::from_wire(error));
                self.end_of_chunk(cookie, true);
            }
        }
    }

    pub(super) fn on_chunk_header(&mut self) {
        let mut cursor = Cursor::new(self.collector.bytes());
        let (Some(flags), Some(kind)) = (cursor.u16(), cursor.u16()) else {
            unreachable!("sixteen bytes were collected");
        };
        let (Some(cookie), Some(length)) = (cursor.u64(), cursor.u32()) else {
            unreachable!("sixteen bytes were collected");
        };
        if !self.in_flight.contains_key(&cookie) {
            return self.broken("a chunk for a request that was not made");
        }
        self.on_chunk((flags, kind), cookie, length);
    }

    pub(super) fn on_extended_chunk_header(&mut self) {
        let mut cursor = Cursor::new(self.collector.bytes());
        let (Some(flags), Some(kind)) = (cursor.u16(), cursor.u16()) else {
            unreachable!("twenty-eight bytes were collected");
        };
        let (Some(cookie), Some(offset), Some(length)) = (cursor.u64(), cursor.u64(), cursor.u64())
        else {
            unreachable!("twenty-eight bytes were collected");
        };
        let Some(entry) = self.in_flight.get(&cookie) else {
            return self.broken("a chunk for a request that was not made");
        };
        if offset != entry.command.offset() {
            return self.broken("a chunk with the offset of another request");
        }
        let Ok(length) = u32::try_from(length) else {
            return self.broken("a chunk over the limit");
        };
        self.on_chunk((flags, kind), cookie, length);
    }

    fn on_chunk(&mut self, (flags, kind): (u16, u16), cookie: u64, length: u32) {
        let done = flags & wire::CHUNK_FLAG_DONE != 0;
        if kind == wire::CHUNK_OFFSET_DATA {
            let Some(length) = length.checked_sub(8).filter(|length| *length > 0) else {
                return self.broken("a data chunk without data");
            };
            return self.collect_in(Phase::DataOffset { cookie, length, done }, 8);
        }
        let length_bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if length_bytes > CHUNK_BYTES_MAX {
            return self.broken("a chunk over the limit");
        }
        self.collect_in(Phase::ChunkBody { kind, cookie, done }, length_bytes);
        if length == 0 {
            self.on_chunk_body(kind, cookie, done, &[]);
        }
    }

    pub(super) fn on_data_offset(&mut self, cookie: u64, length: u32, done: bool) {
        let offset = Cursor::new(self.collector.bytes()).u64().expect("eight bytes were collected");
        let entry = self.in_flight.get_mut(&cookie).expect("checked with the chunk header");
        if !entry.take_range(offset, length) {
            return self.broken("data outside the request, or twice");
        }
        self.start_data(cookie, offset, length, done);
    }

    fn start_data(&mut self, cookie: u64, offset: u64, length: u32, done: bool) {
        self.events.push_back(ClientEvent::Data { cookie, offset, length });
        self.phase = Phase::Data { cookie, remaining: length, done };
    }

    pub(super) fn on_chunk_body(&mut self, kind: u16, cookie: u64, done: bool, body: &[u8]) {
        let event = match kind {
            wire::CHUNK_NONE if body.is_empty() && done => None,
            wire::CHUNK_OFFSET_HOLE => match self.take_hole(cookie, body) {
                Some(event) => Some(event),
                None => return self.broken("a hole outside the request, or twice"),
            },
            wire::CHUNK_BLOCK_STATUS | wire::CHUNK_BLOCK_STATUS_EXT => {
                match self.take_status(kind, cookie, body) {
                    Some(event) => Some(event),
                    None => return self.broken("a malformed block status"),
                }
            }
            _ if kind & wire::CHUNK_ERROR_BIT != 0 => {
                if !self.take_error(cookie, body) {
                    return self.broken("a malformed error chunk");
                }
                None
            }
            _ => return self.broken("a chunk of the wrong type"),
        };
        self.events.extend(event);
        self.end_of_chunk(cookie, done);
    }

    fn take_hole(&mut self, cookie: u64, body: &[u8]) -> Option<ClientEvent> {
        let mut cursor = Cursor::new(body);
        let (offset, length) = (cursor.u64()?, cursor.u32()?);
        let entry = self.in_flight.get_mut(&cookie)?;
        let fits = cursor.is_empty() && entry.take_range(offset, length);
        fits.then_some(ClientEvent::Hole { cookie, offset, length })
    }

    fn take_status(&mut self, kind: u16, cookie: u64, body: &[u8]) -> Option<ClientEvent> {
        let is_long = kind == wire::CHUNK_BLOCK_STATUS_EXT;
        if is_long && !self.info.style.is_extended() {
            return None;
        }
        let mut cursor = Cursor::new(body);
        let entry = self.in_flight.get_mut(&cookie)?;
        let Command::BlockStatus { length, one, .. } = entry.command else { return None };
        if cursor.u32() != self.info.context_id || entry.status_seen {
            return None;
        }
        entry.status_seen = true;
        // With a count of 0, the chunk's length gives the number of extents.
        let count = if is_long { cursor.u32()? } else { 0 };
        let mut extents = Vec::new();
        while !cursor.is_empty() {
            extents.push(if is_long {
                let (length_bytes, flags) = (cursor.u64()?, cursor.u64()?);
                Extent { length_bytes, flags: u32::try_from(flags).ok()? }
            } else {
                Extent { length_bytes: cursor.u32()?.into(), flags: cursor.u32()? }
            });
        }
        if count != 0 && usize::try_from(count) != Ok(extents.len()) {
            return None;
        }
        let (last, before) = extents.split_last()?;
        let mut lengths = before.iter().map(|extent| extent.length_bytes);
        let before = lengths.try_fold(0_u64, u64::checked_add)?;
        let overlong = one && (extents.len() > 1 || last.length_bytes > length);
        let empty = extents.iter().any(|extent| extent.length_bytes == 0);
        if overlong || empty || before >= length {
            return None;
        }
        Some(ClientEvent::BlockStatus { cookie, extents })
    }

    fn take_error(&mut self, cookie: u64, body: &[u8]) -> bool {
        let mut cursor = Cursor::new(body);
        let (Some(error), Some(text_bytes)) = (cursor.u32(), cursor.u16()) else { return false };
        if error == 0 || cursor.bytes(usize::from(text_bytes)).is_none() {
            return false;
        }
        if let Some(entry) = self.in_flight.get_mut(&cookie) {
            entry.error.get_or_insert(ErrorCode::from_wire(error));
        }
        true
    }

    /// Handles the end of a chunk or simple reply: the next chunk follows, or the request ends.
    pub(super) fn end_of_chunk(&mut self, cookie: u64, done: bool) {
        if done {
            let entry = self.in_flight.remove(&cookie).expect("a reply is for a known request");
            let result = match entry.error {
                Some(error) => Err(error),
                None if entry.is_answered() => Ok(()),
                None => return self.broken("success with data missing"),
            };
            self.events.push_back(ClientEvent::Completed { cookie, result });
        }
        self.collect_in(Phase::Magic, 4);
    }
}
