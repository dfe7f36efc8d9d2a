//! The actions of a Delta log entry that Tidemill uses. Source: the Delta transaction log protocol,
//! "Actions".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// One line of an entry: an object with one of these keys. Other actions are read as a line without any.
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

/// Provenance of a commit. `txn_id` is unique per commit: it lets a writer recognise its own entry when the
/// response to its PUT was lost.
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
    /// Checksum of the whole entry, inserted by [`write_checksum`]. `None` in entries of other programs.
    #[serde(default, rename = "tidemill.crc32c", skip_serializing_if = "Option::is_none")]
    pub crc32c: Option<String>,
}

/// Protocol versions and features that readers and writers must support.
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

/// Format of the data files: always Parquet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Format {
    pub provider: String,
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// Version of an application id. Tidemill uses `log/<partition>` (last offset in the table) and
/// `owner/<partition>` (epoch of the owner that committed it).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Txn {
    pub app_id: String,
    pub version: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<i64>,
}

/// Adds a data file to the table.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Add {
    /// Path relative to the table, percent-encoded.
    pub path: String,
    #[serde(default)]
    pub partition_values: BTreeMap<String, Option<String>>,
    pub size: i64,
    pub modification_time: i64,
    pub data_change: bool,
    /// Statistics: a JSON object, as a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    /// Metadata of the writer; Tidemill stores the file's checksums here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<Json>,
}

/// Removes a data file from the table. The file itself stays for readers of older versions.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Remove {
    pub path: String,
    /// Time of the removal, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<i64>,
    /// True if the removal changes the rows of the table; false when other files have them now.
    #[serde(default)]
    pub data_change: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
}

/// A whole log entry.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// `txnId` of the commitInfo.
    pub id: Option<String>,
    /// `timestamp` of the commitInfo, in milliseconds since 1970; 0 without one.
    pub timestamp: i64,
    /// `operation` of the commitInfo; empty without one.
    pub operation: String,
    pub protocol: Option<Protocol>,
    pub metadata: Option<Metadata>,
    pub txns: Vec<Txn>,
    pub adds: Vec<Add>,
    pub removes: Vec<Remove>,
}

impl Entry {
    /// Parses the lines of an entry, or of a Delta checkpoint converted to lines. The error names the line,
    /// from 1, and the fault.
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
            self.timestamp = info.timestamp;
            self.operation = info.operation;
        }
        self.protocol = line.protocol.or(self.protocol.take());
        self.metadata = line.meta_data.or(self.metadata.take());
        self.txns.extend(line.txn);
        self.adds.extend(line.add);
        self.removes.extend(line.remove);
    }
}

/// Encodes an entry: one action per line, with the checksum.
pub(crate) fn to_lines(lines: &[ActionLine]) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    write_checksum(&mut text);
    Ok(text)
}

/// Stands in for the checksum while it is computed.
pub(crate) const CHECKSUM_PLACEHOLDER: &str = "00000000";

/// Bytes that precede the checksum in an encoded entry.
const CHECKSUM_KEY: &[u8] = b"\"tidemill.crc32c\":\"";

/// Returns the range of the checksum's digits. It is in the first line, before any user-supplied string.
fn checksum_range(text: &[u8]) -> Option<std::ops::Range<usize>> {
    let line = text.split(|b| *b == b'\n').next()?;
    let line = line.starts_with(b"{\"commitInfo\":").then_some(line)?;
    let start = line.windows(CHECKSUM_KEY.len()).position(|w| w == CHECKSUM_KEY)? + CHECKSUM_KEY.len();
    (start + CHECKSUM_PLACEHOLDER.len() <= line.len()).then_some(start..start + CHECKSUM_PLACEHOLDER.len())
}

/// Computes the checksum of an encoded entry, with [`CHECKSUM_PLACEHOLDER`] instead of the checksum itself.
fn entry_checksum(text: &[u8], place: &std::ops::Range<usize>) -> String {
    let parts = [&text[..place.start], CHECKSUM_PLACEHOLDER.as_bytes(), &text[place.end..]];
    format!("{:08x}", parts.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part)))
}

/// Writes the checksum of the whole entry into its commitInfo. Needed because a flipped bit in a number or a
/// bound still yields valid JSON.
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
        let info = crate::delta::commit_info::commit_info("an id", 1, "WRITE");
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
            // A flip that hides the checksum itself leaves everything else intact.
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
