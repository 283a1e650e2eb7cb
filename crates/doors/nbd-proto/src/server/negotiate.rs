//! The server's answers to a client's options.
//!
//! Where it stands: the session calls this module with one whole option of checked length. The
//! module parses the data, queues the replies and chooses the next phase.
//!
//! | option | answer |
//! |---|---|
//! | EXPORT_NAME | size, flags, zeroes unless agreed away; else the session ends |
//! | ABORT | ACK, the session ends; data is ignored |
//! | LIST | one SERVER per export, with its description, ACK |
//! | INFO, GO | EXPORT; NAME, DESCRIPTION, BLOCK_SIZE if asked for; ACK; GO enters transmission |
//! | GO of `EXPORT?WORDS`, where claims are taken | as GO, or POLICY with the reason |
//! | STRUCTURED_REPLY | ACK, also when repeated; EXT_HEADER_REQD after EXTENDED_HEADERS |
//! | EXTENDED_HEADERS | ACK, also when repeated, with or without structured replies |
//! | LIST_META_CONTEXT | `base:allocation` for no query, `base:` or its name; or INVALID |
//! | SET_META_CONTEXT | `base:allocation` for its name; replaces the selection even when it fails |
//! | STARTTLS, others | UNSUP |
//! | any but ABORT, of a client that was turned away | POLICY, with the reason |
//!
//! EXPORT_NAME has no error reply. So an unknown name ends the session, as does the option after
//! EXTENDED_HEADERS. STRUCTURED_REPLY would undo EXTENDED_HEADERS. LIST_META_CONTEXT is INVALID
//! before STRUCTURED_REPLY or EXTENDED_HEADERS.

use super::{CloseReason, NegotiationResult, Phase, ServerEvent, ServerSession};
use crate::export::ExportDescription;
use crate::option::{ContextData, InfoData, OptionDataError};
use crate::reply::ReplyCodec;
use crate::style::Style;
use crate::wire;

impl ServerSession {
    pub(super) fn on_option(&mut self, option: u32, data: &[u8]) {
        if self.shutting_down && option != wire::OPT_ABORT {
            if option == wire::OPT_EXPORT_NAME {
                return self.close(CloseReason::Shutdown);
            }
            return self.answer(option, wire::REP_ERR_SHUTDOWN, b"the server is being shut down");
        }
        if let Some(reason) = self.turned_away.clone().filter(|_| option != wire::OPT_ABORT) {
            if option == wire::OPT_EXPORT_NAME {
                return self.close(CloseReason::TurnedAway);
            }
            return self.answer(option, wire::REP_ERR_POLICY, reason.as_bytes());
        }
        match option {
            wire::OPT_EXPORT_NAME => self.on_export_name(data),
            wire::OPT_ABORT => {
                self.reply(option, wire::REP_ACK, &[]);
                self.close(CloseReason::Aborted);
            }
            wire::OPT_INFO | wire::OPT_GO => self.on_info(option, data),
            wire::OPT_LIST_META_CONTEXT | wire::OPT_SET_META_CONTEXT => {
                self.on_meta_context(option, data);
            }
            wire::OPT_LIST
            | wire::OPT_STRUCTURED_REPLY
            | wire::OPT_STARTTLS
            | wire::OPT_EXTENDED_HEADERS
                if !data.is_empty() =>
            {
                self.answer(option, wire::REP_ERR_INVALID, b"the option takes no data");
            }
            wire::OPT_LIST => self.on_list(),
            wire::OPT_STRUCTURED_REPLY => {
                if self.features.style.is_extended() {
                    let message = b"extended headers are negotiated already";
                    return self.answer(option, wire::REP_ERR_EXT_HEADER_REQD, message);
                }
                self.features.style = Style::Structured;
                self.answer(option, wire::REP_ACK, &[]);
            }
            wire::OPT_EXTENDED_HEADERS => {
                self.features.style = Style::Extended;
                self.answer(option, wire::REP_ACK, &[]);
            }
            _ => self.answer(option, wire::REP_ERR_UNSUP, b"the option is not supported"),
        }
    }

