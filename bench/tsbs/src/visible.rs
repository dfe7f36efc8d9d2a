//! How long acknowledged rows take until SQL shows them, while more are sent.

use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use tidemill::Tidemill;

use crate::dataset::{Table, TableBatch};
use crate::load;

/// Batches of readings from one probe to the next.
const PROBE_EVERY: usize = 2;

/// Sends all batches. After every second acknowledgement of readings, another thread asks SQL for their count until it includes
/// the acknowledged rows. Returns the milliseconds from each of these acknowledgements to that answer.
pub fn measure(tidemill: &Tidemill, batches: &[TableBatch]) -> Result<Vec<f64>> {
    let (acknowledgements, waiting) = mpsc::sync_channel::<(Instant, u64)>(1);
    std::thread::scope(|scope| {
        let prober = scope.spawn(move || -> Result<Vec<f64>> {
            let mut times = Vec::new();
            for (acknowledged, rows) in waiting {
                while load::count(tidemill, Table::Readings)? < rows {
                    ensure!(
                        acknowledged.elapsed().as_secs() < 60,
                        "{rows} acknowledged rows are not visible after a minute"
                    );
                }
                times.push(acknowledged.elapsed().as_secs_f64() * 1e3);
            }
            Ok(times)
        });
        let (mut rows, mut number) = (0, 0);
        load::send(tidemill, batches, |table, accepted| {
            if table != Table::Readings {
                return;
            }
            rows += accepted;
            number += 1;
            if number % PROBE_EVERY == 0 {
                // while the prober is busy, this acknowledgement is not measured
                let _ = acknowledgements.try_send((Instant::now(), rows));
            }
        })?;
        drop(acknowledgements);
        prober.join().map_err(|_| anyhow!("the thread that asks SQL panicked"))?
    })
}
