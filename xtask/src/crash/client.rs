//! The client that knows what must be there: NBD over a Unix socket, several requests in flight.
//!
//! Where it stands: `round` lets it load a server that dies under it, and read everything afterwards; it tells the
//! `model` what it asked and heard. One thread, blocking; braid's own client session decodes.
//!
//! No two requests in flight touch one sector, so that the order of writes to a sector is known.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use braid_nbd_proto::{ClientEvent, ClientPlan, ClientSession, Command, ErrorCode, Goal};
use fastrand::Rng;

use super::model::{End, Found, Model, SECTOR_BYTES, content};

/// Requests in flight.
const DEPTH: usize = 16;
/// Longest write, in sectors: more than a row of the arrays used here.
const WRITE_SECTORS_MAX: u64 = 600;
/// A read of the whole array goes in such pieces.
const READ_SECTORS: usize = 512;
/// So little is read at once of what may fail in part.
const COMPARED_SECTORS: usize = 8;
/// A server that lives answers within this, even on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// One request in flight.
#[derive(Debug)]
enum Asked {
    Write { range: Range<usize>, version: u32, durable: bool },
    Read { range: Range<usize>, bytes: Vec<u8> },
    Flush { covered: u64 },
}

impl Asked {
    fn words(&self) -> String {
        match self {
            Self::Write { range, .. } => format!("a write of sectors {range:?}"),
            Self::Read { range, .. } => format!("a read of sectors {range:?}"),
            Self::Flush { .. } => "a flush".to_owned(),
        }
    }
}

/// Why the server is spoken to.
#[derive(Clone, Copy)]
enum Phase<'a> {
    /// It lives until this is set; errors are right only after that.
    Load(&'a AtomicBool),
    /// It was started after such an end, and has to answer.
    Verify(End),
}

