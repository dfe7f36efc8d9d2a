//! Application of [`Entry::Redeliver`](crate::entry::Entry::Redeliver).

use std::collections::BTreeMap;

use tidemill_docs::DocumentCommand;
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{Result, Value};

use super::{ApplyReply, RecordApplier};
use crate::deployment::TableRef;
use crate::sinks::undelivered_event::{COLLECTION, UndeliveredEvent};
use crate::state::PartitionState;

impl RecordApplier<'_> {
    /// Takes documents of undelivered events away and hands the events to their sinks. A document that does
    /// not exist any more, or whose event does not fit the stream any more, is passed over.
    pub(super) fn redeliver(&mut self, state: &mut PartitionState, ids: &[String]) -> Result<ApplyReply> {
        let mut rows: BTreeMap<(String, usize), BatchBuilder> = BTreeMap::new();
        let mut reply = ApplyReply::default();
        let mut outcome = tidemill_docs::CommandOutcome::default();
        for id in ids {
            let Some(document) =
                state.store.collection(COLLECTION).and_then(|c| c.get(&Value::str(id)).cloned())
            else {
                continue;
            };
            let event = match UndeliveredEvent::read(&document) {
                Ok(event) => event,
                Err(error) => {
                    reply.rule_errors.push(format!("{id}: {error}"));
                    continue;
                }
            };
            if !self.deployment.has_sink(&event.sink) {
                reply.rule_errors.push(format!("{id}: the app has no sink `{}` any more", event.sink));
                continue;
            }
            let Some(stream) = self.deployment.program.stream_index(&event.stream) else {
                reply.rule_errors.push(format!("{id}: the app has no stream `{}` any more", event.stream));
                continue;
            };
            let schema = &self.deployment.program.streams()[stream];
            let of_sink =
                rows.entry((event.sink.clone(), stream)).or_insert_with(|| BatchBuilder::new(schema.clone()));
            if let Err(error) = of_sink.push_json(event.event.as_bytes(), self.time) {
                reply.rule_errors.push(format!("{id}: {error}"));
                continue;
            }
            let filter = bson::rawdoc! { "_id": id.as_str() };
            let delete = DocumentCommand::Delete {
                collection: COLLECTION.to_owned(),
                filter: filter.into_bytes().into(),
                multi: false,
            };
            outcome.deleted += state.store.apply(&delete, self.time)?.deleted;
        }
        let mut next = 0;
        for ((sink, stream), mut builder) in rows {
            let batch = builder.finish();
            let numbers: Vec<i32> = (next..).take(batch.num_rows()).collect();
            next += batch.num_rows() as i32;
            if !numbers.is_empty() {
                if let Some(digest) = &mut self.digest {
                    digest.redelivered(&sink, &batch)?;
                }
                let full = self.table_batch(TableRef::Stream(stream), &batch, &numbers)?;
                self.applied.redelivered.push((sink, full));
            }
        }
        reply.outcome = Some(outcome);
        Ok(reply)
    }
}
