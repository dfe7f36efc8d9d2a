//! Compilation of definitions: streams, tables, named windows, triggers, aggregations.

use std::collections::BTreeSet;

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{self, Definition, EventKind};
use tidemill_types::FieldType;

use super::selection::output_events;
use super::{Planner, Trigger};
use crate::aggregation;
use crate::catalog::{self, CatalogStream};
use crate::compile::annotations;
use crate::compile::scope::StreamScope;
use crate::explain::InputText;
use crate::functions::script;
use crate::io;
use crate::io::connector::ConnectedStream;
use crate::named_window::NamedWindowPlan;
use crate::query_input::make_window;
use crate::registry::{Connectors, Registry};
use crate::table;
use tidemill_types::cron::Cron;

/// Registers the functions that the app defines.
///
/// Returns all problems found, in source order, each with the name of its function.
pub(super) fn define_functions(app: &ast::App, registry: &mut Registry) -> Vec<(String, Diagnostic)> {
    let mut names = BTreeSet::new();
    let mut wrong = Vec::new();
    for definition in &app.definitions {
        let Definition::Function(d) = definition else { continue };
        let name = &d.name.name;
        let defined = if names.insert(name.as_str()) {
            script::define(d, registry)
        } else {
            let message = format!("the name `{name}` is already taken by a function");
            Err(Diagnostic::error("F0205", d.name.span, message).help("rename one of them"))
        };
        wrong.extend(defined.err().map(|diagnostic| (name.clone(), diagnostic)));
    }
    wrong
}

impl Planner<'_> {
    pub(super) fn definition(&mut self, definition: &Definition) -> Result<(), Diagnostic> {
        let id = match definition {
            Definition::Stream(d) => Some(&d.id),
            Definition::Table(d) => Some(&d.id),
            Definition::Window(d) => Some(&d.id),
            Definition::Trigger(_) | Definition::Function(_) | Definition::Aggregation(_) => None,
        };
        if let Some(id) = id.filter(|id| id.scope == ast::Scope::Inner) {
            let message = format!("the inner stream `#{}` cannot be defined by `define`", id.name.name);
            return Err(Diagnostic::error("F1007", id.span, message)
                .note("an inner stream belongs to its partition and is defined by the query that inserts into it")
                .help("remove the definition, or the `#`"));
        }
        match definition {
            Definition::Stream(d) => {
                let attributes = catalog::attributes(&d.attributes)?;
                let name = catalog::full_name(&d.id);
                if annotations::has_fault_stream(&d.annotations)? {
                    let mut attributes = attributes.clone();
                    attributes.push(("_error".into(), FieldType::Object));
                    let fault = CatalogStream { name: format!("!{name}"), attributes, span: d.id.span };
                    self.plan.catalog.define(fault)?;
                }
                let (called, columns) = (name.clone(), attributes.clone());
                let stream = self.plan.catalog.define(CatalogStream { name, attributes, span: d.id.span })?;
                annotations::check_stream(&d.annotations)?;
                self.plan.warnings.extend(annotations::misplaced_mappings(&d.annotations));
                let connectors = self.registry.connectors();
                let stream = ConnectedStream { index: stream, name: &called, attributes: &columns };
                self.plan.sources.extend(io::sources(&d.annotations, &stream, connectors)?);
                let app = self.plan.name.as_deref();
                self.plan.sinks.extend(io::sinks(&d.annotations, &stream, app, connectors)?);
                let catalog = match connectors {
                    Connectors::Ignored(_) => return Ok(()),
                    Connectors::Refused => None,
                    Connectors::Catalog(catalog) => Some(&**catalog),
                };
                let files = io::FileRoute { catalog, playback: self.plan.playback };
                let (index, columns) = (stream.index, stream.attributes);
                self.plan.file_sources.extend(io::file::sources(&d.annotations, index, columns, &files)?);
                self.plan.file_sinks.extend(io::file::sinks(&d.annotations, index, &files)?);
                if let Some(catalog) = catalog {
                    let open = self.registry.takes_open_values().then_some(&mut self.plan.warnings);
                    let compiled = io::connector::compile(&d.annotations, &stream, catalog, &files, open)?;
                    self.plan.connectors.extend(compiled);
                }
                Ok(())
            }
            Definition::Trigger(d) => {
                let at = match &d.at {
                    ast::TriggerAt::Every(time) => Trigger::Every(time.ms),
                    ast::TriggerAt::Text(text) if text.value.trim().eq_ignore_ascii_case("start") => {
                        Trigger::Start
                    }
                    ast::TriggerAt::Text(text) => Trigger::Cron(
                        Cron::parse(&text.value).map_err(|e| Diagnostic::error("F0414", text.span, e))?,
                    ),
                };
                let attributes = vec![("triggered_time".to_owned(), FieldType::Long)];
                let stream = CatalogStream { name: d.name.name.clone(), attributes, span: d.name.span };
                let stream = self.plan.catalog.define(stream)?;
                if self.plan.triggers.iter().any(|(known, _)| *known == stream) {
                    let message = format!("the name `{}` is already taken by a trigger", d.name.name);
                    return Err(Diagnostic::error("F0205", d.name.span, message).help("rename one of them"));
                }
                self.plan.triggers.push((stream, at));
                Ok(())
            }
            Definition::Table(d) => {
                self.plan.catalog.define_table(table::compile_definition(d, self.registry)?)
            }
            Definition::Window(d) => {
                let attributes = catalog::attributes(&d.attributes)?;
                let name = catalog::full_name(&d.id);
                let mut scope = StreamScope { stream: &name, attributes: &attributes, tables: &[] };
                let make = make_window(&d.window, &name, (&attributes, None), &mut scope, self.registry)?;
                let columns = attributes.iter().map(|(_, ty)| *ty).collect();
                let written = InputText::of_window(&d.window, &name, &attributes).into();
                let stream = CatalogStream { name, attributes, span: d.id.span };
                let stream = self.plan.catalog.define_window(stream)?;
                let output = output_events(Some(d.output.map_or(EventKind::All, |k| k.kind)));
                self.plan.windows.push(NamedWindowPlan {
                    stream,
                    columns,
                    make,
                    output,
                    source_text: written,
                });
                Ok(())
            }
            // before all others, see `define_functions`
            Definition::Function(_) => Ok(()),
            Definition::Aggregation(d) => {
                let plan = aggregation::compile_definition(d, &self.plan.catalog, self.registry)?;
                self.plan.catalog.define_aggregation(plan)
            }
        }
    }
}
