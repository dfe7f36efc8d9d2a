//! Catalog of an app: streams, tables, named windows and aggregations.

mod aggregation;

use std::sync::Arc;

use tidemill_connect::{StoreConfig, StoreIndex, TableStore};
use tidemill_lang::siddhi::ast::{Attribute, Scope, StreamRef};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{Error, FieldType, did_you_mean};

pub(crate) use aggregation::{AGG_TIMESTAMP, ROW};
pub use aggregation::{
    AccumulatorColumns, AccumulatorKind, AccumulatorSpec, AggregationPlan, AggregationStore, RetentionPolicy,
    StoredColumn,
};

/// Name and type of each attribute, in order.
pub type Attributes = Vec<(String, FieldType)>;

/// Stream that queries read and write.
#[derive(Debug, Clone)]
pub struct CatalogStream {
    /// Name of the stream; fault streams begin with `!`, inner streams of partitions with `#`.
    pub name: String,
    /// Attributes of the stream.
    pub attributes: Attributes,
    /// Source range of the definition, or of the first query that writes the stream.
    pub span: Span,
}

/// Table that queries write and search.
#[derive(Debug, Clone)]
pub struct CatalogTable {
    /// Name of the table.
    pub name: String,
    /// Columns of the table.
    pub attributes: Attributes,
    /// Columns of the unique primary key; empty if rows may be equal.
    pub primary_key: Vec<usize>,
    /// Columns with a secondary index.
    pub indexes: Vec<usize>,
    /// Further indexes of a store, which have orders or options.
    pub special_indexes: Vec<StoreIndex>,
    /// Columns whose strings may have any length.
    pub long_texts: Vec<usize>,
    /// Location of the rows; `None` if they are in memory.
    pub store: Option<TableLocation>,
    /// Source range of the definition.
    pub span: Span,
}

impl CatalogTable {
    /// Says that the store cannot evaluate part of a condition or an assignment.
    pub(crate) fn cannot_push(&self, what: &str) -> String {
        format!("the store of `{}` cannot evaluate {what}", self.name)
    }

    /// Returns whether the rows live in another system.
    pub fn is_elsewhere(&self) -> bool {
        self.store.as_ref().is_some_and(|location| !location.is_own)
    }

    /// Returns the diagnostic of [`Self::cannot_push`].
    pub(crate) fn not_pushed(&self, what: &str, span: Span) -> Diagnostic {
        Diagnostic::error("F0816", span, self.cannot_push(what))
            .note_at(self.span, "the table is defined here")
            .help(
                "compare its columns with values of the event, and compute those in a query before this one",
            )
    }
}

/// Opens the store of a table.
///
/// Errors: those of the store.
pub type StoreOpener<'s> = dyn FnMut(&CatalogTable) -> Result<Box<dyn TableStore>, Error> + 's;

/// Location of rows in another system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableLocation {
    /// Store.
    pub store: StoreConfig,
    /// True if the store is part of the program; see [`crate::Registry::own_stores`].
    pub is_own: bool,
    /// Cache of what was read, if there is one.
    pub cache: Option<CacheConfig>,
}

/// Cache of rows that were read from another system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheConfig {
    /// Most rows that it keeps.
    pub rows_max: usize,
    /// Eviction policy of a full cache.
    pub policy: CachePolicy,
    /// Time for which a row is served from the cache before it is read again, milliseconds; `None` without a
    /// limit.
    pub retention_ms: Option<i64>,
}

/// Eviction policy of a full cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePolicy {
    /// Those read first.
    Fifo,
    /// Those not asked for the longest time.
    Lru,
    /// Those asked for the least often.
    Lfu,
}

/// Definitions of an app; queries refer to them by index.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    streams: Vec<CatalogStream>,
    tables: Vec<CatalogTable>,
    /// Stream indexes of the named windows.
    windows: Vec<usize>,
    aggregations: Vec<Arc<AggregationPlan>>,
    /// While a partition is compiled, the index from which on inner streams belong to it.
    inner: Option<usize>,
}

impl Catalog {
    /// Returns the streams in order of definition.
    pub fn streams(&self) -> &[CatalogStream] {
        &self.streams
    }

    /// Returns the tables in order of definition.
    pub fn tables(&self) -> &[CatalogTable] {
        &self.tables
    }

    /// Returns the tables that are in a store: those of the app, and those of its aggregations.
    pub fn stored_tables(&self) -> impl Iterator<Item = &CatalogTable> {
        let of_aggregations = self.aggregations.iter().filter_map(|aggregation| aggregation.store.as_ref());
        let tables = self.tables.iter().filter(|table| table.store.is_some());
        tables.chain(of_aggregations.flat_map(|store| &store.tables))
    }

