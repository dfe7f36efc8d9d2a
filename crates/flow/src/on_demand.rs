//! On-demand queries: queries that run once, over the current contents of an app.

mod cache;

use std::sync::Arc;

use tidemill_lang::siddhi::ast::{self, OnDemandQuery};
use tidemill_lang::{Diagnostic, FileId, SourceFile, Sources};
use tidemill_types::did_you_mean;

use crate::aggregation::{self};
use crate::app_stores::AppStores;
use crate::catalog::Attributes;
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::compile::compiler::Compiler;
use crate::compile::scope::StreamScope;
use crate::eval_error::EvalError;
use crate::expr::{BucketQuery, EvalContext, Expr, Frame, NoContext, StoreRef};
use crate::plan::{AppPlan, selection};
use crate::registry::Registry;
use crate::select::{self, Selector};
use crate::table;

pub use cache::Cache;

/// A compiled on-demand query.
pub struct OnDemandPlan {
    select: select::SelectPlan,
    what: OnDemandKind,
}

enum OnDemandKind {
    /// Finds rows that satisfy the condition, in which they are slot 0.
    Find(OnDemandSource, Attributes, Option<Expr>),
    /// Changes a table.
    Change(usize, table::TableAction),
}

/// Store that a query reads.
enum OnDemandSource {
    /// A table or named window.
    Rows(StoreRef),
    /// An aggregation, and which of its buckets to read.
    Aggregation(usize, BucketQuery),
}

/// Compiles `text`. Errors: diagnostics, rendered for a terminal.
pub fn compile(text: &str, plan: &AppPlan, registry: &Registry) -> Result<OnDemandPlan, EvalError> {
    let mut sources = Sources::default();
    sources.add("query", text);
    let rendered = |d: &[Diagnostic]| EvalError::request(tidemill_lang::render_all(d, &sources));
    let file = SourceFile::new(FileId(0), "query", text);
    let query = tidemill_lang::siddhi::parse_on_demand(&file).map_err(|d| rendered(&d))?;
    let compiled = match &query {
        OnDemandQuery::Find(query) => compile_find(query, plan, registry),
        OnDemandQuery::Change(query) => compile_change(query, plan, registry),
    };
    compiled.map_err(|d| rendered(&[d]))
}

fn compile_find(
    find: &ast::FindQuery,
    plan: &AppPlan,
    registry: &Registry,
) -> Result<OnDemandPlan, Diagnostic> {
    let name = &find.store.name;
    if let Some(number) = plan.catalog.find_aggregation(name) {
        return compile_aggregation_find(find, number, plan, registry);
    }
    let tables = plan.catalog.tables();
    let table =
        tables.iter().position(|t| t.name == *name).map(|t| (StoreRef::Table(t), &tables[t].attributes));
    let window = || {
        let stream = plan.catalog.find(name)?;
        let window = plan.catalog.window(stream)?;
        Some((StoreRef::Window(window), &plan.catalog.streams()[stream].attributes))
    };
    let Some((place, attributes)) = table.or_else(window) else {
        let aggregations = plan.catalog.aggregations().iter().map(|a| a.name.as_str());
        let hint = did_you_mean(name, tables.iter().map(|t| t.name.as_str()).chain(aggregations));
        let message = format!("there is no table, window or aggregation `{name}`{hint}");
        return Err(Diagnostic::error("F0702", find.store.span, message));
    };
    if let Some(within) = &find.within {
        return Err(Diagnostic::error(
            "F0701",
            within.span,
            "`within` and `per` are only allowed with an aggregation",
        ));
    }
    let (on, select) = clauses(find, attributes, tables, registry)?;
    Ok(OnDemandPlan { select, what: OnDemandKind::Find(OnDemandSource::Rows(place), attributes.clone(), on) })
}

/// Compiles a query of an aggregation.
fn compile_aggregation_find(
    find: &ast::FindQuery,
    number: usize,
    plan: &AppPlan,
    registry: &Registry,
) -> Result<OnDemandPlan, Diagnostic> {
    let of = &plan.catalog.aggregations()[number];
    let Some(within) = &find.within else {
        return Err(aggregation::missing_within(&of.name, find.store.span));
    };
    let attributes = of.attributes();
    let mut scope = StreamScope { stream: &of.name, attributes: &attributes, tables: &[] };
    let read = aggregation::compile_bucket_query(within, of, crate::expr::INPUT, &mut scope, registry)?;
    let (on, select) = clauses(find, &attributes, plan.catalog.tables(), registry)?;
    Ok(OnDemandPlan {
        select,
        what: OnDemandKind::Find(OnDemandSource::Aggregation(number, read), attributes, on),
    })
}

