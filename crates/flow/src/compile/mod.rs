//! Names, types and annotations of an app, as the planner resolves them.

pub(crate) mod annotations;
pub mod compiler;
pub(crate) mod extensions_elsewhere;
pub(crate) mod scope;
