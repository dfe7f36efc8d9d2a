//! Interface between front ends, which speak a protocol, and the database behind them.
//!
//! A front end reads a statement from its client and hands it over as a [`QueryRequest`]. It gets Arrow batches, or bytes in a
//! [`Format`], and sends them on in its own protocol. Events of clients go the other way, as a [`SendRequest`]:
//!
//! ```text
//! client ── HTTP, Postgres, Flight … ── front end ── Database ── SQL, engine
//! ```
//!
//! The crate knows neither the language nor its implementation, so front ends build without them.

mod change_gate;
mod client_session;
mod columns;
mod events;
mod format;
mod insert;
mod moment;
mod pages;
mod parameter;
mod statement;
mod verb;

use std::num::NonZeroUsize;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tidemill_access::Principal;
use tidemill_types::{Error, Result};

pub use change_gate::ChangeGate;
pub use client_session::{ClientSession, SessionSetting};
pub use columns::target_fields;
pub use events::{AppendReceipt, AppendRequest, BadRows, CheckedEvents, OpenStream};
pub use format::Format;
pub use insert::{InsertOutcome, Returning, StagedInsert};
pub use moment::HeldMoment;
pub use pages::{Page, PageStream, PagedReply};
pub use parameter::{LIST_ITEMS_MAX, ListTextError, Parameter, ParameterList, list_items};
pub use statement::{StatementInfo, StatementPhase};
pub use verb::{first_word, is_insert};

/// Key in the metadata of a column: name of its type in PostgreSQL, where Arrow's type does not tell it, such as `name`, `oid` and
/// `int2vector`. Columns of PostgreSQL's catalogs have it.
pub const PG_TYPE: &str = "tidemill.pg_type";

/// A statement of a client.
#[derive(Debug, Clone)]
pub struct QueryRequest {
    /// Text of the statement.
    pub text: String,
    /// Values of `$1`, `$2`, … in the text.
    pub parameters: Vec<Parameter>,
    /// Sender, as `system.statements` names it: `http`, `postgres`, `flight`, `mcp`, `program`, `rules`.
    pub origin: &'static str,
    /// Caller. The statement reads tables that the caller may read; others do not exist for it.
    pub principal: Principal,
    /// Treatment of fields and collections that do not exist.
    pub missing: MissingFields,
    /// State of the client's session, for statements that ask for it; `None` where there is no session.
    pub session: Option<Arc<ClientSession>>,
    /// Treatment of rows of an `INSERT` that do not fit.
    pub bad_rows: BadRows,
    /// True if the reply is to tell from which tables its columns come.
    pub asks_origins: bool,
    /// Moment whose tables a query reads; `None` for the present one.
    pub moment: Option<HeldMoment>,
    /// Point until which the sender may cancel a change of events; `None` for a sender that does not ask.
    pub gate: Option<Arc<ChangeGate>>,
}

impl QueryRequest {
    /// Creates a request without parameters, in which everything that it names has to exist.
    pub fn new(text: impl Into<String>, origin: &'static str, principal: Principal) -> Self {
        Self {
            text: text.into(),
            parameters: Vec::new(),
            origin,
            principal,
            missing: MissingFields::Refused,
            session: None,
            bad_rows: BadRows::Refuse,
            asks_origins: false,
            moment: None,
            gate: None,
        }
    }

    /// Returns the request with values for its parameters.
    pub fn with_parameters<P: Into<Parameter>>(self, parameters: Vec<P>) -> Self {
        Self { parameters: parameters.into_iter().map(Into::into).collect(), ..self }
    }

    /// Returns the request with the state of the client's session.
    pub fn with_session(self, session: Option<Arc<ClientSession>>) -> Self {
        Self { session, ..self }
    }

    /// Returns the request for tables at this moment.
    pub fn with_moment(self, moment: Option<HeldMoment>) -> Self {
        Self { moment, ..self }
    }

    /// Returns the request with the point from which on a change of events is finished.
    pub fn with_gate(self, gate: Arc<ChangeGate>) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// Returns the request with the wish to know from which tables the columns come.
    pub fn with_origins(self) -> Self {
        Self { asks_origins: true, ..self }
    }

