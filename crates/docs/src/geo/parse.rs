//! Reads `$geoWithin`, `$geoIntersects`, `$near` and `$nearSphere`.

use super::flat::FlatArea;
use super::geometry::{Geometry, GeometryKind, number, pair};
use super::query::{Area, GeoTest, NearQuery, SpatialRelation};
use super::sphere::point_at;
use crate::error::{DocsError, Result};
use crate::limits::GEO_VERTICES_MAX;
use crate::values::display::display;
use crate::values::raw::{RawValue, elements, field, tag};

fn bad(message: impl Into<String>) -> DocsError {
    DocsError::bad_value(message)
}

impl GeoTest {
    /// Reads the operand of `$geoWithin` or `$geoIntersects`.
    ///
    /// Errors: no shape, or one that the operator does not take.
    pub fn parse(op: &str, operand: RawValue<'_>) -> Result<Self> {
        let relation =
            if op == "$geoIntersects" { SpatialRelation::Intersects } else { SpatialRelation::Within };
        let first = match operand.tag {
            tag::DOCUMENT => elements(operand.bytes).next(),
            _ => None,
        };
        let Some(first) = first else {
            return Err(bad(format!("{op} not supported with provided geometry: {}", display(operand))));
        };
        let area = match first.name {
            b"$geometry" => {
                let geometry = Geometry::parse_geojson(first.value)?;
                if relation == SpatialRelation::Within && !geometry.kind.is_area() {
                    let message = format!(
                        "$within not supported with provided geometry: {}: expected a Polygon or a MultiPolygon",
                        display(operand)
                    );
                    return Err(bad(message));
                }
                Area::Geometry(geometry)
            }
            b"$box" | b"$polygon" | b"$center" | b"$centerSphere"
                if relation == SpatialRelation::Intersects =>
            {
                return Err(bad(format!(
                    "$geoIntersects not supported with provided geometry: {}: expected $geometry",
                    display(operand)
                )));
            }
            b"$box" => Area::Flat(flat_box(first.value)?),
            b"$polygon" => Area::Flat(flat_polygon(first.value)?),
            b"$center" => {
                let (center, radius) = circle("$center", first.value)?;
                Area::Flat(FlatArea::Circle(center, radius))
            }
            b"$centerSphere" => {
                let (degrees, radius) = circle("$centerSphere", first.value)?;
                check_degrees(degrees)?;
                Area::Cap { center: point_at(degrees[0], degrees[1]), degrees, radius }
            }
            _ => return Err(bad(format!("unknown geo specifier: {}", display(operand)))),
        };
        Ok(Self { relation, area })
    }
}

fn points(value: RawValue<'_>) -> Result<Vec<[f64; 2]>> {
    match value.tag {
        tag::ARRAY | tag::DOCUMENT => elements(value.bytes).map(|e| pair(e.value, false)).collect(),
        _ => Err(bad(format!("expected an array of points, found {}", display(value)))),
    }
}

fn flat_box(value: RawValue<'_>) -> Result<FlatArea> {
    match points(value)?.as_slice() {
        [a, b] => {
            let low = [a[0].min(b[0]), a[1].min(b[1])];
            Ok(FlatArea::Box(low, [a[0].max(b[0]), a[1].max(b[1])]))
        }
        _ => Err(bad(format!("$box needs two corners, found {}", display(value)))),
    }
}

fn flat_polygon(value: RawValue<'_>) -> Result<FlatArea> {
    let corners = points(value)?;
    match corners.len() {
        0..3 => Err(bad("Polygon must have at least 3 points")),
        n if n > GEO_VERTICES_MAX => {
            Err(bad(format!("a $polygon with {n} points: limit of {GEO_VERTICES_MAX}")))
        }
        _ => Ok(FlatArea::Polygon(corners)),
    }
}

fn circle(op: &str, value: RawValue<'_>) -> Result<([f64; 2], f64)> {
    let parts: Vec<RawValue<'_>> = match value.tag {
        tag::ARRAY | tag::DOCUMENT => elements(value.bytes).map(|e| e.value).collect(),
        _ => Vec::new(),
    };
    let [center, radius] = parts.as_slice() else {
        return Err(bad(format!("{op} needs a center and a radius, found {}", display(value))));
    };
    match number(*radius) {
        Some(radius) if radius >= 0.0 => Ok((pair(*center, false)?, radius)),
        _ => Err(bad(format!("radius must be a non-negative number, found {}", display(*radius)))),
    }
}

fn check_degrees([lng, lat]: [f64; 2]) -> Result<()> {
    match (-180.0..=180.0).contains(&lng) && (-90.0..=90.0).contains(&lat) {
        true => Ok(()),
        false => Err(bad(format!("longitude/latitude is out of bounds, lng: {lng} lat: {lat}"))),
    }
}

/// Reads a distance. Errors: the value is not a distance.
fn distance(name: &str, value: RawValue<'_>) -> Result<f64> {
    match number(value) {
        Some(distance) if distance >= 0.0 => Ok(distance),
        Some(_) => Err(bad(format!("{name} must be non-negative, found {}", display(value)))),
        None => Err(bad(format!("{name} must be a number, found {}", display(value)))),
    }
}

impl NearQuery {
    /// Reads the operand of `$near` or `$nearSphere`, and the bounds beside it.
    ///
    /// Errors: no point, bounds that are no distances.
    pub fn parse(op: &str, operand: RawValue<'_>, beside: &[u8]) -> Result<Self> {
        if !matches!(operand.tag, tag::DOCUMENT | tag::ARRAY) {
            return Err(bad(format!("{op} needs a point, found {}", display(operand))));
        }
        let geometry = field(operand.bytes, b"$geometry").filter(|_| operand.tag == tag::DOCUMENT);
        if let Some(geometry) = geometry {
            return Self::parse_geometry(op, geometry.value, operand);
        }
        let at = pair(operand, true)
            .map_err(|error| bad(format!("{op} needs a point, `$geometry` or a pair of numbers: {error}")))?;
        let bound =
            |name: &str| field(beside, name.as_bytes()).map(|bound| distance(name, bound.value)).transpose();
        let third = elements(operand.bytes).nth(2).map(|e| distance("$maxDistance", e.value)).transpose()?;
        let (min, max) = (bound("$minDistance")?, bound("$maxDistance")?.or(third));
        let near = match op {
            "$near" => Self::of_pair(at),
            _ => {
                check_degrees(at)?;
                Self::of_degrees(at)
            }
        };
        Ok(near.between(min, max))
    }

    fn parse_geometry(op: &str, geometry: RawValue<'_>, operand: RawValue<'_>) -> Result<Self> {
        let invalid = |why: &dyn std::fmt::Display| {
            bad(format!("invalid point in geo near query $geometry argument: {}: {why}", display(geometry)))
        };
        let parsed = Geometry::parse_geojson(geometry).map_err(|error| invalid(&error))?;
        let (GeometryKind::Point, Some(at)) = (parsed.kind, parsed.flat) else {
            return Err(invalid(&"expected a Point"));
        };
        let (mut min, mut max) = (None, None);
        for option in elements(operand.bytes) {
            match option.name {
                b"$geometry" => {}
                b"$minDistance" => min = Some(distance("$minDistance", option.value)?),
                b"$maxDistance" => max = Some(distance("$maxDistance", option.value)?),
                other => {
                    let other = String::from_utf8_lossy(other);
                    return Err(bad(format!("invalid argument in geo near query: {other} of {op}")));
                }
            }
        }
        Ok(Self::of_point(at, false).between(min, max))
    }
}
