//! `$facet`: runs several pipelines over the same documents. Each pipeline produces an array.

use std::cell::RefCell;
use std::rc::Rc;

use bson::raw::{CString, RawArrayBuf, RawDocument, RawDocumentBuf};
use tidemill_docs::{DocBytes, HeldMemory};
use tidemill_types::budget;

use super::flow::{Chain, Flow, Receiver};
use super::{Context, Pipeline, check_size, run};
use crate::error::Result;

/// The array of a facet, as it grows.
#[derive(Clone, Default)]
struct FacetArray(Rc<RefCell<(RawArrayBuf, HeldMemory)>>);

impl Receiver for FacetArray {
    fn push(&mut self, document: DocBytes) -> Result<Flow> {
        let (array, held) = &mut *self.0.borrow_mut();
        // the one document that all arrays become may not be larger than others
        check_size(array.as_bytes().len() + document.len())?;
        held.add(document.len())?;
        array.push(RawDocument::from_bytes(&document)?);
        Ok(Flow::Continue(()))
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

struct Facets<'r> {
    facets: Vec<Facet<'r>>,
    next: Chain<'r>,
}

struct Facet<'r> {
    name: &'r str,
    chain: Chain<'r>,
    wants_more: bool,
    array: FacetArray,
}

/// Returns the stage that passes on one document with the arrays of all facets.
pub(super) fn facets<'r>(
    pipelines: &'r [(String, Pipeline)],
    context: &'r Context<'r>,
    next: Chain<'r>,
) -> Chain<'r> {
    let facets = pipelines.iter().map(|(name, pipeline)| {
        let array = FacetArray::default();
        let chain = run::chain(&pipeline.stages, context, Box::new(array.clone()));
        Facet { name, chain, wants_more: true, array }
    });
    Box::new(Facets { facets: facets.collect(), next })
}

impl Receiver for Facets<'_> {
    fn push(&mut self, document: DocBytes) -> Result<Flow> {
        budget::step()?;
        let mut flow = Flow::Break(());
        for facet in self.facets.iter_mut().filter(|facet| facet.wants_more) {
            facet.wants_more = facet.chain.push(document.clone())?.is_continue();
            if facet.wants_more {
                flow = Flow::Continue(());
            }
        }
        Ok(flow)
    }

    fn finish(&mut self) -> Result<()> {
        let mut all = RawDocumentBuf::new();
        let mut held = HeldMemory::default();
        for facet in &mut self.facets {
            facet.chain.finish()?;
            let (array, _) = facet.array.0.take();
            held.add(array.as_bytes().len())?;
            all.append(CString::try_from(facet.name.to_owned())?, array);
            check_size(all.as_bytes().len())?;
        }
        let _ = self.next.push(tidemill_docs::validate(all.into_bytes())?)?;
        self.next.finish()
    }
}
