//! Points, edges and loops on the sphere. Edges are arcs of great circles, as in MongoDB.
//!
//! Predicates are those of the crate `s2`, which are exact. Sines and cosines are those of `libm`, so that all machines that apply a
//! log decide alike.

use s2::cap::Cap;
use s2::edge_crossings::{Crossing, EdgeCrosser, crossing_sign};
use s2::point::{Point, ordered_ccw};
use s2::predicates::{Direction, robust_sign};
use s2::r3::vector::Vector;
use s2::s1::{Angle, Rad};

use std::f64::consts::{FRAC_PI_2, PI};

use tidemill_types::budget::{self, Stop};

/// Metres of one radian, as MongoDB counts.
pub(crate) const EARTH_RADIUS_M: f64 = 6_378_100.0;
/// Radians by which a bounding cap is larger than what it bounds.
const BOUND_MARGIN: f64 = 1e-9;

/// Returns the point at a longitude and a latitude in degrees.
pub(crate) fn point_at(lng: f64, lat: f64) -> Point {
    let (lng, lat) = (lng.to_radians(), lat.to_radians());
    let cos = libm::cos(lat);
    Point(Vector { x: libm::cos(lng) * cos, y: libm::sin(lng) * cos, z: libm::sin(lat) }.normalize())
}

/// Returns the point on the other side of the sphere.
pub(crate) fn antipode(p: &Point) -> Point {
    Point(p.0 * -1.0)
}

/// Returns the angle between two points in radians.
pub(crate) fn angle(a: &Point, b: &Point) -> f64 {
    angle_of(a.0, b.0)
}

fn angle_of(a: Vector, b: Vector) -> f64 {
    libm::atan2(a.cross(&b).norm(), a.dot(&b))
}

/// Returns the angle between a point and the nearest one of an edge.
pub(crate) fn angle_to_edge(p: &Point, a: &Point, b: &Point) -> f64 {
    if a == b {
        return angle(p, a);
    }
    let normal = a.cross(b).0;
    let between = normal.cross(&a.0).dot(&p.0) > 0.0 && b.0.cross(&normal).dot(&p.0) > 0.0;
    match between {
        true => {
            let height = p.0.dot(&normal) / normal.norm();
            libm::atan2(height.abs(), (1.0 - height * height).max(0.0).sqrt())
        }
        false => angle(p, a).min(angle(p, b)),
    }
}

/// A closed chain of edges and the region that it encloses.
#[derive(Debug, Clone)]
pub(crate) struct SphereLoop {
    /// Vertices, the first one once.
    vertices: Vec<Point>,
    /// True if the reference point of `s2`, from which containment is counted, is inside.
    origin_inside: bool,
    bound: Cap,
}

/// Why vertices are not the boundary of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadLoop {
    TooFew,
    Duplicate(usize, usize),
    Antipodal(usize),
    Crossing(usize, usize),
    /// The work has to end.
    Stopped(Stop),
}

impl SphereLoop {
    /// Creates the loop that encloses no more than half of the sphere, whatever the order of the vertices is.
    ///
    /// Errors: fewer than three vertices, a vertex twice, edges that cross.
    pub fn normalized(vertices: Vec<Point>) -> Result<Self, BadLoop> {
        let mut found = Self::directed(vertices)?;
        if found.turning_angle() < -1e-14 {
            found.vertices.reverse();
            found.origin_inside = !found.origin_inside;
        }
        found.bound = found.bounding_cap(false);
        Ok(found)
    }

    /// Creates the loop with the region on the left of its edges, which may be more than half of the sphere.
    ///
    /// Errors: as [`Self::normalized`].
    pub fn directed(vertices: Vec<Point>) -> Result<Self, BadLoop> {
        check_loop(&vertices)?;
        let mut found = Self { vertices, origin_inside: false, bound: Cap::full() };
        let [first, second, third, ..] = found.vertices.as_slice() else { return Err(BadLoop::TooFew) };
        // a vertex is inside if the next edges go around a fixed direction from it; the reference point is inside if counting from it
        // gives the same
        let inside = ordered_ccw(&second.ortho(), first, third, second);
        let second = *second;
        found.origin_inside = inside != found.counts_as_inside(&second);
        found.bound = found.bounding_cap(true);
        Ok(found)
    }

    pub fn vertices(&self) -> &[Point] {
        &self.vertices
    }

    /// Returns the edges.
    pub fn edges(&self) -> impl Iterator<Item = (&Point, &Point)> + Clone {
        self.vertices.iter().zip(self.vertices.iter().cycle().skip(1))
    }