    /// Returns the request with another treatment of rows that do not fit.
    pub fn with_bad_rows(self, bad_rows: BadRows) -> Self {
        Self { bad_rows, ..self }
    }

    /// Returns the request with another treatment of what does not exist.
    pub fn with_missing(self, missing: MissingFields) -> Self {
        Self { missing, ..self }
    }
}

/// Treatment of fields and collections that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissingFields {
    /// The statement is refused.
    #[default]
    Refused,
    /// Fields are null, and collections are empty, because nothing has been written to them yet.
    Null,
}

/// A statement as its text tells, before it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Types of `$1`, `$2`, …; `None` where their place does not tell.
    pub parameters: Vec<Option<DataType>>,
    /// Columns of its rows. One whose type depends on that of a parameter that is not known has the type `Null`.
    pub columns: SchemaRef,
    /// Origin of each column, if the request asks for them; else none.
    pub origins: Vec<Option<ColumnOrigin>>,
}

impl Description {
    /// Creates a description without origins.
    pub fn new(parameters: Vec<Option<DataType>>, columns: SchemaRef) -> Self {
        Self { parameters, columns, origins: Vec::new() }
    }
}

/// Column of a table from which a column of a result comes, by its numbers in PostgreSQL's catalogs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnOrigin {
    /// Number of the table: `pg_class.oid`.
    pub table: u32,
    /// Number of the column, from 1: `pg_attribute.attnum`.
    pub column: u16,
}

/// Rows of a statement. Dropping the stream cancels the statement.
pub struct BatchReply {
    /// Columns of every batch.
    pub schema: SchemaRef,
    /// Rows in the order of the result. The first error ends it.
    pub batches: BoxStream<'static, Result<RecordBatch>>,
    /// Origin of each column, if the request asks for them; else none.
    pub origins: Vec<Option<ColumnOrigin>>,
    /// True if the rows have no end of their own. A batch then comes as soon as there are rows.
    pub is_endless: bool,
}

impl BatchReply {
    /// Creates a reply that ends, without origins.
    pub fn new(schema: SchemaRef, batches: BoxStream<'static, Result<RecordBatch>>) -> Self {
        Self { schema, batches, origins: Vec::new(), is_endless: false }
    }
}

/// Column of a result, with the names that people know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultColumn {
    /// Name as it stands in the output.
    pub name: String,
    /// Name of the type as `DESCRIBE` shows it: `bigint`, `text`, `timestamp`.
    pub type_name: String,
}

/// Rows of a statement in a [`Format`].
pub struct EncodedReply {
    /// Columns in order.
    pub columns: Vec<ResultColumn>,
    /// Output in pieces. The first error ends it. Dropping the stream cancels the statement.
    pub pieces: BoxStream<'static, Result<Bytes>>,
    /// True if the rows have no end of their own. Limits of time are not for such a statement.
    pub is_endless: bool,
}

/// Events that a client sends.
#[derive(Debug, Clone)]
pub struct SendRequest {
    /// Name of the stream.
    pub stream: String,
    /// Arrow IPC stream: a schema, then batches whose columns are fields of the stream. The bytes are as the client has sent them.
    pub events: Bytes,
    /// Sender, as `system.rejected` names it.
    pub origin: &'static str,
    /// Caller, who needs the right to write the stream.
    pub principal: Principal,
}

/// Acknowledgement of events: those that were accepted are as durable as the engine's setting says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SendReceipt {
    /// Number of events that were accepted.
    pub accepted: u64,
    /// Rows that were not. They are in `system.rejected` as well.
    pub rejected: Vec<RejectedEvent>,
}

/// A row that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedEvent {
    /// Place among the rows that were sent, from 0.
    pub row: u64,
    /// Reason: the value that was expected, and the one that was found.
    pub reason: String,
}

