//! Geometries as documents and queries have them: GeoJSON, and pairs of coordinates.

use s2::point::Point;
use smallvec::SmallVec;

use super::shape::{Polygon, Shape};
use super::sphere::{BadLoop, SphereLoop, point_at};
use crate::error::{DocsError, Result};
use crate::limits::GEO_VERTICES_MAX;
use crate::values::decimal_math;
use crate::values::display::display;
use crate::values::raw::{RawValue, elements, field, tag};

/// The reference system in which a polygon has the region on the left of its edges.
const STRICT_WINDING: &str = "urn:x-mongodb:crs:strictwinding:EPSG:4326";
const KNOWN_SYSTEMS: [&str; 3] = ["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326", STRICT_WINDING];

/// A geometry: its shapes on the sphere, and its place on the plane if it is one point.
#[derive(Debug, Clone, Default)]
pub(crate) struct Geometry {
    /// Empty for a pair that is not a longitude and a latitude.
    pub shapes: SmallVec<[Shape; 1]>,
    /// Coordinates of a single point.
    pub flat: Option<[f64; 2]>,
    pub kind: GeometryKind,
    /// True if the region of a polygon is given by the order of its vertices. Only queries may have such a
    /// one.
    pub strict_winding: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum GeometryKind {
    /// `[x, y]`
    #[default]
    Pair,
    Point,
    Line,
    Polygon,
    MultiPoint,
    MultiLine,
    MultiPolygon,
    Collection,
}

impl GeometryKind {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "Point" => Self::Point,
            "LineString" => Self::Line,
            "Polygon" => Self::Polygon,
            "MultiPoint" => Self::MultiPoint,
            "MultiLineString" => Self::MultiLine,
            "MultiPolygon" => Self::MultiPolygon,
            "GeometryCollection" => Self::Collection,
            _ => return None,
        })
    }

    pub fn is_area(self) -> bool {
        matches!(self, Self::Polygon | Self::MultiPolygon)
    }
}

/// Returns a number as a double.
pub(crate) fn number(value: RawValue<'_>) -> Option<f64> {
    match value.tag {
        tag::DOUBLE => Some(value.f64()),
        tag::INT32 => Some(f64::from(value.i32())),
        tag::INT64 => Some(value.i64() as f64),
        tag::DECIMAL => {
            Some(decimal_math::to_double(bson::Decimal128::from_bytes(*value.bytes.first_chunk()?)))
        }
        _ => None,
    }
}

fn bad(message: impl Into<String>) -> DocsError {
    DocsError::bad_value(message)
}

/// Reads two numbers, of an array or of an object with fields of any names. Errors: others, infinite ones.
pub(crate) fn pair(value: RawValue<'_>, may_have_more: bool) -> Result<[f64; 2]> {
    if !matches!(value.tag, tag::ARRAY | tag::DOCUMENT) {
        return Err(bad(format!("Point must be an array or object, found {}", display(value))));
    }
    let mut numbers = elements(value.bytes).map(|e| number(e.value));
    let (Some(Some(x)), Some(Some(y))) = (numbers.next(), numbers.next()) else {
        return Err(bad(format!("Point must only contain numeric elements: {}", display(value))));
    };
    if !may_have_more && numbers.next().is_some() {
        return Err(bad(format!("Point must only contain two numeric elements: {}", display(value))));
    }
    if !x.is_finite() || !y.is_finite() {
        return Err(bad(format!("Point coordinates must be finite numbers: {}", display(value))));
    }
    Ok([x, y])
}

fn is_position([lng, lat]: [f64; 2]) -> bool {
    (-180.0..=180.0).contains(&lng) && (-90.0..=90.0).contains(&lat)
}

fn position([lng, lat]: [f64; 2]) -> Result<Point> {
    match is_position([lng, lat]) {
        true => Ok(point_at(lng, lat)),
        false => Err(bad(format!("longitude/latitude is out of bounds, lng: {lng} lat: {lat}"))),
    }
}

