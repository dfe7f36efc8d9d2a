//! Definitions of indexes, as `createIndexes` receives them and `listIndexes` returns them.

use bson::raw::{CString, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{cstr, rawdoc};
use tidemill_docs::{
    BsonDocument, CollectionSpec, Direction, GeoIndexKind, GeoIndexSpec, IndexSpec, TextIndexSpec,
};

use crate::commands::collation;
use crate::error::{Code, CommandError, Result};
use crate::fields::{type_name, whole_number};

/// Name of the index that every collection has.
pub(in crate::commands) const ID_INDEX: &str = "_id_";

/// Options of kinds of indexes that are not there yet.
const MISSING: [&str; 2] = ["storageEngine", "clustered"];

/// Reads a definition. `default` is the collation of an index that names none, that of the collection.
pub(in crate::commands) fn parse(index: &RawDocument, default: Option<&BsonDocument>) -> Result<IndexSpec> {
    let mut spec = IndexSpec::default();
    let (mut has_name, mut has_collation) = (false, false);
    let (mut geo, mut text) = (GeoOptions::default(), TextOptions::default());
    let mut given_name = String::new();
    for element in index {
        let (option, value) = element?;
        match option.as_str() {
            "key" => {
                let key = key(document("key", value)?)?;
                spec.hashed = key.path_of(KeyKind::Hashed).map(str::to_owned);
                spec.geo = key.geo()?;
                given_name = key.default_name();
                (spec.fields, spec.text) = key.into_fields()?;
            }
            "name" => match value {
                RawBsonRef::String(name) => (spec.name, has_name) = (name.to_owned(), true),
                other => return Err(wrong_type("name", other, "a string")),
            },
            "unique" => spec.unique = flag("unique", value)?,
            "sparse" => spec.sparse = flag("sparse", value)?,
            "hidden" => spec.hidden = flag("hidden", value)?,
            "expireAfterSeconds" => spec.expire_after_seconds = Some(seconds(value)?),
            "partialFilterExpression" => {
                spec.partial_filter = Some(BsonDocument::new(document("partialFilterExpression", value)?));
            }
            "wildcardProjection" => {
                spec.wildcard_projection = Some(BsonDocument::new(document("wildcardProjection", value)?));
            }
            "collation" => {
                has_collation = true;
                spec.collation = collation::in_definition(Some(document("collation", value)?))?;
            }
            "weights" => text.weights = Some(weights(value)?),
            "default_language" => text.default_language = Some(string("default_language", value)?),
            "language_override" => text.language_override = Some(string("language_override", value)?),
            "textIndexVersion" => text.version = Some(whole(option.as_str(), value)?),
            "2dsphereIndexVersion" => geo.version = Some(whole(option.as_str(), value)?),
            "bits" => geo.bits = Some(whole(option.as_str(), value)?),
            "min" => geo.min = Some(finite("min", value)?),
            "max" => geo.max = Some(finite("max", value)?),
            // have no effect here
            "v" | "ns" | "dropDups" => {}
            "background" => spec.background = Some(flag("background", value)?),
            option if MISSING.contains(&option) => {
                let message = format!("the index option `{option}` is not supported yet");
                return Err(CommandError::new(Code::CannotCreateIndex, message));
            }
            option => {
                let message = format!("The field '{option}' is not valid for an index specification");
                return Err(CommandError::new(Code::InvalidIndexSpecificationOption, message));
            }
        }
    }
    if spec.fields.is_empty() {
        return Err(CommandError::new(Code::CannotCreateIndex, "Index keys cannot be an empty object"));
    }
    geo.apply(&mut spec)?;
    text.apply(&mut spec)?;
    if !has_collation {
        spec.collation = default.filter(|_| spec.has_values()).cloned();
    }
    if !has_name {
        spec.name = given_name;
    }
    Ok(spec)
}

/// Kind of an index key that does not hold the values of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum KeyKind {
    Hashed,
    Geo(GeoIndexKind),
    Text,
}

impl KeyKind {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "hashed" => Self::Hashed,
            "text" => Self::Text,
            "2dsphere" => Self::Geo(GeoIndexKind::Sphere),
            "2d" => Self::Geo(GeoIndexKind::Plane),
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hashed => "hashed",
            Self::Geo(kind) => kind.name(),
            Self::Text => "text",
        }
    }
}

/// Paths with their directions.
type IndexFields = Vec<(String, Direction)>;

/// A key pattern.
pub(in crate::commands) struct IndexKey {
    /// Paths with their directions; those of a kind are ascending.
    pub fields: IndexFields,
    kinds: Vec<(String, KeyKind)>,
}

