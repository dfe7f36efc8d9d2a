//! Plans: made, kept, and executed again.

pub(crate) mod logical_query;
pub(crate) mod lookup;
pub(crate) mod origins;
pub(crate) mod parameters;
pub(crate) mod plan_cache;
pub(crate) mod planning;
pub(crate) mod prepared;
pub(crate) mod quantified;
pub(crate) mod rerun;
pub(crate) mod reusable_plan;
pub(crate) mod template;
