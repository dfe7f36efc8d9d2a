//! Areas of the plane, in which coordinates are numbers without a meaning.

/// An area of the plane, with its boundary.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FlatArea {
    /// Least and greatest coordinates.
    Box([f64; 2], [f64; 2]),
    /// Center and radius.
    Circle([f64; 2], f64),
    /// Corners, at least three; the last is connected with the first.
    Polygon(Vec<[f64; 2]>),
}

/// Returns the distance between two points of the plane.
pub(crate) fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    let (x, y) = (a[0] - b[0], a[1] - b[1]);
    (x * x + y * y).sqrt()
}

impl FlatArea {
    /// Returns whether a point is in the area or on its boundary.
    pub fn contains(&self, p: [f64; 2]) -> bool {
        match self {
            Self::Box(low, high) => (0..2).all(|i| low[i] <= p[i] && p[i] <= high[i]),
            Self::Circle(center, radius) => distance(*center, p) <= *radius,
            Self::Polygon(corners) => polygon_contains(corners, p),
        }
    }

    /// Returns the least box around the area.
    pub fn bounds(&self) -> ([f64; 2], [f64; 2]) {
        match self {
            Self::Box(low, high) => (*low, *high),
            // rounding may make the distance of a point outside of the box equal to the radius
            Self::Circle(center, radius) => {
                let reach = radius * (1.0 + 1e-12);
                (center.map(|x| (x - reach).next_down()), center.map(|x| (x + reach).next_up()))
            }
            Self::Polygon(corners) => {
                let start = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
                corners.iter().fold(start, |(low, high), corner| {
                    let least = [low[0].min(corner[0]), low[1].min(corner[1])];
                    (least, [high[0].max(corner[0]), high[1].max(corner[1])])
                })
            }
        }
    }

    /// Returns the number of corners, which tells what a test costs.
    pub fn size(&self) -> usize {
        match self {
            Self::Polygon(corners) => corners.len(),
            _ => 1,
        }
    }
}

/// Counts the edges that a ray from `p` crosses; a point on an edge is inside.
fn polygon_contains(corners: &[[f64; 2]], p: [f64; 2]) -> bool {
    let mut inside = false;
    for (a, b) in corners.iter().zip(corners.iter().cycle().skip(1)) {
        let side = (b[0] - a[0]) * (p[1] - a[1]) - (p[0] - a[0]) * (b[1] - a[1]);
        let between = |i: usize| a[i].min(b[i]) <= p[i] && p[i] <= a[i].max(b[i]);
        if side == 0.0 && between(0) && between(1) {
            return true;
        }
        // an edge has its lower end, and not its upper one
        if (a[1] <= p[1]) != (b[1] <= p[1]) && (side > 0.0) == (b[1] > a[1]) {
            inside = !inside;
        }
    }
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_polygon_has_its_boundary() {
        let area = FlatArea::Polygon(vec![[0.0, 0.0], [4.0, 0.0], [4.0, 4.0], [2.0, 1.0], [0.0, 4.0]]);
        for inside in [[1.0, 1.0], [0.0, 0.0], [4.0, 2.0], [2.0, 1.0], [2.0, 0.0], [3.0, 2.5]] {
            assert!(area.contains(inside), "{inside:?}");
        }
        for outside in [[2.0, 2.0], [5.0, 0.0], [-1.0, 0.0], [2.0, 4.0], [2.0, -0.1]] {
            assert!(!area.contains(outside), "{outside:?}");
        }
        assert_eq!(area.bounds(), ([0.0, 0.0], [4.0, 4.0]));
    }
}
