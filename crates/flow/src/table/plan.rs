//! Compilation of table definitions and of output clauses that write tables.

use tidemill_lang::siddhi::ast::{self, Annotation, AttributeRef, OutputAction, TableDefinition};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{FieldType, did_you_mean};

use super::index_options;
use super::location::{self, StoredElement};
use super::{EVENT, ROW, TableAction, index};
use crate::catalog::{self, Attributes, list_attributes};
use crate::compile::compiler::{ColumnRef, Compiler, Scope};
use crate::expr::{Expr, PushedSearch, TableSearch};
use crate::registry::{Connectors, Registry};

/// Compiles a definition.
pub(crate) fn compile_definition(
    d: &TableDefinition,
    registry: &Registry,
) -> Result<catalog::CatalogTable, Diagnostic> {
    let attributes = catalog::attributes(&d.attributes)?;
    let (mut primary_key, mut indexes, mut special_indexes) = (vec![], vec![], vec![]);
    let mut keys = 0;
    let store = d.annotations.iter().find(|annotation| annotation.is("store"));
    // other systems have keys and indexes of more kinds; they matter only if the table is there
    let elsewhere = store.is_some_and(|store| !location::is_own(store, registry))
        && matches!(registry.connectors(), Connectors::Ignored(_));
    for annotation in &d.annotations {
        if annotation.is("primaryKey") {
            keys += 1;
            if keys > 1 {
                return Err(Diagnostic::error(
                    "F0802",
                    annotation.span,
                    "duplicate `@primaryKey`: a table has one primary key",
                ));
            }
            match columns(annotation, &attributes, &mut primary_key) {
                Err(_) if elsewhere => primary_key.clear(),
                checked => checked?,
            }
        } else if annotation.is("index") || annotation.is("indexBy") {
            let several: Vec<_> = annotation.elements().map(|e| e.value.value.trim()).collect();
            // databases have indexes of several columns
            if several.len() > 1 && store.is_none() {
                let name = &annotation.name.name;
                let each: Vec<_> = several.iter().map(|column| format!("@{name}('{column}')")).collect();
                let message = format!("`@{name}` takes one column, found {}", several.len());
                return Err(Diagnostic::error("F0813", annotation.span, message)
                    .help(format!("write an annotation for each: {}", each.join(" "))));
            }
            if let Some(special) = store.and(index_options::parse(annotation, &attributes)) {
                match special {
                    Err(_) if elsewhere => {}
                    special => special_indexes.extend(special?),
                }
                continue;
            }
            let known = indexes.len();
            match columns(annotation, &attributes, &mut indexes) {
                Err(_) if elsewhere => indexes.truncate(known),
                checked => checked?,
            }
        }
    }
    let name = catalog::full_name(&d.id);
    let span = d.id.span;
    let mut table = catalog::CatalogTable {
        name,
        attributes,
        primary_key,
        indexes,
        special_indexes,
        long_texts: vec![],
        store: None,
        span,
    };
    if let Some(annotation) = store {
        table.store = location::compile(annotation, &table, StoredElement::Table, registry)?;
    }
    Ok(table)
}

/// Builds the error for `@store` where there are no other systems.
pub(super) fn store_unsupported(annotation: &Annotation, of: StoredElement) -> Diagnostic {
    let ty = annotation.element("type").map(|e| e.value.value.as_str());
    let (many, one, help) = match of {
        StoredElement::Table => {
            ("tables", "a table", "remove `@store`; `@primaryKey` and `@index` make searches fast")
        }
        StoredElement::Aggregation => ("aggregations", "an aggregation", "remove `@store`"),
    };
    let message = match ty {
        Some(ty) => format!("the store `{ty}` is not supported: {many} are kept in memory"),
        None => format!("`@store` is not supported: {many} are kept in memory"),
    };
    Diagnostic::error("F0801", annotation.span, message)
        .note(format!("the rows of {one} are saved with the state of the app"))
        .help(help)
}

/// Appends the columns that an annotation names to `to`.
fn columns(annotation: &Annotation, of: &Attributes, to: &mut Vec<usize>) -> Result<(), Diagnostic> {
    for element in annotation.elements() {
        let name = element.value.value.trim();
        let column = of.iter().position(|(known, _)| known == name).ok_or_else(|| {
            let hint = did_you_mean(name, of.iter().map(|(known, _)| known.as_str()));
            Diagnostic::error("F0803", element.span, format!("the table has no column `{name}`{hint}"))
        })?;
        if to.contains(&column) {
            return Err(Diagnostic::error("F0804", element.span, format!("duplicate column `{name}`")));
        }
        to.push(column);
    }
    match annotation.elements().next() {
        Some(_) => Ok(()),
        None => {
            let message = format!("`@{}` needs columns", annotation.name.name);
            Err(Diagnostic::error("F0805", annotation.span, message))
        }
    }
}