    pub(super) fn reply(&mut self, option: u32, kind: u32, data: &[u8]) {
        let mut bytes = Vec::new();
        wire::encode_option_reply(&mut bytes, option, kind, data);
        self.events.push_back(ServerEvent::Transmit(bytes));
    }

    fn answer(&mut self, option: u32, kind: u32, data: &[u8]) {
        self.reply(option, kind, data);
        self.enter(Phase::OptionHeader);
    }

    fn answer_malformed(&mut self, option: u32, error: OptionDataError) {
        match error {
            OptionDataError::Malformed => {
                self.answer(option, wire::REP_ERR_INVALID, b"the option's data is malformed");
            }
            OptionDataError::NameTooLong => {
                self.answer(option, wire::REP_ERR_TOO_BIG, b"a name is longer than 4096 bytes");
            }
        }
    }

    fn find_export(&self, name: &[u8]) -> Option<usize> {
        let is_meant = |export: &ExportDescription| {
            !export.is_withdrawn && (name.is_empty() || export.name.as_bytes() == name)
        };
        self.catalog.iter().position(is_meant)
    }

    fn on_export_name(&mut self, name: &[u8]) {
        if self.features.style.is_extended() {
            return self.close(CloseReason::ExportNameExtended);
        }
        let Some(index) = self.find_export(name) else {
            return self.close(CloseReason::UnknownExport);
        };
        let export = self.export(index);
        let mut bytes = export.size_bytes.to_be_bytes().to_vec();
        let flags = export.transmission_flags(self.features.style.has_chunks());
        bytes.extend_from_slice(&flags.to_be_bytes());
        if !self.features.no_zeroes {
            bytes.extend_from_slice(&[0; wire::EXPORT_NAME_ZEROES]);
        }
        self.events.push_back(ServerEvent::Transmit(bytes));
        self.transmit(index);
    }

    fn on_list(&mut self) {
        let mut bytes = Vec::new();
        for export in self.catalog.iter().filter(|export| !export.is_withdrawn) {
            let length = u32::try_from(export.name.len()).expect("names have at most 4096 bytes");
            let mut data = length.to_be_bytes().to_vec();
            data.extend_from_slice(export.name.as_bytes());
            data.extend_from_slice(export.description.as_bytes());
            wire::encode_option_reply(&mut bytes, wire::OPT_LIST, wire::REP_SERVER, &data);
        }
        wire::encode_option_reply(&mut bytes, wire::OPT_LIST, wire::REP_ACK, &[]);
        self.events.push_back(ServerEvent::Transmit(bytes));
        self.enter(Phase::OptionHeader);
    }

    fn on_info(&mut self, option: u32, data: &[u8]) {
        let info = match InfoData::parse(data) {
            Ok(info) => info,
            Err(error) => return self.answer_malformed(option, error),
        };
        if option == wire::OPT_GO
            && let Some((export_index, words)) = self.find_claim(info.name)
        {
            data.clone_into(&mut self.claim_data);
            self.events.push_back(ServerEvent::Claim { export_index, words });
            return self.enter(Phase::Claim);
        }
        let Some(index) = self.find_export(info.name) else {
            return self.answer(option, wire::REP_ERR_UNKNOWN, b"no export of this name");
        };
        self.describe(option, index, &info);
    }

    /// Splits `EXPORT?WORDS` into the index of a listed export and the words.
    fn find_claim(&self, name: &[u8]) -> Option<(usize, String)> {
        let name = std::str::from_utf8(name).ok().filter(|_| self.takes_claims)?;
        let (export, words) = name.rsplit_once('?')?;
        Some((self.find_export(export.as_bytes())?, words.to_owned()))
    }