    /// Returns a cap that contains the region.
    pub fn bound(&self) -> &Cap {
        &self.bound
    }

    /// Returns whether a point is inside. Of regions that share an edge, one has the points on it.
    pub fn contains(&self, p: &Point) -> bool {
        (self.bound.is_full() || self.bound.contains_point(p)) && self.counts_as_inside(p)
    }

    fn counts_as_inside(&self, p: &Point) -> bool {
        let mut inside = self.origin_inside;
        let Some(first) = self.vertices.first() else { return inside };
        let mut crosser = EdgeCrosser::new_with_c(&Point::origin(), p, first);
        for vertex in self.vertices.iter().skip(1).chain([first]) {
            inside ^= crosser.chain_edge_or_vertex_crossing(vertex);
        }
        inside
    }

    /// Returns the sum of the angles by which the boundary turns left: positive for less than half of the sphere.
    fn turning_angle(&self) -> f64 {
        let next = |step: usize| self.vertices.iter().cycle().skip(step);
        self.vertices.iter().zip(next(1)).zip(next(2)).map(|((a, b), c)| turn(a, b, c)).sum()
    }

    fn bounding_cap(&self, may_be_large: bool) -> Cap {
        let sum = self.vertices.iter().fold(Vector::default(), |sum, p| sum + p.0);
        if may_be_large || sum.norm() < 1e-6 {
            return Cap::full();
        }
        let center = Point(sum.normalize());
        let radius = self.vertices.iter().map(|p| angle(&center, p)).fold(0.0, f64::max) + BOUND_MARGIN;
        // edges between points of a larger cap may leave it, and the region may be outside of it
        match radius < FRAC_PI_2 - 0.01 {
            true => cap(&center, radius),
            false => Cap::full(),
        }
    }
}

/// Returns the points within some radians of a center.
pub(crate) fn cap(center: &Point, radius: f64) -> Cap {
    match radius >= PI {
        true => Cap::full(),
        false => Cap::from_center_angle(center, &Angle::from(Rad(radius))),
    }
}

/// Returns the angle by which a path turns left at `b`.
fn turn(a: &Point, b: &Point, c: &Point) -> f64 {
    let size = angle_of(a.cross(b).0, b.cross(c).0);
    match robust_sign(a, b, c) {
        Direction::CounterClockwise => size,
        _ => -size,
    }
}

fn check_loop(vertices: &[Point]) -> Result<(), BadLoop> {
    if vertices.len() < 3 {
        return Err(BadLoop::TooFew);
    }
    let bits = |p: &Point| [p.0.x, p.0.y, p.0.z].map(|x| (x + 0.0).to_bits());
    let mut seen = hashbrown::HashMap::with_capacity(vertices.len());
    for (at, vertex) in vertices.iter().enumerate() {
        if let Some(earlier) = seen.insert(bits(vertex), at) {
            return Err(BadLoop::Duplicate(earlier, at));
        }
        let next = &vertices[(at + 1) % vertices.len()];
        if *vertex == antipode(next) {
            return Err(BadLoop::Antipodal(at));
        }
    }
    let edge = |at: usize| (&vertices[at], &vertices[(at + 1) % vertices.len()]);
    let boxes: Vec<_> = (0..vertices.len()).map(|at| EdgeBox::of(edge(at), at)).collect();
    let crosses = |i: usize, j: usize| {
        let ((a, b), (c, d)) = (edge(i), edge(j));
        crossing_sign(a, b, c, d) == Crossing::Cross
    };
    match first_near_pair(boxes, crosses).map_err(BadLoop::Stopped)? {
        Some((i, j)) => Err(BadLoop::Crossing(i.min(j), i.max(j))),
        None => Ok(()),
    }
}

/// The box around an edge in space.
#[derive(Clone, Copy)]
struct EdgeBox {
    low: [f64; 3],
    high: [f64; 3],
    at: usize,
}

impl EdgeBox {
    fn of((a, b): (&Point, &Point), at: usize) -> Self {
        let (a, b) = ([a.0.x, a.0.y, a.0.z], [b.0.x, b.0.y, b.0.z]);
        let length = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
        // an arc bulges out of its chord by less than half of its length
        let bulge = if length < 0.1 { length * length / 4.0 } else { length / 2.0 } + 1e-15;
        let side = |pick: fn(f64, f64) -> f64, by: f64| std::array::from_fn(|i| pick(a[i], b[i]) + by);
        Self { low: side(f64::min, -bulge), high: side(f64::max, bulge), at }
    }

