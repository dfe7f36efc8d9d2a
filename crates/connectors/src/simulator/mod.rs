//! Events that are made up: at rates of several shapes, with fields by expressions, the same for the same seed.

mod expression;
mod parse;
mod random;
mod schedule;
mod source;

use tidemill_connect::Catalog;

/// Adds the source.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::SimulatorType);
}
