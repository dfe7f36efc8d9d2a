//! Points, lines and polygons on the sphere, and how they lie to each other.

use s2::cap::Cap;
use s2::cell::Cell;
use s2::cellid::CellID;
use s2::edge_crossings::{Crossing, EdgeCrosser, get_intersection};
use s2::edgeutil::interpolate;
use s2::point::Point;
use s2::region::{Region, RegionCoverer};

use super::sphere::{SphereLoop, angle, angle_to_edge, any_crossing, cap};

/// Radians within which a point is on an edge, or two points are the same: six millimetres. MongoDB has cells of that size.
const TOUCH: f64 = 1e-9;
/// Level of the smallest cells with which lines and polygons are covered: about one metre.
const LEVEL_MAX: u8 = 23;
/// Cells that cover one shape, if these are enough.
const CELLS_MAX: usize = 16;

/// A part of a geometry.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Point(Point),
    /// Vertices of a chain of edges, at least two.
    Line(Vec<Point>),
    Polygon(Polygon),
}

/// The region inside of its first loop and outside of the others.
#[derive(Debug, Clone)]
pub(crate) struct Polygon {
    pub outer: SphereLoop,
    pub holes: Vec<SphereLoop>,
}

type Edge<'s> = (&'s Point, &'s Point);

impl Shape {
    /// Returns the number of vertices, which tells what tests cost.
    pub fn size(&self) -> usize {
        match self {
            Self::Point(_) => 1,
            Self::Line(line) => line.len(),
            Self::Polygon(polygon) => polygon.loops().map(|ring| ring.vertices().len()).sum(),
        }
    }

    fn vertices(&self) -> Vec<&Point> {
        match self {
            Self::Point(point) => vec![point],
            Self::Line(line) => line.iter().collect(),
            Self::Polygon(polygon) => polygon.loops().flat_map(SphereLoop::vertices).collect(),
        }
    }

    fn edges(&self) -> Vec<Edge<'_>> {
        match self {
            Self::Point(_) => Vec::new(),
            Self::Line(line) => line.iter().zip(line.iter().skip(1)).collect(),
            Self::Polygon(polygon) => polygon.edges().collect(),
        }
    }

    /// Returns the angle between a point and the nearest one of the shape.
    pub fn angle_to(&self, p: &Point) -> f64 {
        match self {
            Self::Point(own) => angle(own, p),
            Self::Line(_) => self.angle_to_edges(p),
            Self::Polygon(polygon) if polygon.contains(p) => 0.0,
            Self::Polygon(_) => self.angle_to_edges(p),
        }
    }

    fn angle_to_edges(&self, p: &Point) -> f64 {
        self.edges().into_iter().map(|(a, b)| angle_to_edge(p, a, b)).fold(f64::INFINITY, f64::min)
    }

    /// Returns whether a point is in the shape or on its boundary.
    fn has(&self, p: &Point) -> bool {
        match self {
            Self::Polygon(polygon) => polygon.has(p),
            _ => self.angle_to(p) <= TOUCH,
        }
    }

    /// Returns whether the shapes have a point in common.
    pub fn intersects(&self, other: &Self) -> bool {
        if let (Self::Polygon(own), Self::Polygon(other)) = (self, other)
            && !own.outer.bound().intersects(other.outer.bound())
        {
            return false;
        }
        other.vertices().into_iter().any(|vertex| self.has(vertex))
            || self.vertices().into_iter().any(|vertex| other.has(vertex))
            || any_crossing(self.edges().into_iter(), other.edges().into_iter())
    }

    /// Returns cells that cover the shape.
    pub fn cells(&self) -> Vec<CellID> {
        match self {
            Self::Point(point) => vec![CellID::from(point)],
            _ => covering(&ShapeRegion { bound: self.bound(), shape: self.clone() }),
        }
    }

    fn bound(&self) -> Cap {
        match self {
            Self::Polygon(polygon) => polygon.outer.bound().clone(),
            _ => {
                let vertices = self.vertices();
                let Some(first) = vertices.first() else { return Cap::empty() };
                let radius = vertices.iter().map(|vertex| angle(first, vertex)).fold(0.0, f64::max);
                // edges between points of a cap of less than a half of the sphere stay in it
                if radius < 1.5 { cap(first, radius + TOUCH) } else { Cap::full() }
            }
        }
    }
}

