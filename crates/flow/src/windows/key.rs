//! Keys of events: concatenated string forms of values.

use std::fmt::Write as _;

use tidemill_types::FieldType;

use crate::eval_error::EvalError;
use crate::expr::{Expr, Node};
use crate::registry::{Parameter, WindowInput};
use crate::store::RowId;
use crate::window::WindowContext;

/// Computes keys. Reuses one buffer for all events, so that looking up a known key allocates nothing.
#[derive(Clone)]
pub(super) struct KeyEncoder {
    exprs: Vec<Expr>,
    /// Separator between values.
    separator: &'static str,
    text: String,
}

impl KeyEncoder {
    /// Creates an encoder for attributes, or for all selected ones if none is given. As in Siddhi 5.1, values
    /// are not separated: `a` and `bc` make the same key as `ab` and `c`.
    pub(super) fn of_attributes(attributes: &[Parameter], source: &WindowInput<'_>) -> Result<Self, String> {
        for attribute in attributes {
            if attribute.attribute.is_none() {
                return Err(format!("a key must be an attribute, found `{}`", attribute.text));
            }
        }
        let exprs = match attributes {
            [] => {
                let selected = |column: &usize| source.selected.is_none_or(|of| of.contains(column));
                let all = source.attributes.iter().filter(|a| selected(&a.column));
                all.map(|a| Expr::column(0, a.column, a.ty)).collect()
            }
            _ => attributes.iter().map(|a| a.expr.clone()).collect(),
        };
        Ok(Self { exprs, separator: "", text: String::new() })
    }

    /// Creates the encoder of a `unique` window, for any expressions of the event. Errors: an object or a
    /// constant.
    pub(super) fn unique(keys: &[Parameter]) -> Result<Self, String> {
        match keys.iter().find(|key| key.expr.as_const().is_some()) {
            Some(key) => Err(format!("a constant cannot be a key, found `{}`", key.text)),
            None => Self::unique_or_constant(keys),
        }
    }

    /// Creates an encoder as [`Self::unique`] does, but accepts constants, which give all events the same
    /// key.
    pub(super) fn unique_or_constant(keys: &[Parameter]) -> Result<Self, String> {
        if let Some(key) = keys.iter().find(|key| key.expr.ty == FieldType::Object) {
            return Err(format!("an object cannot be a key, found `{}`", key.text));
        }
        let exprs = keys.iter().map(|k| k.expr.clone()).collect();
        Ok(Self { exprs, separator: "\0", text: String::new() })
    }

    /// Returns the key of a row; valid until the next call.
    pub(super) fn encode(&mut self, seq: RowId, context: &WindowContext<'_>) -> Result<&str, EvalError> {
        self.text.clear();
        for (i, expr) in self.exprs.iter().enumerate() {
            if i > 0 {
                self.text.push_str(self.separator);
            }
            if let Some(text) = text_of(expr, seq, context) {
                self.text.push_str(text);
                continue;
            }
            // writing to a string cannot fail
            let _ = write!(self.text, "{}", context.eval(expr, seq)?);
        }
        Ok(&self.text)
    }
}

/// Returns the string of a plain string attribute without a copy; `None` for other expressions and for null.
fn text_of<'c>(expr: &Expr, seq: RowId, context: &'c WindowContext<'_>) -> Option<&'c str> {
    let Node::Column { slot: 0, column } = expr.node else { return None };
    context.rows.text(seq, column)
}
