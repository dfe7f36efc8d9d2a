//! Replay of buffered input.

use tidemill_types::FieldType;

use super::buffer::{CHUNK_ROWS, InputBuffer, InputKind};
use super::outputs::deep_copy;
use crate::columns::column::Column;
use crate::runtime::{AppRuntime, OutputHandler, StreamBatch};

impl InputBuffer {
    /// Lets an app process the first `count` entries in order, each event as a chunk of its own.
    pub(super) fn replay(&self, count: usize, app: &mut AppRuntime, sink: &mut dyn OutputHandler) {
        let mut run = InputRun::default();
        for entry in self.entries.iter().take(count) {
            if let InputKind::Event { stream, row } = entry.kind {
                let (columns, place) = self.stores[stream as usize].at(row);
                run.push(stream as usize, columns, place, entry.time);
                if run.order.len() == CHUNK_ROWS {
                    run.send_run(app, sink);
                }
                continue;
            }
            run.send_run(app, sink);
            match &entry.kind {
                InputKind::Event { .. } => {}
                InputKind::Clock => app.advance(entry.time, sink),
                InputKind::Change(query) => {
                    if let Err(failure) = app.on_demand(query) {
                        sink.failure("on-demand query", &failure);
                    }
                }
            }
        }
        run.send_run(app, sink);
    }
}

/// Consecutive events that are sent in one call.
#[derive(Default)]
struct InputRun {
    parts: Vec<StreamBatch>,
    order: Vec<u16>,
}

impl InputRun {
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
                // functions may change objects, and events are replayed more than once
                FieldType::Object => column.push(deep_copy(&from.get(row))),
                _ => column.push_from(from, row),
            }
        }
        self.order.push(place as u16);
    }

    fn send_run(&mut self, app: &mut AppRuntime, sink: &mut dyn OutputHandler) {
        if self.order.is_empty() {
            return;
        }
        let (parts, order) = (std::mem::take(&mut self.parts), std::mem::take(&mut self.order));
        let stream = parts[0].stream;
        // the events were checked when they arrived
        if let Err(why) = app.send_batch(parts, Some(&order), sink) {
            let name = app.plan().catalog.streams()[stream].name.clone();
            sink.failure(&name, &why);
        }
    }
}