/// Compiles the table action of a query with output columns `written`; `None` if its output is not a table.
pub(crate) fn compile_action(
    output: &ast::Output,
    written: &Attributes,
    tables: &[catalog::CatalogTable],
    registry: &Registry,
) -> Result<Option<(usize, TableAction)>, Diagnostic> {
    let find = |name: &ast::Ident| {
        tables.iter().position(|t| t.name == name.name).ok_or_else(|| {
            let hint = did_you_mean(&name.name, tables.iter().map(|t| t.name.as_str()));
            Diagnostic::error("F0806", name.span, format!("there is no table `{}`{hint}", name.name))
        })
    };
    let (number, action) = match &output.action {
        OutputAction::Return => return Ok(None),
        OutputAction::Insert { target } => {
            let name = catalog::full_name(target);
            let Some(number) = tables.iter().position(|t| t.name == name) else { return Ok(None) };
            let table = &tables[number];
            check_row_columns(target.span, written, table)?;
            (number, TableAction::Insert)
        }
        OutputAction::Delete { table, on } => {
            let number = find(table)?;
            let mut scope = TargetScope { table: &tables[number], written };
            let on = on.as_ref().map(|on| compile_condition(on, &mut scope, registry)).transpose()?;
            (number, TableAction::Delete(TableSearch::new(on, ROW, &tables[number])))
        }
        OutputAction::Update { table, set, on } => {
            let number = find(table)?;
            let mut scope = TargetScope { table: &tables[number], written };
            let on = compile_condition(on, &mut scope, registry)?;
            let set = assignments(table, set, &mut scope, registry)?;
            let on = TableSearch::new(Some(on), ROW, &tables[number]);
            (number, TableAction::Update { on, set, insert: false })
        }
        OutputAction::UpdateOrInsert { table, set, on } => {
            let number = find(table)?;
            let mut scope = TargetScope { table: &tables[number], written };
            let on = compile_condition(on, &mut scope, registry)?;
            let to = &tables[number];
            // an event that matches no row is inserted unchanged
            check_row_columns(table.span, written, to)?;
            let set = assignments(table, set, &mut scope, registry)?;
            let on = TableSearch::new(Some(on), ROW, to);
            (number, TableAction::Update { on, set, insert: true })
        }
    };
    check_pushed(&action, &tables[number], output)?;
    Ok(Some((number, action)))
}

/// Checks that the store of a table can evaluate an action.
fn check_pushed(
    action: &TableAction,
    table: &catalog::CatalogTable,
    output: &ast::Output,
) -> Result<(), Diagnostic> {
    if table.store.is_none() {
        return Ok(());
    }
    let on = |on: &TableSearch| PushedSearch::of(on.condition.as_ref(), ROW).map(drop);
    let checked = match action {
        TableAction::Insert => Ok(()),
        TableAction::Delete(search) => on(search),
        TableAction::Update { on, set, .. } => super::external::push_update(on, set).map(drop),
    };
    let span = match &output.action {
        OutputAction::Delete { table, .. }
        | OutputAction::Update { table, .. }
        | OutputAction::UpdateOrInsert { table, .. } => table.span,
        OutputAction::Insert { target } => target.span,
        OutputAction::Return => table.span,
    };
    checked.map_err(|what| table.not_pushed(&what, span))
}

fn compile_condition(
    on: &ast::Expr,
    scope: &mut TargetScope<'_>,
    registry: &Registry,
) -> Result<Expr, Diagnostic> {
    Compiler { scope, registry, aggregates: None }.condition(on, "`on`")
}

/// Checks that inserted events have the columns of the table.
fn check_row_columns(
    at: Span,
    written: &Attributes,
    table: &catalog::CatalogTable,
) -> Result<(), Diagnostic> {
    if table.attributes == *written {
        return Ok(());
    }
    let (has, gives) = (list_attributes(&table.attributes), list_attributes(written));
    let message = format!("`{}` has the columns ({has}), but the query selects ({gives})", table.name);
    Err(Diagnostic::error("F0807", at, message)
        .note_at(table.span, "it is defined here")
        .help("names, types and order must match: use `as` for names and convert() for types"))
}

