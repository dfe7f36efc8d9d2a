//! Compilation of `@store` and `@cache`.

use std::sync::Arc;

use tidemill_connect::{StoreConfig, StoreContext, StoreMonitor, TableStore, parse_duration};
use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::Annotation;
use tidemill_types::{Field, StreamSchema};

use super::plan::store_unsupported;
use crate::catalog::{self, CacheConfig, CachePolicy, TableLocation};
use crate::io::{connector, one_of};
use crate::registry::{Connectors, Registry};

/// Rows of a cache without `size`.
const CACHE_ROWS: usize = 10;

/// Kind of element whose rows are in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredElement {
    /// A table.
    Table,
    /// An aggregation, with a table for each granularity.
    Aggregation,
}

/// Compiles `@store` of a table. Returns `None` if connections to the outside are left out: the rows are in memory.
///
/// Errors: an unknown type, wrong options.
pub(crate) fn compile(
    annotation: &Annotation,
    table: &catalog::CatalogTable,
    of: StoredElement,
    registry: &Registry,
) -> Result<Option<TableLocation>, Diagnostic> {
    let is_own = is_own(annotation, registry);
    let catalog = match registry.connectors() {
        _ if is_own => registry.own_stores(),
        Connectors::Refused => return Err(store_unsupported(annotation, of)),
        Connectors::Ignored(_) => return Ok(None),
        Connectors::Catalog(catalog) => catalog,
    };
    if registry.is_replayable_only() {
        let message = match of {
            StoredElement::Table => {
                "an app that corrects its output cannot have tables with a store: it runs several times"
            }
            StoredElement::Aggregation => {
                "an app that corrects its output cannot have aggregations with a store: it runs several times"
            }
        };
        return Err(Diagnostic::error("F0817", annotation.span, message)
            .help("remove `@store`, or `policy='correct'` of `@late`"));
    }
    let Some(kind) = annotation.element("type") else {
        let known = registry
            .own_stores()
            .stores()
            .chain(catalog.stores())
            .map(|store| format!("type='{}'", store.name()));
        return Err(Diagnostic::error("F0801", annotation.span, "a store needs a `type`").expected(known));
    };
    let options = connector::options(annotation.elements().filter(|e| !e.has_key("type")))?;
    let config = StoreConfig { kind: kind.value.value.clone(), options };
    let monitor = Arc::new(StoreMonitor::default());
    catalog
        .create_store(&config, &context(table, "", monitor))
        .map_err(|e| connector::diagnostic(&e, annotation, None))?;
    let mut cache = None;
    for nested in annotation.nested() {
        if !nested.is("cache") {
            let message = format!("`@{}` is not expected in `@store`", nested.name.name);
            return Err(Diagnostic::error("F0801", nested.span, message).expected(["@cache(size='…')"]));
        }
        if of == StoredElement::Aggregation {
            let message = "an aggregation has no cache of its store: its latest buckets are in memory anyway";
            return Err(Diagnostic::error("F0801", nested.span, message).help("remove `@cache`"));
        }
        if is_own {
            let message = format!("the store `{}` has no cache: its rows are in this program", config.kind);
            return Err(Diagnostic::error("F0801", nested.span, message).help("remove `@cache`"));
        }
        cache = Some(self::cache(nested)?);
    }
    Ok(Some(TableLocation { store: config, is_own, cache }))
}

/// Returns whether `@store` names a store that is part of the program.
pub(super) fn is_own(annotation: &Annotation, registry: &Registry) -> bool {
    annotation.element("type").is_some_and(|kind| registry.own_stores().has_store(&kind.value.value))
}

/// Creates the store of a table that lives in another system; `None` for one in memory.
///
/// Errors: those of [`tidemill_connect::Catalog::create_store`].
pub fn create(
    table: &catalog::CatalogTable,
    writer: &str,
    catalog: &tidemill_connect::Catalog,
    monitor: &Arc<StoreMonitor>,
) -> Result<Option<Box<dyn TableStore>>, tidemill_connect::OptionError> {
    let Some(location) = &table.store else { return Ok(None) };
    catalog.create_store(&location.store, &context(table, writer, monitor.clone())).map(Some)
}

/// Returns what the store of a table knows about it.
pub fn context(table: &catalog::CatalogTable, writer: &str, monitor: Arc<StoreMonitor>) -> StoreContext {
    let fields = table.attributes.iter().map(|(name, ty)| Field::new(name.clone(), *ty)).collect();
    let schema = StreamSchema { name: table.name.clone(), fields, key: None, id: vec![], time: None };
    StoreContext {
        table: table.name.clone(),
        writer: writer.to_owned(),
        schema: Arc::new(schema),
        primary_key: table.primary_key.clone(),
        indexes: table.indexes.clone(),
        special_indexes: table.special_indexes.clone(),
        long_texts: table.long_texts.clone(),
        monitor,
    }
}

fn cache(annotation: &Annotation) -> Result<CacheConfig, Diagnostic> {
    let mut config = CacheConfig { rows_max: CACHE_ROWS, policy: CachePolicy::Fifo, retention_ms: None };
    for element in annotation.elements() {
        let (name, value) = (element.key.as_ref().map_or("", |key| key.value.as_str()), &element.value.value);
        let wrong = |expected: &str| {
            let message = format!("`{name}`: expected {expected}, found `{value}`");
            Diagnostic::error("F0818", element.span, message)
        };
        let duration = || {
            let duration = parse_duration(value).ok_or_else(|| wrong("a duration such as `5 min`"))?;
            Ok(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
        };
        match name.to_ascii_lowercase().as_str() {
            "size" => {
                let rows = value.trim().parse().ok().filter(|rows| (1..=1 << 30).contains(rows));
                config.rows_max = rows.ok_or_else(|| wrong("a number of rows from 1"))?;
            }
            "policy" | "cache.policy" => {
                config.policy = match one_of(&["FIFO", "LRU", "LFU"], element)? {
                    "LRU" => CachePolicy::Lru,
                    "LFU" => CachePolicy::Lfu,
                    _ => CachePolicy::Fifo,
                }
            }
            "retention" | "retention.period" => config.retention_ms = Some(duration()?),
            // old rows are not used, whenever they go
            "purge.interval" => drop(duration()?),
            _ => {
                let message = format!("`@cache` has no option `{name}`");
                return Err(Diagnostic::error("F0818", element.span, message).expected([
                    "size",
                    "policy",
                    "retention.period",
                    "purge.interval",
                ]));
            }
        }
    }
    Ok(config)
}
