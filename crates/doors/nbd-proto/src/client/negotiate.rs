//! The client's sequence of options in negotiation.
//!
//! Where it stands: the session calls this module with whole messages; the module sends the next
//! option of the plan, or enters transmission. If the server refuses structured replies or the meta
//! context, the client continues. If the server refuses the plan's goal, the session ends; but
//! instead of GO the client tries EXPORT_NAME on an old server.

use super::{ClientClose, ClientEvent, ClientSession, Goal, Phase};
use crate::collect::Cursor;
use crate::export::BlockSizes;
use crate::limits::{NAME_BYTES_MAX, OPTION_BYTES_MAX, OPTION_REPLIES_MAX};
use crate::option::{ContextData, InfoData};
use crate::style::Style;
use crate::wire;

impl ClientSession {
    pub(super) fn on_greeting(&mut self) {
        let mut cursor = Cursor::new(self.collector.bytes());
        let magics = (cursor.u64(), cursor.u64());
        let flags = cursor.u16().expect("eighteen bytes were collected");
        let newstyle = magics == (Some(wire::GREETING_MAGIC), Some(wire::OPTION_MAGIC));
        if !newstyle || flags & wire::FLAG_FIXED_NEWSTYLE == 0 {
            return self.close(ClientClose::NotNbd);
        }
        self.no_zeroes = flags & wire::FLAG_NO_ZEROES != 0;
        let answer = u32::from(flags & (wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES));
        self.events.push_back(ClientEvent::Transmit(answer.to_be_bytes().to_vec()));
        if self.plan.start_tls {
            self.send_option(wire::OPT_STARTTLS, &[]);
        } else {
            self.send_headers_or_goal();
        }
    }

    /// Continues with the options after the driver has made the TLS handshake.
    ///
    /// # Panics
    /// If the last event was not [`ClientEvent::StartTls`].
    pub fn tls_is_up(&mut self) {
        assert_eq!(self.phase, Phase::Handshake, "TLS begins where the server accepted it");
        self.send_headers_or_goal();
    }

    fn send_headers_or_goal(&mut self) {
        if self.plan.extended_headers && self.plan.goal != Goal::TransmitByExportName {
            self.send_option(wire::OPT_EXTENDED_HEADERS, &[]);
        } else {
            self.send_structured_or_goal();
        }
    }

    fn send_structured_or_goal(&mut self) {
        if self.plan.structured_replies {
            self.send_option(wire::OPT_STRUCTURED_REPLY, &[]);
        } else {
            self.send_goal();
        }
    }

    fn send_option(&mut self, option: u32, data: &[u8]) {
        self.awaited_option = option;
        self.option_replies = 0;
        self.events.push_back(ClientEvent::Transmit(wire::encode_option(option, data)));
        self.collect_in(Phase::OptionReplyHeader, wire::OPTION_REPLY_HEADER_BYTES);
    }

    fn send_context_or_goal(&mut self) {
        if self.plan.allocation_context && self.info.style.has_chunks() {
            let data = ContextData::encode(&self.plan.export, &[wire::CONTEXT_ALLOCATION]);
            self.send_option(wire::OPT_SET_META_CONTEXT, &data);
        } else {
            self.send_goal();
        }
    }

    fn send_goal(&mut self) {
        let infos = [wire::INFO_NAME, wire::INFO_DESCRIPTION, wire::INFO_BLOCK_SIZE];
        match self.plan.goal {
            Goal::Transmit => {
                let data = InfoData::encode(&self.plan.export, &infos);
                self.send_option(wire::OPT_GO, &data);
            }
            Goal::Info => {
                let data = InfoData::encode(&self.plan.export, &infos);
                self.send_option(wire::OPT_INFO, &data);
            }
            Goal::List => self.send_option(wire::OPT_LIST, &[]),
            Goal::TransmitByExportName => self.send_export_name(),
        }
    }

    fn send_export_name(&mut self) {
        let bytes = wire::encode_option(wire::OPT_EXPORT_NAME, self.plan.export.as_bytes());
        self.events.push_back(ClientEvent::Transmit(bytes));
        let zeroes = if self.no_zeroes { 0 } else { wire::EXPORT_NAME_ZEROES };
        self.collect_in(Phase::ExportNameReply, zeroes.saturating_add(10));
    }

    pub(super) fn on_export_name_reply(&mut self) {
        let mut cursor = Cursor::new(self.collector.bytes());
        self.info.size_bytes = cursor.u64().expect("ten bytes were collected");
        self.info.transmission_flags = cursor.u16().expect("ten bytes were collected");
        self.ready();
    }

    pub(super) fn on_option_reply_header(&mut self) {
        let mut cursor = Cursor::new(self.collector.bytes());
        let (magic, option) = (cursor.u64(), cursor.u32());
        let (Some(kind), Some(length)) = (cursor.u32(), cursor.u32()) else {
            unreachable!("twenty bytes were collected");
        };
        if magic != Some(wire::OPTION_REPLY_MAGIC) || option != Some(self.awaited_option) {
            return self.broken("an option reply without its magic or for another option");
        }
        self.option_replies = self.option_replies.saturating_add(1);
        let length_bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if length_bytes > OPTION_BYTES_MAX || self.option_replies > OPTION_REPLIES_MAX {
            return self.broken("an option reply over the limits");
        }
        self.collect_in(Phase::OptionReplyData { kind }, length_bytes);
        if length == 0 {
            self.on_option_reply(kind, &[]);
        }
    }

