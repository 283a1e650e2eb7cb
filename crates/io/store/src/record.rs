//! The record as JSON. No part of a record is trusted before this module has read it.

use braid_ownership::{MemberKey, OwnerId, Record, RecordedMember};
use serde::{Deserialize, Serialize};

use crate::{RECORD_BYTES_MAX, StoreError};

/// The name and version of the format.
const FORMAT: &str = "braid owner 1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordText {
    format: String,
    array: String,
    epoch: u64,
    owner: Option<String>,
    host: String,
    serial: u64,
    members: Vec<MemberText>,
    reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberText {
    uuid: String,
    address: String,
    in_sync: bool,
}

pub(crate) fn encode(record: &Record) -> String {
    let member = |one: &RecordedMember| MemberText {
        uuid: OwnerId(one.key.0).to_string(),
        address: one.address.clone(),
        in_sync: one.is_in_sync,
    };
    let text = RecordText {
        format: FORMAT.to_owned(),
        array: OwnerId(record.array).to_string(),
        epoch: record.epoch,
        owner: record.owner.map(|owner| owner.to_string()),
        host: record.host.clone(),
        serial: record.serial,
        members: record.members.iter().map(member).collect(),
        reason: record.reason.clone(),
    };
    serde_json::to_string(&text).expect("strings and numbers")
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Record, StoreError> {
    let broken = |why: String| StoreError::NoRecord(why);
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(broken(format!("it has {} bytes", bytes.len())));
    }
    let text: RecordText =
        serde_json::from_slice(bytes).map_err(|error| broken(error.to_string()))?;
    if text.format != FORMAT {
        return Err(broken(format!("its format is '{}', not '{FORMAT}'", text.format)));
    }
    // Owners, arrays and members all have 16 bytes in hexadecimal digits.
    let id = |text: &str| -> Result<[u8; 16], StoreError> {
        let id: OwnerId = text.parse().map_err(|_| broken(format!("'{text}' is no UUID")))?;
        Ok(id.0)
    };
    let member = |one: MemberText| {
        let key = MemberKey(id(&one.uuid)?);
        Ok(RecordedMember { key, address: one.address, is_in_sync: one.in_sync })
    };
    Ok(Record {
        array: id(&text.array)?,
        epoch: text.epoch,
        owner: text.owner.as_deref().map(id).transpose()?.map(OwnerId),
        host: text.host,
        serial: text.serial,
        members: text.members.into_iter().map(member).collect::<Result<_, StoreError>>()?,
        reason: text.reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is_one() {
        let key = |number| MemberKey([number; 16]);
        let member = |number, is_in_sync| RecordedMember {
            key: key(number),
            address: format!("nbd://host{number}/disk"),
            is_in_sync,
        };
        let record = Record {
            array: [9; 16],
            epoch: 7,
            owner: Some(OwnerId([1; 16])),
            host: "host \"a\"\n".into(),
            serial: 3,
            members: vec![member(1, true), member(2, false)],
            reason: "member 2 failed".into(),
        };
        let text = encode(&record);
        assert_eq!(decode(text.as_bytes()).expect("it reads"), record);
        let released = Record { owner: None, ..record };
        assert_eq!(decode(encode(&released).as_bytes()).expect("it reads"), released);
        for bad in [
            String::new(),
            "{}".into(),
            text.replace("braid owner 1", "braid owner 2"),
            text.replace("\"epoch\":7", "\"epoch\":-7"),
            text.replace("09090909", "xyz"),
            text.replace("\"serial\":3", "\"serial\":3,\"more\":1"),
            " ".repeat(RECORD_BYTES_MAX + 1),
        ] {
            assert!(matches!(decode(bad.as_bytes()), Err(StoreError::NoRecord(_))), "{bad:.40}");
        }
    }
}