/// Reads an array of positions. Errors: too few or too many, positions out of bounds.
fn positions(value: RawValue<'_>) -> Result<Vec<Point>> {
    if value.tag != tag::ARRAY {
        return Err(bad(format!(
            "GeoJSON coordinates must be an array of coordinates, found {}",
            display(value)
        )));
    }
    let count = elements(value.bytes).count();
    if count > GEO_VERTICES_MAX {
        return Err(bad(format!("a geometry with {count} vertices: limit of {GEO_VERTICES_MAX}")));
    }
    let mut points: Vec<Point> =
        elements(value.bytes).map(|e| position(pair(e.value, false)?)).collect::<Result<_>>()?;
    points.dedup();
    Ok(points)
}

impl Geometry {
    /// Reads a pair of coordinates.
    pub fn of_pair(at: [f64; 2]) -> Self {
        let shape = is_position(at).then(|| Shape::Point(point_at(at[0], at[1])));
        Self { shapes: shape.into_iter().collect(), flat: Some(at), ..Self::default() }
    }

    /// Reads GeoJSON, an array of two numbers, or an object whose first two fields are numbers.
    ///
    /// Errors: what is wrong, with MongoDB's words where it has some.
    pub fn parse(value: RawValue<'_>) -> Result<Self> {
        match value.tag {
            tag::DOCUMENT
                if field(value.bytes, b"type").is_some_and(|kind| kind.value.tag == tag::STRING) =>
            {
                Self::parse_geojson(value)
            }
            tag::ARRAY | tag::DOCUMENT => Ok(Self::of_pair(pair(value, true)?)),
            _ => Err(bad(format!("geo element must be an array or object, found {}", display(value)))),
        }
    }

    /// Reads GeoJSON.
    pub fn parse_geojson(value: RawValue<'_>) -> Result<Self> {
        let name = match value.tag {
            tag::DOCUMENT => field(value.bytes, b"type").and_then(|kind| kind.value.text()),
            _ => None,
        };
        let Some(kind) = name.and_then(GeometryKind::of) else {
            return Err(bad(format!("unknown GeoJSON type: {}", display(value))));
        };
        let strict_winding = Self::reference_system(value)?;
        if strict_winding && kind != GeometryKind::Polygon {
            return Err(bad("Strict winding order CRS is only supported by polygon"));
        }
        let mut geometry = Self { kind, strict_winding, ..Self::default() };
        let inside = if kind == GeometryKind::Collection { &b"geometries"[..] } else { b"coordinates" };
        let Some(coordinates) = field(value.bytes, inside).map(|e| e.value) else {
            let inside = String::from_utf8_lossy(inside);
            return Err(bad(format!("GeoJSON {inside} must be an array, found none: {}", display(value))));
        };
        geometry.read(kind, coordinates)?;
        if geometry.size() > GEO_VERTICES_MAX {
            return Err(bad(format!("a geometry with more than {GEO_VERTICES_MAX} vertices")));
        }
        Ok(geometry)
    }

