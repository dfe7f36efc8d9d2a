//! Conditions on geometries: in an area, meeting an area, near a point.

use std::f64::consts::PI;
use std::sync::OnceLock;

use s2::point::Point;
use tidemill_types::budget;

use super::flat::{self, FlatArea};
use super::geometry::Geometry;
use super::shape::Shape;
use super::sphere::{EARTH_RADIUS_M, angle, antipode, point_at};
use crate::error::{DocsError, ErrorCode, Result};
use crate::values::path::Path;
use crate::values::path_values::{LeafArray, any_value};
use crate::values::raw::{RawValue, elements, tag};

/// Vertices, or pairs of them, that count as one step.
const PER_STEP: usize = 16;

/// A condition on the place of a geometry.
#[derive(Debug, Clone)]
pub(crate) struct GeoTest {
    pub relation: SpatialRelation,
    pub area: Area,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpatialRelation {
    /// All of it is in the area.
    Within,
    /// A point of it is in the area.
    Intersects,
}

#[derive(Debug, Clone)]
pub(crate) enum Area {
    /// On the plane; only points have a place there.
    Flat(FlatArea),
    /// The points of the sphere within some radians of a center, which stands in degrees, too.
    Cap {
        center: Point,
        degrees: [f64; 2],
        radius: f64,
    },
    Geometry(Geometry),
}

/// The number of vertices of the area.
fn size_of(area: &Area) -> usize {
    match area {
        Area::Flat(flat) => flat.size(),
        Area::Cap { .. } => 1,
        Area::Geometry(geometry) => geometry.size(),
    }
}

impl GeoTest {
    /// Returns whether the condition holds for a value of a document. It does not for a value that is not a
    /// geometry.
    ///
    /// Errors: the work has to end.
    pub fn holds(&self, value: RawValue<'_>) -> Result<bool> {
        let mut holds = false;
        each_geometry(value, &mut |geometry| {
            holds = holds || self.holds_for(geometry)?;
            Ok(())
        })?;
        Ok(holds)
    }

    fn holds_for(&self, geometry: &Geometry) -> Result<bool> {
        budget::steps((geometry.size().max(1) * size_of(&self.area) / PER_STEP) as u64)?;
        Ok(match (&self.area, self.relation) {
            (Area::Flat(flat), _) => geometry.flat.is_some_and(|at| flat.contains(at)),
            (_, _) if geometry.shapes.is_empty() => false,
            (Area::Cap { center, radius, .. }, SpatialRelation::Within) => {
                // all of it is within the radius if nothing is near the other side
                let other_side = antipode(center);
                geometry.shapes.iter().all(|shape| match shape {
                    Shape::Point(point) => angle(point, center) <= *radius,
                    shape => shape.angle_to(&other_side) >= PI - radius,
                })
            }
            (Area::Cap { center, radius, .. }, SpatialRelation::Intersects) => {
                geometry.shapes.iter().any(|shape| shape.angle_to(center) <= *radius)
            }
            (Area::Geometry(area), SpatialRelation::Within) => geometry.shapes.iter().all(|shape| {
                let mut areas = area.shapes.iter();
                areas.any(|area| matches!(area, Shape::Polygon(polygon) if polygon.encloses(shape)))
            }),
            (Area::Geometry(area), SpatialRelation::Intersects) => {
                let meets = |shape: &Shape| area.shapes.iter().any(|area| area.intersects(shape));
                geometry.shapes.iter().any(meets)
            }
        })
    }
}

/// Calls `each` with the geometries of a value: itself, or the elements of an array that is not a pair of
/// numbers. Other values are left out.
fn each_geometry(value: RawValue<'_>, each: &mut dyn FnMut(&Geometry) -> Result<()>) -> Result<()> {
    let mut one = |value: RawValue<'_>| {
        budget::step()?;
        match Geometry::parse(value) {
            Ok(geometry) if !geometry.strict_winding => each(&geometry),
            Err(error) if error.ends_work() => Err(error),
            _ => Ok(()),
        }
    };
    match value.tag {
        tag::ARRAY => match elements(value.bytes).next() {
            Some(first) if matches!(first.value.tag, tag::ARRAY | tag::DOCUMENT) => {
                elements(value.bytes).try_for_each(|e| one(e.value))
            }
            _ => one(value),
        },
        tag::DOCUMENT => one(value),
        _ => Ok(()),
    }
}

/// An order by the distance from a point, with bounds.
#[derive(Debug)]
pub(crate) struct NearQuery {
    pub center: Center,
    /// Bounds of the distance, in radians on the sphere.
    pub min: f64,
    pub max: f64,
    /// True if a `2d` index may serve; `by_2dsphere` is the same for a `2dsphere` index.
    pub by_2d: bool,
    pub by_2dsphere: bool,
    /// Length of one radian in distances that users see; 1 on the plane.
    pub unit: f64,
    /// Set once a collection has found an index for it.
    bound: OnceLock<()>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Center {
    Flat([f64; 2]),
    /// A point of the sphere, which stands in degrees, too.
    Sphere(Point, [f64; 2]),
}

impl NearQuery {
    /// Creates the query for a GeoJSON point, with distances in metres.
    pub fn of_point(degrees: [f64; 2], by_2d: bool) -> Self {
        let center = Center::Sphere(point_at(degrees[0], degrees[1]), degrees);
        Self { unit: EARTH_RADIUS_M, by_2d, ..Self::on_sphere(center) }
    }

