//! Contracts between the engine and the outside: a [`Source`] brings events in, a [`Sink`] takes events out.
//!
//! A connector implements one of these traits and knows nothing of the engine. The engine drives it, splits and
//! appends what a source returns, and remembers how far it came. Files implement [`Source`] and [`Sink`]
//! themselves. Connectors to other systems implement [`SourceConnector`] and [`SinkConnector`], which are
//! asynchronous and deal with messages; mappers ([`SourceMapper`], [`SinkMapper`]) turn those into events and
//! back. A [`TableStore`] has the rows of a table. A [`Catalog`] has all types of them with their options.
//!
//! **No event is lost or doubled.** A source counts its input in *positions*: numbers that never decrease,
//! that mean the same row on every reading, and from which it can continue. The engine writes the position of
//! a batch into the log together with the batch's events, so after a crash it opens the source at the
//! position that the log has. A source that cannot read its input again acknowledges messages to the other side
//! once their events are durable in the log. A sink reports the position that it has made durable; the engine
//! stores it together with the log offsets of the events written so far, and opens the sink at that position, which
//! discards what was written after it. A [`SinkConnector`] counts the events that the other side has acknowledged;
//! each event has an id that stays the same when it is sent again.

mod catalog;
mod config;
mod connector_sink;
mod connector_source;
mod data_source;
mod document_value;
mod mapper;
mod merge;
mod message;
mod options;
mod runtime;
mod sink;
mod source;
mod store;
mod store_eval;
mod store_row;
mod template;

pub use catalog::{Catalog, ConnectorContext, DeliveryGuarantee, SinkType, SourceParts, SourceType};
pub use config::{ConnectorConfig, MapperConfig, NamedText, OnError, StoreConfig};
pub use connector_sink::{
    ConnectorSink, DeliveredEvents, DeliveryProgress, Distribution, PartitionEpochs, SinkBatch,
    SinkConnector, SinkPositions, is_later_owner,
};
pub use connector_source::{ConnectorSource, PendingReceipt, SourceConnector, SourceOutput, SplitPositions};
pub use data_source::{DataSource, DataSourceContext, DataSourceType};
pub use document_value::{bson_of, value_of_bson};
pub use mapper::{
    AttributeSource, EventBuilder, RefusedRow, SinkMapper, SinkMapperType, SourceMapper, SourceMapperType,
    resolve_attributes,
};
pub use merge::MergedSource;
pub use message::{Message, Payload};
pub use options::{OptionError, OptionKind, OptionPlace, OptionSpec, Options, is_template, parse_duration};
pub use runtime::{Backoff, RECONNECT_DELAYS, runtime};
pub use sink::{Sink, SinkPosition};
pub use source::{Acknowledgement, Receipt, Source, SourceBatch};
pub use store::{
    StoreArithmetic, StoreComparison, StoreContext, StoreExpr, StoreIndex, StoreMonitor, StoreType,
    StoreUpdate, TableStore, WritePosition, without_waiting,
};
pub use store_eval::{RowScope, TypedValue, is_missing, typed_values};
pub use store_row::{StoredRow, all_values, batch_of, values};
pub use template::{Template, shown_value, write_value};

/// Health of a connector.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ConnectorHealth {
    /// It works.
    #[default]
    Working,
    /// It works, or tries to, but someone should look at it; the text says what is wrong and what helps.
    Degraded(String),
}
