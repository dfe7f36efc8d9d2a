//! Tree of the operators of an update, by path.

use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::CLAUSES_MAX;
use crate::values::path::PathSegment;

use super::UpdateOperator;

/// Operators below one field, in the order in which new fields are added.
#[derive(Debug, Clone, Default)]
pub(crate) struct OperatorTree {
    pub children: Vec<(PathSegment, OperatorTreeChild)>,
}

#[derive(Debug, Clone)]
pub(crate) enum OperatorTreeChild {
    Inner(OperatorTree),
    Leaf(UpdateOperator),
}

impl OperatorTree {
    /// Inserts an operator at its path.
    ///
    /// Errors: an empty name or a positional operator in the path; a path that equals that of another
    /// operator, contains it or is inside it.
    pub fn add(&mut self, path: &str, change: UpdateOperator) -> Result<()> {
        check_path(path)?;
        let mut node = self;
        let mut here = 0;
        let mut parts = path.split('.').peekable();
        while let Some(name) = parts.next() {
            here += name.len();
            let part = PathSegment::new(name);
            let found = node.children.binary_search_by(|(p, _)| p.update_order(&part));
            if parts.peek().is_none() {
                return match found {
                    Ok(_) => Err(conflict(path, path)),
                    Err(at) if node.children.len() < CLAUSES_MAX => {
                        node.children.insert(at, (part, OperatorTreeChild::Leaf(change)));
                        Ok(())
                    }
                    Err(_) => Err(DocsError::bad_value(format!(
                        "update too large: limit of {CLAUSES_MAX} fields in one document"
                    ))),
                };
            }
            let at = found.unwrap_or_else(|at| {
                node.children.insert(at, (part, OperatorTreeChild::Inner(OperatorTree::default())));
                at
            });
            match &mut node.children[at].1 {
                OperatorTreeChild::Inner(inner) => node = inner,
                OperatorTreeChild::Leaf(_) => return Err(conflict(path, &path[..here])),
            }
            here += 1;
        }
        Ok(())
    }
}

fn conflict(path: &str, at: &str) -> DocsError {
    DocsError::new(
        ErrorCode::ConflictingUpdateOperators,
        format!("Updating the path '{path}' would create a conflict at '{at}'"),
    )
}

fn check_path(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(DocsError::new(ErrorCode::EmptyFieldName, "An empty update path is not valid."));
    }
    for name in path.split('.') {
        if name.is_empty() {
            return Err(DocsError::new(
                ErrorCode::EmptyFieldName,
                format!("The update path '{path}' contains an empty field name, which is not allowed."),
            ));
        }
        if name == "$" || name.starts_with("$[") {
            return Err(DocsError::bad_value(format!(
                "update path '{path}': positional operators ($, $[], $[name]) are not supported; give the element's number, for example 'a.0'"
            )));
        }
        if name.contains('\0') {
            return Err(DocsError::bad_value(format!(
                "update path {path:?}: a field name may not contain NUL"
            )));
        }
    }
    // the depth of the result is checked as well; this limits the work before that
    if path.split('.').count() > 200 {
        return Err(DocsError::bad_value(format!(
            "update path of {} parts: limit of 200",
            path.split('.').count()
        )));
    }
    Ok(())
}
