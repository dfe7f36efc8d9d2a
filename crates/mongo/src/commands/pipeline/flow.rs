//! Documents on their way through a pipeline: each stage takes them one by one and passes on what it makes of them.
//!
//! A stage that needs all documents before it can pass on the first one holds them, and counts their memory against the budget of the
//! command before it takes it. All others hold none. A stage that wants no more says so, and what comes before it stops.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

use tidemill_docs::{DocBytes, HeldMemory};
use tidemill_types::budget;

use crate::error::Result;

/// Result of a receiver: continues if it wants more documents.
pub(super) type Flow = ControlFlow<()>;

/// Takes the documents of a stage.
pub(super) trait Receiver {
    /// Takes one document. Returns whether more are wanted.
    fn push(&mut self, document: DocBytes) -> Result<Flow>;

    /// Is told that there are no more, also if no more were wanted.
    fn finish(&mut self) -> Result<()>;
}

/// A stage with the receiver of its documents.
pub(super) type Chain<'r> = Box<dyn Receiver + 'r>;

/// Returns the stage that passes on what a function makes of each document.
pub(super) fn each<'r>(
    next: Chain<'r>,
    stage: impl FnMut(DocBytes, &mut dyn Receiver) -> Result<Flow> + 'r,
) -> Chain<'r> {
    struct Each<'r, F> {
        next: Chain<'r>,
        stage: F,
    }
    impl<F: FnMut(DocBytes, &mut dyn Receiver) -> Result<Flow>> Receiver for Each<'_, F> {
        fn push(&mut self, document: DocBytes) -> Result<Flow> {
            budget::step()?;
            (self.stage)(document, &mut *self.next)
        }

        fn finish(&mut self) -> Result<()> {
            self.next.finish()
        }
    }
    Box::new(Each { next, stage })
}

/// Returns the stage that holds all documents, and passes on what a function makes of them.
pub(super) fn all<'r>(
    next: Chain<'r>,
    stage: impl FnOnce(Vec<DocBytes>, &mut dyn Receiver) -> Result<()> + 'r,
) -> Chain<'r> {
    struct All<'r, F> {
        next: Chain<'r>,
        held: HeldDocuments,
        stage: Option<F>,
    }
    impl<F: FnOnce(Vec<DocBytes>, &mut dyn Receiver) -> Result<()>> Receiver for All<'_, F> {
        fn push(&mut self, document: DocBytes) -> Result<Flow> {
            self.held.push(document)?;
            Ok(Flow::Continue(()))
        }

        fn finish(&mut self) -> Result<()> {
            if let Some(stage) = self.stage.take() {
                stage(std::mem::take(&mut self.held.documents), &mut *self.next)?;
            }
            self.held = HeldDocuments::default();
            self.next.finish()
        }
    }
    Box::new(All { next, held: HeldDocuments::default(), stage: Some(stage) })
}

/// Returns the stage that passes on documents, and then those that a function makes.
pub(super) fn then<'r>(
    next: Chain<'r>,
    more: impl FnOnce(&mut dyn Receiver) -> Result<()> + 'r,
) -> Chain<'r> {
    struct Then<'r, F> {
        next: Chain<'r>,
        flow: Flow,
        more: Option<F>,
    }
    impl<F: FnOnce(&mut dyn Receiver) -> Result<()>> Receiver for Then<'_, F> {
        fn push(&mut self, document: DocBytes) -> Result<Flow> {
            self.flow = self.next.push(document)?;
            Ok(self.flow)
        }

        fn finish(&mut self) -> Result<()> {
            if let Some(more) = self.more.take().filter(|_| self.flow.is_continue()) {
                more(&mut *self.next)?;
            }
            self.next.finish()
        }
    }
    Box::new(Then { next, flow: Flow::Continue(()), more: Some(more) })
}

/// Documents that are held, with their memory.
#[derive(Default)]
pub(super) struct HeldDocuments {
    pub documents: Vec<DocBytes>,
    memory: HeldMemory,
}

impl HeldDocuments {
    pub fn push(&mut self, document: DocBytes) -> Result<()> {
        budget::step()?;
        self.memory.add_document(&document)?;
        self.documents.push(document);
        Ok(())
    }
}

/// The end of a pipeline: keeps its documents for the caller.
#[derive(Clone, Default)]
pub(super) struct Results(Rc<RefCell<HeldDocuments>>);

impl Results {
    /// Takes the documents out.
    pub fn take(&self) -> HeldDocuments {
        self.0.take()
    }
}

impl Receiver for Results {
    fn push(&mut self, document: DocBytes) -> Result<Flow> {
        self.0.borrow_mut().push(document)?;
        Ok(Flow::Continue(()))
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Forwards documents to a receiver that remains in use afterwards: `finish` is not passed on.
pub(super) struct Forward<'n>(pub &'n mut dyn Receiver);

impl Receiver for Forward<'_> {
    fn push(&mut self, document: DocBytes) -> Result<Flow> {
        self.0.push(document)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Passes on documents until no more are wanted.
pub(super) fn push_all(
    documents: impl IntoIterator<Item = DocBytes>,
    next: &mut dyn Receiver,
) -> Result<Flow> {
    for document in documents {
        if next.push(document)?.is_break() {
            return Ok(Flow::Break(()));
        }
    }
    Ok(Flow::Continue(()))
}
