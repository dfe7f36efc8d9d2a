//! Codes of the diagnostics reported by the resolver. A code never changes its meaning.

pub(crate) const UNKNOWN_STREAM: &str = "R0401";
pub(crate) const UNKNOWN_ENTITY: &str = "R0402";
pub(crate) const UNKNOWN_FIELD: &str = "R0403";
pub(crate) const UNKNOWN_RELATION: &str = "R0404";
pub(crate) const UNKNOWN_NAME: &str = "R0405";
pub(crate) const UNKNOWN_FUNCTION: &str = "R0406";
pub(crate) const DUPLICATE: &str = "R0407";
pub(crate) const RESERVED: &str = "R0408";
pub(crate) const TYPE: &str = "R0410";
pub(crate) const ARGUMENTS: &str = "R0411";
pub(crate) const CONSTANT: &str = "R0412";
pub(crate) const NOT_A_VALUE: &str = "R0413";
pub(crate) const TOO_LARGE: &str = "R0414";
pub(crate) const FIRST_CONDITION: &str = "R0420";
pub(crate) const NOT_LOCAL: &str = "R0421";
pub(crate) const REPLICATED: &str = "R0422";
pub(crate) const KEY_NEEDED: &str = "R0423";
pub(crate) const KEY_FIXED: &str = "R0424";
pub(crate) const NOT_A_DOCUMENT: &str = "R0425";
pub(crate) const DELETED: &str = "R0426";
pub(crate) const EMIT: &str = "R0427";
pub(crate) const NOT_GROUPED: &str = "R0430";
pub(crate) const AGGREGATE: &str = "R0431";
pub(crate) const NO_INDEX: &str = "R0490";
pub(crate) const UNIQUE_BY_KEY: &str = "R0491";
pub(crate) const EMIT_LOOP: &str = "R0492";
