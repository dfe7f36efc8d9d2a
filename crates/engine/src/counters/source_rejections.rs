//! Rows of sources that were refused since the start: how many, and mostly why.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use crate::entry::RejectedRow;

/// Maximum number of reasons that are distinguished for a stream of a source.
const REASONS_MAX: usize = 256;
/// Characters of a row that are shown.
const RAW_CHARS_MAX: usize = 200;

/// Rows of one stream that a source brought and that were refused. All of them are in `system.rejected`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectionSummary {
    /// The source.
    pub source: String,
    /// The stream; empty where a row does not name one that there is.
    pub stream: String,
    /// Number of refused rows.
    pub rows: u64,
    /// Number of rows that were refused for the commonest reason.
    pub commonest_rows: u64,
    /// The commonest reason, as reported for the first row that was refused for it.
    pub reason: String,
    /// Origin of that row: the source and the row's number, `flights:17`.
    pub origin: String,
    /// Its text, cut.
    pub raw: String,
}

/// Counts them.
#[derive(Default)]
pub struct SourceRejections(Mutex<BTreeMap<(String, String), ReasonCounts>>);

#[derive(Default)]
struct ReasonCounts {
    rows: u64,
    /// By what is wrong, whatever the value.
    reasons: HashMap<String, (u64, SampleRow)>,
}

struct SampleRow {
    reason: String,
    origin: String,
    raw: String,
}

impl SourceRejections {
    /// Adds a row of `source`.
    pub fn add(&self, source: &str, row: &RejectedRow) {
        let mut all = self.0.lock();
        let tally = all.entry((source.to_owned(), row.stream.clone())).or_default();
        tally.rows += 1;
        let reason = row.reason.split(", found ").next().unwrap_or_default();
        if let Some((rows, _)) = tally.reasons.get_mut(reason) {
            *rows += 1;
        } else if tally.reasons.len() < REASONS_MAX {
            let example = SampleRow {
                reason: row.reason.clone(),
                origin: row.origin.clone(),
                raw: row.raw.chars().take(RAW_CHARS_MAX).collect(),
            };
            tally.reasons.insert(reason.to_owned(), (1, example));
        }
    }

    /// By source and stream.
    pub fn summaries(&self) -> Vec<RejectionSummary> {
        let all = self.0.lock();
        let shown = all.iter().filter_map(|((source, stream), tally)| {
            let commonest =
                |(rows, example): &&(u64, SampleRow)| (*rows, std::cmp::Reverse(example.origin.clone()));
            let (rows, example) = tally.reasons.values().max_by_key(commonest)?;
            Some(RejectionSummary {
                source: source.clone(),
                stream: stream.clone(),
                rows: tally.rows,
                commonest_rows: *rows,
                reason: example.reason.clone(),
                origin: example.origin.clone(),
                raw: example.raw.clone(),
            })
        });
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commonest_reason_is_told_whatever_the_values() {
        let refused = SourceRejections::default();
        let row = |n: usize, reason: String| RejectedRow {
            stream: "S".into(),
            kind: "malformed".into(),
            reason,
            raw: "x".repeat(1000),
            origin: format!("f:{n}"),
        };
        refused.add("f", &row(1, "not JSON".into()));
        for n in 2..5 {
            refused.add("f", &row(n, format!("field `n`: expected int, found {n}")));
        }
        // more reasons than are distinguished
        for n in 5..1000 {
            refused.add("f", &row(n, format!("reason {n}")));
        }
        let all = refused.summaries();
        assert_eq!(all.len(), 1);
        let told = (all[0].rows, all[0].commonest_rows, all[0].reason.as_str(), all[0].origin.as_str());
        assert_eq!(told, (999, 3, "field `n`: expected int, found 2", "f:2"));
        assert_eq!(all[0].raw.len(), 200);
    }
}
