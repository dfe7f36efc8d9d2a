//! Integration tests of the public API.

mod bad;
mod roundtrip;
mod sink;
mod source;
mod warehouse;

use std::sync::Arc;

use tidemill_types::{Field, FieldType, StreamSchema};

/// Returns a stream with these fields.
fn stream(fields: &[(&str, FieldType)]) -> Arc<StreamSchema> {
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    Arc::new(StreamSchema { name: "Trades".into(), fields, key: None, id: vec![], time: None })
}