impl IndexKey {
    /// Returns whether the index has values of all fields.
    pub fn has_values(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns whether this is the key pattern of an index.
    pub fn is_of(&self, index: &IndexSpec) -> bool {
        let kind = |path: &str| self.kinds.iter().find(|(own, _)| own == path).map(|(_, kind)| kind.name());
        self.fields == index.fields && index.fields.iter().all(|(path, _)| index.kind_of(path) == kind(path))
    }

    fn kind_of(&self, path: &str) -> Option<KeyKind> {
        self.kinds.iter().find(|(own, _)| own == path).map(|(_, kind)| *kind)
    }

    fn default_name(&self) -> String {
        let field = |(path, direction): &(String, Direction)| match self.kind_of(path) {
            Some(kind) => format!("{path}_{}", kind.name()),
            None => format!("{path}_{}", direction.sign()),
        };
        self.fields.iter().map(field).collect::<Vec<_>>().join("_")
    }

    /// Returns the fields as a definition has them, with `_fts` and `_ftsx` for all fields with text, and the definition of these.
    ///
    /// Errors: fields with text and others in turn.
    fn into_fields(self) -> Result<(IndexFields, Option<TextIndexSpec>)> {
        let is_text = |path: &str| self.kind_of(path) == Some(KeyKind::Text);
        let Some(first) = self.fields.iter().position(|(path, _)| is_text(path)) else {
            return Ok((self.fields, None));
        };
        let count = self.fields[first..].iter().take_while(|(path, _)| is_text(path)).count();
        let (before, rest) = self.fields.split_at(first);
        let (texts, after) = rest.split_at(count);
        if after.iter().any(|(path, _)| is_text(path)) {
            let message = "'text' fields in index must all be adjacent";
            return Err(CommandError::new(Code::CannotCreateIndex, message));
        }
        // a key pattern as it is listed names the text so; its fields are those with weights
        let listed = |(path, _): &&(String, Direction)| path == "_fts";
        let weights =
            texts.iter().filter(|field| !listed(field)).map(|(path, _)| (path.clone(), 1.0)).collect();
        let after = after.iter().filter(|(path, _)| path != "_ftsx");
        let text = [("_fts".to_owned(), Direction::Ascending), ("_ftsx".to_owned(), Direction::Ascending)];
        let fields = before.iter().cloned().chain(text).chain(after.cloned()).collect();
        Ok((fields, Some(TextIndexSpec { weights, ..TextIndexSpec::default() })))
    }

    fn path_of(&self, wanted: KeyKind) -> Option<&str> {
        self.kinds.iter().find(|(_, kind)| *kind == wanted).map(|(path, _)| path.as_str())
    }

    /// Returns the definition of its geometries. Errors: two kinds of them.
    fn geo(&self) -> Result<Option<GeoIndexSpec>> {
        let mut geo: Option<GeoIndexSpec> = None;
        for (path, kind) in &self.kinds {
            let KeyKind::Geo(kind) = *kind else { continue };
            let geo = geo.get_or_insert_with(|| GeoIndexSpec {
                kind,
                paths: Vec::new(),
                bits: None,
                min: None,
                max: None,
                version: None,
            });
            if geo.kind != kind {
                let message =
                    "an index has geometries of one kind: expected \"2dsphere\" or \"2d\", found both";
                return Err(CommandError::new(Code::CannotCreateIndex, message));
            }
            geo.paths.push(path.clone());
        }
        Ok(geo)
    }
}

/// Options of indexes of geometries.
#[derive(Default)]
struct GeoOptions {
    version: Option<i32>,
    bits: Option<i32>,
    min: Option<f64>,
    max: Option<f64>,
}

impl GeoOptions {
    /// Errors: options without such an index.
    fn apply(self, spec: &mut IndexSpec) -> Result<()> {
        let Self { version, bits, min, max } = self;
        let Some(geo) = &mut spec.geo else {
            // drivers may send the version of indexes of other kinds
            return match bits.is_some() || min.is_some() || max.is_some() {
                true => Err(CommandError::new(
                    Code::CannotCreateIndex,
                    "`bits`, `min` and `max` are options of 2d indexes",
                )),
                false => Ok(()),
            };
        };
        geo.version = version.filter(|_| geo.kind == GeoIndexKind::Sphere);
        // a number below zero is refused with those above the limit
        geo.bits = bits.map(|bits| u32::try_from(bits).unwrap_or(u32::MAX));
        (geo.min, geo.max) = (min, max);
        Ok(())
    }
}

/// Options of text indexes.
#[derive(Default)]
struct TextOptions {
    weights: Option<Vec<(String, f64)>>,
    default_language: Option<String>,
    language_override: Option<String>,
    version: Option<i32>,
}

impl TextOptions {
    /// Errors: weights without such an index.
    fn apply(self, spec: &mut IndexSpec) -> Result<()> {
        let Some(text) = &mut spec.text else {
            return match self.weights {
                Some(_) => {
                    Err(CommandError::new(Code::CannotCreateIndex, "`weights` is an option of text indexes"))
                }
                None => Ok(()),
            };
        };
        for (path, weight) in self.weights.unwrap_or_default() {
            match text.weights.iter_mut().find(|(own, _)| *own == path) {
                Some((_, own)) => *own = weight,
                None => text.weights.push((path, weight)),
            }
        }
        // as MongoDB lists them
        text.weights.sort_by(|(a, _), (b, _)| a.cmp(b));
        let default = std::mem::take(text);
        *text = TextIndexSpec {
            weights: default.weights,
            default_language: self.default_language.unwrap_or(default.default_language),
            language_override: self.language_override.unwrap_or(default.language_override),
            version: self.version.unwrap_or(default.version),
        };
        Ok(())
    }
}

/// Reads `{ path: weight }`; a path alone has the weight 1.
fn weights(value: RawBsonRef<'_>) -> Result<Vec<(String, f64)>> {
    match value {
        RawBsonRef::String(path) => Ok(vec![(path.to_owned(), 1.0)]),
        value => document("weights", value)?
            .into_iter()
            .map(|weight| {
                let (path, weight) = weight?;
                Ok((path.as_str().to_owned(), finite("weights", weight)?))
            })
            .collect(),
    }
}

fn string(option: &str, value: RawBsonRef<'_>) -> Result<String> {
    match value {
        RawBsonRef::String(text) => Ok(text.to_owned()),
        other => Err(wrong_type(option, other, "a string")),
    }
}

/// Reads a key pattern, `{ a: 1, b: "hashed" }`.
pub(in crate::commands) fn key(pattern: &RawDocument) -> Result<IndexKey> {
    let refuse = |message: String| Err(CommandError::new(Code::CannotCreateIndex, message));
    let mut key = IndexKey { fields: Vec::new(), kinds: Vec::new() };
    for field in pattern {
        let (path, value) = field?;
        let path = path.as_str().to_owned();
        let direction = match value {
            RawBsonRef::String(name) => match KeyKind::of(name) {
                Some(KeyKind::Hashed) if key.path_of(KeyKind::Hashed).is_some() => {
                    return refuse("an index has at most one hashed field".to_owned());
                }
                Some(kind) => {
                    key.kinds.push((path.clone(), kind));
                    Direction::Ascending
                }
                None => {
                    return refuse(format!(
                        "Unknown index plugin '{name}' on `{path}`: expected {DIRECTIONS}"
                    ));
                }
            },
            value => match number(value) {
                Some(n) if n > 0.0 => Direction::Ascending,
                Some(n) if n < 0.0 => Direction::Descending,
                _ => {
                    return refuse(format!(
                        "the direction of `{path}` is {}: expected {DIRECTIONS}",
                        type_name(value)
                    ));
                }
            },
        };
        key.fields.push((path, direction));
    }
    Ok(key)
}

/// Values that a key pattern allows for a field, for error messages.
const DIRECTIONS: &str = "1, -1, \"hashed\", \"text\", \"2dsphere\" or \"2d\"";

fn whole(option: &str, value: RawBsonRef<'_>) -> Result<i32> {
    let number = whole_number(value).and_then(|n| i32::try_from(n).ok());
    number.ok_or_else(|| wrong_type(option, value, "a whole number"))
}

fn finite(option: &str, value: RawBsonRef<'_>) -> Result<f64> {
    number(value).filter(|n| n.is_finite()).ok_or_else(|| wrong_type(option, value, "a number"))
}

fn number(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Double(n) => Some(n),
        other => whole_number(other).map(|n| n as f64),
    }
}