    /// Creates the query for a pair of degrees, with distances in radians.
    pub fn of_degrees(degrees: [f64; 2]) -> Self {
        Self::on_sphere(Center::Sphere(point_at(degrees[0], degrees[1]), degrees))
    }

    fn on_sphere(center: Center) -> Self {
        Self { center, min: 0.0, max: PI, by_2d: true, by_2dsphere: true, unit: 1.0, bound: OnceLock::new() }
    }

    /// Creates the query for a pair on the plane.
    pub fn of_pair(at: [f64; 2]) -> Self {
        let center = Center::Flat(at);
        Self { max: f64::INFINITY, by_2dsphere: false, ..Self::on_sphere(center) }
    }

    /// Sets the bounds, in the unit of the user.
    pub fn between(mut self, min: Option<f64>, max: Option<f64>) -> Self {
        self.min = min.map_or(self.min, |min| min / self.unit);
        self.max = max.map_or(self.max, |max| (max / self.unit).min(self.max));
        self
    }

    /// Notes that there is an index for the query, so that it may be asked.
    pub fn bind(&self) {
        let _ = self.bound.set(());
    }

    /// Returns whether the value has a geometry between the bounds.
    ///
    /// Errors: the query stands where nothing is sorted by it; the work has to end.
    pub fn holds(&self, value: RawValue<'_>) -> Result<bool> {
        if self.bound.get().is_none() {
            return Err(not_allowed_here());
        }
        Ok(self.nearest(value)?.is_some())
    }

    /// Returns the least distance between the bounds of a document's geometries, in radians or in units of the plane.
    ///
    /// Errors: the work has to end.
    pub fn distance(&self, path: &Path, doc: &[u8]) -> Result<Option<f64>> {
        Ok(self.place(path, doc)?.map(|(distance, _)| distance))
    }

    /// Returns the least distance between the bounds, and the value of the document that has it.
    pub fn place<'d>(&self, path: &Path, doc: &'d [u8]) -> Result<Option<(f64, RawValue<'d>)>> {
        let (mut least, mut stop) = (None, None);
        any_value(doc, path, LeafArray::Whole, &mut |value| {
            let Some(value) = value else { return false };
            match self.nearest(value) {
                Ok(Some((distance, at))) if least.is_none_or(|(least, _)| distance < least) => {
                    least = Some((distance, at));
                }
                Ok(_) => {}
                Err(error) => stop = Some(error),
            }
            stop.is_some()
        });
        stop.map_or(Ok(least), Err)
    }

    /// Returns the least distance between the bounds of a value's geometries, and the one that has it.
    fn nearest<'d>(&self, value: RawValue<'d>) -> Result<Option<(f64, RawValue<'d>)>> {
        let parts = match value.tag {
            tag::ARRAY => match elements(value.bytes).next() {
                Some(first) if matches!(first.value.tag, tag::ARRAY | tag::DOCUMENT) => Some(value),
                _ => None,
            },
            _ => None,
        };
        let mut least: Option<(f64, RawValue<'d>)> = None;
        let mut add = |at: RawValue<'d>| -> Result<()> {
            each_geometry(at, &mut |geometry| {
                budget::steps((geometry.size() / PER_STEP) as u64)?;
                let distance = self.distance_of(geometry);
                let between = |d: &f64| self.min <= *d && *d <= self.max;
                if let Some(distance) = distance.filter(between)
                    && least.is_none_or(|(least, _)| distance < least)
                {
                    least = Some((distance, at));
                }
                Ok(())
            })
        };
        match parts {
            Some(array) => elements(array.bytes).try_for_each(|e| add(e.value))?,
            None => add(value)?,
        }
        Ok(least)
    }

    fn distance_of(&self, geometry: &Geometry) -> Option<f64> {
        match self.center {
            Center::Flat(center) => geometry.flat.map(|at| flat::distance(center, at)),
            Center::Sphere(center, _) => {
                let distances = geometry.shapes.iter().map(|shape| shape.angle_to(&center));
                distances.fold(None, |least: Option<f64>, d| Some(least.map_or(d, |least| least.min(d))))
            }
        }
    }
}

/// Creates the error for `$near` where documents are not sorted by it.
fn not_allowed_here() -> DocsError {
    DocsError::new(
        ErrorCode::NearNotAllowed,
        "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators require sorting geospatial data. If you do not need sort, consider using $geoWithin instead",
    )
}
