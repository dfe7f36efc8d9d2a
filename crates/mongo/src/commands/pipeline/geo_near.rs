//! `$geoNear`: documents by their distance from a point, with the distance.

use bson::raw::{CString, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, cstr, rawdoc};
use tidemill_docs::{
    CollectionSpec, DocBytes, Expression, Filter, GeoIndexKind, Variables, encoded, set_path,
};

use crate::commands::reading::find;
use crate::error::{Code, CommandError, Result};
use crate::fields::{type_name, whole_number};

const OPTIONS: [&str; 9] = [
    "near",
    "distanceField",
    "distanceMultiplier",
    "includeLocs",
    "key",
    "maxDistance",
    "minDistance",
    "query",
    "spherical",
];

/// A `$geoNear` stage.
pub(in crate::commands) struct GeoNear {
    point: Bson,
    /// True if the point is GeoJSON instead of a pair of numbers.
    is_geojson: bool,
    spherical: bool,
    key: Option<String>,
    query: RawDocumentBuf,
    bounds: Vec<(&'static str, f64)>,
    distance_field: Option<String>,
    locations_field: Option<String>,
    multiplier: f64,
    variables: Variables,
    /// The filter for the collection that is read.
    filter: std::sync::OnceLock<Filter>,
}

impl GeoNear {
    /// Reads the options. Errors: no point, options that do not exist or have other types.
    pub fn parse(options: &RawDocument, variables: &Variables) -> Result<Self> {
        super::known("$geoNear", options, &OPTIONS)?;
        let near = super::option("$geoNear", options, "near")?;
        let point = Expression::parse_with(near, variables)?.eval(find::empty())?;
        let is_geojson = match &point {
            Some(Bson::Document(point)) => point.contains_key("type") || point.contains_key("coordinates"),
            Some(Bson::Array(_)) => false,
            _ => {
                let message =
                    format!("$geoNear requires a near option that is a point, found {}", type_name(near));
                return Err(CommandError::new(Code::BadValue, message));
            }
        };
        let path = |name: &str| match options.get(name)? {
            None => Ok(None),
            Some(RawBsonRef::String(path)) if !path.is_empty() && !path.starts_with('$') => {
                Ok(Some(path.to_owned()))
            }
            Some(other) => Err(wrong_type(name, other, "the path of a field")),
        };
        let query = match options.get("query")? {
            None => RawDocumentBuf::new(),
            Some(RawBsonRef::Document(query)) => query.to_owned(),
            Some(other) => return Err(wrong_type("query", other, "an object")),
        };
        let mut bounds = Vec::new();
        for (name, operator) in [("minDistance", "$minDistance"), ("maxDistance", "$maxDistance")] {
            if let Some(bound) = options.get(name)? {
                let value = Expression::parse_with(bound, variables)?.eval(find::empty())?;
                let value = value.as_ref().and_then(number).filter(|bound| *bound >= 0.0);
                bounds
                    .push((operator, value.ok_or_else(|| wrong_type(name, bound, "a number of 0 or more"))?));
            }
        }
        let multiplier = match options.get("distanceMultiplier")? {
            None => 1.0,
            Some(value) => match Bson::try_from(value).ok().as_ref().and_then(number).filter(|n| *n >= 0.0) {
                Some(multiplier) => multiplier,
                None => return Err(wrong_type("distanceMultiplier", value, "a number of 0 or more")),
            },
        };
        let spherical = match options.get("spherical")? {
            None => false,
            Some(RawBsonRef::Boolean(spherical)) => spherical,
            Some(other) => match whole_number(other) {
                Some(n) => n != 0,
                None => return Err(wrong_type("spherical", other, "a bool")),
            },
        };
        Ok(Self {
            point: point.unwrap_or(Bson::Null),
            is_geojson,
            spherical,
            key: path("key")?,
            query,
            bounds,
            distance_field: path("distanceField")?,
            locations_field: path("includeLocs")?,
            multiplier,
            variables: variables.clone(),
            filter: std::sync::OnceLock::new(),
        })
    }

