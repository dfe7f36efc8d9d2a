//! Compilation of `@store` of an aggregation: the tables of its granularities and their columns.
//!
//! A row has what readers want, and what its accumulators are restored from:
//!
//! ```text
//! AGG_TIMESTAMP  symbol │ avgPrice  total │ AGG_SUM_price  AGG_COUNT_price
//! primary key           │ selected        │ accumulators
//! ```

use tidemill_lang::siddhi::ast::{Annotation, PeriodUnit};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::FieldType;

use crate::catalog::{
    AGG_TIMESTAMP, AccumulatorColumns, AccumulatorKind, AccumulatorSpec, AggregationStore, Attributes,
    Catalog, CatalogTable, ROW, StoredColumn,
};
use crate::expr::{Expr, Node};
use crate::registry::Registry;
use crate::table::{StoredElement, compile_location};

/// Column with the time of the latest event of a row.
const LAST_EVENT_TIME: &str = "AGG_LAST_EVENT_TIMESTAMP";

/// Parts of an aggregation that determine its stored rows.
pub(super) struct StoredParts<'a> {
    pub(super) name: &'a str,
    pub(super) span: Span,
    /// Attributes of the events.
    pub(super) attributes: &'a Attributes,
    pub(super) group_by: &'a [(usize, FieldType)],
    pub(super) units: &'a [PeriodUnit],
    pub(super) args: &'a [Expr],
    pub(super) accumulators: &'a [AccumulatorSpec],
    pub(super) items: &'a [(String, Expr)],
}

/// Compiles `@store`. Returns `None` without it, and if connections to the outside are left out.
///
/// Errors: those of a table's store; two columns would have one name; a group cannot be part of a key.
pub(super) fn compile(
    annotations: &[Annotation],
    parts: &StoredParts<'_>,
    catalog: &Catalog,
    registry: &Registry,
) -> Result<Option<AggregationStore>, Diagnostic> {
    let Some(annotation) = annotations.iter().find(|annotation| annotation.is("store")) else {
        return Ok(None);
    };
    let object = parts.group_by.iter().find(|(_, ty)| *ty == FieldType::Object);
    if let Some((column, _)) = object {
        let message = format!(
            "`{}` is an object, which cannot be part of the primary key of the stored rows",
            parts.attributes[*column].0
        );
        return Err(Diagnostic::error("F0730", annotation.span, message)
            .note_at(parts.span, "it is in `group by` here")
            .help("group by strings, numbers or bools, or remove `@store`"));
    }
    let mut layout = Layout::default();
    layout.add_all(parts, annotation)?;
    let (accumulators, last_event_time) = (layout.accumulators, layout.last_event_time);
    let primary_key: Vec<usize> = (0..=parts.group_by.len()).collect();
    let mut tables = Vec::with_capacity(parts.units.len());
    for unit in parts.units {
        let suffix = table_suffix(*unit);
        let name = format!("{}_{suffix}", parts.name);
        if let Some(table) = catalog.tables().iter().find(|table| table.name == name) {
            let message = format!("the name `{name}` is already taken by a table");
            return Err(Diagnostic::error("F0205", parts.span, message)
                .note_at(table.span, "it is defined here")
                .note(format!("the store of `{}` has its buckets of this granularity in it", parts.name))
                .help("rename one of them"));
        }
        let mut table = CatalogTable {
            name,
            attributes: layout.attributes.clone(),
            primary_key: primary_key.clone(),
            // for stores whose key does not index its columns
            indexes: if parts.group_by.is_empty() { vec![] } else { vec![0] },
            special_indexes: vec![],
            long_texts: layout.long_texts.clone(),
            store: None,
            span: parts.span,
        };
        let location = compile_location(annotation, &table, StoredElement::Aggregation, registry)?;
        let Some(mut location) = location else { return Ok(None) };
        let stores = match location.is_own {
            true => Some(registry.own_stores()),
            false => registry.connectors().catalog(),
        };
        let store_type = stores.and_then(|stores| stores.store_type(&location.store.kind));
        if store_type.is_some_and(|store_type| !store_type.finds_ranges()) {
            let kind = &location.store.kind;
            let message = format!(
                "the store `{kind}` cannot keep an aggregation: it finds rows by equal values, not by ranges of time"
            );
            let others =
                stores.into_iter().flat_map(|stores| stores.stores()).filter(|other| other.finds_ranges());
            let others = registry.own_stores().stores().chain(others);
            let others: Vec<String> = others.map(|other| format!("type='{}'", other.name())).collect();
            return Err(Diagnostic::error("F0731", annotation.span, message).help(format!(
                "write {}, or let a query insert the rows of the aggregation into a table with this store",
                others.join(" or ")
            )));
        }
        let renamed = store_type.and_then(|store_type| store_type.table_option());
        for (option, value) in &mut location.store.options {
            if renamed.is_some_and(|renamed| option.eq_ignore_ascii_case(renamed)) {
                *value = format!("{}_{suffix}", value.trim());
            }
        }
        table.store = Some(location);
        tables.push(table);
    }
    Ok(Some(AggregationStore { tables, columns: layout.columns, accumulators, last_event_time }))
}

