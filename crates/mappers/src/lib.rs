//! Mappers: events from messages and messages from events, one module for each format.
//!
//! A mapper implements [`tidemill_connect::SourceMapper`], [`tidemill_connect::SinkMapper`] or both; names, options and
//! default forms are those of SiddhiQL's mappers. [`add_all`] adds them to a catalog.

mod avro;
mod binary;
mod binary_pass_through;
mod csv;
mod json;
mod keyvalue;
pub mod line_protocol;
pub mod otlp;
mod pass_through;
mod protobuf;
mod read;
pub mod remote_write;
pub mod telemetry;
mod text;
mod write;
mod xml;

use tidemill_connect::Catalog;

pub use self::keyvalue::{Pair, parse_pairs};

/// Adds all mappers to a catalog.
pub fn add_all(catalog: &mut Catalog) {
    catalog.add_source_mapper(pass_through::PassThroughSourceType);
    catalog.add_sink_mapper(pass_through::PassThroughSinkType);
    catalog.add_source_mapper(json::JsonSourceType).add_sink_mapper(json::JsonSinkType);
    catalog.add_source_mapper(text::TextSourceType).add_sink_mapper(text::TextSinkType);
    catalog.add_source_mapper(xml::XmlSourceType).add_sink_mapper(xml::XmlSinkType);
    catalog.add_source_mapper(keyvalue::KeyValueSourceType).add_sink_mapper(keyvalue::KeyValueSinkType);
    catalog.add_source_mapper(line_protocol::LineProtocolSourceType);
    catalog.add_source_mapper(otlp::OtlpSourceType);
    catalog.add_source_mapper(remote_write::RemoteWriteSourceType);
    catalog.add_source_mapper(csv::CsvSourceType).add_sink_mapper(csv::CsvSinkType);
    catalog.add_source_mapper(binary::BinarySourceType).add_sink_mapper(binary::BinarySinkType);
    catalog.add_source_mapper(binary_pass_through::BinaryPassThroughSourceType);
    catalog.add_sink_mapper(binary_pass_through::BinaryPassThroughSinkType);
    catalog.add_source_mapper(avro::AvroSourceType).add_sink_mapper(avro::AvroSinkType);
    catalog.add_source_mapper(protobuf::ProtobufSourceType).add_sink_mapper(protobuf::ProtobufSinkType);
}
