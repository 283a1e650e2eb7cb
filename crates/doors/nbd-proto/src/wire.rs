//! The numbers of the NBD wire format, and the few fixed-size messages built from these numbers.
//!
//! Where it stands: below both sessions. All numbers are big endian.
//!
//! ```text
//!  greeting       NBDMAGIC u64 · IHAVEOPT u64 · handshake flags u16
//!  option         IHAVEOPT u64 · option u32 · length u32 · data
//!  option reply   0x0003e889045565a9 u64 · option u32 · kind u32 · length u32 · data
//!  request        0x25609513 u32 · flags u16 · type u16 · cookie u64 · offset u64 · length u32
//!  simple reply   0x67446698 u32 · error u32 · cookie u64 · data of a READ
//!  chunk          0x668e33ef u32 · flags u16 · type u16 · cookie u64 · length u32 · payload
//! ```
//!
//! Sizes in bytes: greeting 18, option 16 + length, option reply 20 + length, request 28, simple
//! reply 16 + length, chunk 20 + length.
//!
//! With extended headers, instead of the last three messages:
//!
//! ```text
//!  request        0x21e41c71 u32 · flags u16 · type u16 · cookie u64 · offset u64 · length u64
//!  chunk          0x6e8a278c u32 · flags u16 · type u16 · cookie u64 · offset u64 · length u64
//! ```
//!
//! Sizes in bytes: request 32, chunk 32 + length.
//!
//! Source: `doc/proto.md`, sections "Protocol phases" and "Values".

/// The first eight bytes that every server sends: `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: marks a newstyle server, and starts each option of the client.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The magic that starts each reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The magic that starts each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The magic that starts each simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// The magic that starts each chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// The magic that starts each request with extended headers.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// The magic that starts each chunk with extended headers.
pub const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// Length of the server's greeting, in bytes.
pub const GREETING_BYTES: usize = 18;
/// Length of an option header, in bytes.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Length of an option reply header, in bytes.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Length of a request header, in bytes.
pub const REQUEST_BYTES: usize = 28;
/// Length of an extended request header, in bytes.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// Number of zero bytes after the reply to EXPORT_NAME, unless both ends agreed to omit them.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Handshake flag and client flag: fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag and client flag: no 124 zeroes after EXPORT_NAME.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Option: enter transmission with this export; no error reply is possible.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: end the session.
pub const OPT_ABORT: u32 = 2;
/// Option: name the exports.
pub const OPT_LIST: u32 = 3;
/// Option: upgrade to TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Option: describe an export.
pub const OPT_INFO: u32 = 6;
/// Option: describe an export and enter transmission with it.
pub const OPT_GO: u32 = 7;
/// Option: use structured replies.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: name the meta contexts of an export.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: choose the meta contexts of an export.
pub const OPT_SET_META_CONTEXT: u32 = 10;
/// Option: use extended headers.
pub const OPT_EXTENDED_HEADERS: u32 = 11;

/// Option reply: the option is done.
pub const REP_ACK: u32 = 1;
/// Option reply: one export of LIST.
pub const REP_SERVER: u32 = 2;
/// Option reply: one item of INFO or GO.
pub const REP_INFO: u32 = 3;
/// Option reply: one meta context.
pub const REP_META_CONTEXT: u32 = 4;
/// The bit that marks an option reply as an error.
pub const REP_ERROR_BIT: u32 = 1 << 31;
/// Option error: the option is unknown or unsupported.
pub const REP_ERR_UNSUP: u32 = REP_ERROR_BIT | 1;
/// `NBD_REP_ERR_POLICY`: the server refuses, for the reason in the reply.
pub const REP_ERR_POLICY: u32 = REP_ERROR_BIT | 2;
/// Option error: the option is malformed or not allowed now.
pub const REP_ERR_INVALID: u32 = REP_ERROR_BIT | 3;
/// Option error: the server requires TLS first.
pub const REP_ERR_TLS_REQD: u32 = REP_ERROR_BIT | 5;
/// Option error: there is no such export.
pub const REP_ERR_UNKNOWN: u32 = REP_ERROR_BIT | 6;
/// Option error: the server is stopping.
pub const REP_ERR_SHUTDOWN: u32 = REP_ERROR_BIT | 7;
/// Option error: the option exceeds a size limit.
pub const REP_ERR_TOO_BIG: u32 = REP_ERROR_BIT | 9;

/// `NBD_REP_ERR_EXT_HEADER_REQD`: extended headers are negotiated, and the option would undo them.
pub const REP_ERR_EXT_HEADER_REQD: u32 = REP_ERROR_BIT | 10;