    /// Returns whether the reference system is the one with strict winding. Errors: an unknown one.
    fn reference_system<'v>(value: RawValue<'v>) -> Result<bool> {
        let Some(crs) = field(value.bytes, b"crs").map(|e| e.value) else { return Ok(false) };
        let inside = |value: RawValue<'v>, name: &[u8]| match value.tag {
            tag::DOCUMENT => field(value.bytes, name).map(|e| e.value),
            _ => None,
        };
        let name = inside(crs, b"properties").and_then(|properties| inside(properties, b"name"));
        let name = name.filter(|name| name.tag == tag::STRING).and_then(RawValue::text);
        match name {
            Some(name) if KNOWN_SYSTEMS.contains(&name) => Ok(name == STRICT_WINDING),
            Some(name) => Err(bad(format!("Unknown CRS name: {name}"))),
            None => {
                Err(bad(format!("GeoJSON CRS must have field \"properties\" with a name: {}", display(crs))))
            }
        }
    }

    fn read(&mut self, kind: GeometryKind, value: RawValue<'_>) -> Result<()> {
        let parts = |what: &str| match value.tag {
            tag::ARRAY if elements(value.bytes).next().is_some() => {
                Ok(elements(value.bytes).map(|e| e.value))
            }
            _ => Err(bad(format!("{what} coordinates must be an array with at least one element"))),
        };
        match kind {
            GeometryKind::Pair => {}
            GeometryKind::Point => {
                let at = pair(value, true)?;
                self.shapes.push(Shape::Point(position(at)?));
                self.flat = Some(at);
            }
            GeometryKind::Line => self.shapes.push(line(value)?),
            GeometryKind::Polygon => {
                let polygon = polygon(value, self.strict_winding)?;
                self.shapes.push(polygon);
            }
            GeometryKind::MultiPoint => {
                for part in parts("MultiPoint")? {
                    self.shapes.push(Shape::Point(position(pair(part, false)?)?));
                }
            }
            GeometryKind::MultiLine => {
                for part in parts("MultiLineString")? {
                    self.shapes.push(line(part)?);
                }
            }
            GeometryKind::MultiPolygon => {
                for part in parts("MultiPolygon")? {
                    self.shapes.push(polygon(part, false)?);
                }
            }
            GeometryKind::Collection => {
                for part in parts("GeometryCollection geometries")? {
                    let inner = Self::parse_geojson(part)?;
                    if inner.kind == GeometryKind::Collection || inner.strict_winding {
                        return Err(bad(
                            "GeometryCollections cannot be nested, nor have a strict winding order",
                        ));
                    }
                    self.shapes.extend(inner.shapes);
                }
            }
        }
        Ok(())
    }

    /// Returns the number of vertices.
    pub fn size(&self) -> usize {
        self.shapes.iter().map(Shape::size).sum()
    }
}

fn line(value: RawValue<'_>) -> Result<Shape> {
    let points = positions(value)?;
    match points.len() {
        0 | 1 => Err(bad("GeoJSON LineString must have at least 2 different vertices")),
        _ => Ok(Shape::Line(points)),
    }
}

fn polygon(value: RawValue<'_>, strict: bool) -> Result<Shape> {
    let rings = match value.tag {
        tag::ARRAY => elements(value.bytes).map(|e| e.value),
        _ => return Err(bad("Polygon coordinates must be an array")),
    };
    let mut loops = Vec::new();
    for ring in rings {
        loops.push(closed_loop(ring, strict)?);
    }
    if loops.is_empty() {
        return Err(bad("Polygon has no loops."));
    }
    if strict && loops.len() > 1 {
        return Err(bad("Only one simple loop is allowed in a big polygon"));
    }
    let holes = loops.split_off(1);
    let outer = loops.remove(0);
    for (at, hole) in holes.iter().enumerate() {
        let inside = Polygon { outer: outer.clone(), holes: Vec::new() };
        if !inside.encloses(&Shape::Line(hole.vertices().to_vec())) {
            let message = format!(
                "Secondary loops not contained by first exterior loop - secondary loops must be holes: loop {}",
                at + 1
            );
            return Err(bad(message));
        }
    }
    Ok(Shape::Polygon(Polygon { outer, holes }))
}

fn closed_loop(ring: RawValue<'_>, strict: bool) -> Result<SphereLoop> {
    let mut points = positions(ring)?;
    if points.len() > 1 && points.first() != points.last() {
        return Err(bad(format!("Loop is not closed: {}", display(ring))));
    }
    points.pop();
    let made = if strict { SphereLoop::directed(points) } else { SphereLoop::normalized(points) };
    made.map_err(|why| match why {
        BadLoop::TooFew => bad(format!("Loop must have at least 3 different vertices: {}", display(ring))),
        BadLoop::Duplicate(a, b) => {
            bad(format!("Loop is not valid: {} Duplicate vertices: {a} and {b}", display(ring)))
        }
        BadLoop::Antipodal(at) => bad(format!(
            "Loop is not valid: {} Edge {at} leads to the other side of the earth",
            display(ring)
        )),
        BadLoop::Crossing(a, b) => {
            bad(format!("Loop is not valid: {} Edges {a} and {b} cross", display(ring)))
        }
        BadLoop::Stopped(stop) => stop.into(),
    })
}
