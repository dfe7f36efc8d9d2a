//! Description of the API.

pub(crate) mod description;
pub(crate) mod shared_errors;
