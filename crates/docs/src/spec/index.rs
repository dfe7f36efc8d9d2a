//! Definition of an index.

use serde::{Deserialize, Serialize};

use super::{BsonDocument, Direction, check_path};
use crate::DocBytes;
use crate::collation::Collation;
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::Filter;
use crate::geo::{GeoIndexKind, GeoIndexSpec};
use crate::index::WildcardFields;
use crate::limits::INDEX_FIELDS_MAX;
use crate::text::TextIndexSpec;
use crate::values::raw::{OwnedRawValue, RawValue, close_document, put_element, tag};

/// Definition of an index. The options after `unique` are written only if they are set, so that definitions without them
/// have the form that they always had.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexSpec {
    /// Name, unique in the collection.
    pub name: String,
    /// Paths in the order of comparison. The path of a wildcard index is `$**`, or ends with `.$**`.
    pub fields: Vec<(String, Direction)>,
    /// True if two documents must not have equal values.
    #[serde(default)]
    pub unique: bool,
    /// True if documents that have none of the fields are left out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sparse: bool,
    /// Field among `fields` that is hashed: the index has hashes instead of its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hashed: Option<String>,
    /// Filter of the documents that are in the index; all if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_filter: Option<BsonDocument>,
    /// Fields that a wildcard index over all fields has, or does not have, as in a projection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wildcard_projection: Option<BsonDocument>,
    /// Seconds after the time in the field at which a document expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after_seconds: Option<i64>,
    /// True if no query uses the index.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hidden: bool,
    /// True if its creator asked for a build in the background. Kept for clients; it has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<bool>,
    /// Order of strings, as MongoDB describes it; that of their bytes if `None`. Queries with the same collation use the index
    /// for strings, and all for other values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collation: Option<BsonDocument>,
    /// Settings of the geometries among `fields`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geo: Option<GeoIndexSpec>,
    /// Settings of the texts whose terms the index has. They stand among `fields` as MongoDB writes them,
    /// `_fts` and `_ftsx`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextIndexSpec>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Names of the fields of a key pattern that stand for the text.
const TEXT_FIELD: &str = "_fts";
const TEXT_FIELD_AFTER: &str = "_ftsx";

/// Largest value of `expire_after_seconds`, as in MongoDB.
const EXPIRE_AFTER_SECONDS_MAX: i64 = i32::MAX as i64;

impl IndexSpec {
    /// Creates an index over one field, named as MongoDB names it (`field_1`).
    pub fn ascending(path: &str) -> Self {
        Self {
            name: format!("{path}_1"),
            fields: vec![(path.to_owned(), Direction::Ascending)],
            ..Self::default()
        }
    }

    /// Returns the key pattern as MongoDB writes it: `{ a: 1, b: -1 }`.
    pub fn pattern(&self) -> String {
        let fields: Vec<String> = self
            .fields
            .iter()
            .map(|(path, direction)| match self.kind_of(path) {
                Some(kind) => format!("{path}: \"{kind}\""),
                None => format!("{path}: {}", direction.sign()),
            })
            .collect();
        format!("{{ {} }}", fields.join(", "))
    }

    /// Returns the key pattern as a document, `{ a: 1, b: "hashed" }`.
    pub fn key_pattern(&self) -> DocBytes {
        let mut pattern = vec![0; 4];
        for (path, direction) in &self.fields {
            match self.kind_of(path) {
                Some(kind) => {
                    put_element(&mut pattern, path.as_bytes(), OwnedRawValue::string(kind).as_raw())
                }
                None => {
                    let sign = direction.sign().to_le_bytes();
                    put_element(&mut pattern, path.as_bytes(), RawValue { tag: tag::INT32, bytes: &sign });
                }
            }
        }
        close_document(&mut pattern, 0);
        pattern.into()
    }

    /// Returns whether the index has hashes of the values at this path.
    pub fn is_hashed(&self, path: &str) -> bool {
        self.hashed.as_deref() == Some(path)
    }

