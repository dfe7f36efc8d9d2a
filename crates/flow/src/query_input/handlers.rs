//! Compilation of filters and stream functions.

use tidemill_lang::siddhi::ast::{self, HandlerKind};
use tidemill_lang::{Diagnostic, Span};

use crate::catalog::{Attributes, CatalogTable};
use crate::compile::compiler::{Compiler, call_name, describe};
use crate::compile::scope::StreamScope;
use crate::expr::Expr;
use crate::processor::{AggregateFilter, Handler, ProcessorPlan, StatefulHandler};
use crate::registry::{AggregateCall, CallSite, Registry};

/// Compiles the handlers of a query that reads one stream; appends the attributes that functions add to
/// `attributes`.
pub(crate) fn compile(
    handlers: &[ast::Handler],
    stream: &str,
    attributes: &mut Attributes,
    tables: &[CatalogTable],
    registry: &Registry,
) -> Result<Vec<Handler>, Diagnostic> {
    handlers.iter().map(|h| HandlerCompiler { stream, tables, registry }.handler(h, attributes)).collect()
}

/// Compiles handlers where stateful ones are not supported.
///
/// Errors: also that a handler is stateful.
pub(crate) fn stateless(
    handlers: &[ast::Handler],
    stream: &str,
    attributes: &mut Attributes,
    tables: &[CatalogTable],
    registry: &Registry,
) -> Result<Vec<Handler>, Diagnostic> {
    let compiled = compile(handlers, stream, attributes, tables, registry)?;
    match handlers.iter().zip(&compiled).find(|(_, c)| matches!(c, Handler::Stateful(_))) {
        None => Ok(compiled),
        Some((handler, _)) => {
            let what = match &handler.kind {
                HandlerKind::Filter(_) => "a filter with aggregates".to_owned(),
                HandlerKind::Function(call) => format!("`#{}`", call_name(call)),
            };
            Err(Diagnostic::error("F0418", handler.span, format!("{what} is not allowed here"))
                .help("let an earlier query apply it and insert into a stream, then read that stream"))
        }
    }
}

/// Returns the name of an argument that is a plain attribute.
fn attribute_of(arg: &ast::Expr) -> Option<&str> {
    match &arg.kind {
        ast::ExprKind::Attribute(attribute) => Some(attribute.name.name.as_str()),
        _ => None,
    }
}

struct HandlerCompiler<'a> {
    stream: &'a str,
    tables: &'a [CatalogTable],
    registry: &'a Registry,
}

impl HandlerCompiler<'_> {
    fn handler(&self, handler: &ast::Handler, attributes: &mut Attributes) -> Result<Handler, Diagnostic> {
        match &handler.kind {
            HandlerKind::Filter(condition) => self.filter(condition, attributes),
            HandlerKind::Function(call) => self.function(call, attributes),
        }
    }

    fn filter(&self, condition: &ast::Expr, attributes: &Attributes) -> Result<Handler, Diagnostic> {
        let mut scope = StreamScope { stream: self.stream, attributes, tables: self.tables };
        let mut aggregates: Vec<AggregateCall> = Vec::new();
        let mut compiler = Compiler {
            scope: &mut scope,
            registry: self.registry,
            aggregates: Some((&mut aggregates, crate::expr::AGGREGATES)),
        };
        let condition = compiler.condition(condition, "a filter")?;
        Ok(match aggregates.is_empty() {
            true => Handler::Filter(condition),
            false => Handler::Stateful(StatefulHandler::Filter(AggregateFilter {
                condition,
                aggregates: aggregates.into(),
            })),
        })
    }

    fn function(&self, call: &ast::Call, attributes: &mut Attributes) -> Result<Handler, Diagnostic> {
        let args = self.args(call, attributes)?;
        let name = call_name(call);
        let described = describe(&args);
        let wrong = |e: String| Diagnostic::error("F0416", call.span, e);
        if let Some(build) = self.registry.find_stream_processor(&name) {
            let (make, added) = build(&described).map_err(wrong)?;
            let types = added.iter().map(|(_, ty)| *ty).collect();
            self.add(added, attributes, call.span)?;
            return Ok(Handler::Stateful(StatefulHandler::Processor(ProcessorPlan {
                make,
                args,
                added: types,
            })));
        }
        let (function, added) = match self.registry.find_call_site_function(&name) {
            Some(build) => {
                let names = call.args.list().iter().map(attribute_of).collect();
                build(&CallSite { args: &described, names, attributes }).map_err(wrong)?
            }
            None => {
                let build = self.registry.find_stream_function(&name);
                let build = build.map_err(|e| Diagnostic::error("F0415", call.name.span, e))?;
                build(&described).map_err(wrong)?
            }
        };
        if self.registry.is_replayable_only() && function.has_side_effects() {
            return Err(crate::compile::compiler::not_repeatable(
                call.span,
                &format!("`#{name}` would repeat its side effects"),
            ));
        }
        let types = added.iter().map(|(_, ty)| *ty).collect();
        self.add(added, attributes, call.span)?;
        Ok(Handler::Function(function, args, types))
    }

    fn args(&self, call: &ast::Call, attributes: &Attributes) -> Result<Vec<Expr>, Diagnostic> {
        let mut scope = StreamScope { stream: self.stream, attributes, tables: self.tables };
        let mut compiler = Compiler { scope: &mut scope, registry: self.registry, aggregates: None };
        compiler.args(call)
    }

    /// Adds attributes. Errors: one of these names exists.
    fn add(&self, added: Attributes, to: &mut Attributes, span: Span) -> Result<(), Diagnostic> {
        for (name, ty) in added {
            if to.iter().any(|(known, _)| *known == name) {
                let message = format!("`{}` already has an attribute `{name}`", self.stream);
                return Err(Diagnostic::error("F0417", span, message)
                    .help(format!("let an earlier query select `{name}` under another name")));
            }
            to.push((name, ty));
        }
        Ok(())
    }
}
