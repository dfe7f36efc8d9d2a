//! Rights that a command needs.

use tidemill_access::{Action, Resource};

/// An action on an object.
pub(crate) type Need = (Action, Resource<'static>);