    /// Returns the index of the named window that queries see as this stream.
    pub fn window(&self, stream: usize) -> Option<usize> {
        self.windows.iter().position(|w| *w == stream)
    }

    /// Adds a table. A second definition must be equal.
    ///
    /// Errors: the name is taken.
    pub fn define_table(&mut self, table: CatalogTable) -> Result<(), Diagnostic> {
        let known = self.tables.iter().find(|t| t.name == table.name);
        match known {
            Some(known) if known.attributes == table.attributes => Ok(()),
            Some(known) => Err(already_defined(&table.name, "a table", table.span, known.span)),
            None => {
                self.not_a_stream(&table.name, table.span)?;
                self.tables.push(table);
                Ok(())
            }
        }
    }

    /// Adds a named window together with the stream as which queries see it.
    ///
    /// Errors: the name is taken.
    pub fn define_window(&mut self, stream: CatalogStream) -> Result<usize, Diagnostic> {
        self.not_a_stream(&stream.name, stream.span)?;
        let stream = self.define(stream)?;
        self.windows.push(stream);
        Ok(stream)
    }

    /// Returns the aggregations in order of definition.
    pub fn aggregations(&self) -> &[Arc<AggregationPlan>] {
        &self.aggregations
    }

    /// Returns the index of the aggregation `name`.
    pub fn find_aggregation(&self, name: &str) -> Option<usize> {
        self.aggregations.iter().position(|a| a.name == name)
    }

    /// Adds an aggregation.
    ///
    /// Errors: the name is taken.
    pub fn define_aggregation(&mut self, aggregation: AggregationPlan) -> Result<(), Diagnostic> {
        let (name, span) = (&aggregation.name, aggregation.span);
        self.not_a_stream(name, span)?;
        if let Some(table) = self.tables.iter().find(|t| t.name == *name) {
            return Err(already_defined(name, "a table", span, table.span));
        }
        if let Some(known) = self.find_aggregation(name) {
            return Err(already_defined(name, "an aggregation", span, self.aggregations[known].span));
        }
        self.aggregations.push(Arc::new(aggregation));
        Ok(())
    }

    fn not_a_stream(&self, name: &str, span: Span) -> Result<(), Diagnostic> {
        match self.find(name) {
            Some(known) => {
                let what = if self.window(known).is_some() { "a window" } else { "a stream" };
                Err(already_defined(name, what, span, self.streams[known].span))
            }
            None => Ok(()),
        }
    }

    /// Returns the index of a stream; inner streams are only found in their own partition.
    pub fn find(&self, name: &str) -> Option<usize> {
        let from = match is_inner(name) {
            true => self.inner?,
            false => 0,
        };
        self.streams.iter().skip(from).position(|s| s.name == name).map(|at| from + at)
    }

    /// Returns whether a stream is an inner stream of a partition.
    pub fn is_inner(&self, stream: usize) -> bool {
        self.streams.get(stream).is_some_and(|s| is_inner(&s.name))
    }

    /// Begins a partition, which has its own inner streams.
    pub(crate) fn begin_partition(&mut self) {
        self.inner = Some(self.streams.len());
    }

    /// Ends the partition.
    pub(crate) fn end_partition(&mut self) {
        self.inner = None;
    }

    /// Adds a stream and returns its index. A second definition must be equal.
    ///
    /// Errors: the name is taken, or the definitions differ; refers to the first definition.
    pub fn define(&mut self, stream: CatalogStream) -> Result<usize, Diagnostic> {
        if let Some(table) = self.tables.iter().find(|t| t.name == stream.name) {
            return Err(already_defined(&stream.name, "a table", stream.span, table.span));
        }
        if let Some(known) = self.find_aggregation(&stream.name) {
            let known = self.aggregations[known].span;
            return Err(already_defined(&stream.name, "an aggregation", stream.span, known).note(
                "an aggregation gets its rows from the stream that it reads; a query cannot insert into it",
            ));
        }
        match self.find(&stream.name) {
            None => {
                self.streams.push(stream);
                Ok(self.streams.len() - 1)
            }
            Some(known) if self.streams[known].attributes == stream.attributes => Ok(known),
            Some(known) => Err(Diagnostic::error(
                "F0201",
                stream.span,
                format!("`{}` is already defined with other attributes", stream.name),
            )
            .note_at(self.streams[known].span, "it is defined here")),
        }
    }

