//! The client that knows the array's expected content: NBD over a Unix socket or a file of the FUSE
//! door, many requests in flight.
//!
//! `round` uses the client to load a server that dies, and to read everything afterwards. The
//! client reports its requests and their answers to the `model`. It has one thread and blocks.
//!
//! No two requests in flight touch one sector, so the order of writes to a sector is known.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use braid_nbd_client::{ClientError, Command, Cutter, ErrorCode, ServerMessage, plan_for};
use fastrand::Rng;

use super::file_connection::FileConnection;
use super::model::{End, LATE, Model, SECTOR_BYTES, SectorCounts, content};

const DEPTH: usize = 16;
/// Longest write, in sectors: more than a row of the arrays used here.
const WRITE_SECTORS_MAX: u64 = 600;
/// Most sectors of reads in flight under load. Their answers fit into the socket: a server that
/// waits for this client to take answers reads no requests, while the client waits to send one.
const READ_SECTORS_LOAD_MAX: usize = 128;
/// Request size for reading the whole array.
const READ_SECTORS: usize = 512;
/// Request size for reads that may fail in part.
const COMPARED_SECTORS: usize = 8;
/// A live server answers within this time, even on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
enum PendingRequest {
    Write { range: Range<usize>, version: u32, durable: bool },
    Read { range: Range<usize>, bytes: Vec<u8> },
    Flush { covered: u64 },
}

impl PendingRequest {
    fn words(&self) -> String {
        match self {
            Self::Write { range, .. } => format!("a write of sectors {range:?}"),
            Self::Read { range, .. } => format!("a read of sectors {range:?}"),
            Self::Flush { .. } => "a flush".to_owned(),
        }
    }
}

#[derive(Clone, Copy)]
enum Phase<'a> {
    /// The client loads the array. Errors are legal only after the flag is set.
    Load(&'a AtomicBool),
    /// The server was restarted after this kind of end, and must answer.
    Verify(End),
}

enum Connection {
    Nbd(Box<braid_nbd_client::Client>),
    File(FileConnection),
}

pub(super) struct Client {
    connection: Connection,
    in_flight: BTreeMap<u64, PendingRequest>,
}