impl Polygon {
    fn loops(&self) -> impl Iterator<Item = &SphereLoop> + Clone {
        [&self.outer].into_iter().chain(&self.holes)
    }

    fn edges(&self) -> impl Iterator<Item = Edge<'_>> + Clone {
        self.loops().flat_map(SphereLoop::edges)
    }

    fn contains(&self, p: &Point) -> bool {
        self.outer.contains(p) && !self.holes.iter().any(|hole| hole.contains(p))
    }

    fn is_on_boundary(&self, p: &Point) -> bool {
        self.edges().any(|(a, b)| angle_to_edge(p, a, b) <= TOUCH)
    }

    fn has(&self, p: &Point) -> bool {
        let near = self.outer.bound().is_full() || self.outer.bound().contains_point(p);
        near && (self.contains(p) || self.is_on_boundary(p))
    }

    /// Returns whether all of a shape is in the polygon or on its boundary.
    pub fn encloses(&self, shape: &Shape) -> bool {
        if !shape.vertices().into_iter().all(|vertex| self.has(vertex)) {
            return false;
        }
        if !shape.edges().into_iter().all(|(a, b)| self.has_edge(a, b)) {
            return false;
        }
        // a boundary inside of the other polygon has something behind it that does not belong to this one
        match shape {
            Shape::Polygon(inner) => !self
                .loops()
                .flat_map(SphereLoop::vertices)
                .any(|vertex| inner.contains(vertex) && !inner.is_on_boundary(vertex)),
            _ => true,
        }
    }

    /// Returns whether an edge whose ends are in the polygon is in it: whether the middles of its parts are, between the places where
    /// the boundary crosses or touches it.
    fn has_edge(&self, a: &Point, b: &Point) -> bool {
        let mut crosser = EdgeCrosser::new(a, b);
        let length = angle(a, b);
        if length <= TOUCH {
            return true;
        }
        let mut cuts = vec![0.0, length];
        for (c, d) in self.edges() {
            if crosser.crossing_sign(c, d) == Crossing::Cross {
                // edges along each other may cross anywhere, even on the other side of the sphere
                cuts.extend(Some(angle(a, &get_intersection(a, b, c, d))).filter(|cut| *cut < length));
            } else if angle_to_edge(c, a, b) <= TOUCH {
                cuts.push(angle(a, c));
            }
        }
        cuts.sort_unstable_by(f64::total_cmp);
        cuts.windows(2).all(|part| self.has(&interpolate((part[0] + part[1]) / 2.0 / length, a, b)))
    }
}

/// Returns cells that cover a region.
pub(crate) fn covering<R: Region + 'static>(region: &R) -> Vec<CellID> {
    let coverer = RegionCoverer { min_level: 0, max_level: LEVEL_MAX, level_mod: 1, max_cells: CELLS_MAX };
    coverer.covering(region).0
}

/// A line or a polygon as the coverer of `s2` sees it.
struct ShapeRegion {
    shape: Shape,
    bound: Cap,
}

fn cell_edges(corners: &[Point; 4]) -> impl Iterator<Item = Edge<'_>> + Clone {
    (0..4).map(|at| (&corners[at], &corners[(at + 1) % 4]))
}

impl Region for ShapeRegion {
    fn cap_bound(&self) -> Cap {
        self.bound.clone()
    }

    fn contains_cell(&self, cell: &Cell) -> bool {
        let Shape::Polygon(polygon) = &self.shape else { return false };
        let corners = cell.vertices();
        corners.iter().all(|corner| polygon.contains(corner))
            && !polygon.loops().flat_map(SphereLoop::vertices).any(|vertex| cell.contains_point(vertex))
            && !any_crossing(cell_edges(&corners), polygon.edges())
    }

