//! One moment for several statements.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Tables and collections at one moment, as the statements of a transaction read them. Only the database that has taken it knows its content,
/// which is dropped with the last copy, or when the time for it is over.
#[derive(Clone)]
pub struct HeldMoment(Arc<dyn Any + Send + Sync>);

impl HeldMoment {
    /// Creates a moment with this content.
    pub fn new<T: Any + Send + Sync>(content: Arc<T>) -> Self {
        Self(content)
    }

    /// Returns the content; `None` for that of another database.
    pub fn content<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.clone().downcast().ok()
    }
}

impl fmt::Debug for HeldMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldMoment").finish_non_exhaustive()
    }
}