impl Client {
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let client = braid_nbd_client::Client::connect(socket, plan_for(""), ANSWER_LIMIT);
        let connection = Connection::Nbd(Box::new(client.context("connecting")?));
        Ok(Self { connection, in_flight: BTreeMap::new() })
    }

    /// Uses the array as this file of the FUSE door.
    pub(super) fn open(file: &Path) -> Result<Self> {
        let connection = Connection::File(FileConnection::open(file, DEPTH, ANSWER_LIMIT)?);
        Ok(Self { connection, in_flight: BTreeMap::new() })
    }

    /// A handle with which another thread ends this connection.
    pub(super) fn cutter(&self) -> Result<Cutter> {
        match &self.connection {
            Connection::Nbd(client) => Ok(client.cutter()?),
            Connection::File(_) => bail!("a file has no connection to end"),
        }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        match &self.connection {
            Connection::Nbd(client) => client.info().size_bytes,
            Connection::File(file) => file.size_bytes(),
        }
    }

    /// Writes, reads and flushes within `sectors` until the connection ends. The end is legal once
    /// `dying` is set.
    pub(super) fn load(
        &mut self,
        model: &mut Model,
        random: &mut Rng,
        sectors: Range<usize>,
        dying: &AtomicBool,
    ) -> Result<()> {
        loop {
            while self.in_flight.len() < DEPTH {
                if !self.ask_something(model, random, &sectors) {
                    ensure!(dying.load(Ordering::SeqCst), "the server hung up");
                    return Ok(());
                }
            }
            if !self.step(model, Phase::Load(dying))? {
                ensure!(dying.load(Ordering::SeqCst), "the server hung up");
                return Ok(());
            }
        }
    }

    /// Writes the first `sectors` of the array once, and flushes.
    pub(super) fn fill(&mut self, model: &mut Model, sectors: usize) -> Result<()> {
        let alive = AtomicBool::new(false);
        let mut next = 0;
        while next < sectors {
            let range = next..(next + READ_SECTORS).min(sectors);
            next = range.end;
            ensure!(self.ask_write(model, range, false, false), "the server hung up");
            ensure!(self.step(model, Phase::Load(&alive))?, "the server hung up");
        }
        let pending = PendingRequest::Flush { covered: model.answers() };
        ensure!(self.send(Command::Flush, pending, &[]), "the server hung up");
        ensure!(self.step(model, Phase::Load(&alive))?, "the server hung up");
        Ok(())
    }

    pub(super) fn verify(
        &mut self,
        model: &mut Model,
        sectors: Range<usize>,
        end: End,
    ) -> Result<()> {
        let mut next = sectors.start;
        while next < sectors.end || !self.in_flight.is_empty() {
            while self.in_flight.len() < DEPTH / 4 && next < sectors.end {
                let range = next..(next + READ_SECTORS).min(sectors.end);
                next = range.end;
                ensure!(self.ask_read(range), "the server hung up");
            }
            ensure!(self.step(model, Phase::Verify(end))?, "the server hung up while it was read");
        }
        Ok(())
    }

    /// Reads and compares all `sectors` of a degraded array; counts unreadable ones.
    pub(super) fn compare(&mut self, model: &Model, sectors: usize) -> Result<SectorCounts> {
        let (mut found, mut next) = (SectorCounts::default(), 0);
        while next < sectors || !self.in_flight.is_empty() {
            while self.in_flight.len() < DEPTH && next < sectors {
                let range = next..(next + COMPARED_SECTORS).min(sectors);
                next = range.end;
                ensure!(self.ask_read(range), "the server hung up");
            }
            match self.hear()? {
                None => bail!("the server hung up while it was read"),
                Some((cookie, result)) => {
                    let pending = self.in_flight.remove(&cookie);
                    let Some(PendingRequest::Read { range, bytes }) = pending else {
                        bail!("an answer to what was no read")
                    };
                    match result {
                        Ok(()) => found.add(model.compare(range.start, &bytes)),
                        Err(_) => found.failed += range.len() as u64,
                    }
                }
            }
        }
        Ok(found)
    }

    /// Sends a sleeping server a read, and a write that the model never allows.
    pub(super) fn ask_late(&mut self) -> Result<()> {
        let (range, version) = (0..COMPARED_SECTORS, LATE);
        let (offset, _) = place(&range);
        let payload: Vec<u8> = range.clone().flat_map(|sector| content(version, sector)).collect();
        let length = u32::try_from(payload.len())?;
        let write = PendingRequest::Write { range: range.clone(), version, durable: false };
        let command = Command::Write { offset, length, fua: false };
        let is_sent = self.ask_read(range) && self.send(command, write, &payload);
        ensure!(is_sent, "a server that sleeps hung up");
        Ok(())
    }

    /// Requires that the connection ends without an answer to the late requests.
    pub(super) fn is_never_answered(&mut self) -> Result<()> {
        let answer = self.hear()?;
        ensure!(answer.is_none(), "an owner answered after it had lost the array: {answer:?}");
        Ok(())
    }

    fn take(&mut self, cookie: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let pending = self.in_flight.get_mut(&cookie);
        let Some(PendingRequest::Read { range, bytes: whole }) = pending else {
            bail!("data for what was no read")
        };
        let start = usize::try_from(offset)? - range.start * SECTOR_BYTES;
        whole[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Sends one random request; `false` if the connection is gone.
    fn ask_something(
        &mut self,
        model: &mut Model,
        random: &mut Rng,
        sectors: &Range<usize>,
    ) -> bool {
        let kind = random.u64(..100);
        if kind < 8 {
            let pending = PendingRequest::Flush { covered: model.answers() };
            return self.send(Command::Flush, pending, &[]);
        }
        let Some(range) = self.free_range(random, sectors) else { return true };
        if kind < 20 && self.sectors_read() + range.len() <= READ_SECTORS_LOAD_MAX {
            return self.ask_read(range);
        }
        self.ask_write(model, range, kind < 24, random.u64(..10) == 0)
    }

    fn ask_write(
        &mut self,
        model: &mut Model,
        range: Range<usize>,
        zeroes: bool,
        durable: bool,
    ) -> bool {
        let version = model.ask(&range, zeroes);
        let (offset, length) = place(&range);
        let mut payload = Vec::new();
        let command = if zeroes {
            Command::WriteZeroes {
                offset,
                length: length.into(),
                fua: durable,
                may_punch: durable,
                fast: false,
            }
        } else {
            payload.extend(range.clone().flat_map(|sector| content(version, sector)));
            Command::Write { offset, length, fua: durable }
        };
        self.send(command, PendingRequest::Write { range, version, durable }, &payload)
    }

    fn ask_read(&mut self, range: Range<usize>) -> bool {
        let (offset, length) = place(&range);
        let bytes = vec![0xa5; range.len() * SECTOR_BYTES];
        let command = Command::Read { offset, length, dont_fragment: false };
        self.send(command, PendingRequest::Read { range, bytes }, &[])
    }

    /// The sectors of reads in flight.
    fn sectors_read(&self) -> usize {
        let sectors = |pending: &PendingRequest| match pending {
            PendingRequest::Read { range, .. } => range.len(),
            _ => 0,
        };
        self.in_flight.values().map(sectors).sum()
    }

    /// A random range without a request in flight; short ranges are likelier.
    fn free_range(&self, random: &mut Rng, sectors: &Range<usize>) -> Option<Range<usize>> {
        for _ in 0..8 {
            let longest = [1, 8, 8, 128, WRITE_SECTORS_MAX][random.usize(..5)];
            let length = random.usize(..usize::try_from(longest).ok()?) + 1;
            let start = sectors.start + random.usize(..sectors.len().checked_sub(length)?);
            let range = start..start + length;
            let apart = |pending: &PendingRequest| match pending {
                PendingRequest::Write { range: other, .. }
                | PendingRequest::Read { range: other, .. } => {
                    other.end <= range.start || range.end <= other.start
                }
                PendingRequest::Flush { .. } => true,
            };
            if self.in_flight.values().all(apart) {
                return Some(range);
            }
        }
        None
    }

    fn send(&mut self, command: Command, pending: PendingRequest, payload: &[u8]) -> bool {
        let sent = match &mut self.connection {
            Connection::Nbd(client) => client.send(command, payload),
            Connection::File(file) => file.send(command, payload),
        };
        match sent {
            Ok(cookie) => self.in_flight.insert(cookie, pending).is_none(),
            Err(ClientError::Connection(_) | ClientError::HungUp) => false,
            Err(error) => panic!("a range within the export, and cookies are counted: {error}"),
        }
    }

    /// Handles one answer of the server; `false` at the end of the connection.
    fn step(&mut self, model: &mut Model, phase: Phase<'_>) -> Result<bool> {
        let Some((cookie, result)) = self.hear()? else { return Ok(false) };
        let pending = self.in_flight.remove(&cookie).context("an answer to nothing")?;
        on_answer(model, phase, pending, result)?;
        Ok(true)
    }

    /// The next answer, after taking the data of its read; `None` at the end of the connection.
    fn hear(&mut self) -> Result<Option<(u64, Result<(), ErrorCode>)>> {
        loop {
            let heard = match &mut self.connection {
                Connection::Nbd(client) => client.hear(),
                Connection::File(file) => file.hear(),
            };
            match heard {
                Ok(ServerMessage::Data { cookie, offset, bytes }) => {
                    self.take(cookie, offset, &bytes)?
                }
                Ok(ServerMessage::Hole { cookie, offset, length_bytes }) => {
                    self.take(cookie, offset, &vec![0; usize::try_from(length_bytes)?])?;
                }
                Ok(ServerMessage::Answer { cookie, result }) => return Ok(Some((cookie, result))),
                Ok(ServerMessage::Extents { .. }) => bail!("extents that no request asked for"),
                Err(ClientError::HungUp) => return Ok(None),
                Err(error) => return Err(error).context("the server does not answer"),
            }
        }
    }
}

fn on_answer(
    model: &mut Model,
    phase: Phase<'_>,
    pending: PendingRequest,
    result: Result<(), ErrorCode>,
) -> Result<()> {
    if let Err(error) = result {
        // While the array stops or breaks, an error is legal; the write may be on the array or not.
        let expected = matches!(phase, Phase::Load(dying) if dying.load(Ordering::SeqCst));
        ensure!(expected, "{error:?} to {}", pending.words());
        return Ok(());
    }
    match (pending, phase) {
        (PendingRequest::Read { range, bytes }, Phase::Load(_)) => {
            model.look(range.start, &bytes)?
        }
        (PendingRequest::Read { range, bytes }, Phase::Verify(end)) => {
            model.judge(range.start, &bytes, end)?;
        }
        (PendingRequest::Write { range, version, durable }, _) => {
            model.answer(&range, version, durable)
        }
        (PendingRequest::Flush { covered }, _) => model.flushed(covered),
    }
    Ok(())
}

fn place(range: &Range<usize>) -> (u64, u32) {
    let bytes = range.len() * SECTOR_BYTES;
    let length = u32::try_from(bytes).expect("at most WRITE_SECTORS_MAX or READ_SECTORS");
    ((range.start * SECTOR_BYTES) as u64, length)
}
