//! SNMP over UDP, versions 1, 2c and 3: values of an agent that are asked at intervals as a source, values that are set as a
//! sink.

mod agent;
mod options;
mod sink;
mod source;
mod value;

use tidemill_connect::Catalog;

/// Adds the source and the sink.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::SnmpSourceType).add_sink(sink::SnmpSinkType);
}