    /// Returns what the index has of a field instead of its values, as key patterns name it.
    pub fn kind_of(&self, path: &str) -> Option<&'static str> {
        match &self.geo {
            _ if self.is_hashed(path) => Some("hashed"),
            _ if self.text.is_some() && path == TEXT_FIELD => Some("text"),
            Some(geo) if geo.paths.iter().any(|own| own == path) => Some(geo.kind.name()),
            _ => None,
        }
    }

    /// Returns whether the entries are in the order of the fields' values.
    pub fn has_values(&self) -> bool {
        self.geo.is_none() && self.text.is_none()
    }

    /// Returns whether the index has every field of a document, or every field below a path.
    pub fn is_wildcard(&self) -> bool {
        self.fields.iter().any(|(path, _)| is_wildcard_path(path))
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.name.is_empty() || self.name == "_id_" || self.name.contains('\0') {
            return Err(self.refused("expected a non-empty name other than `_id_`, without NUL"));
        }
        if self.fields.is_empty() || self.fields.len() > INDEX_FIELDS_MAX {
            let found = self.fields.len();
            return Err(self.refused(format!("expected 1 to {INDEX_FIELDS_MAX} fields, found {found}")));
        }
        for (i, (path, _)) in self.fields.iter().enumerate() {
            let plain = path.strip_suffix("$**").map_or(path.as_str(), |stem| stem.trim_end_matches('.'));
            if path != "$**" {
                check_path(plain).map_err(|why| self.refused(format!("field {path:?}: {why}")))?;
            }
            if self.fields[..i].iter().any(|(other, _)| other == path) {
                return Err(self.refused(format!("duplicate field `{path}`")));
            }
        }
        self.check_kind()?;
        self.check_partial_filter()?;
        self.check_expiry()
    }

    /// Returns the collation; `None` for the order of bytes. Errors: as [`Collation::parse`].
    pub(crate) fn parsed_collation(&self) -> Result<Option<Collation>> {
        self.collation.as_ref().map_or(Ok(None), |collation| Collation::parse(collation.as_raw()))
    }

    /// Checks the options that only some kinds of indexes have.
    fn check_kind(&self) -> Result<()> {
        if let Some(path) = &self.hashed {
            if !self.fields.iter().any(|(field, _)| field == path) {
                return Err(self.refused(format!("the hashed field `{path}` is not one of its fields")));
            }
            if self.unique {
                return Err(self.refused("a hashed index cannot be unique"));
            }
        }
        self.parsed_collation()?;
        self.check_geo()?;
        self.check_text()?;
        if !self.is_wildcard() {
            return match self.wildcard_projection {
                Some(_) => Err(self.refused("only an index over `$**` has a wildcardProjection")),
                None => Ok(()),
            };
        }
        if self.fields.len() > 1 {
            return Err(self.refused("a wildcard index with more than one field is not supported yet"));
        }
        if self.unique || self.sparse || self.hashed.is_some() || self.expire_after_seconds.is_some() {
            return Err(self
                .refused("a wildcard index cannot be unique, sparse or hashed, and nothing expires by it"));
        }
        WildcardFields::new(self).map(|_| ())
    }

    fn check_geo(&self) -> Result<()> {
        let Some(geo) = &self.geo else { return Ok(()) };
        let kind = geo.kind.name();
        geo.check().map_err(|why| self.refused(why))?;
        if let Some(path) = geo.paths.iter().find(|path| !self.fields.iter().any(|(field, _)| field == *path))
        {
            return Err(self.refused(format!("the {kind} field `{path}` is not one of its fields")));
        }
        if geo.kind == GeoIndexKind::Plane
            && self.fields.first().is_none_or(|(path, _)| !geo.paths.contains(path))
        {
            return Err(self.refused("the 2d field must be the first one"));
        }
        if self.unique || self.hashed.is_some() || self.is_wildcard() || self.expire_after_seconds.is_some() {
            return Err(self.refused(format!(
                "a {kind} index cannot be unique, hashed or a wildcard index, and nothing expires by it"
            )));
        }
        if self.collation.is_some() {
            return Err(self.refused(format!(
                "a {kind} index has the simple collation: expected {{ locale: \"simple\" }}"
            )));
        }
        Ok(())
    }

    fn check_text(&self) -> Result<()> {
        let Some(text) = &self.text else { return Ok(()) };
        text.check().map_err(|why| self.refused(why))?;
        let at = |name: &str| self.fields.iter().position(|(path, _)| path == name);
        if at(TEXT_FIELD).is_none_or(|at_text| at(TEXT_FIELD_AFTER) != Some(at_text + 1)) {
            return Err(self.refused("expected `_fts` and `_ftsx` for the text, one after the other"));
        }
        let others = self.unique || self.hashed.is_some() || self.is_wildcard() || self.geo.is_some();
        if others || self.expire_after_seconds.is_some() {
            return Err(self.refused(
                "Index type 'text' does not support the unique option, nor hashed, wildcard and 2dsphere fields, and nothing expires by it",
            ));
        }
        if self.collation.is_some() {
            return Err(
                self.refused("a text index has the simple collation: expected { locale: \"simple\" }")
            );
        }
        Ok(())
    }

    fn check_partial_filter(&self) -> Result<()> {
        let Some(filter) = &self.partial_filter else { return Ok(()) };
        if self.sparse {
            return Err(self.refused("expected `sparse` or a partial filter, found both"));
        }
        let parsed = Filter::parse(filter.as_raw())?;
        if !parsed.can_select_for_index() {
            return Err(self.refused(format!(
                "the partial filter {filter}: expected equality, $gt, $gte, $lt, $lte, $in, $type, $exists: true, $and and $or only"
            )));
        }
        Ok(())
    }

    fn check_expiry(&self) -> Result<()> {
        let Some(seconds) = self.expire_after_seconds else { return Ok(()) };
        if !(0..=EXPIRE_AFTER_SECONDS_MAX).contains(&seconds) {
            return Err(self.refused(format!(
                "expireAfterSeconds: expected 0 to {EXPIRE_AFTER_SECONDS_MAX}, found {seconds}"
            )));
        }
        if self.fields.len() > 1 || self.fields.iter().any(|(path, _)| path == "_id") {
            return Err(self.refused("expireAfterSeconds needs an index over one field other than `_id`"));
        }
        Ok(())
    }

    /// Creates the error that the index cannot be created.
    pub(crate) fn refused(&self, why: impl std::fmt::Display) -> DocsError {
        DocsError::new(ErrorCode::CannotCreateIndex, format!("index `{}`: {why}", self.name))
    }
}

/// Returns whether the path stands for all fields, or for all fields below it.
fn is_wildcard_path(path: &str) -> bool {
    path == "$**" || path.ends_with(".$**")
}
