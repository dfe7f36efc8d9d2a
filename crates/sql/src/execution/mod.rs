//! Statements that run: threads, memory, deadlines and their end.

pub(crate) mod cancel;
pub(crate) mod counted_memory;
pub(crate) mod deadline;
pub(crate) mod fragment_places;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod pages;
pub(crate) mod running;
pub(crate) mod stack;
pub(crate) mod statements;
pub(crate) mod threads;
pub(crate) mod work;
