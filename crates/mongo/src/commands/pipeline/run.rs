//! The stages of a pipeline, chained.

use bson::RawDocumentBuf;
use bson::raw::{CString, RawDocument};
use rand::seq::SliceRandom;
use tidemill_docs::DocBytes;
use tidemill_types::budget;

use super::facet::facets;
use super::flow::{Chain, Flow, HeldDocuments, Receiver, all, each, push_all, then};
use super::sort::sorting;
use super::{Context, Stage, outputs};
use crate::error::Result;

/// Returns the chain of stages whose results go to `last`.
pub(super) fn chain<'r>(stages: &'r [Stage], context: &'r Context<'r>, last: Chain<'r>) -> Chain<'r> {
    let mut next = last;
    for at in (0..stages.len()).rev() {
        next = link_at(stages, at, context, next);
    }
    next
}

/// Returns one of the stages in front of `next`.
pub(super) fn link_at<'r>(
    stages: &'r [Stage],
    at: usize,
    context: &'r Context<'r>,
    next: Chain<'r>,
) -> Chain<'r> {
    let limit = match stages.get(at + 1) {
        Some(Stage::Limit(limit)) => Some(*limit),
        _ => None,
    };
    match stages.get(at) {
        Some(stage) => link(stage, limit, context, next),
        None => next,
    }
}

/// Returns a stage in front of `next`, which takes no more documents than `limit`.
fn link<'r>(stage: &'r Stage, limit: Option<u64>, context: &'r Context<'r>, next: Chain<'r>) -> Chain<'r> {
    match stage {
        Stage::Match(filter) => {
            each(next, move |document, next| match filter.matches(RawDocument::from_bytes(&document)?) {
                true => next.push(document),
                false => {
                    filter.check()?;
                    Ok(Flow::Continue(()))
                }
            })
        }
        Stage::GeoNear(near) => each(next, move |document, next| next.push(near.apply(&document)?)),
        Stage::Reshape(stage) => each(next, move |document, next| next.push(stage.apply(&document)?)),
        Stage::Redact(expression) => {
            each(next, move |document, next| match outputs::redacted(expression, &document)? {
                Some(document) => next.push(document),
                None => Ok(Flow::Continue(())),
            })
        }
        Stage::Sort(order) => sorting(order, limit, next),
        Stage::Skip(count) => {
            let mut left = *count;
            each(next, move |document, next| match left {
                0 => next.push(document),
                _ => {
                    left -= 1;
                    Ok(Flow::Continue(()))
                }
            })
        }
        Stage::Limit(count) => {
            let mut left = *count;
            each(next, move |document, next| {
                if left == 0 {
                    return Ok(Flow::Break(()));
                }
                left -= 1;
                match next.push(document)? {
                    Flow::Continue(()) if left > 0 => Ok(Flow::Continue(())),
                    _ => Ok(Flow::Break(())),
                }
            })
        }
        Stage::SampleRate(rate) => each(next, move |document, next| {
            if rand::random::<f64>() < *rate { next.push(document) } else { Ok(Flow::Continue(())) }
        }),
        Stage::Sample(size) => {
            Box::new(SampleStage { size: *size, seen: 0, kept: HeldDocuments::default(), next })
        }
        Stage::Unwind(unwind) => each(next, move |document, next| unwind.apply(&document, next)),
        Stage::Count(name) => Box::new(CountStage { name, counted: 0, next }),
        Stage::Group(group) => group.grouping(next),
        Stage::BucketAuto(buckets) => all(next, move |documents, next| buckets.apply(documents, next)),
        Stage::Facet(pipelines) => facets(pipelines, context, next),
        Stage::Lookup(lookup) => lookup.joining(context, next),
        Stage::GraphLookup(lookup) => lookup.joining(context, next),
        Stage::UnionWith(union) => then(next, move |next| union.run(context, next)),
        Stage::SetWindowFields(windows) => all(next, move |documents, next| windows.apply(documents, next)),
        Stage::Densify(densify) => {
            all(next, move |documents, next| densify.apply(documents, context.collation(), next))
        }
        Stage::Fill(fill) => all(next, move |documents, next| fill.apply(documents, next)),
        Stage::Documents(expression) => {
            then(next, move |next| push_all(outputs::listed(expression)?, next).map(|_| ()))
        }
        Stage::CollStats => {
            then(next, move |next| push_all(outputs::collection_stats(context)?, next).map(|_| ()))
        }
        Stage::CurrentOp => then(next, move |next| push_all(outputs::current_op(context)?, next).map(|_| ())),
        Stage::IndexStats => {
            then(next, move |next| push_all(outputs::index_stats(context)?, next).map(|_| ()))
        }
        Stage::ListLocalSessions => {
            then(next, move |next| push_all(outputs::local_sessions(context)?, next).map(|_| ()))
        }
        // what is written depends on what was read before the first write, also if it is the same collection
        Stage::Out(out) => {
            all(next, move |documents, next| push_all(out.apply(context, documents)?, next).map(|_| ()))
        }
        Stage::Merge(merge) => {
            all(next, move |documents, next| push_all(merge.apply(context, documents)?, next).map(|_| ()))
        }
    }
}

/// `$count`
struct CountStage<'r> {
    name: &'r str,
    counted: u64,
    next: Chain<'r>,
}

impl Receiver for CountStage<'_> {
    fn push(&mut self, _: DocBytes) -> Result<Flow> {
        budget::step()?;
        self.counted += 1;
        Ok(Flow::Continue(()))
    }

    fn finish(&mut self) -> Result<()> {
        if self.counted > 0 {
            let mut one = RawDocumentBuf::new();
            let name = CString::try_from(self.name.to_owned())?;
            match i32::try_from(self.counted) {
                Ok(counted) => one.append(name, counted),
                Err(_) => one.append(name, self.counted.cast_signed()),
            }
            let _ = self.next.push(one.into_bytes().into())?;
        }
        self.next.finish()
    }
}

/// `$sample`: each document is among the kept ones with the same probability.
struct SampleStage<'r> {
    size: usize,
    seen: usize,
    kept: HeldDocuments,
    next: Chain<'r>,
}

impl Receiver for SampleStage<'_> {
    fn push(&mut self, document: DocBytes) -> Result<Flow> {
        budget::step()?;
        self.seen += 1;
        if self.kept.documents.len() < self.size {
            self.kept.push(document)?;
        } else if let Some(place) = self.kept.documents.get_mut(rand::random_range(0..self.seen)) {
            *place = document;
        }
        Ok(Flow::Continue(()))
    }

    fn finish(&mut self) -> Result<()> {
        let mut kept = std::mem::take(&mut self.kept.documents);
        kept.shuffle(&mut rand::rng());
        let _ = push_all(kept, &mut *self.next)?;
        self.next.finish()
    }
}