/// Returns the end of the name of a granularity's table, after that of the aggregation.
fn table_suffix(unit: PeriodUnit) -> &'static str {
    match unit {
        PeriodUnit::Second => "SECONDS",
        PeriodUnit::Minute => "MINUTES",
        PeriodUnit::Hour => "HOURS",
        PeriodUnit::Day => "DAYS",
        PeriodUnit::Week => "WEEKS",
        PeriodUnit::Month => "MONTHS",
        PeriodUnit::Year => "YEARS",
    }
}

/// Columns of the tables.
#[derive(Default)]
struct Layout {
    attributes: Attributes,
    columns: Vec<StoredColumn>,
    long_texts: Vec<usize>,
    accumulators: Vec<AccumulatorColumns>,
    last_event_time: Option<usize>,
}

impl Layout {
    fn add_all(&mut self, parts: &StoredParts<'_>, annotation: &Annotation) -> Result<(), Diagnostic> {
        self.push(AGG_TIMESTAMP.to_owned(), FieldType::Long, StoredColumn::BucketStart);
        let groups = parts.group_by.len();
        for (group, (column, ty)) in parts.group_by.iter().enumerate() {
            self.push(parts.attributes[*column].0.clone(), *ty, StoredColumn::Group(group));
        }
        for (item, (name, expr)) in parts.items.iter().enumerate() {
            let of = row_column(expr);
            let known = self.attributes.iter().position(|(known, _)| known == name);
            match (known, of) {
                // a group that is selected under its name
                (Some(known), Some(of)) if of < groups && known == of + 1 => {}
                (Some(_), _) => return Err(conflict(name, parts, annotation)),
                // the latest value is all that its accumulator needs
                (None, Some(of)) if of >= groups && is_last(parts, of - groups) => {
                    self.push(name.clone(), expr.ty, StoredColumn::Accumulator(of - groups));
                }
                (None, _) => self.push(name.clone(), expr.ty, StoredColumn::Item(item)),
            }
        }
        for number in 0..parts.accumulators.len() {
            let columns = self.add_accumulator(number, parts, annotation)?;
            self.accumulators.push(columns);
        }
        Ok(())
    }