fn flag(option: &str, value: RawBsonRef<'_>) -> Result<bool> {
    match (value, number(value)) {
        (RawBsonRef::Boolean(flag), _) => Ok(flag),
        (_, Some(number)) => Ok(number != 0.0),
        _ => Err(wrong_type(option, value, "a bool")),
    }
}

/// Reads the seconds after which documents expire, without a fraction.
pub(in crate::commands) fn seconds(value: RawBsonRef<'_>) -> Result<i64> {
    match number(value) {
        Some(n) if n.is_finite() => Ok(n as i64),
        _ => Err(wrong_type("expireAfterSeconds", value, "a number")),
    }
}

fn document<'d>(option: &str, value: RawBsonRef<'d>) -> Result<&'d RawDocument> {
    match value {
        RawBsonRef::Document(document) => Ok(document),
        other => Err(wrong_type(option, other, "an object")),
    }
}

fn wrong_type(option: &str, found: RawBsonRef<'_>, expected: &str) -> CommandError {
    CommandError::wrong_type("createIndexes.indexes", option, type_name(found), expected)
}

/// Returns the name of the index that every collection has.
pub(in crate::commands) fn id_index_name(spec: &CollectionSpec) -> &str {
    spec.options.clustered.as_deref().unwrap_or(ID_INDEX)
}

