//! Distances on the earth, which is a sphere of 6371 km here as in the original.

use std::f64::consts::TAU;

use geo::{
    Closest, Coord, CoordsIter, Geometry, HaversineClosestPoint, Intersects, LineString, Point, Polygon,
};

const RADIUS: f64 = 6_371_000.0;
/// Pairs of positions that [`apart`] looks at.
const PAIRS_MAX: usize = 1_000_000;

/// Returns the distance of two places in metres.
pub(super) fn between(from: Coord, to: Coord) -> f64 {
    let (latitude1, latitude2) = (from.y.to_radians(), to.y.to_radians());
    let half = |angle: f64| (angle / 2.0).sin().powi(2);
    let h =
        half(latitude2 - latitude1) + latitude1.cos() * latitude2.cos() * half((to.x - from.x).to_radians());
    2.0 * RADIUS * h.sqrt().min(1.0).asin()
}

/// Returns the distance of two geometries in metres: 0 if they have a place in common, else the smallest one between a
/// position of one and the nearest place of the other.
///
/// Errors: together they have too many positions.
pub(super) fn apart(a: &Geometry, b: &Geometry) -> Result<f64, String> {
    if a.intersects(b) {
        return Ok(0.0);
    }
    if a.coords_count().saturating_mul(b.coords_count()) > PAIRS_MAX {
        return Err(format!(
            "geometries with {} and {} positions; they may multiply to {PAIRS_MAX}",
            a.coords_count(),
            b.coords_count()
        ));
    }
    Ok(nearest(a, b).min(nearest(b, a)))
}

/// Returns the smallest distance between a position of `a` and a place of `b`.
fn nearest(a: &Geometry, b: &Geometry) -> f64 {
    let distance = |position: Coord| match b.haversine_closest_point(&Point(position)) {
        Closest::Intersection(_) => 0.0,
        Closest::SinglePoint(at) => between(position, at.0),
        // no place is nearer than the others, or the geometry is empty: its positions decide
        Closest::Indeterminate => {
            b.coords_iter().map(|at| between(position, at)).fold(f64::INFINITY, f64::min)
        }
    };
    a.coords_iter().map(distance).fold(f64::INFINITY, f64::min)
}

/// Returns the polygon of a circle.
///
/// Errors: it has a pole in it, or reaches over the 180th meridian.
pub(super) fn circle(centre: Coord, radius: f64, corners: u32) -> Result<Polygon, String> {
    let angle = radius / RADIUS;
    if angle.to_degrees() + centre.y.abs() >= 90.0 {
        return Err(format!("a circle of {radius} m around the latitude {} has a pole in it", centre.y));
    }
    let (sin, cos) = centre.y.to_radians().sin_cos();
    let corner = |n: u32| {
        let bearing = TAU * f64::from(n) / f64::from(corners);
        let latitude = (sin * angle.cos() + cos * angle.sin() * bearing.cos()).asin();
        let east = (bearing.sin() * angle.sin() * cos).atan2(angle.cos() - sin * latitude.sin());
        Coord { x: centre.x + east.to_degrees(), y: latitude.to_degrees() }
    };
    let ring: Vec<Coord> = (0..corners).map(corner).collect();
    match ring.iter().all(|corner| corner.x.abs() <= 180.0) {
        true => Ok(Polygon::new(LineString(ring), vec![])),
        false => Err(format!(
            "a circle of {radius} m around the longitude {} crosses the 180th meridian",
            centre.x
        )),
    }
}
