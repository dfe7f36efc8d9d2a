//! Paths with positional operators: `a.$`, `a.$[]`, `a.$[name]`. They stand for elements that differ from document to document, so they are
//! resolved before an update is applied.

use tidemill_types::budget;

use super::{Update, UpdateContext, UpdateOperator};
use crate::collation::Collation;
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::Filter;
use crate::limits::CLAUSES_MAX;
use crate::values::raw::{RawValue, close_document, elements, field, put_element, tag};

/// The filter of the elements that a name stands for.
#[derive(Debug, Clone)]
pub(crate) struct ArrayFilter {
    pub name: String,
    pub filter: Filter,
}

impl ArrayFilter {
    /// Parses `{ name: …, "name.field": … }`, in which the name stands for an element.
    pub fn parse(v: RawValue<'_>, collation: Option<&Collation>) -> Result<Self> {
        if v.tag != tag::DOCUMENT {
            return Err(DocsError::type_mismatch("each of arrayFilters must be an object"));
        }
        let doc = bson::raw::RawDocument::from_bytes(v.bytes);
        let doc = doc.map_err(|e| DocsError::new(ErrorCode::InvalidBson, format!("arrayFilters: {e}")))?;
        let mut names = Vec::new();
        collect_top_names(v, &mut names);
        if let [first, second, ..] = names.as_slice() {
            return Err(DocsError::parse(format!(
                "Error parsing array filter :: caused by :: Expected a single top-level field name, found '{first}' and '{second}'"
            )));
        }
        let name = names.pop().filter(|name| name.chars().next().is_some_and(|c| c.is_ascii_lowercase()));
        let name = name.ok_or_else(|| {
            DocsError::bad_value(
                "each of arrayFilters must be about one name that begins with a lowercase letter",
            )
        })?;
        Ok(Self { name, filter: Filter::parse_by(doc, collation)? })
    }

    /// Returns whether the filter holds for an element. Errors: that cannot be told.
    fn matches(&self, element: RawValue<'_>) -> Result<bool> {
        let mut doc = vec![0; 4];
        put_element(&mut doc, self.name.as_bytes(), element);
        close_document(&mut doc, 0);
        self.filter.test(&doc)
    }
}

/// Collects the first names of the paths of a filter, also inside `$and`, `$or` and `$nor`, each once.
fn collect_top_names(filter: RawValue<'_>, names: &mut Vec<String>) {
    for e in elements(filter.bytes) {
        let Ok(name) = std::str::from_utf8(e.name) else { continue };
        if name.starts_with('$') {
            let branches = elements(e.value.bytes).filter(|_| e.value.tag == tag::ARRAY);
            branches
                .filter(|branch| branch.value.tag == tag::DOCUMENT)
                .for_each(|branch| collect_top_names(branch.value, names));
        } else if let Some(top) = name.split('.').next()
            && !names.iter().any(|known| known == top)
        {
            names.push(top.to_owned());
        }
    }
}

/// Returns whether a path has a positional operator.
pub(super) fn is_positional(path: &str) -> bool {
    path.split('.').any(|name| name == "$" || (name.starts_with("$[") && name.ends_with(']')))
}

impl Update {
    pub(super) fn add_positional(&mut self, path: &str, change: UpdateOperator) -> Result<()> {
        if path.starts_with('$') {
            return Err(DocsError::bad_value(format!(
                "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '{path}'"
            )));
        }
        if matches!(change, UpdateOperator::RenameFrom | UpdateOperator::RenameTo(_)) {
            return Err(DocsError::bad_value(format!("$rename cannot have the dynamic field path '{path}'")));
        }
        if self.positional.len() >= CLAUSES_MAX {
            return Err(DocsError::bad_value(format!("update too large: limit of {CLAUSES_MAX} fields")));
        }
        self.positional.push((path.to_owned(), change));
        Ok(())
    }

    /// Checks that names and array filters belong to each other.
    pub(super) fn check_array_filters(&self) -> Result<()> {
        let named = |name: &str| {
            let marked = format!("$[{name}]");
            self.positional.iter().any(|(path, _)| path.split('.').any(|part| part == marked))
        };
        for (path, _) in &self.positional {
            for part in path.split('.').filter(|part| part.len() > 3 && part.starts_with("$[")) {
                let name = &part[2..part.len() - 1];
                if !self.array_filters.iter().any(|filter| filter.name == name) {
                    return Err(DocsError::bad_value(format!(
                        "No array filter found for identifier '{name}' in path '{path}'"
                    )));
                }
            }
        }
        for (at, filter) in self.array_filters.iter().enumerate() {
            let name = &filter.name;
            if self.array_filters[..at].iter().any(|earlier| earlier.name == *name) {
                return Err(DocsError::parse(format!(
                    "Found multiple array filters with the same top-level field name {name}"
                )));
            }
            if !named(name) {
                return Err(DocsError::parse(format!(
                    "The array filter for identifier '{name}' was not used in the update"
                )));
            }
        }
        Ok(())
    }

    /// Returns the update with the elements of this document instead of positional operators.
    pub(super) fn resolved(&self, doc: &[u8], context: &UpdateContext<'_>) -> Result<Self> {
        let mut resolved = Self {
            root: self.root.clone(),
            error: None,
            depth: self.depth,
            positional: Vec::new(),
            array_filters: Vec::new(),
            pipeline: None,
            collation: self.collation.clone(),
        };
        for (path, change) in &self.positional {
            let parts: Vec<&str> = path.split('.').collect();
            let mut paths = Vec::new();
            let root = RawValue { tag: tag::DOCUMENT, bytes: doc };
            self.expand(path, Some(root), &parts, String::new(), context, &mut paths)?;
            for path in paths {
                resolved.root.add(&path, change.clone())?;
            }
        }
        Ok(resolved)
    }

    /// Appends the paths that the rest of a path stands for, below `prefix`, whose value is `here`.
    fn expand(
        &self,
        path: &str,
        here: Option<RawValue<'_>>,
        parts: &[&str],
        prefix: String,
        context: &UpdateContext<'_>,
        paths: &mut Vec<String>,
    ) -> Result<()> {
        let Some((part, rest)) = parts.split_first() else {
            paths.push(prefix);
            return Ok(());
        };
        let below = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        if !is_positional(part) {
            let value = here.filter(|v| matches!(v.tag, tag::DOCUMENT | tag::ARRAY));
            let value = value.and_then(|v| field(v.bytes, part.as_bytes())).map(|e| e.value);
            return self.expand(path, value, rest, below(part), context, paths);
        }
        if *part == "$" {
            let Some(at) = context.matched else {
                return Err(DocsError::bad_value(
                    "The positional operator did not find the match needed from the query.",
                ));
            };
            let at = at.to_string();
            let value = here.and_then(|v| field(v.bytes, at.as_bytes())).map(|e| e.value);
            return self.expand(path, value, rest, below(&at), context, paths);
        }
        let Some(array) = here.filter(|v| v.tag == tag::ARRAY) else {
            let message = match here {
                None => {
                    format!("The path '{prefix}' must exist in the document in order to apply array updates.")
                }
                Some(_) => format!("Cannot apply array updates to non-array element {prefix} of '{path}'"),
            };
            return Err(DocsError::bad_value(message));
        };
        let filter = self.array_filters.iter().find(|filter| part[2..part.len() - 1] == filter.name);
        for (at, e) in elements(array.bytes).enumerate() {
            budget::step()?;
            if filter.map_or(Ok(true), |filter| filter.matches(e.value))? {
                self.expand(path, Some(e.value), rest, below(&at.to_string()), context, paths)?;
            }
        }
        Ok(())
    }
}