    pub(super) fn on_claim_answer(
        &mut self,
        data: &[u8],
        answer: Result<ExportDescription, String>,
    ) {
        let option = wire::OPT_GO;
        let claimed = match answer {
            Ok(claimed) => claimed,
            Err(reason) => return self.answer(option, wire::REP_ERR_POLICY, reason.as_bytes()),
        };
        let info = InfoData::parse(data).expect("it was parsed before it became a claim");
        let (index, _) = self.find_claim(info.name).expect("it was found before");
        self.claimed = Some(claimed);
        self.describe(option, index, &info);
    }

    fn describe(&mut self, option: u32, index: usize, info: &InfoData<'_>) {
        let export = self.export(index);
        let mut item = wire::INFO_EXPORT.to_be_bytes().to_vec();
        item.extend_from_slice(&export.size_bytes.to_be_bytes());
        let flags = export.transmission_flags(self.features.style.has_chunks());
        item.extend_from_slice(&flags.to_be_bytes());
        let mut bytes = Vec::new();
        wire::encode_option_reply(&mut bytes, option, wire::REP_INFO, &item);
        if info.wants_name {
            let mut item = wire::INFO_NAME.to_be_bytes().to_vec();
            item.extend_from_slice(export.name.as_bytes());
            wire::encode_option_reply(&mut bytes, option, wire::REP_INFO, &item);
        }
        if info.wants_description && !export.description.is_empty() {
            let mut item = wire::INFO_DESCRIPTION.to_be_bytes().to_vec();
            item.extend_from_slice(export.description.as_bytes());
            wire::encode_option_reply(&mut bytes, option, wire::REP_INFO, &item);
        }
        if info.wants_block_size {
            let sizes = export.block_sizes;
            let mut item = wire::INFO_BLOCK_SIZE.to_be_bytes().to_vec();
            for size in [sizes.minimum_bytes(), sizes.preferred_bytes(), sizes.maximum_bytes()] {
                item.extend_from_slice(&size.to_be_bytes());
            }
            wire::encode_option_reply(&mut bytes, option, wire::REP_INFO, &item);
        }
        wire::encode_option_reply(&mut bytes, option, wire::REP_ACK, &[]);
        self.events.push_back(ServerEvent::Transmit(bytes));
        if option == wire::OPT_GO {
            self.transmit(index);
        } else {
            self.enter(Phase::OptionHeader);
        }
    }

    fn on_meta_context(&mut self, option: u32, data: &[u8]) {
        let sets = option == wire::OPT_SET_META_CONTEXT;
        if sets {
            self.features.context_export = None;
        }
        if !self.features.style.has_chunks() {
            let message = b"structured replies or extended headers come before meta contexts";
            return self.answer(option, wire::REP_ERR_INVALID, message);
        }
        let contexts = match ContextData::parse(data) {
            Ok(contexts) => contexts,
            Err(error) => return self.answer_malformed(option, error),
        };
        let Some(index) = self.find_export(contexts.name) else {
            return self.answer(option, wire::REP_ERR_UNKNOWN, b"no export of this name");
        };
        let named = contexts.any_query(|query| query == wire::CONTEXT_ALLOCATION.as_bytes());
        let listed = contexts.query_count == 0
            || contexts.any_query(|query| query == wire::CONTEXT_BASE_WILDCARD.as_bytes());
        if named || (!sets && listed) {
            let id = if sets { wire::CONTEXT_ALLOCATION_ID } else { 0 };
            let mut item = id.to_be_bytes().to_vec();
            item.extend_from_slice(wire::CONTEXT_ALLOCATION.as_bytes());
            self.reply(option, wire::REP_META_CONTEXT, &item);
        }
        if sets && named {
            self.features.context_export = Some(index);
        }
        self.answer(option, wire::REP_ACK, &[]);
    }

    fn transmit(&mut self, export_index: usize) {
        let negotiated = NegotiationResult {
            export_index,
            codec: ReplyCodec::new(self.features.style),
            allocation_context: self.features.context_export == Some(export_index),
        };
        self.negotiated = Some(negotiated);
        self.events.push_back(ServerEvent::Negotiated(negotiated));
        self.enter(Phase::RequestHeader);
    }
}
