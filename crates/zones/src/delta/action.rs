//! The lines of a Delta log entry that matter to us. Source: the Delta transaction log protocol, "Actions".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// One line: an object with one of these keys. Other actions are read as a line with none.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ActionLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_info: Option<CommitInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txn: Option<Txn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<Add>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<Remove>,
}

/// Who committed, and what. `txn_id` is unique per commit: with it a writer recognises its own entry when the
/// answer to its PUT was lost.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommitInfo {
    #[serde(default)]
    pub timestamp: i64,
    #[serde(default)]
    pub operation: String,
    #[serde(default)]
    pub operation_parameters: BTreeMap<String, Json>,
    #[serde(default)]
    pub engine_info: String,
    #[serde(default)]
    pub is_blind_append: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txn_id: Option<String>,
    /// The checksum of the whole entry, as [`write_checksum`] puts it in. Other programs have none.
    #[serde(default, rename = "tidemill.crc32c", skip_serializing_if = "Option::is_none")]
    pub crc32c: Option<String>,
}

/// What a reader and a writer must understand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Protocol {
    pub min_reader_version: i32,
    pub min_writer_version: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader_features: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_features: Option<Vec<String>>,
}

/// The table's schema and configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub format: Format,
    pub schema_string: String,
    #[serde(default)]
    pub partition_columns: Vec<String>,
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_time: Option<i64>,
}

/// The format of the data files: always Parquet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Format {
    pub provider: String,
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// The version of an application id. Ours are `log/<partition>` (last offset in the table) and
/// `owner/<partition>` (epoch of the owner that committed it).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Txn {
    pub app_id: String,
    pub version: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<i64>,
}

/// A data file joins the table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Add {
    /// Relative to the table, percent-encoded.
    pub path: String,
    #[serde(default)]
    pub partition_values: BTreeMap<String, Option<String>>,
    pub size: i64,
    pub modification_time: i64,
    pub data_change: bool,
    /// Statistics: a JSON object, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    /// What the writer wants to say of the file; ours has its checksums there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<Json>,
}

/// A data file leaves the table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Remove {
    pub path: String,
}

/// A whole log entry.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// The `txnId` of its commitInfo.
    pub id: Option<String>,
    pub protocol: Option<Protocol>,
    pub metadata: Option<Metadata>,
    pub txns: Vec<Txn>,
    pub adds: Vec<Add>,
    pub removes: Vec<Remove>,
}

impl Entry {
    /// Reads the lines of an entry, or of a Delta checkpoint turned into lines. The error is the line, from
    /// 1, and what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        verify_checksum(bytes)?;
        let mut entry = Self::default();
        let mut lines = 0;
        for (index, text) in bytes.split(|b| *b == b'\n').enumerate() {
            if text.trim_ascii().is_empty() {
                continue;
            }
            lines += 1;
            let line: ActionLine =
                serde_json::from_slice(text).map_err(|e| format!("line {}: {e}", index + 1))?;
            entry.add_line(line);
        }
        if lines == 0 {
            return Err("it is empty".to_owned());
        }
        Ok(entry)
    }

    fn add_line(&mut self, line: ActionLine) {
        if let Some(info) = line.commit_info {
            self.id = info.txn_id;
        }
        self.protocol = line.protocol.or(self.protocol.take());
        self.metadata = line.meta_data.or(self.metadata.take());
        self.txns.extend(line.txn);
        self.adds.extend(line.add);
        self.removes.extend(line.remove);
    }
}

/// The text of an entry: one action per line.
pub(crate) fn to_lines(lines: &[ActionLine]) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    write_checksum(&mut text);
    Ok(text)
}

/// What stands in place of the checksum while it is computed.
pub(crate) const CHECKSUM_PLACEHOLDER: &str = "00000000";

/// What comes before the checksum in an entry's text.
const CHECKSUM_KEY: &[u8] = b"\"tidemill.crc32c\":\"";

/// Where the digits of the checksum are. It is in the first line, where no text of a user comes before it.
fn checksum_range(text: &[u8]) -> Option<std::ops::Range<usize>> {
    let line = text.split(|b| *b == b'\n').next()?;
    let line = line.starts_with(b"{\"commitInfo\":").then_some(line)?;
    let start = line.windows(CHECKSUM_KEY.len()).position(|w| w == CHECKSUM_KEY)? + CHECKSUM_KEY.len();
    (start + CHECKSUM_PLACEHOLDER.len() <= line.len()).then_some(start..start + CHECKSUM_PLACEHOLDER.len())
}

/// The checksum of an entry's text, with [`CHECKSUM_PLACEHOLDER`] in its own place.
fn entry_checksum(text: &[u8], place: &std::ops::Range<usize>) -> String {
    let parts = [&text[..place.start], CHECKSUM_PLACEHOLDER.as_bytes(), &text[place.end..]];
    format!("{:08x}", parts.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part)))
}

/// Puts the checksum of the whole text into its commitInfo: what a flipped bit makes of a number or a bound is JSON
/// all the same.
fn write_checksum(text: &mut [u8]) {
    if let Some(place) = checksum_range(text) {
        let sum = entry_checksum(text, &place);
        text[place].copy_from_slice(sum.as_bytes());
    }
}

fn verify_checksum(text: &[u8]) -> Result<(), String> {
    let Some(place) = checksum_range(text) else { return Ok(()) };
    let (found, computed) = (text[place.clone()].to_owned(), entry_checksum(text, &place));
    match found == computed.as_bytes() {
        true => Ok(()),
        false => Err("its checksum differs: it is not what was written".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flipped_bit_of_an_entry_goes_unseen() {
        let info = crate::flush::commit_info("an id", 1, "WRITE");
        let txn = Txn { app_id: "log/0".to_owned(), version: 77, last_updated: Some(5) };
        let lines = [
            ActionLine { commit_info: Some(info), ..ActionLine::default() },
            ActionLine { txn: Some(txn), ..ActionLine::default() },
        ];
        let text = to_lines(&lines).unwrap();
        assert_eq!(Entry::parse(&text).unwrap().txns[0].version, 77);
        let place = checksum_range(&text).unwrap();
        for bit in 0..text.len() * 8 {
            let mut damaged = text.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // what takes the checksum itself away leaves everything else as it was
            if let Ok(entry) = Entry::parse(&damaged) {
                assert!(bit / 8 < place.end, "bit {bit}: {}", String::from_utf8_lossy(&damaged));
                assert_eq!(entry.txns[0].version, 77);
            }
        }
    }

    #[test]
    fn foreign_actions_are_passed_over_and_damage_is_placed() {
        let entry = Entry::parse(
            br#"{"commitInfo":{"timestamp":1,"operation":"WRITE","engineInfo":"x","clusterId":"y"}}
{"domainMetadata":{"domain":"d","configuration":"","removed":false}}
{"txn":{"appId":"log/0","version":7}}
"#,
        )
        .unwrap();
        assert_eq!((entry.id, entry.txns[0].app_id.as_str(), entry.txns[0].version), (None, "log/0", 7));
        assert!(
            Entry::parse(b"{\"txn\":{\"appId\":\"a\",\"version\":1}}\n{\"tx")
                .unwrap_err()
                .starts_with("line 2: ")
        );
        assert_eq!(Entry::parse(b"\n").unwrap_err(), "it is empty");
    }
}