/// The database that front ends serve. Every result includes everything that was acknowledged before the request.
///
/// Bounds: the implementation limits memory and time of a statement; a front end may limit the time further.
pub trait Database: Send + Sync + 'static {
    /// Starts a statement. Errors in its text are returned at once, later ones through the stream.
    fn query(&self, request: QueryRequest) -> BoxFuture<'static, Result<BatchReply>>;

    /// Starts a statement whose rows are encoded on the threads that compute them.
    ///
    /// Errors: as [`Self::query`].
    fn query_encoded(
        &self,
        request: QueryRequest,
        format: Format,
    ) -> BoxFuture<'static, Result<EncodedReply>>;

    /// Starts a statement whose rows are taken in pages of at most `page_rows` rows, and of fewer where rows are large. The limit of its time
    /// holds for each page. By default there are no pages.
    ///
    /// Errors: as [`Self::query`].
    fn query_paged(
        &self,
        request: QueryRequest,
        format: Format,
        page_rows: NonZeroUsize,
    ) -> BoxFuture<'static, Result<PagedReply>> {
        let _ = (request, format, page_rows);
        Box::pin(async { Err(Error::invalid("results have no pages here: ask without `page_rows`")) })
    }

    /// Returns parameters and columns of a statement without running it.
    ///
    /// Errors: those in its text.
    fn describe(&self, request: QueryRequest) -> BoxFuture<'static, Result<Description>>;

    /// Takes a moment for several statements of a caller, with everything that was acknowledged before. By default there is only the
    /// present.
    ///
    /// Errors: `LimitReached` if too many are held; `Unavailable`. A statement that reads a moment whose time is over has an error of kind
    /// `Conflict` with the words "snapshot too old".
    fn hold_moment(&self, principal: &Principal) -> BoxFuture<'static, Result<HeldMoment>> {
        let _ = principal;
        Box::pin(async { Err(Error::invalid("REPEATABLE READ is not supported: write READ COMMITTED")) })
    }

    /// Sends events to a stream, and returns when those that fit are as durable as the engine's setting says.
    ///
    /// Errors: `Forbidden` for a caller who may not write the stream; `NotFound` for a stream that there is not; `Invalid` for bytes that
    /// are not such a stream, and for columns that do not fit; `LimitReached` and `Unavailable` when the events are not accepted now.
    fn send(&self, request: SendRequest) -> BoxFuture<'static, Result<SendReceipt>>;

    /// Checks the rows of an `INSERT` without sending them: those that fit are events of its stream. By default there are no streams.
    ///
    /// Errors: those in its text; `Invalid` with the place and the reason for a row that does not fit, unless bad rows are kept.
    fn stage(&self, request: QueryRequest) -> BoxFuture<'static, Result<StagedInsert>> {
        let _ = request;
        Box::pin(async { Err(takes_no_events()) })
    }

    /// Returns the stream that a statement names, whose schema may be missing, for a caller who may write it. By default there is none.
    ///
    /// Errors: `NotFound` for a stream that the caller may neither read nor write; `Forbidden` without the right to write it; `Invalid` for
    /// a table that is not a stream.
    fn open_stream(
        &self,
        schema: Option<&str>,
        name: &str,
        principal: &Principal,
    ) -> BoxFuture<'static, Result<OpenStream>> {
        let _ = (schema, name, principal);
        Box::pin(async { Err(takes_no_events()) })
    }

    /// Appends events, and returns when they are as durable as the engine's setting says. Dropping the future does not stop it.
    ///
    /// Events of one partition, up to 16,384, are one record of the log: all of them are stored, or none.
    /// Errors: `Forbidden` for a caller who may not write one of the streams; `Conflict` for a stream whose fields have changed;
    /// `LimitReached` and `Unavailable` when the events are not accepted now. The message says so if some may be stored.
    fn append(&self, request: AppendRequest) -> BoxFuture<'static, Result<AppendReceipt>> {
        let _ = request;
        Box::pin(async { Err(takes_no_events()) })
    }

    /// Returns the statements that run and the last that have ended, by number: an administrator sees those of all callers,
    /// others their own. Does not wait.
    fn statements(&self, principal: &Principal) -> Vec<StatementInfo>;

    /// Cancels a statement that runs, of the caller or as an administrator; `by` completes "was cancelled by" in its error. Does
    /// not wait.
    ///
    /// Errors: `NotFound` if no statement with this number runs that the caller sees.
    fn cancel(&self, id: u64, principal: &Principal, by: &str) -> Result<()>;
}

fn takes_no_events() -> Error {
    Error::invalid("INSERT and COPY are not supported: there are no streams here")
}
