//! Reports of rejected rows of sources.

use std::collections::BTreeSet;

use tidemill::Tidemill;
use tidemill_engine::RejectionSummary;

/// Reporter of rejections, which remembers the streams it has reported.
#[derive(Default)]
pub struct RejectionReporter {
    reported: BTreeSet<(String, String)>,
}

impl RejectionReporter {
    /// Reports on standard error the first rejection of each source and stream.
    pub fn report_new(&mut self, tidemill: &Tidemill) {
        for refused in tidemill.engine().source_rejections() {
            if self.reported.insert((refused.source.clone(), refused.stream.clone())) {
                eprintln!("warning: {}; more are counted", example(&refused, "a row was refused"));
            }
        }
    }
}

/// Prints the number of rows rejected in this run, and the most common reason. Returns whether there were
/// any.
pub fn summary(tidemill: &Tidemill) -> bool {
    let all = tidemill.engine().source_rejections();
    for refused in &all {
        let rows =
            format!("{} rows were refused, {} of them as this one", refused.rows, refused.commonest_rows);
        println!("{}", example(refused, &rows));
    }
    if !all.is_empty() {
        println!("All of them with their reasons: SELECT * FROM system.rejected");
    }
    !all.is_empty()
}

fn example(refused: &RejectionSummary, what: &str) -> String {
    let RejectionSummary { source, stream, reason, origin, raw, .. } = refused;
    let of = if stream.is_empty() { String::new() } else { format!(", stream {stream}") };
    format!("source {source}{of}: {what}: {origin}: {reason}\n  {}", raw.replace('\n', "\n  "))
}