/// Checks that each output column is a column of the table with the same type.
fn check_named_column(
    at: &ast::Ident,
    written: &Attributes,
    table: &catalog::CatalogTable,
) -> Result<(), Diagnostic> {
    for (name, ty) in written {
        let column = table.attributes.iter().find(|(known, _)| known == name);
        match column {
            None => {
                let hint = did_you_mean(name, table.attributes.iter().map(|(known, _)| known.as_str()));
                let message = format!("`{}` has no column `{name}`{hint}", table.name);
                return Err(
                    Diagnostic::error("F0808", at.span, message).note_at(table.span, "it is defined here")
                );
            }
            Some((_, column)) if ty != column => return Err(mismatch(at.span, name, *column, *ty)),
            Some(_) => {}
        }
    }
    Ok(())
}

fn mismatch(span: Span, name: &str, column: FieldType, value: FieldType) -> Diagnostic {
    let message =
        format!("`{name}` has the type {}, but the value has the type {}", column.name(), value.name());
    Diagnostic::error("F0809", span, message).help("convert the value with convert()")
}

/// Returns whether a value may be assigned: numbers convert to the column's type unless they would lose a
/// fraction.
fn assignable(value: FieldType, column: FieldType) -> bool {
    let whole = |ty| matches!(ty, FieldType::Int | FieldType::Long | FieldType::Time);
    let numbers = index::is_number(value) && index::is_number(column);
    value == column || column == FieldType::Object || numbers && (whole(value) || !whole(column))
}

/// Compiles the assignments of `set`, in table order. Without `set`, assigns the columns of equal names.
fn assignments(
    table: &ast::Ident,
    set: &[ast::Assignment],
    scope: &mut TargetScope<'_>,
    registry: &Registry,
) -> Result<Vec<(usize, Expr)>, Diagnostic> {
    let columns = &scope.table.attributes;
    if set.is_empty() {
        check_named_column(table, scope.written, scope.table)?;
        let same = |(column, (name, _)): (usize, &(String, FieldType))| {
            let from = scope.written.iter().position(|(written, _)| written == name)?;
            Some((column, Expr::column(EVENT, from, scope.written[from].1)))
        };
        return Ok(columns.iter().enumerate().filter_map(same).collect());
    }
    let mut all = Vec::with_capacity(set.len());
    for assignment in set {
        let name = &assignment.column.name;
        if let Some(source) = &assignment.column.source
            && source.as_name().is_none_or(|s| s.name != scope.table.name)
        {
            let message = format!("only columns of `{}` can be set", scope.table.name);
            return Err(Diagnostic::error("F0810", source.span, message));
        }
        let column = columns.iter().position(|(known, _)| *known == name.name);
        let column = column.ok_or_else(|| unknown(&assignment.column, &scope.table.name, columns))?;
        let value = Compiler { scope: &mut *scope, registry, aggregates: None }.compile(&assignment.value)?;
        if !assignable(value.ty, columns[column].1) {
            return Err(mismatch(assignment.span, &name.name, columns[column].1, value.ty));
        }
        all.push((column, value));
    }
    all.sort_by_key(|(column, _)| *column);
    Ok(all)
}

/// Scope of `on` and `set`: plain names are output columns of the query, `Table.column` are columns of the
/// table.
struct TargetScope<'a> {
    table: &'a catalog::CatalogTable,
    written: &'a Attributes,
}

impl Scope for TargetScope<'_> {
    fn all_names(&self) -> Vec<String> {
        self.written.iter().map(|(name, _)| name.clone()).collect()
    }

    fn attribute(&mut self, attribute: &AttributeRef) -> Result<ColumnRef, Diagnostic> {
        let (slot, of, columns) = match &attribute.source {
            None => (EVENT, "the query's output", self.written),
            Some(source) => match source.as_name() {
                Some(name) if name.name == self.table.name => {
                    (ROW, name.name.as_str(), &self.table.attributes)
                }
                _ => {
                    let message =
                        format!("only columns of `{}` and of the query are allowed here", self.table.name);
                    return Err(Diagnostic::error("F0811", source.span, message)
                        .note("names without a source are the columns that the query selects"));
                }
            },
        };
        let column = columns.iter().position(|(known, _)| *known == attribute.name.name);
        let column = column.ok_or_else(|| unknown(attribute, of, columns))?;
        Ok(ColumnRef { slot, column, ty: columns[column].1 })
    }
}

fn unknown(attribute: &AttributeRef, of: &str, columns: &Attributes) -> Diagnostic {
    let name = &attribute.name.name;
    let hint = did_you_mean(name, columns.iter().map(|(known, _)| known.as_str()));
    Diagnostic::error("F0812", attribute.name.span, format!("{of} has no column `{name}`{hint}"))
}