/// Info item: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// Info item: canonical name.
pub const INFO_NAME: u16 = 1;
/// Info item: a description for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// Info item: block sizes.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flag that is always set.
pub const TRANSMIT_HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag: writes are refused.
pub const TRANSMIT_READ_ONLY: u16 = 1 << 1;
/// Transmission flag: FLUSH is supported.
pub const TRANSMIT_FLUSH: u16 = 1 << 2;
/// Transmission flag: FUA is supported.
pub const TRANSMIT_FUA: u16 = 1 << 3;
/// Transmission flag: TRIM is supported.
pub const TRANSMIT_TRIM: u16 = 1 << 5;
/// Transmission flag: WRITE_ZEROES is supported.
pub const TRANSMIT_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: "don't fragment" is supported (structured replies only).
pub const TRANSMIT_DF: u16 = 1 << 7;
/// Transmission flag: a FLUSH on one connection covers all connections.
pub const TRANSMIT_MULTI_CONN: u16 = 1 << 8;
/// Transmission flag: CACHE is supported.
pub const TRANSMIT_CACHE: u16 = 1 << 10;
/// Transmission flag: FAST_ZERO is supported.
pub const TRANSMIT_FAST_ZERO: u16 = 1 << 11;

/// Command: read.
pub const CMD_READ: u16 = 0;
/// Command: write; `length` bytes of payload follow.
pub const CMD_WRITE: u16 = 1;
/// Command: disconnect; the server does not reply.
pub const CMD_DISC: u16 = 2;
/// Command: flush.
pub const CMD_FLUSH: u16 = 3;
/// Command: trim.
pub const CMD_TRIM: u16 = 4;
/// Command: prefetch.
pub const CMD_CACHE: u16 = 5;
/// Command: write zeroes without a payload.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Command: block status.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Command flag: the command's data is durable before the reply.
pub const CMD_FLAG_FUA: u16 = 1 << 0;
/// Command flag of WRITE_ZEROES: keep the range allocated.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Command flag of READ: at most one content chunk.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// Command flag of BLOCK_STATUS: one extent only.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// Command flag of WRITE_ZEROES: the command fails rather than being as slow as a write.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;
/// Command flag with extended headers: the length in the header is the payload's, not a range's.
pub const CMD_FLAG_PAYLOAD_LEN: u16 = 1 << 5;

/// Chunk flag: the last chunk of its reply.
pub const CHUNK_FLAG_DONE: u16 = 1 << 0;
/// Chunk without content: the end of a reply.
pub const CHUNK_NONE: u16 = 0;
/// Chunk: offset and data.
pub const CHUNK_OFFSET_DATA: u16 = 1;
/// Chunk: offset and length of zeroes.
pub const CHUNK_OFFSET_HOLE: u16 = 2;
/// Chunk: extents of one meta context.
pub const CHUNK_BLOCK_STATUS: u16 = 5;
/// Chunk: extents of one meta context, with 64 bits each for length and flags.
pub const CHUNK_BLOCK_STATUS_EXT: u16 = 6;
/// The bit that marks a chunk as an error.
pub const CHUNK_ERROR_BIT: u16 = 1 << 15;
/// Chunk: error code and message.
pub const CHUNK_ERROR: u16 = CHUNK_ERROR_BIT | 1;
/// Chunk: error code, message and the offset of the error.
pub const CHUNK_ERROR_OFFSET: u16 = CHUNK_ERROR_BIT | 2;

/// The only meta context that the specification defines.
pub const CONTEXT_ALLOCATION: &str = "base:allocation";
/// The query by which LIST_META_CONTEXT lists all contexts of `base:`.
pub const CONTEXT_BASE_WILDCARD: &str = "base:";
/// The id this server gives to `base:allocation`.
pub const CONTEXT_ALLOCATION_ID: u32 = 1;
/// Extent flag of `base:allocation`: the extent is not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// Extent flag of `base:allocation`: the extent reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// Encodes one option, as a client sends it.
///
/// # Panics
/// If `data` is longer than 4 GiB, which is a mistake of the caller.
#[must_use]
pub fn encode_option(option: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("option data of our own fits u32");
    let mut bytes = Vec::with_capacity(OPTION_HEADER_BYTES.saturating_add(data.len()));
    bytes.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// Appends one reply to an option, as a server sends it.
///
/// # Panics
/// If `data` is longer than 4 GiB, which is a mistake of the caller.
pub fn encode_option_reply(bytes: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    let length = u32::try_from(data.len()).expect("reply data of our own fits u32");
    bytes.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(data);
}

/// Encodes the server's greeting, with the handshake flags that this crate offers.
#[must_use]
pub fn encode_greeting() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(GREETING_BYTES);
    bytes.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
    bytes.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes.extend_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}
