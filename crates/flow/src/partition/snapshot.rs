//! State of a partition: its keys and the states of their queries.

use super::instances::{Instance, KeyId, NEVER, PartitionRuntime};
use crate::query::Query;
use crate::snapshot::{Error, Reader, RestoreMode, SnapshotWriter};

impl Instance {
    /// Writes the key and the states of its queries.
    pub(super) fn write(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.text(&self.name)?;
        out.signed(self.started_at)?;
        out.signed(self.last_used)?;
        for query in &self.queries {
            out.flag(query.is_some())?;
            query.iter().try_for_each(|query| query.save(out))?;
        }
        Ok(())
    }
}

impl PartitionRuntime {
    /// Writes the state.
    pub fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.signed(self.start)?;
        out.number(self.len() as u64)?;
        if out.is_freezing()
            && let Some(keys) = self.saved_keys()
        {
            return out.defer(move |out| keys.lock().write(out));
        }
        self.keys()
            .into_iter()
            .filter_map(|KeyId(at)| self.instances[at as usize].as_ref())
            .try_for_each(|key| key.write(out))
    }

    /// Restores a state that a partition of the same plan has written; this one must have no keys. Purges of
    /// idle keys continue at their interval, counted from the start of the app that wrote the state or,
    /// unless `resume` is exact, from that of this one.
    ///
    /// Errors: the state is not that of this partition, which must not be used after that.
    pub fn restore(&mut self, from: &mut Reader<'_>, resume: RestoreMode) -> Result<(), Error> {
        let start = from.signed()?;
        if resume == RestoreMode::Exactly {
            self.start = start;
        }
        for _ in 0..from.number()? {
            let name = from.text()?.into_boxed_str();
            if self.find(&name).is_some() {
                return Err(from.damaged(format!("duplicate key `{name}`")));
            }
            let (begun, used) = (from.signed()?, from.signed()?);
            let mut queries = Vec::with_capacity(self.plan.queries.len());
            for plan in &self.plan.queries {
                queries.push(match from.flag()? {
                    false => None,
                    true => {
                        let mut query = Query::new(plan.clone());
                        query.restore(from)?;
                        Some(Box::new(query))
                    }
                });
            }
            let heads = vec![NEVER; self.plan.schedulers().len()].into();
            let instance = Instance {
                name,
                sequence: 0,
                started_at: begun,
                last_used: used,
                queries: queries.into(),
                next_due: heads,
            };
            self.insert(instance).map_err(|e| from.damaged(e.to_string()))?;
        }
        Ok(())
    }
}