    /// Adds the columns of an accumulator, unless an equal one has them already.
    fn add_accumulator(
        &mut self,
        number: usize,
        parts: &StoredParts<'_>,
        annotation: &Annotation,
    ) -> Result<AccumulatorColumns, Diagnostic> {
        let AccumulatorSpec { kind, arg, ty } = parts.accumulators[number];
        let arg_expr = arg.map(|arg| &parts.args[arg]);
        let of = match arg_expr.map(|arg| (&arg.node, arg.ty)) {
            None => String::new(),
            Some((Node::Column { column, .. }, _)) => format!("_{}", parts.attributes[*column].0),
            Some(_) => format!("_{}", number + 1),
        };
        let whole = arg_expr.is_some_and(|arg| matches!(arg.ty, FieldType::Int | FieldType::Long));
        let (name, ty) = match kind {
            AccumulatorKind::Count => ("AGG_COUNT".to_owned(), ty),
            AccumulatorKind::IntegerSum | AccumulatorKind::FloatSum => (format!("AGG_SUM{of}"), ty),
            // the sum of whole numbers is a long, that of their mean a double
            AccumulatorKind::Avg if whole => (format!("AGG_DOUBLE_SUM{of}"), ty),
            AccumulatorKind::Avg => (format!("AGG_SUM{of}"), ty),
            AccumulatorKind::Min => (format!("AGG_MIN{of}"), ty),
            AccumulatorKind::Max => (format!("AGG_MAX{of}"), ty),
            AccumulatorKind::DistinctCount => (format!("AGG_SET{of}"), FieldType::String),
            AccumulatorKind::Last => (format!("AGG_LAST{of}"), ty),
        };
        if kind == AccumulatorKind::Last && self.last_event_time.is_none() {
            let column = StoredColumn::LastEventTime(number);
            let added = self.add(LAST_EVENT_TIME.to_owned(), FieldType::Long, column, parts, annotation)?;
            self.last_event_time = Some(added);
        }
        let selected = self.columns.iter().position(|column| *column == StoredColumn::Accumulator(number));
        let value = match selected {
            Some(selected) => selected,
            None => self.add(name, ty, StoredColumn::Accumulator(number), parts, annotation)?,
        };
        if kind == AccumulatorKind::DistinctCount {
            self.long_texts.push(value);
        }
        let is_sum =
            matches!(kind, AccumulatorKind::IntegerSum | AccumulatorKind::FloatSum | AccumulatorKind::Avg);
        let count = match is_sum {
            true => {
                let (name, column) = (format!("AGG_COUNT{of}"), StoredColumn::ValueCount(number));
                Some(self.add(name, FieldType::Long, column, parts, annotation)?)
            }
            false => None,
        };
        Ok(AccumulatorColumns { value, count })
    }

    /// Adds a column that readers do not select. One with this name for the same purpose is shared.
    fn add(
        &mut self,
        name: String,
        ty: FieldType,
        column: StoredColumn,
        parts: &StoredParts<'_>,
        annotation: &Annotation,
    ) -> Result<usize, Diagnostic> {
        match self.attributes.iter().position(|(known, _)| *known == name) {
            None => {
                self.push(name, ty, column);
                Ok(self.columns.len() - 1)
            }
            Some(known) if is_shared(self.columns[known], column, parts) => Ok(known),
            Some(_) => Err(conflict(&name, parts, annotation)),
        }
    }

    fn push(&mut self, name: String, ty: FieldType, column: StoredColumn) {
        self.attributes.push((name, ty));
        self.columns.push(column);
    }
}

/// Returns whether two columns with one name have the same contents: those of accumulators do.
fn is_shared(a: StoredColumn, b: StoredColumn, parts: &StoredParts<'_>) -> bool {
    match (a, b) {
        // a latest value can have the name of a selected column
        (StoredColumn::Accumulator(a), StoredColumn::Accumulator(b)) => {
            is_last(parts, a) == is_last(parts, b) && same_argument(parts, a, b)
        }
        (StoredColumn::ValueCount(a), StoredColumn::ValueCount(b)) => same_argument(parts, a, b),
        _ => false,
    }
}

fn same_argument(parts: &StoredParts<'_>, a: usize, b: usize) -> bool {
    let column =
        |accumulator: usize| match parts.accumulators[accumulator].arg.map(|arg| &parts.args[arg].node) {
            None => Some(None),
            Some(Node::Column { column, .. }) => Some(Some(*column)),
            Some(_) => None,
        };
    column(a).is_some_and(|a| Some(a) == column(b))
}

fn is_last(parts: &StoredParts<'_>, accumulator: usize) -> bool {
    parts.accumulators[accumulator].kind == AccumulatorKind::Last
}

/// Returns the column of a bucket's row that an item is, without a computation.
fn row_column(item: &Expr) -> Option<usize> {
    match item.node {
        Node::Column { slot: ROW, column } => Some(column),
        _ => None,
    }
}

fn conflict(name: &str, parts: &StoredParts<'_>, annotation: &Annotation) -> Diagnostic {
    let message = format!("two columns of the stored rows of `{}` would have the name `{name}`", parts.name);
    Diagnostic::error("F0729", annotation.span, message)
        .note_at(parts.span, "the aggregation is defined here")
        .note("a row has the attributes of `group by`, the selected columns, and columns that begin with `AGG_`")
        .help(format!("select it under another name: `… as NAME` instead of `{name}`"))
}