    /// Returns the filter for a collection: the query, and nearness by its index of geometries.
    ///
    /// Errors: the collection has no such index, or has several and the stage does not name one; the query is
    /// not a valid filter.
    pub fn filter(&self, spec: &CollectionSpec) -> Result<Filter> {
        let filter = Filter::parse_with(&self.filter_document(spec)?, &self.variables)?;
        let _ = self.filter.set(filter.clone());
        Ok(filter)
    }

    /// Returns the filter for a collection as a document.
    pub fn filter_document(&self, spec: &CollectionSpec) -> Result<RawDocumentBuf> {
        let parsed = Filter::parse_with(&self.query, &self.variables)?;
        if parsed.sorts_by_distance() {
            let message = "$near and $nearSphere are not permitted in the query of $geoNear";
            return Err(CommandError::new(Code::BadValue, message));
        }
        let path = self.key.clone().map_or_else(|| only_field(spec), Ok)?;
        let mut point = Document::new();
        point.insert("p", self.point.clone());
        let point = RawDocumentBuf::try_from(&point)?;
        let point = super::option("$geoNear", &point, "p")?;
        let mut operators = RawDocumentBuf::new();
        let bounds = |to: &mut RawDocumentBuf| -> Result<()> {
            for (name, bound) in &self.bounds {
                to.append(CString::try_from((*name).to_owned())?, *bound);
            }
            Ok(())
        };
        match (self.is_geojson, self.spherical) {
            (true, _) => {
                let mut near = RawDocumentBuf::new();
                near.append(cstr!("$geometry"), point);
                bounds(&mut near)?;
                operators.append(cstr!("$near"), near);
            }
            (false, spherical) => {
                operators.append(if spherical { cstr!("$nearSphere") } else { cstr!("$near") }, point);
                bounds(&mut operators)?;
            }
        }
        let mut near = RawDocumentBuf::new();
        near.append(CString::try_from(path)?, operators);
        if self.query.is_empty() {
            return Ok(near);
        }
        let mut both = RawArrayBuf::new();
        both.push(self.query.clone());
        both.push(near);
        Ok(rawdoc! { "$and": both })
    }

    /// Returns a document with its distance and its place.
    pub fn apply(&self, document: &DocBytes) -> Result<DocBytes> {
        let Some((distance, place)) = self.filter.get().map(|f| f.nearest(document)).transpose()?.flatten()
        else {
            return Ok(document.clone());
        };
        let mut target = Document::try_from(RawDocument::from_bytes(document)?)?;
        if let Some(path) = &self.distance_field {
            set_path(&mut target, path, Some(Bson::Double(distance * self.multiplier)));
        }
        if let Some(path) = &self.locations_field {
            set_path(&mut target, path, Some(place));
        }
        Ok(encoded(&target)?)
    }
}

/// Returns the field of the only index of geometries; `2d` indexes come first, as in MongoDB.
fn only_field(spec: &CollectionSpec) -> Result<String> {
    for kind in [GeoIndexKind::Plane, GeoIndexKind::Sphere] {
        let found: Vec<_> =
            spec.indexes.iter().filter_map(|i| i.geo.as_ref()).filter(|geo| geo.kind == kind).collect();
        let name = kind.name();
        match found.as_slice() {
            [] => {}
            [one] => match one.paths.as_slice() {
                [path] => return Ok(path.clone()),
                _ => return Err(ambiguous(name)),
            },
            _ => return Err(ambiguous(name)),
        }
    }
    let message = "$geoNear requires a 2d or 2dsphere index, but none were found";
    Err(CommandError::new(Code::IndexNotFound, message))
}

fn ambiguous(kind: &str) -> CommandError {
    let message = format!(
        "There is more than one {kind} field with an index; unsure which to use for $geoNear: add the option `key`"
    );
    CommandError::new(Code::IndexNotFound, message)
}

fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Double(n) => Some(*n),
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Decimal128(n) => Some(tidemill_docs::decimal_math::to_double(*n)),
        _ => None,
    }
}

fn wrong_type(option: &str, found: RawBsonRef<'_>, expected: &str) -> CommandError {
    CommandError::wrong_type("aggregate", &format!("$geoNear.{option}"), type_name(found), expected)
}
