//! Events that are kept go through an app once more.

use tidemill_types::FieldType;

use crate::column::Column;
use crate::expr::EvalError;
use crate::runtime::{AppRuntime, OutputHandler};
use crate::stream_batch::StreamBatch;

use super::buffer::{Buffer, CHUNK_ROWS, What};
use super::outputs::frozen;

impl Buffer {
    /// The first `count` go through an app, in order, each by itself.
    pub(super) fn play(&self, count: usize, app: &mut AppRuntime, sink: &mut dyn OutputHandler) {
        let mut run = Run::default();
        for entry in self.entries.iter().take(count) {
            if let What::Event { stream, row } = entry.what {
                let (columns, place) = self.stores[stream as usize].at(row);
                run.push(stream as usize, columns, place, entry.time);
                if run.order.len() == CHUNK_ROWS {
                    run.hand_in(app, sink);
                }
                continue;
            }
            run.hand_in(app, sink);
            match &entry.what {
                What::Event { .. } => {}
                What::Clock => app.advance(entry.time, sink),
                What::Change(query) => {
                    if let Err(failure) = app.on_demand(query) {
                        sink.failure("on-demand query", &failure);
                    }
                }
            }
        }
        run.hand_in(app, sink);
    }
}

/// Events that are handed in together.
#[derive(Default)]
struct Run {
    parts: Vec<StreamBatch>,
    order: Vec<u16>,
}

impl Run {
    fn push(&mut self, stream: usize, columns: &[Column], row: usize, time: i64) {
        let place = self.parts.iter().position(|part| part.stream == stream).unwrap_or_else(|| {
            let columns = columns.iter().map(|column| Column::new(column.ty())).collect();
            self.parts.push(StreamBatch { stream, columns, times: vec![] });
            self.parts.len() - 1
        });
        let part = &mut self.parts[place];
        part.times.push(time);
        for (column, from) in part.columns.iter_mut().zip(columns) {
            match from.ty() {
                // functions may change objects, and events go in more than once
                FieldType::Object => column.push(frozen(&from.get(row))),
                _ => column.push_from(from, row),
            }
        }
        self.order.push(place as u16);
    }

    fn hand_in(&mut self, app: &mut AppRuntime, sink: &mut dyn OutputHandler) {
        if self.order.is_empty() {
            return;
        }
        let (parts, order) = (std::mem::take(&mut self.parts), std::mem::take(&mut self.order));
        let stream = parts[0].stream;
        // they fitted when they came
        if let Err(EvalError(why)) = app.send_batch(parts, Some(&order), sink) {
            let name = app.plan().catalog.streams()[stream].name.clone();
            sink.failure(&name, &EvalError(why));
        }
    }
}
