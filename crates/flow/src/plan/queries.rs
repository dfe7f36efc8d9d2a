//! Compilation of queries: input, selection and output.

use std::sync::Arc;

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{self, Annotation, Input, OutputAction, SelectItems};

use super::Planner;
use super::selection::{rate, selection};
use crate::catalog::{Attributes, CatalogStream};
use crate::compile::annotations;
use crate::compile::scope::{StreamScope, TableScope};
use crate::explain::{InputText, QueryText};
use crate::join;
use crate::pattern::{self, PatternScope};
use crate::query::{QueryPlan, Target};
use crate::query_input::{handlers, make_window};
use crate::select;
use crate::table;

impl Planner<'_> {
    pub(super) fn query(&mut self, query: &ast::Query) -> Result<QueryPlan, Diagnostic> {
        self.plan.warnings.extend(crate::stream_functions::without_effect(query));
        if self.registry.takes_open_values() {
            let known = &self.registry.connection_settings().datasources;
            self.plan.warnings.extend(crate::stream_functions::unknown_data_sources(query, known));
        }
        let input = match &query.input {
            Input::Stream(input) => input,
            Input::Join(join) => return self.join(query, join),
            Input::State(state) => return self.state(query, state),
            Input::Nested(nested) => {
                return Err(Diagnostic::error(
                    "F0403",
                    nested.span,
                    "a query inside `from` is not supported",
                )
                .help("let the inner query insert into a stream, and read that stream"));
            }
        };
        let stream = self.plan.catalog.read(&input.stream)?;
        let CatalogStream { name, mut attributes, .. } = self.plan.catalog.streams()[stream].clone();
        let registry = self.registry;
        let tables = self.plan.catalog.tables();
        let read = attributes.iter().map(|(_, ty)| *ty).collect();
        let before = handlers(&input.handlers, &name, &mut attributes, tables, registry)?;
        let columns = attributes.iter().map(|(_, ty)| *ty).collect();
        let side = InputText::of(input, &name, &attributes);
        let selected = selected_columns(query, &name, &attributes);
        let window = match &input.window {
            Some(window) if self.plan.catalog.window(stream).is_some() => {
                return Err(join::no_window_on_window(&name, window.span));
            }
            Some(window) => {
                let mut scope = StreamScope { stream: &name, attributes: &attributes, tables };
                Some(make_window(
                    &window.call,
                    &name,
                    (&attributes, selected.as_deref()),
                    &mut scope,
                    registry,
                )?)
            }
            None => None,
        };
        let after = handlers(&input.after, &name, &mut attributes, tables, registry)?;
        let mut scope = StreamScope { stream: &name, attributes: &attributes, tables };
        let select = selection(query, &attributes, &mut scope, false, registry)?;
        let reads_window = self.plan.catalog.window(stream).is_some();
        let written = QueryText { input: side, ..QueryText::of(query) }.into();
        let plan = QueryPlan {
            source_text: written,
            stream,
            read,
            columns,
            before,
            window,
            after,
            reads_window,
            ..QueryPlan::select_only(select)
        };
        self.output(query, plan)
    }

    /// Compiles a pattern or a sequence.
    fn state(&mut self, query: &ast::Query, input: &ast::StateInput) -> Result<QueryPlan, Diagnostic> {
        let (mut pattern, steps) = pattern::compile(input, &self.plan.catalog, self.registry)?;
        let mut references = Vec::new();
        let mut scope =
            PatternScope { steps: &steps, own: None, known: steps.len(), references: &mut references };
        let all = match query.select.as_ref().map(|c| &c.items) {
            None | Some(SelectItems::All(_)) => scope.all_attributes(),
            Some(SelectItems::List(_)) => vec![],
        };
        let twice =
            all.iter().enumerate().find(|(i, (name, _))| all[..*i].iter().any(|(known, _)| known == name));
        if let Some((_, (name, _))) = twice {
            let span = query.select.as_ref().map_or(input.span, |c| c.span);
            let message =
                format!("several steps have an attribute `{name}`: list the attributes in `select`");
            return Err(Diagnostic::error("F0504", span, message));
        }
        let mut scope = TableScope { names: &mut scope, tables: self.plan.catalog.tables() };
        let mut select = selection(query, &all, &mut scope, true, self.registry)?;
        select.without_order();
        let stream = pattern.steps.first().map_or(0, |s| s.stream);
        pattern.columns = references;
        let written = QueryText::of(query).into();
        let plan = QueryPlan {
            stream,
            state: Some(Arc::new(pattern)),
            source_text: written,
            ..QueryPlan::select_only(select)
        };
        self.output(query, plan)
    }

    fn join(&mut self, query: &ast::Query, input: &ast::JoinInput) -> Result<QueryPlan, Diagnostic> {
        let join = join::compile(input, &self.plan.catalog, self.registry)?;
        let all = join.all_columns(query)?;
        let mut scope = join.scope(self.plan.catalog.tables());
        let mut select = selection(query, &all, &mut scope, true, self.registry)?;
        let sides = join.side_texts(input);
        let on = input.on.as_ref().map(ToString::to_string).unwrap_or_default();
        let written = QueryText { sides, on, ..QueryText::of(query) }.into();
        let join = join.prune_columns(&mut select);
        self.output(
            query,
            QueryPlan { join: Some(Arc::new(join)), source_text: written, ..QueryPlan::select_only(select) },
        )
    }

    /// Compiles the output target of a query.
    fn target(&mut self, output: &ast::Output, select: &select::SelectPlan) -> Result<Target, Diagnostic> {
        let written: Attributes =
            select.outputs().iter().map(|(name, expr)| (name.clone(), expr.ty)).collect();
        let tables = self.plan.catalog.tables();
        let action = table::compile_action(output, &written, tables, self.registry);
        if let Some((table, action)) = action.map_err(|d| self.not_a_table(output, d))? {
            return Ok(Target::Table(table, Box::new(action)));
        }
        let OutputAction::Insert { target } = &output.action else {
            let message = "`return` is not supported in a query of an app";
            return Err(
                Diagnostic::error("F0404", output.span, message).help("write `insert into` and a stream")
            );
        };
        let stream = self.plan.catalog.write(target, &written)?;
        if self.plan.catalog.is_inner(stream) {
            return Ok(Target::Inner(stream));
        }
        Ok(self.plan.catalog.window(stream).map_or(Target::Stream(stream), Target::Window))
    }

    /// Improves the error for a stream or window that is used as a table.
    fn not_a_table(&self, output: &ast::Output, diagnostic: Diagnostic) -> Diagnostic {
        let (OutputAction::Delete { table, .. }
        | OutputAction::Update { table, .. }
        | OutputAction::UpdateOrInsert { table, .. }) = &output.action
        else {
            return diagnostic;
        };
        let catalog = &self.plan.catalog;
        let Some(stream) = catalog.find(&table.name).filter(|_| diagnostic.code == "F0806") else {
            return diagnostic;
        };
        let what = if catalog.window(stream).is_some() { "a window" } else { "a stream" };
        let message = format!("there is no table `{}`: it is {what}", table.name);
        Diagnostic::error("F0806", table.span, message)
            .note_at(catalog.streams()[stream].span, "it is defined here")
            .help(format!("define it as a table, or write `insert into {}`", table.name))
    }

    /// Compiles the common end of all queries: rate, target and name.
    fn output(&mut self, query: &ast::Query, mut plan: QueryPlan) -> Result<QueryPlan, Diagnostic> {
        let window = plan.window.is_some() || plan.join.is_some();
        plan.rate = query
            .rate
            .as_ref()
            .map(|r| rate(r, query, Arc::make_mut(&mut plan.select), window))
            .transpose()?;
        plan.target = self.target(&query.output, &plan.select)?;
        plan.name = self.name_of(&query.annotations)?;
        Ok(plan)
    }

    fn name_of(&mut self, annotations: &[Annotation]) -> Result<String, Diagnostic> {
        let given = annotations::at_most_one(annotations, "info")?.and_then(|info| info.element("name"));
        self.queries += 1;
        let Some(given) = given else { return Ok(format!("query {}", self.queries)) };
        let name = &given.value.value;
        match self.names.get(name) {
            None => {
                self.names.insert(name.clone(), given.span);
                Ok(name.clone())
            }
            Some(first) => {
                Err(Diagnostic::error("F0405", given.span, format!("two queries have the name `{name}`"))
                    .note_at(*first, "the first one is here"))
            }
        }
    }
}

/// Returns the attributes that the select list names without an expression; `None` if all are selected.
fn selected_columns(query: &ast::Query, stream: &str, attributes: &Attributes) -> Option<Vec<usize>> {
    let Some(SelectItems::List(items)) = query.select.as_ref().map(|clause| &clause.items) else {
        return None;
    };
    let column = |item: &ast::SelectItem| match &item.expr.kind {
        ast::ExprKind::Attribute(of) if of.source.as_ref().is_none_or(|s| s.stream.name.name == stream) => {
            attributes.iter().position(|(known, _)| *known == of.name.name)
        }
        _ => None,
    };
    Some(items.iter().filter_map(column).collect())
}
