//! GeoJSON geometries, and circles: `{"type": "Circle", "coordinates": [longitude, latitude], "radius": metres}`.

use geo::{
    Coord, Geometry, GeometryCollection, LineString, MultiLineString, MultiPoint, MultiPolygon, Point,
    Polygon, Validation,
};
use serde_json::Value as Json;

use super::metres;
use crate::functions::json_text::read_json;

/// Positions of a geometry that comes with an event. Whether a ring crosses itself takes time by the square of them.
pub(super) const POSITIONS_MAX: usize = 1000;
/// Positions of a geometry that the query has, which is checked once.
pub(super) const CONSTANT_POSITIONS_MAX: usize = 10_000;
/// Collections inside of collections.
const DEPTH_MAX: usize = 8;
/// Corners of the polygon that a circle is.
const CIRCLE_CORNERS: u32 = 128;

/// Returns a place. Errors: it is not on the earth.
pub(super) fn place(longitude: f64, latitude: f64) -> Result<Coord, String> {
    if !(-180.0..=180.0).contains(&longitude) {
        return Err(format!("the longitude is {longitude}; expected -180 to 180"));
    }
    if !(-90.0..=90.0).contains(&latitude) {
        return Err(format!("the latitude is {latitude}; expected -90 to 90"));
    }
    Ok(Coord { x: longitude, y: latitude })
}

/// Parses a geometry with at most so many positions.
///
/// Errors: the text is not a geometry, or the geometry is invalid.
pub(super) fn parse(text: &str, positions_max: usize) -> Result<Geometry, String> {
    let mut reader = Reader { left: positions_max, positions_max };
    let geometry = reader.geometry(&read_json(text)?, 0)?;
    geometry.check_validation().map_err(|wrong| format!("the geometry is not valid: {wrong}"))?;
    Ok(geometry)
}

struct Reader {
    /// Positions that may still come.
    left: usize,
    positions_max: usize,
}

impl Reader {
    fn geometry(&mut self, json: &Json, depth: usize) -> Result<Geometry, String> {
        let kind = json.get("type").and_then(Json::as_str);
        let kind =
            kind.ok_or("expected GeoJSON such as {'type': 'Point', 'coordinates': [longitude, latitude]}")?;
        if kind == "GeometryCollection" {
            if depth >= DEPTH_MAX {
                return Err(format!("collections are nested more than {DEPTH_MAX} deep"));
            }
            let members = list(json.get("geometries"), "`geometries`")?;
            let members: Result<Vec<_>, _> =
                members.iter().map(|one| self.geometry(one, depth + 1)).collect();
            return Ok(Geometry::GeometryCollection(GeometryCollection(members?)));
        }
        let at = json.get("coordinates");
        Ok(match kind {
            "Point" => Geometry::Point(Point(self.position(at)?)),
            "MultiPoint" => {
                Geometry::MultiPoint(MultiPoint(self.each(at, |r, p| Ok(Point(r.position(Some(p))?)))?))
            }
            "LineString" => Geometry::LineString(self.line(at)?),
            "MultiLineString" => {
                Geometry::MultiLineString(MultiLineString(self.each(at, |r, line| r.line(Some(line)))?))
            }
            "Polygon" => Geometry::Polygon(self.polygon(at)?),
            "MultiPolygon" => {
                Geometry::MultiPolygon(MultiPolygon(self.each(at, |r, one| r.polygon(Some(one)))?))
            }
            "Circle" => {
                let centre = self.position(at)?;
                let radius = json.get("radius").and_then(Json::as_f64).filter(|r| r.is_finite() && *r > 0.0);
                let radius = radius.ok_or("a circle needs a `radius` in metres above 0")?;
                Geometry::Polygon(metres::circle(centre, radius, CIRCLE_CORNERS)?)
            }
            _ => {
                return Err(format!(
                    "there is no geometry `{kind}`; expected Point, MultiPoint, LineString, MultiLineString, Polygon, \
                     MultiPolygon, GeometryCollection or Circle"
                ));
            }
        })
    }

    fn each<T>(
        &mut self,
        json: Option<&Json>,
        mut read: impl FnMut(&mut Self, &Json) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        list(json, "`coordinates`")?.iter().map(|one| read(self, one)).collect()
    }

    fn polygon(&mut self, json: Option<&Json>) -> Result<Polygon, String> {
        let mut rings = self.each(json, |r, ring| r.line(Some(ring)))?.into_iter();
        let outer = rings.next().ok_or("a polygon needs a ring of positions")?;
        Ok(Polygon::new(outer, rings.collect()))
    }

    fn line(&mut self, json: Option<&Json>) -> Result<LineString, String> {
        Ok(LineString(self.each(json, |r, position| r.position(Some(position)))?))
    }

    fn position(&mut self, json: Option<&Json>) -> Result<Coord, String> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| format!("a geometry with more than {} positions", self.positions_max))?;
        let numbers =
            json.and_then(Json::as_array).and_then(|p| Some((p.first()?.as_f64()?, p.get(1)?.as_f64()?)));
        let (longitude, latitude) = numbers.ok_or("expected a position such as [longitude, latitude]")?;
        place(longitude, latitude)
    }
}

fn list<'j>(json: Option<&'j Json>, what: &str) -> Result<&'j Vec<Json>, String> {
    json.and_then(Json::as_array).ok_or_else(|| format!("expected {what} with a list"))
}
