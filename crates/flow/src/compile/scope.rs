//! Name resolution in the clauses of a query.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{AttributeRef, Ident, SourceRef};
use tidemill_types::did_you_mean;

use crate::catalog::{Attributes, CatalogTable};
use crate::compile::compiler::{ColumnRef, Scope, StepTime};

/// Scope of a query that reads one stream: `a`, `S.a`.
pub struct StreamScope<'a> {
    /// Name of the stream, including a `#` or `!`.
    pub stream: &'a str,
    /// Attributes of the stream, followed by those that stream functions added.
    pub attributes: &'a Attributes,
    /// Tables available to `in`.
    pub tables: &'a [CatalogTable],
}

impl Scope for StreamScope<'_> {
    fn all_names(&self) -> Vec<String> {
        self.attributes.iter().map(|(name, _)| name.clone()).collect()
    }

    fn tables(&self) -> &[CatalogTable] {
        self.tables
    }

    fn attribute(&mut self, attribute: &AttributeRef) -> Result<ColumnRef, Diagnostic> {
        if let Some(source) = &attribute.source {
            let name = crate::catalog::full_name(&source.stream);
            if name != self.stream || source.index.is_some() || source.inner.is_some() {
                return Err(Diagnostic::error(
                    "F0301",
                    source.span,
                    format!("this query does not read `{name}`: it reads `{}`", self.stream),
                ));
            }
        }
        let name = &attribute.name.name;
        match self.attributes.iter().position(|(known, _)| known == name) {
            Some(column) => Ok(ColumnRef { slot: crate::expr::INPUT, column, ty: self.attributes[column].1 }),
            None => Err(unknown(attribute, &format!("`{}`", self.stream), self.attributes)),
        }
    }
}

/// Scope that adds tables to another scope.
pub struct TableScope<'a> {
    /// The other scope.
    pub names: &'a mut dyn Scope,
    /// Tables available to `in`.
    pub tables: &'a [CatalogTable],
}

impl Scope for TableScope<'_> {
    fn all_names(&self) -> Vec<String> {
        self.names.all_names()
    }

    fn attribute(&mut self, attribute: &AttributeRef) -> Result<ColumnRef, Diagnostic> {
        self.names.attribute(attribute)
    }

    fn step(&mut self, step: &SourceRef) -> Option<ColumnRef> {
        self.names.step(step)
    }

    fn bare_step(&mut self, name: &Ident) -> Option<ColumnRef> {
        self.names.bare_step(name)
    }

    fn step_time(&mut self, name: &Ident) -> Option<StepTime> {
        self.names.step_time(name)
    }

    fn tables(&self) -> &[CatalogTable] {
        self.tables
    }
}

/// Scope of `having`: the output columns and, if allowed, the input attributes that no output column hides.
pub struct HavingScope<'a> {
    /// Output columns.
    pub output: &'a Attributes,
    /// Scope of the input.
    pub input: &'a mut dyn Scope,
    /// True if input attributes are allowed.
    pub sees_input: bool,
}

impl Scope for HavingScope<'_> {
    fn all_names(&self) -> Vec<String> {
        match self.sees_input {
            true => self.input.all_names(),
            false => self.output.iter().map(|(name, _)| name.clone()).collect(),
        }
    }

    fn tables(&self) -> &[CatalogTable] {
        self.input.tables()
    }

    fn attribute(&mut self, attribute: &AttributeRef) -> Result<ColumnRef, Diagnostic> {
        let name = &attribute.name.name;
        if attribute.source.is_none()
            && let Some(column) = self.output.iter().position(|(known, _)| known == name)
        {
            return Ok(ColumnRef { slot: crate::expr::OUTPUT, column, ty: self.output[column].1 });
        }
        if let (false, Some(source)) = (self.sees_input, &attribute.source) {
            let message = "`having` reads the output columns, by their names without a source";
            return Err(Diagnostic::error("F0303", source.span, message).help(format!("write `{name}`")));
        }
        match self.sees_input {
            true => self.input.attribute(attribute),
            false => Err(unknown(attribute, "the output", self.output)
                .note("`having` can only read the output columns")),
        }
    }

    fn step(&mut self, step: &SourceRef) -> Option<ColumnRef> {
        self.input.step(step).filter(|_| self.sees_input)
    }

    fn bare_step(&mut self, name: &Ident) -> Option<ColumnRef> {
        // a pattern step takes precedence over a column of its name
        self.input.bare_step(name).filter(|_| self.sees_input)
    }

    fn step_time(&mut self, name: &Ident) -> Option<StepTime> {
        self.input.step_time(name).filter(|_| self.sees_input)
    }
}

fn unknown(attribute: &AttributeRef, of: &str, attributes: &Attributes) -> Diagnostic {
    let name = &attribute.name.name;
    if name.eq_ignore_ascii_case("null") && attribute.source.is_none() {
        return Diagnostic::error("F0302", attribute.name.span, "there is no literal for null")
            .help("test with `is null`: `price is null`, `not (price is null)`");
    }
    let hint = did_you_mean(name, attributes.iter().map(|(known, _)| known.as_str()));
    Diagnostic::error("F0302", attribute.name.span, format!("{of} has no attribute `{name}`{hint}"))
}
