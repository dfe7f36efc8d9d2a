//! Rules and properties of plans beyond those of DataFusion.

pub(crate) mod batch_size;
pub(crate) mod constant_last;
pub(crate) mod global_aggregates;
pub(crate) mod partial_sorts;
pub(crate) mod set_operations;
pub(crate) mod sort_keys;
pub(crate) mod top_groups;
pub(crate) mod unique_names;
pub(crate) mod width;