    /// Returns the index of the stream that a query reads.
    ///
    /// Errors: it is unknown; suggests a similar name.
    pub fn read(&self, stream: &StreamRef) -> Result<usize, Diagnostic> {
        let name = full_name(stream);
        if self.find_aggregation(&name).is_some() {
            let message = format!("`{name}` is an aggregation: it cannot be read as a stream");
            return Err(Diagnostic::error("F0728", stream.span, message)
                .help(format!("join it: `from S join {name} on … within … per …`")));
        }
        self.find(&name).ok_or_else(|| {
            if is_inner(&name) {
                return self.no_inner_stream(&name, stream.span);
            }
            if let Some(table) = self.tables.iter().find(|t| t.name == name) {
                let message = format!("there is no stream `{name}`: it is a table");
                return Diagnostic::error("F0202", stream.span, message)
                    .note_at(table.span, "it is defined here")
                    .help(format!("join it with a stream, or test `(…) in {name}` in a filter"));
            }
            if let Some(of) = name.strip_prefix('!') {
                return no_fault_stream(of, stream.span);
            }
            let known = self.streams.iter().map(|s| s.name.as_str()).filter(|name| !is_inner(name));
            let hint = did_you_mean(&name, known);
            Diagnostic::error("F0202", stream.span, format!("there is no stream `{name}`{hint}"))
                .note("a stream that a query defines can only be read by later queries")
        })
    }

    fn no_inner_stream(&self, name: &str, span: Span) -> Diagnostic {
        let Some(from) = self.inner else { return inner_outside(name, span) };
        let written = self.streams[from..].iter().map(|s| s.name.as_str()).filter(|name| is_inner(name));
        let hint = did_you_mean(name, written);
        Diagnostic::error("F1002", span, format!("no query before this one writes `{name}`{hint}"))
            .note("an inner stream belongs to its partition and is defined by the query that inserts into it")
            .help(format!("let an earlier query of this partition `insert into {name}`"))
    }

    /// Returns the index of the stream that a query writes; defines the stream if it is unknown.
    ///
    /// Errors: the stream has other attributes.
    pub fn write(&mut self, stream: &StreamRef, attributes: &Attributes) -> Result<usize, Diagnostic> {
        let name = full_name(stream);
        if is_inner(&name) && self.inner.is_none() {
            return Err(inner_outside(&name, stream.span));
        }
        let Some(known) = self.find(&name) else {
            if let Some(of) = name.strip_prefix('!') {
                return Err(no_fault_stream(of, stream.span));
            }
            return self.define(CatalogStream { name, attributes: attributes.clone(), span: stream.span });
        };
        let defined = &self.streams[known];
        if defined.attributes == *attributes {
            return Ok(known);
        }
        Err(Diagnostic::error(
            "F0203",
            stream.span,
            format!(
                "`{name}` has the attributes ({}), but the query selects ({})",
                list_attributes(&defined.attributes),
                list_attributes(attributes)
            ),
        )
        .note_at(defined.span, "it is defined here")
        .help("names, types and order must match: use `as` for names and convert() for types"))
    }
}

fn is_inner(name: &str) -> bool {
    name.starts_with('#')
}

fn no_fault_stream(of: &str, span: Span) -> Diagnostic {
    Diagnostic::error("F0202", span, format!("there is no fault stream `!{of}`"))
        .help(format!("write `@OnError(action='STREAM')` before `define stream {of}`"))
}

fn inner_outside(name: &str, span: Span) -> Diagnostic {
    Diagnostic::error("F1001", span, format!("`{name}` is an inner stream, which exists only in a partition"))
        .help(format!("write `{}`, or put the query into a partition", name.trim_start_matches('#')))
}

fn already_defined(name: &str, what: &str, span: Span, known: Span) -> Diagnostic {
    Diagnostic::error("F0205", span, format!("the name `{name}` is already taken by {what}"))
        .note_at(known, "it is defined here")
        .help("rename one of them")
}

/// Returns the name of a stream, including a `#` or `!`.
pub fn full_name(stream: &StreamRef) -> String {
    match stream.scope {
        Scope::App => stream.name.name.clone(),
        scope => format!("{}{}", scope.mark(), stream.name.name),
    }
}

/// `a int, b string`
pub fn list_attributes(attributes: &Attributes) -> String {
    let all: Vec<String> = attributes.iter().map(|(name, ty)| format!("{name} {}", ty.name())).collect();
    all.join(", ")
}

/// Returns the attributes of a definition. Errors: a name occurs twice.
pub fn attributes(of: &[Attribute]) -> Result<Attributes, Diagnostic> {
    let mut all: Attributes = Vec::with_capacity(of.len());
    for attribute in of {
        if all.iter().any(|(name, _)| *name == attribute.name.name) {
            let name = &attribute.name.name;
            return Err(Diagnostic::error(
                "F0204",
                attribute.name.span,
                format!("duplicate attribute `{name}`"),
            ));
        }
        all.push((attribute.name.name.clone(), attribute.ty.ty));
    }
    Ok(all)
}
