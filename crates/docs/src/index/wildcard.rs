//! The keys of a document in a wildcard index: the path and the value of each of its fields.

use smallvec::SmallVec;

use super::{Index, IndexKeys, put_field};
use crate::error::Result;
use crate::limits::INDEX_KEYS_PER_DOCUMENT_MAX;
use crate::spec::{Direction, IndexSpec};
use crate::values::key::{Key, KeyBuf};
use crate::values::path::Path;
use crate::values::raw::{OwnedRawValue, RawValue, elements, tag};

/// The fields that a wildcard index has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WildcardFields {
    /// Path below which it has all fields; empty for the whole document.
    root: String,
    /// Paths of a projection.
    paths: Vec<String>,
    /// True if the index has the fields of `paths`, false if it has all others.
    includes: bool,
    pub direction: Direction,
}

impl WildcardFields {
    /// Reads the fields of a wildcard index. Errors: a projection that is not one of paths to include or to exclude.
    pub fn new(spec: &IndexSpec) -> Result<Self> {
        let (path, direction) = match spec.fields.first() {
            Some((path, direction)) => (path.as_str(), *direction),
            None => ("$**", Direction::Ascending),
        };
        let root = path.strip_suffix("$**").unwrap_or(path).trim_end_matches('.').to_owned();
        let mut fields = Self { root, paths: vec!["_id".to_owned()], includes: false, direction };
        if let Some(projection) = &spec.wildcard_projection {
            fields.project(spec, projection.bytes())?;
        }
        Ok(fields)
    }

    fn project(&mut self, spec: &IndexSpec, projection: &[u8]) -> Result<()> {
        if !self.root.is_empty() {
            return Err(spec.refused("only an index over `$**` has a wildcardProjection"));
        }
        let mut mode = None;
        let (mut paths, mut with_id) = (Vec::new(), None);
        for e in elements(projection) {
            let name = String::from_utf8_lossy(e.name).into_owned();
            let included = match e.value.tag {
                tag::BOOL => e.value.bytes == [1],
                _ => match e.value.as_integer() {
                    Some(n) => n != 0,
                    None => return Err(spec.refused("wildcardProjection: expected 0 or 1 for each path")),
                },
            };
            if name == "_id" {
                with_id = Some(included);
                continue;
            }
            if name.split('.').any(str::is_empty) || *mode.get_or_insert(included) != included {
                return Err(
                    spec.refused("wildcardProjection: expected paths to include, or paths to exclude")
                );
            }
            paths.push(name);
        }
        let Some(includes) = mode.or(with_id) else {
            return Err(spec.refused("wildcardProjection: expected at least one path"));
        };
        // `_id` is left out unless the projection asks for it
        if with_id.unwrap_or(false) == includes {
            paths.push("_id".to_owned());
        }
        (self.paths, self.includes) = (paths, includes);
        Ok(())
    }

    /// Returns whether the index has all values at `path`, so that it can answer conditions on it. A path with a number may
    /// lead through an array, which the index does not tell.
    pub fn covers(&self, path: &Path) -> bool {
        path.parts.iter().all(|part| part.index.is_none()) && self.has(path.as_str())
    }

    fn has(&self, path: &str) -> bool {
        is_inside(path, &self.root) && self.paths.iter().any(|p| is_inside(path, p)) == self.includes
    }

    /// Starts the key of a path.
    pub fn prefix(&self, path: &str) -> KeyBuf {
        let mut key = KeyBuf::new();
        put_field(&mut key, OwnedRawValue::string(path).as_raw(), Direction::Ascending, None);
        key
    }
}

/// Returns whether `path` is `of` or a field below it.
fn is_inside(path: &str, of: &str) -> bool {
    of.is_empty() || path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Builds the keys of one document.
pub(super) struct WildcardKeys<'a> {
    index: &'a Index,
    fields: &'a WildcardFields,
    keys: IndexKeys,
}

impl<'a> WildcardKeys<'a> {
    /// Returns the keys of `doc`, without duplicates and in order. Errors: too many keys.
    pub fn of(index: &'a Index, fields: &'a WildcardFields, doc: &[u8]) -> Result<IndexKeys> {
        let mut builder = Self { index, fields, keys: SmallVec::new() };
        builder.document(&mut String::new(), doc)?;
        let mut keys = builder.keys;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Adds the fields of a document. Documents are at most `depth_max` deep, and so is the recursion.
    fn document(&mut self, path: &mut String, doc: &[u8]) -> Result<()> {
        let len = path.len();
        for e in elements(doc) {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&String::from_utf8_lossy(e.name));
            self.value(path, e.value)?;
            path.truncate(len);
        }
        Ok(())
    }

    fn value(&mut self, path: &mut String, value: RawValue<'_>) -> Result<()> {
        match value.tag {
            tag::DOCUMENT if elements(value.bytes).next().is_some() => self.document(path, value.bytes),
            tag::ARRAY => {
                let mut empty = true;
                for e in elements(value.bytes) {
                    empty = false;
                    match e.value.tag {
                        tag::DOCUMENT if elements(e.value.bytes).next().is_some() => {
                            self.document(path, e.value.bytes)?;
                        }
                        // arrays inside arrays are values
                        _ => self.push(path, e.value)?,
                    }
                }
                match empty {
                    true => self.push(path, RawValue { tag: tag::UNDEFINED, bytes: &[] }),
                    false => Ok(()),
                }
            }
            _ => self.push(path, value),
        }
    }

    fn push(&mut self, path: &str, value: RawValue<'_>) -> Result<()> {
        if !self.fields.has(path) {
            return Ok(());
        }
        if self.keys.len() >= INDEX_KEYS_PER_DOCUMENT_MAX {
            return Err(self.index.too_many_keys());
        }
        let mut key = self.fields.prefix(path);
        put_field(&mut key, value, self.fields.direction, self.index.collation.as_ref());
        self.keys.push(Key(key));
        Ok(())
    }
}
