//! Sinks that write objects: `s3` and `google-cloud-storage`.
//!
//! Events of one partition become one object, up to `flush.size` of them. The name of an object says which events it has, so a
//! repetition writes the same object again. As a repetition could divide the events in another way, the plan of each delivery is
//! written before its objects: see [`plan`].

mod bucket;
mod gcs;
mod object;
mod plan;
mod profile;
mod s3;
mod sink;

use tidemill_connect::Catalog;

/// Adds the sinks.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_sink(s3::S3SinkType).add_sink(gcs::GcsSinkType);
}
