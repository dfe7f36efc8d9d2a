//! Evaluation context for conditions that a report evaluates again.

use crate::expr::EvalContext;

/// Read-only evaluation context. It searches the stores of the app, but does not draw its random values: drawing one advances the
/// generator, and a report must not change later output.
pub(crate) struct ReadOnlyContext<'a>(pub &'a dyn EvalContext);

impl EvalContext for ReadOnlyContext<'_> {
    fn stores(&self) -> Option<&dyn EvalContext> {
        Some(self.0)
    }
}