    fn intersects_cell(&self, cell: &Cell) -> bool {
        if !self.bound.is_full() && !self.bound.intersects_cell(cell) {
            return false;
        }
        let corners = cell.vertices();
        if let Shape::Polygon(polygon) = &self.shape
            && (polygon.contains(&cell.center()) || corners.iter().any(|corner| polygon.contains(corner)))
        {
            return true;
        }
        self.shape.vertices().into_iter().any(|vertex| cell.contains_point(vertex))
            || any_crossing(cell_edges(&corners), self.shape.edges().into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::super::sphere::point_at;
    use super::*;

    fn square(west: f64, south: f64, size: f64) -> SphereLoop {
        let corners =
            [(west, south), (west + size, south), (west + size, south + size), (west, south + size)];
        SphereLoop::normalized(corners.iter().map(|(lng, lat)| point_at(*lng, *lat)).collect()).unwrap()
    }

    fn polygon(outer: SphereLoop, holes: Vec<SphereLoop>) -> Shape {
        Shape::Polygon(Polygon { outer, holes })
    }

    fn encloses(outer: &Shape, inner: &Shape) -> bool {
        matches!(outer, Shape::Polygon(polygon) if polygon.encloses(inner))
    }

    #[test]
    fn polygons_enclose_what_touches_their_boundary() {
        let outer = polygon(square(0.0, 0.0, 10.0), Vec::new());
        assert!(encloses(&outer, &outer));
        assert!(encloses(&outer, &polygon(square(2.0, 2.0, 3.0), Vec::new())));
        // along a meridian, which is an edge of both
        assert!(encloses(&outer, &polygon(square(7.0, 2.0, 3.0), Vec::new())));
        assert!(!encloses(&outer, &polygon(square(8.0, 2.0, 3.0), Vec::new())));
        for corner in [(0.0, 0.0), (10.0, 5.0), (0.0, 3.0), (4.0, 0.0)] {
            assert!(encloses(&outer, &Shape::Point(point_at(corner.0, corner.1))), "{corner:?}");
        }
        assert!(!encloses(&outer, &Shape::Point(point_at(10.000_01, 5.0))));
    }

    #[test]
    fn holes_do_not_belong_to_a_polygon() {
        let ring = polygon(square(0.0, 0.0, 10.0), vec![square(4.0, 4.0, 2.0)]);
        assert!(!encloses(&ring, &polygon(square(1.0, 1.0, 8.0), Vec::new())));
        assert!(encloses(&ring, &polygon(square(1.0, 1.0, 8.0), vec![square(3.5, 3.5, 3.0)])));
        let inside = polygon(square(4.5, 4.5, 1.0), Vec::new());
        assert!(!ring.intersects(&inside) && !inside.intersects(&ring));
        assert!(ring.intersects(&polygon(square(4.5, 4.5, 3.0), Vec::new())));
        assert!(!encloses(&ring, &Shape::Line(vec![point_at(1.0, 5.0), point_at(9.0, 5.0)])));
        assert!((ring.angle_to(&point_at(5.0, 5.0)).to_degrees() - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_line_that_leaves_a_concave_polygon_is_not_in_it() {
        let corners = [(0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (5.0, 5.0), (0.0, 10.0)];
        let vertices = corners.iter().map(|(lng, lat)| point_at(*lng, *lat)).collect();
        let outer = polygon(SphereLoop::normalized(vertices).unwrap(), Vec::new());
        let line = |a: (f64, f64), b: (f64, f64)| Shape::Line(vec![point_at(a.0, a.1), point_at(b.0, b.1)]);
        assert!(!encloses(&outer, &line((0.0, 10.0), (10.0, 10.0))));
        assert!(encloses(&outer, &line((0.0, 4.0), (10.0, 4.0))));
        assert!(outer.intersects(&line((5.0, 9.0), (20.0, 9.0))));
        assert!(!outer.intersects(&line((4.0, 9.0), (6.0, 9.0))));
    }

    #[test]
    fn coverings_cover() {
        let shape = polygon(square(8.0, 47.0, 0.5), Vec::new());
        let cells = shape.cells();
        assert!(!cells.is_empty() && cells.len() <= CELLS_MAX, "{}", cells.len());
        for step in 0..20 {
            let leaf = CellID::from(point_at(8.0 + f64::from(step) * 0.025, 47.25));
            assert!(cells.iter().any(|cell| cell.contains(&leaf)), "{step}");
        }
    }
}