/// What came back.
enum Heard {
    Answer(u64, Result<(), ErrorCode>),
    Data {
        cookie: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    Nothing,
    /// The connection ended.
    End,
}

/// A connection.
pub(super) struct Client {
    stream: UnixStream,
    session: ClientSession,
    /// Received and not yet given to the session.
    input: Vec<u8>,
    in_flight: BTreeMap<u64, Asked>,
    cookie: u64,
    pub(super) size_bytes: u64,
}

impl Client {
    /// Connects and negotiates.
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).context("connecting")?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        let session = ClientSession::new(ClientPlan {
            export: String::new(),
            goal: Goal::Transmit,
            structured_replies: true,
            extended_headers: true,
            allocation_context: false,
        });
        let (input, in_flight) = (Vec::new(), BTreeMap::new());
        let mut client = Self { stream, session, input, in_flight, cookie: 0, size_bytes: 0 };
        while client.size_bytes == 0 {
            match client.hear()? {
                Heard::Nothing => {}
                Heard::End => bail!("the server hung up while negotiating"),
                Heard::Answer(..) | Heard::Data { .. } => bail!("an answer to nothing"),
            }
        }
        Ok(client)
    }

    /// Writes, reads and flushes within `sectors` until the connection ends, which it may once `dying` is set.
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

    /// Writes the first `sectors` once, and flushes.
    pub(super) fn fill(&mut self, model: &mut Model, sectors: usize) -> Result<()> {
        let alive = AtomicBool::new(false);
        let mut next = 0;
        while next < sectors {
            let range = next..(next + READ_SECTORS).min(sectors);
            next = range.end;
            ensure!(self.ask_write(model, range, false, false), "the server hung up");
            ensure!(self.step(model, Phase::Load(&alive))?, "the server hung up");
        }
        let asked = Asked::Flush { covered: model.answers() };
        ensure!(self.send(Command::Flush, asked, &[]), "the server hung up");
        ensure!(self.step(model, Phase::Load(&alive))?, "the server hung up");
        Ok(())
    }

    /// Reads `sectors` and judges them.
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

    /// Reads all `sectors` of an array that lacks members, and compares; what cannot be read is counted.
    pub(super) fn compare(&mut self, model: &Model, sectors: usize) -> Result<Found> {
        let (mut found, mut next) = (Found::default(), 0);
        while next < sectors || !self.in_flight.is_empty() {
            while self.in_flight.len() < DEPTH && next < sectors {
                let range = next..(next + COMPARED_SECTORS).min(sectors);
                next = range.end;
                ensure!(self.ask_read(range), "the server hung up");
            }
            match self.hear()? {
                Heard::Nothing => {}
                Heard::End => bail!("the server hung up while it was read"),
                Heard::Data { cookie, offset, bytes } => self.take(cookie, offset, &bytes)?,
                Heard::Answer(cookie, result) => {
                    let asked = self.in_flight.remove(&cookie);
                    let Some(Asked::Read { range, bytes }) = asked else {
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

    /// Data of a read.
    fn take(&mut self, cookie: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let asked = self.in_flight.get_mut(&cookie);
        let Some(Asked::Read { range, bytes: whole }) = asked else {
            bail!("data for what was no read")
        };
        let start = usize::try_from(offset)? - range.start * SECTOR_BYTES;
        whole[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Whether it could be sent.
    fn ask_something(
        &mut self,
        model: &mut Model,
        random: &mut Rng,
        sectors: &Range<usize>,
    ) -> bool {
        let kind = random.u64(..100);
        if kind < 8 {
            let asked = Asked::Flush { covered: model.answers() };
            return self.send(Command::Flush, asked, &[]);
        }
        let Some(range) = self.free_range(random, sectors) else { return true };
        if kind < 20 {
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
        self.send(command, Asked::Write { range, version, durable }, &payload)
    }

    fn ask_read(&mut self, range: Range<usize>) -> bool {
        let (offset, length) = place(&range);
        let bytes = vec![0xa5; range.len() * SECTOR_BYTES];
        let command = Command::Read { offset, length, dont_fragment: false };
        self.send(command, Asked::Read { range, bytes }, &[])
    }

    /// A range that nothing in flight touches; short ones are likelier.
    fn free_range(&self, random: &mut Rng, sectors: &Range<usize>) -> Option<Range<usize>> {
        for _ in 0..8 {
            let longest = [1, 8, 8, 128, WRITE_SECTORS_MAX][random.usize(..5)];
            let length = random.usize(..usize::try_from(longest).ok()?) + 1;
            let start = sectors.start + random.usize(..sectors.len().checked_sub(length)?);
            let range = start..start + length;
            let apart = |asked: &Asked| match asked {
                Asked::Write { range: other, .. } | Asked::Read { range: other, .. } => {
                    other.end <= range.start || range.end <= other.start
                }
                Asked::Flush { .. } => true,
            };
            if self.in_flight.values().all(apart) {
                return Some(range);
            }
        }
        None
    }

    fn send(&mut self, command: Command, asked: Asked, payload: &[u8]) -> bool {
        self.cookie += 1;
        let header = self.session.submit(self.cookie, command);
        let header = header.expect("a range within the export, and cookies are counted");
        self.in_flight.insert(self.cookie, asked);
        self.stream.write_all(&[&header[..], payload].concat()).is_ok()
    }

    /// Hears something and takes note; false at the end of the connection.
    fn step(&mut self, model: &mut Model, phase: Phase<'_>) -> Result<bool> {
        match self.hear()? {
            Heard::Nothing => {}
            Heard::End => return Ok(false),
            Heard::Data { cookie, offset, bytes } => self.take(cookie, offset, &bytes)?,
            Heard::Answer(cookie, result) => {
                let asked = self.in_flight.remove(&cookie).context("an answer to nothing")?;
                on_answer(model, phase, asked, result)?;
            }
        }
        Ok(true)
    }

    /// The next event of the session, receiving as needed.
    fn hear(&mut self) -> Result<Heard> {
        loop {
            if let Some(event) = self.session.poll_event() {
                return self.on_event(event);
            }
            let pending = usize::try_from(self.session.payload_pending())?;
            ensure!(pending == 0, "data without a word whose");
            if self.input.is_empty() && !self.receive()? {
                return Ok(Heard::End);
            }
            let taken = self.session.handle_bytes(&self.input);
            self.input.drain(..taken);
        }
    }

    fn on_event(&mut self, event: ClientEvent) -> Result<Heard> {
        Ok(match event {
            ClientEvent::Transmit(bytes) => {
                self.stream.write_all(&bytes)?;
                Heard::Nothing
            }
            ClientEvent::Ready(info) => {
                self.size_bytes = info.size_bytes;
                Heard::Nothing
            }
            ClientEvent::Data { cookie, offset, length } => {
                let length_bytes = usize::try_from(length)?;
                while self.input.len() < length_bytes {
                    if !self.receive()? {
                        return Ok(Heard::End);
                    }
                }
                self.session.payload_consumed(length);
                let bytes = self.input.drain(..length_bytes).collect();
                Heard::Data { cookie, offset, bytes }
            }
            ClientEvent::Hole { cookie, offset, length } => {
                Heard::Data { cookie, offset, bytes: vec![0; usize::try_from(length)?] }
            }
            ClientEvent::Completed { cookie, result } => Heard::Answer(cookie, result),
            ClientEvent::Close(reason) => bail!("the session ended: {reason}"),
            other => bail!("{other:?} was not asked for"),
        })
    }

    /// False when the other end is gone.
    fn receive(&mut self) -> Result<bool> {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.input.extend(&bytes[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(false),
            // A machine that was suspended ends waits that have a limit.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error).context("the server does not answer"),
        }
    }
}

fn on_answer(
    model: &mut Model,
    phase: Phase<'_>,
    asked: Asked,
    result: Result<(), ErrorCode>,
) -> Result<()> {
    if let Err(error) = result {
        // While the array stops or breaks that is right, and what a write did is open.
        let expected = matches!(phase, Phase::Load(dying) if dying.load(Ordering::SeqCst));
        ensure!(expected, "{error:?} to {}", asked.words());
        return Ok(());
    }
    match (asked, phase) {
        (Asked::Read { range, bytes }, Phase::Load(_)) => model.look(range.start, &bytes)?,
        (Asked::Read { range, bytes }, Phase::Verify(end)) => {
            model.judge(range.start, &bytes, end)?;
        }
        (Asked::Write { range, version, durable }, _) => model.answer(&range, version, durable),
        (Asked::Flush { covered }, _) => model.flushed(covered),
    }
    Ok(())
}

fn place(range: &Range<usize>) -> (u64, u32) {
    let bytes = range.len() * SECTOR_BYTES;
    let length = u32::try_from(bytes).expect("at most WRITE_SECTORS_MAX or READ_SECTORS");
    ((range.start * SECTOR_BYTES) as u64, length)
}