    pub(super) fn on_option_reply(&mut self, kind: u32, data: &[u8]) {
        let option = self.awaited_option;
        match (kind, option) {
            (wire::REP_ACK, _) if data.is_empty() => self.on_acknowledged(option),
            (_, _) if kind & wire::REP_ERROR_BIT != 0 => {
                self.refusal_words = name_of(data).unwrap_or_default();
                self.on_option_error(option, kind);
            }
            (wire::REP_INFO, wire::OPT_GO | wire::OPT_INFO) => self.on_info_item(data),
            (wire::REP_SERVER, wire::OPT_LIST) => self.on_listed(data),
            (wire::REP_META_CONTEXT, wire::OPT_SET_META_CONTEXT) => {
                let mut cursor = Cursor::new(data);
                let id = cursor.u32();
                if id.is_none() || cursor.rest() != wire::CONTEXT_ALLOCATION.as_bytes() {
                    return self.broken("a meta context that was not asked for");
                }
                self.info.context_id = id;
                self.await_more();
            }
            _ => self.broken("an option reply of the wrong type"),
        }
    }

    fn await_more(&mut self) {
        self.collect_in(Phase::OptionReplyHeader, wire::OPTION_REPLY_HEADER_BYTES);
    }

    fn on_acknowledged(&mut self, option: u32) {
        match option {
            wire::OPT_STARTTLS => {
                self.events.push_back(ClientEvent::StartTls);
                self.phase = Phase::Handshake;
            }
            wire::OPT_STRUCTURED_REPLY => {
                self.info.style = Style::Structured;
                self.send_context_or_goal();
            }
            wire::OPT_EXTENDED_HEADERS => {
                self.info.style = Style::Extended;
                self.send_context_or_goal();
            }
            wire::OPT_SET_META_CONTEXT => self.send_goal(),
            wire::OPT_LIST => self.leave(),
            _ if !self.export_told => self.broken("an export was accepted but not described"),
            wire::OPT_GO => self.ready(),
            _ => {
                self.events.push_back(ClientEvent::Described(self.info.clone()));
                self.leave();
            }
        }
    }

    fn on_option_error(&mut self, option: u32, kind: u32) {
        match option {
            wire::OPT_EXTENDED_HEADERS => self.send_structured_or_goal(),
            wire::OPT_STRUCTURED_REPLY => self.send_goal(),
            wire::OPT_SET_META_CONTEXT => {
                self.info.context_id = None;
                self.send_goal();
            }
            wire::OPT_GO if kind == wire::REP_ERR_UNSUP && !self.info.style.is_extended() => {
                self.send_export_name();
            }
            _ => self.close(ClientClose::Refused { option, kind }),
        }
    }

    fn on_info_item(&mut self, data: &[u8]) {
        let mut cursor = Cursor::new(data);
        let kind = cursor.u16();
        match kind {
            Some(wire::INFO_EXPORT) => {
                let (Some(size), Some(flags), true) =
                    (cursor.u64(), cursor.u16(), cursor.is_empty())
                else {
                    return self.broken("an export description of the wrong length");
                };
                self.info.size_bytes = size;
                self.info.transmission_flags = flags;
                self.export_told = true;
            }
            Some(wire::INFO_NAME) => self.info.name = name_of(cursor.rest()),
            Some(wire::INFO_DESCRIPTION) => self.info.description = name_of(cursor.rest()),
            Some(wire::INFO_BLOCK_SIZE) => {
                let sizes = (cursor.u32(), cursor.u32(), cursor.u32());
                let (Some(minimum), Some(preferred), Some(maximum)) = sizes else {
                    return self.broken("block sizes of the wrong length");
                };
                self.info.block_sizes = BlockSizes::new(minimum, preferred, maximum).ok();
            }
            Some(_) => {}
            None => return self.broken("an info item without a type"),
        }
        self.await_more();
    }

    fn on_listed(&mut self, data: &[u8]) {
        match Cursor::new(data).counted_bytes().and_then(name_of) {
            Some(name) => {
                self.events.push_back(ClientEvent::Listed(name));
                self.await_more();
            }
            None => self.broken("a listed export without a proper name"),
        }
    }

    fn ready(&mut self) {
        self.events.push_back(ClientEvent::Ready(self.info.clone()));
        self.collect_in(Phase::Magic, 4);
    }

    fn leave(&mut self) {
        let bytes = wire::encode_option(wire::OPT_ABORT, &[]);
        self.events.push_back(ClientEvent::Transmit(bytes));
        self.close(ClientClose::Finished);
    }
}

fn name_of(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= NAME_BYTES_MAX && !text.contains('\0')).then(|| text.to_owned())
}