    fn meets(&self, other: &Self) -> bool {
        (1..3).all(|i| self.low[i] <= other.high[i] && other.low[i] <= self.high[i])
    }
}

/// Returns the first two edges whose boxes meet and for which `test` holds. Errors: the work has to end.
fn first_near_pair(
    mut boxes: Vec<EdgeBox>,
    test: impl Fn(usize, usize) -> bool,
) -> Result<Option<(usize, usize)>, Stop> {
    boxes.sort_unstable_by(|a, b| a.low[0].total_cmp(&b.low[0]).then(a.at.cmp(&b.at)));
    let mut open: Vec<EdgeBox> = Vec::new();
    for next in boxes {
        open.retain(|earlier| earlier.high[0] >= next.low[0]);
        budget::steps(1 + open.len() as u64 / 16)?;
        if let Some(found) = open.iter().find(|earlier| earlier.meets(&next) && test(earlier.at, next.at)) {
            return Ok(Some((found.at, next.at)));
        }
        open.push(next);
    }
    Ok(None)
}

/// Returns whether one of `edges` crosses one of `others` inside of both.
pub(crate) fn any_crossing<'p>(
    edges: impl Iterator<Item = (&'p Point, &'p Point)>,
    others: impl Iterator<Item = (&'p Point, &'p Point)> + Clone,
) -> bool {
    let mut edges = edges;
    edges.any(|(a, b)| {
        let mut crosser = EdgeCrosser::new(a, b);
        others.clone().any(|(c, d)| crosser.crossing_sign(c, d) == Crossing::Cross)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(corners: &[(f64, f64)]) -> Vec<Point> {
        corners.iter().map(|(lng, lat)| point_at(*lng, *lat)).collect()
    }

    #[test]
    fn a_loop_encloses_the_smaller_side() {
        let square = ring(&[(0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 10.0)]);
        let reversed: Vec<Point> = square.iter().rev().copied().collect();
        for vertices in [square.clone(), reversed.clone()] {
            let found = SphereLoop::normalized(vertices).unwrap();
            assert!(found.contains(&point_at(5.0, 5.0)));
            assert!(!found.contains(&point_at(15.0, 5.0)));
            assert!(!found.contains(&point_at(-175.0, -5.0)));
        }
        let large = SphereLoop::directed(reversed).unwrap();
        assert!(!large.contains(&point_at(5.0, 5.0)));
        assert!(large.contains(&point_at(15.0, 5.0)) && large.contains(&point_at(-175.0, -5.0)));
        // around the pole
        let cap = SphereLoop::normalized(ring(&[(0.0, 60.0), (120.0, 60.0), (-120.0, 60.0)])).unwrap();
        assert!(cap.contains(&point_at(77.0, 89.0)) && !cap.contains(&point_at(60.0, 10.0)));
    }

    #[test]
    fn edges_are_great_circles() {
        // the edge between (-60, 45) and (60, 45) goes as far north as 63.4 degrees
        let found =
            SphereLoop::normalized(ring(&[(-60.0, 0.0), (60.0, 0.0), (60.0, 45.0), (-60.0, 45.0)])).unwrap();
        assert!(found.contains(&point_at(0.0, 63.0)) && !found.contains(&point_at(0.0, 64.0)));
    }

    #[test]
    fn bad_loops_are_refused() {
        let bow = ring(&[(0.0, 0.0), (10.0, 10.0), (10.0, 0.0), (0.0, 10.0)]);
        assert_eq!(SphereLoop::normalized(bow).unwrap_err(), BadLoop::Crossing(0, 2));
        let twice = ring(&[(0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 0.0), (0.0, 10.0)]);
        assert_eq!(SphereLoop::normalized(twice).unwrap_err(), BadLoop::Duplicate(0, 3));
        assert_eq!(SphereLoop::normalized(ring(&[(0.0, 0.0), (1.0, 0.0)])).unwrap_err(), BadLoop::TooFew);
    }

    #[test]
    fn distances_are_those_of_the_sphere() {
        let quarter = angle(&point_at(0.0, 0.0), &point_at(90.0, 0.0));
        assert!((quarter - FRAC_PI_2).abs() < 1e-15);
        let (a, b) = (point_at(0.0, 0.0), point_at(10.0, 0.0));
        let above = angle_to_edge(&point_at(5.0, 3.0), &a, &b).to_degrees();
        assert!((above - 3.0).abs() < 1e-12, "{above}");
        let beside = angle_to_edge(&point_at(13.0, 0.0), &a, &b).to_degrees();
        assert!((beside - 3.0).abs() < 1e-12, "{beside}");
    }
}