/// Returns the description of the index that every collection has.
pub(in crate::commands) fn id_index(spec: &CollectionSpec) -> RawDocumentBuf {
    let mut index = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": id_index_name(spec) };
    if spec.options.clustered.is_some() {
        index.append(cstr!("unique"), true);
        index.append(cstr!("clustered"), true);
    }
    if let Some(collation) = &spec.options.collation {
        index.append(cstr!("collation"), collation.as_raw());
    }
    index
}

/// Returns the description of an index.
pub(in crate::commands) fn describe(index: &IndexSpec) -> Result<RawDocumentBuf> {
    let mut one = RawDocumentBuf::new();
    one.append(cstr!("v"), 2);
    one.append(cstr!("key"), RawDocument::from_bytes(&index.key_pattern())?);
    one.append(cstr!("name"), index.name.as_str());
    for (name, set) in
        [(cstr!("unique"), index.unique), (cstr!("sparse"), index.sparse), (cstr!("hidden"), index.hidden)]
    {
        if set {
            one.append(name, true);
        }
    }
    if let Some(background) = index.background {
        one.append(cstr!("background"), background);
    }
    if let Some(seconds) = index.expire_after_seconds {
        one.append(cstr!("expireAfterSeconds"), i32::try_from(seconds).unwrap_or(i32::MAX));
    }
    if let Some(geo) = &index.geo {
        describe_geo(geo, &mut one);
    }
    if let Some(text) = &index.text {
        describe_text(text, &mut one)?;
    }
    for (name, document) in [
        (cstr!("partialFilterExpression"), &index.partial_filter),
        (cstr!("wildcardProjection"), &index.wildcard_projection),
        (cstr!("collation"), &index.collation),
    ] {
        if let Some(document) = document {
            one.append(name, document.as_raw());
        }
    }
    Ok(one)
}

/// Version of `2dsphere` indexes that MongoDB makes.
const SPHERE_VERSION: i32 = 3;

fn describe_geo(geo: &GeoIndexSpec, one: &mut RawDocumentBuf) {
    if geo.kind == GeoIndexKind::Sphere {
        one.append(cstr!("2dsphereIndexVersion"), geo.version.unwrap_or(SPHERE_VERSION));
    }
    if let Some(bits) = geo.bits {
        one.append(cstr!("bits"), i32::try_from(bits).unwrap_or(i32::MAX));
    }
    for (name, bound) in [(cstr!("min"), geo.min), (cstr!("max"), geo.max)] {
        if let Some(bound) = bound {
            one.append(name, bound);
        }
    }
}

fn describe_text(text: &TextIndexSpec, one: &mut RawDocumentBuf) -> Result<()> {
    let mut weights = RawDocumentBuf::new();
    for (path, weight) in &text.weights {
        let path = CString::try_from(path.clone())?;
        match *weight as i32 {
            whole if f64::from(whole) == *weight => weights.append(path, whole),
            _ => weights.append(path, *weight),
        }
    }
    one.append(cstr!("weights"), weights);
    one.append(cstr!("default_language"), text.default_language.as_str());
    one.append(cstr!("language_override"), text.language_override.as_str());
    one.append(cstr!("textIndexVersion"), text.version);
    Ok(())
}

/// Refuses an index with the name of another one, or with the keys of another one and the same documents.
pub(in crate::commands) fn check_conflict(other: &IndexSpec, index: &IndexSpec) -> Result<()> {
    let same_entries = other.fields == index.fields
        && other.hashed == index.hashed
        && other.geo.as_ref().map(|geo| (geo.kind, &geo.paths))
            == index.geo.as_ref().map(|geo| (geo.kind, &geo.paths))
        && other.text.is_some() == index.text.is_some()
        && other.partial_filter == index.partial_filter
        && other.collation == index.collation
        && (other.unique, other.sparse) == (index.unique, index.sparse);
    if other.name == index.name && !same_entries {
        let message = format!("An existing index has the same name as the requested index: `{}`", index.name);
        return Err(CommandError::new(Code::IndexKeySpecsConflict, message));
    }
    if same_entries && other.name != index.name {
        let message = format!("Index already exists with a different name: {}", other.name);
        return Err(CommandError::new(Code::IndexOptionsConflict, message));
    }
    if same_entries && !is_same(other, index) {
        let message = format!("An index `{}` with other options already exists", index.name);
        return Err(CommandError::new(Code::IndexOptionsConflict, message));
    }
    Ok(())
}

/// Returns whether the index is there already. Whether it is hidden, or was made in the background, is not compared.
pub(in crate::commands) fn is_same(other: &IndexSpec, index: &IndexSpec) -> bool {
    IndexSpec { hidden: index.hidden, background: index.background, ..other.clone() } == *index
}
