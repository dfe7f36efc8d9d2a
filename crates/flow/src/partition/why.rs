//! Report on why a query of a partition emits nothing.

use super::{KeyId, PartitionRuntime};
use crate::columns::batch::Batch;
use tidemill_types::{Error, Result};

use crate::explain::{LISTED_MAX, PartitionKeysReport, QueryReport, ReadOnlyContext, first_failed_condition};
use crate::expr::EvalContext;

impl PartitionRuntime {
    /// Records output of a query of a key.
    pub(crate) fn record_output(&mut self, key: KeyId, query: usize, out: &Batch) {
        let instance = self.instances.get_mut(key.0 as usize).and_then(Option::as_mut);
        if let Some(at_work) = instance.and_then(|instance| instance.queries[query].as_mut()) {
            at_work.stats.record_output(out);
        }
    }

    /// Reports why a query emits nothing, for one key, or in total over all keys.
    ///
    /// Errors: `NotFound` for an unknown key.
    pub(crate) fn why(
        &self,
        query: usize,
        key: Option<&str>,
        now: i64,
        host: &dyn EvalContext,
    ) -> Result<QueryReport> {
        let keys = self.keys();
        let named = |at: u32| self.instances.get(at as usize)?.as_ref().map(|key| key.name.to_string());
        let some: Vec<String> = keys.iter().take(LISTED_MAX).filter_map(|key| named(key.0)).collect();
        let count = keys.len();
        let plan = &self.plan.queries[query];
        let notes = self.samples.get(query).and_then(Option::as_deref);
        let kept_out = notes.and_then(|notes| {
            let (at, number) = notes.rejected.key;
            // the index may belong to another key by now
            let there = self.instances.get(at as usize)?.as_ref().is_some_and(|key| key.sequence == number);
            let key = named(at).filter(|_| there)?;
            let found = first_failed_condition(
                &notes.rejected,
                &plan.before,
                &plan.source_text.input,
                &ReadOnlyContext(host),
            )?;
            Some(crate::explain::FailedConditionReport { key: Some(key), ..found })
        });
        let none = || QueryReport { query: plan.name.clone(), clock: now, ..QueryReport::default() };
        if let Some(key) = key {
            let id = self.find(key).ok_or_else(|| no_such_key(key, count, &some))?;
            let instance = self.instances[id.0 as usize].as_ref();
            let at_work = instance.and_then(|instance| instance.queries[query].as_ref());
            let mut report = at_work.map_or_else(none, |query| query.why(now, host));
            report.kept_out = kept_out.filter(|refused| refused.key.as_deref() == Some(key));
            report.keys = Some(PartitionKeysReport { count, key: Some(key.to_owned()), some });
            return Ok(report);
        }
        let mut report = none();
        for query in self.instances.iter().flatten().filter_map(|instance| instance.queries[query].as_ref()) {
            report.arrived += query.stats.arrived;
            *report.passed.get_or_insert(0) += query.stats.passed;
            report.emitted += query.stats.emitted;
            let at = (query.stats.emitted > 0).then_some(query.stats.emitted_at);
            report.emitted_at = report.emitted_at.max(at);
        }
        report.passed = report.passed.filter(|_| !plan.before.is_empty());
        report.kept_out = kept_out;
        report.keys = Some(PartitionKeysReport { count, key: None, some });
        Ok(report)
    }
}

fn no_such_key(key: &str, count: usize, some: &[String]) -> Error {
    let hint = tidemill_types::did_you_mean(key, some.iter().map(String::as_str));
    let some: Vec<String> = some.iter().map(|key| format!("`{key}`")).collect();
    Error::not_found(match count {
        0 => format!("there is no key `{key}`: no event has arrived yet"),
        _ => {
            format!("there is no key `{key}` among the {count} keys{hint}; some of them: {}", some.join(", "))
        }
    })
}
