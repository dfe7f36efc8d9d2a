//! Geometries: GeoJSON on the sphere, pairs of coordinates on the plane, conditions on them, and their indexes.
//!
//! On the sphere edges are arcs of great circles, as in MongoDB, and the predicates are those of the crate `s2`. Whether a geometry
//! meets a condition is always decided from the document; an index only leaves out documents that are far away.

mod flat;
mod geometry;
mod grid;
mod index;
mod parse;
mod query;
mod shape;
mod sphere;

pub(crate) use index::{CellRanges, GeoIndex, cell_key};
pub use index::{GeoIndexKind, GeoIndexSpec};
pub(crate) use query::{GeoTest, NearQuery};
