//! Compilation of windows in queries and definitions.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{self, ExprKind};

use crate::catalog::Attributes;
use crate::compile::compiler::{Compiler, Scope, expanded_args};
use crate::registry::{Attribute, Parameter, Registry, WindowInput};
use crate::window::WindowConstructor;

pub(crate) fn make_window(
    call: &ast::Call,
    stream: &str,
    (attributes, selected): (&Attributes, Option<&[usize]>),
    scope: &mut dyn Scope,
    registry: &Registry,
) -> Result<WindowConstructor, Diagnostic> {
    let mut parameters = Vec::new();
    for argument in expanded_args(call, scope)?.iter() {
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
    let name = crate::compile::compiler::call_name(call);
    let attributes: Vec<Attribute> = attributes
        .iter()
        .enumerate()
        .map(|(column, (name, ty))| Attribute { name: name.clone(), ty: *ty, column })
        .collect();
    let source = WindowInput { names: &[stream], attributes: &attributes, selected, registry };
    let build = registry.find_window(&name).map_err(|e| Diagnostic::error("F0406", call.name.span, e))?;
    build(&parameters, &source).map_err(|e| Diagnostic::error("F0407", call.span, format!("{name}: {e}")))
}