/// Compiles the condition and the selection.
fn clauses(
    find: &ast::FindQuery,
    attributes: &Attributes,
    tables: &[crate::catalog::CatalogTable],
    registry: &Registry,
) -> Result<(Option<Expr>, select::SelectPlan), Diagnostic> {
    let mut scope = StreamScope { stream: &find.store.name, attributes, tables };
    let on = match &find.on {
        Some(on) => Some(Compiler { scope: &mut scope, registry, aggregates: None }.condition(on, "`on`")?),
        None => None,
    };
    let output = ast::Output { action: ast::OutputAction::Return, kind: None, span: find.span };
    let query = as_query(&find.store, find.select.clone(), output);
    Ok((on, selection(&query, attributes, &mut scope, true, registry)?))
}

fn compile_change(
    change: &ast::ChangeQuery,
    plan: &AppPlan,
    registry: &Registry,
) -> Result<OnDemandPlan, Diagnostic> {
    let nothing = ast::Ident { name: String::new(), span: change.span };
    let query = as_query(&nothing, change.select.clone(), change.output.clone());
    let none = Attributes::new();
    let tables = plan.catalog.tables();
    let mut scope = StreamScope { stream: "", attributes: &none, tables };
    let select = selection(&query, &none, &mut scope, false, registry)?;
    let written = select.outputs().iter().map(|(name, expr)| (name.clone(), expr.ty)).collect();
    match table::compile_action(&change.output, &written, tables, registry)? {
        Some((table, action)) => Ok(OnDemandPlan { select, what: OnDemandKind::Change(table, action) }),
        None => {
            Err(Diagnostic::error("F0703", change.output.span, "an on-demand query can only change tables"))
        }
    }
}

/// Returns a stream query with these clauses, as [`selection`] expects.
fn as_query(store: &ast::Ident, select: Option<ast::Selection>, output: ast::Output) -> ast::Query {
    let span = output.span;
    let stream = ast::StreamRef { name: store.clone(), scope: ast::Scope::App, span };
    let input = ast::StreamInput { stream, handlers: vec![], window: None, after: vec![], span };
    ast::Query { annotations: vec![], input: ast::Input::Stream(input), select, rate: None, output, span }
}

impl OnDemandPlan {
    /// Returns whether the query changes a table; otherwise it reads.
    pub fn changes_table(&self) -> bool {
        matches!(self.what, OnDemandKind::Change(..))
    }

    /// Runs the query. Returns the rows found as one chunk; nothing if the query changes a table.
    pub fn run(&self, shared: &mut AppStores, now: i64) -> Result<Batch, EvalError> {
        let mut selector = Selector::new(Arc::new(self.select.clone()), false, false, None);
        match &self.what {
            OnDemandKind::Find(store, attributes, on) => {
                let mut rows = Batch::new(attributes.iter().map(|(_, ty)| *ty));
                let frame = Frame { rows: &[], time: now, now, host: &*shared };
                let mut add = |columns: &[Column], row: usize| {
                    for (column, from) in rows.columns.iter_mut().zip(columns) {
                        column.push_from(from, row);
                    }
                    rows.times.push(now);
                    rows.kinds.push(EventKind::Current);
                };
                let on = on.as_ref();
                match store {
                    OnDemandSource::Rows(place) => {
                        shared.search(*place, crate::expr::INPUT, on, &frame, &mut add)?
                    }
                    OnDemandSource::Aggregation(number, read) => {
                        shared.buckets(*number, read, crate::expr::INPUT, on, &frame, &mut add)?;
                    }
                }
                rows.end_chunk(now);
                selector.process(&rows, &*shared)
            }
            OnDemandKind::Change(table, action) => {
                let mut one = Batch { times: vec![now], kinds: vec![EventKind::Current], ..Batch::default() };
                one.end_chunk(now);
                let given = selector.process(&one, &NoContext)?;
                if let Some(table) = shared.tables.get_mut(*table) {
                    table.apply(action, &given, now)?;
                }
                Ok(Batch::default())
            }
        }
    }
}
