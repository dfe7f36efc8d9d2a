//! Tells about rows of sources that were refused.

use std::collections::BTreeSet;

use tidemill::Tidemill;
use tidemill_engine::RejectionSummary;

/// Which refusals were told.
#[derive(Default)]
pub struct RejectionReporter {
    reported: BTreeSet<(String, String)>,
}

impl RejectionReporter {
    /// Tells on standard error of each stream of a source that has its first refused rows.
    pub fn report_new(&mut self, tidemill: &Tidemill) {
        for refused in tidemill.engine().source_rejections() {
            if self.reported.insert((refused.source.clone(), refused.stream.clone())) {
                eprintln!("warning: {}; more are counted", example(&refused, "a row was refused"));
            }
        }
    }
}

/// Prints how many rows were refused in this run, and mostly why. Returns whether there were any.
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
