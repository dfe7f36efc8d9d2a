//! What events meet before a query selects: filters, stream functions, windows.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{self, ExprKind, HandlerKind};

use crate::catalog::{self, Attributes};
use crate::expr::{Compiler, Scope};
use crate::query::Handler;
use crate::registry::Registry;
use crate::scope::Single;
use crate::window::{self, MakeWindow, Parameter};

/// Compiles filters and stream functions; `attributes` grows by what functions add.
pub(crate) fn handlers(
    handlers: &[ast::Handler],
    stream: &str,
    attributes: &mut Attributes,
    tables: &[catalog::Table],
    registry: &Registry,
) -> Result<Vec<Handler>, Diagnostic> {
    let mut compiled = Vec::with_capacity(handlers.len());
    for handler in handlers {
        let mut scope = Single { stream, attributes, tables };
        let mut compiler = Compiler { scope: &mut scope, registry, aggregates: None };
        match &handler.kind {
            HandlerKind::Filter(condition) => {
                compiled.push(Handler::Filter(compiler.condition(condition, "a filter")?));
            }
            HandlerKind::Function(call) => {
                let args =
                    call.args.list().iter().map(|a| compiler.compile(a)).collect::<Result<Vec<_>, _>>()?;
                let name = crate::expr::compile::call_name(call);
                let build = registry.find_stream_function(&name);
                let build = build.map_err(|e| Diagnostic::error("F0415", call.name.span, e))?;
                let (function, added) = build(&crate::expr::compile::describe(&args))
                    .map_err(|e| Diagnostic::error("F0416", call.span, e))?;
                for (name, _) in &added {
                    if attributes.iter().any(|(known, _)| known == name) {
                        let message = format!("`{stream}` has an attribute `{name}` already");
                        return Err(Diagnostic::error("F0417", call.span, message));
                    }
                }
                let types = added.iter().map(|(_, ty)| *ty).collect();
                attributes.extend(added);
                compiled.push(Handler::Function(function, args, types));
            }
        }
    }
    Ok(compiled)
}

pub(crate) fn make_window(
    call: &ast::Call,
    stream: &str,
    attributes: &Attributes,
    scope: &mut dyn Scope,
    registry: &Registry,
) -> Result<MakeWindow, Diagnostic> {
    let mut parameters = Vec::new();
    for argument in call.args.list() {
        let mut compiler = Compiler { scope: &mut *scope, registry, aggregates: None };
        let attribute = match &argument.kind {
            ExprKind::Attribute(a) => Some(a.name.name.clone()),
            _ => None,
        };
        parameters.push(Parameter {
            expr: compiler.compile(argument)?,
            attribute,
            text: argument.to_string(),
        });
    }
    let name = crate::expr::compile::call_name(call);
    let attributes: Vec<window::Attribute> = attributes
        .iter()
        .enumerate()
        .map(|(column, (name, ty))| window::Attribute { name: name.clone(), ty: *ty, column })
        .collect();
    let source = window::Source { names: &[stream], attributes: &attributes, registry };
    let Some(made) = window::build(&name, &parameters, &source) else {
        let message = format!("there is no window `{name}`{}", window::suggestion(&name));
        return Err(Diagnostic::error("F0406", call.name.span, message));
    };
    made.map_err(|e| Diagnostic::error("F0407", call.span, e))
}
