//! Stream functions that reach other systems, where connections to the outside are left out: they do nothing.

use std::sync::Arc;

use tidemill_types::FieldType;

use super::statements::attribute_list;
use super::{BoundStreamFunction, Registry, StreamFunction};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;

/// Registers them.
pub(crate) fn register(registry: &mut Registry) {
    registry.stream_function("rdbms:cud", |_| {
        let rows = vec![vec![Value::Int(0)]];
        Ok((Arc::new(LeftOut { rows }), vec![("numRecords".to_owned(), FieldType::Int)]))
    });
    registry.stream_function("rdbms:query", query);
    for name in ["archive", "copy", "create", "delete", "move", "rename", "unarchive"] {
        let rows = vec![vec![]];
        registry.stream_function(&format!("file:{name}"), move |_| {
            Ok((Arc::new(LeftOut { rows: rows.clone() }), vec![]))
        });
    }
}

/// `rdbms:query(datasource, 'name type, …', statement, …)` finds no rows.
fn query(args: &[ArgumentType]) -> Result<BoundStreamFunction, String> {
    let added = attribute_list(args.get(1).and_then(|a| a.constant.as_ref()))?;
    Ok((Arc::new(LeftOut { rows: vec![] }), added))
}

/// Answers every event alike.
#[derive(Debug)]
struct LeftOut {
    rows: Vec<Vec<Value>>,
}

impl StreamFunction for LeftOut {
    fn call(&self, _: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        Ok(self.rows.clone())
    }
}
