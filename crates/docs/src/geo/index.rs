//! Keys of geometries in indexes, and the ranges of keys in which those of an area are.
//!
//! A `2dsphere` index has for each geometry the cells of `s2` that cover it, a `2d` index the cell of a grid in which a point is. A
//! cell is a number, and the cells inside of it are a range of numbers.

use s2::cellid::CellID;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tidemill_types::budget;

use super::geometry::{Geometry, pair};
use super::grid::Grid;
use super::query::{Area, Center, GeoTest, NearQuery};
use super::shape::covering;
use super::sphere::cap;
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::INDEX_KEYS_PER_DOCUMENT_MAX;
use crate::values::display::display;
use crate::values::key::{Key, KeyBuf};
use crate::values::path::Path;
use crate::values::path_values::{LeafArray, any_value};
use crate::values::raw::{RawValue, elements, tag};

/// Definition of an index of geometries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeoIndexSpec {
    /// The kind of its geometries.
    pub kind: GeoIndexKind,
    /// The fields that have geometries.
    pub paths: Vec<String>,
    /// Bits of a coordinate in a `2d` index; 26 if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<u32>,
    /// Least coordinate in a `2d` index; -180 if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Greatest coordinate in a `2d` index; 180 if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Version that the creator asked for: 3 if `None`. All versions have the same keys here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i32>,
}

// bounds of a grid are finite, see `GeoIndexSpec::check`
impl Eq for GeoIndexSpec {}

/// The surface on which geometries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GeoIndexKind {
    /// The earth, with GeoJSON and pairs of longitude and latitude.
    #[serde(rename = "2dsphere")]
    Sphere,
    /// A plane, with pairs of coordinates.
    #[serde(rename = "2d")]
    Plane,
}

impl GeoIndexKind {
    /// Returns the name in a key pattern.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sphere => "2dsphere",
            Self::Plane => "2d",
        }
    }
}

impl GeoIndexSpec {
    /// Returns what is wrong with the definition.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.paths.is_empty() {
            return Err("expected a field with geometries".into());
        }
        if self.kind == GeoIndexKind::Sphere {
            return match (self.bits, self.min, self.max, self.version) {
                (None, None, None, None | Some(1..=4)) => Ok(()),
                (None, None, None, Some(version)) => {
                    Err(format!("unsupported geo index version {version}: expected 1 to 4"))
                }
                _ => Err("`bits`, `min` and `max` are options of 2d indexes".into()),
            };
        }
        if self.paths.len() > 1 {
            return Err("a 2d index has one field with points".into());
        }
        if self.version.is_some() {
            return Err("`2dsphereIndexVersion` is an option of 2dsphere indexes".into());
        }
        Grid::of(self).map(|_| ())
    }
}

/// Ranges of cells, both ends included, in order and apart from each other.
pub(crate) type CellRanges = Vec<(u64, u64)>;

/// An index of geometries.
#[derive(Debug, Clone)]
pub(crate) struct GeoIndex {
    pub kind: GeoIndexKind,
    paths: Vec<Path>,
    grid: Option<Grid>,
}

impl GeoIndex {
    /// Reads a definition. Errors: it is not one.
    pub fn new(spec: &GeoIndexSpec) -> Result<Self, String> {
        spec.check()?;
        Ok(Self {
            kind: spec.kind,
            paths: spec.paths.iter().map(|path| Path::new(path)).collect(),
            grid: match spec.kind {
                GeoIndexKind::Plane => Some(Grid::of(spec)?),
                GeoIndexKind::Sphere => None,
            },
        })
    }

    /// Returns the keys of a document, in order; none without geometries.
    ///
    /// Errors: a field value is not a geometry, or there are too many keys.
    pub fn keys(&self, doc: &[u8]) -> Result<SmallVec<[Key; 1]>> {
        let mut keys: SmallVec<[Key; 1]> = SmallVec::new();
        for (place, path) in (0..).zip(&self.paths) {
            let mut failed = Ok(());
            any_value(doc, path, LeafArray::Whole, &mut |value| {
                if let Some(value) = value.filter(|v| !matches!(v.tag, tag::NULL | tag::UNDEFINED)) {
                    failed = self.add(doc, path, value, &mut |cell| keys.push(cell_key(place, cell)));
                }
                failed.is_err()
            });
            failed?;
            if keys.len() > INDEX_KEYS_PER_DOCUMENT_MAX {
                let message =
                    format!("limit of {INDEX_KEYS_PER_DOCUMENT_MAX} entries for one document reached");
                return Err(DocsError::new(ErrorCode::StoreFull, message));
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    fn add(&self, doc: &[u8], path: &Path, value: RawValue<'_>, put: &mut dyn FnMut(u64)) -> Result<()> {
        match &self.grid {
            Some(grid) => add_points(grid, path, value, put),
            None => {
                // an empty array has no place
                if value.tag == tag::ARRAY && elements(value.bytes).next().is_none() {
                    return Ok(());
                }
                let geometry = Geometry::parse(value).and_then(|geometry| match geometry.shapes.is_empty() {
                    true => Err(out_of_bounds(value)),
                    false if geometry.strict_winding => {
                        Err(DocsError::bad_value("cannot index geometry with strict winding order"))
                    }
                    false => Ok(geometry),
                });
                let geometry = geometry.map_err(|error| not_indexable(doc, error))?;
                for shape in &geometry.shapes {
                    budget::steps(1 + shape.size() as u64)?;
                    shape.cells().iter().for_each(|cell| put(cell.0));
                }
                Ok(())
            }
        }
    }

    /// Returns the number of the field with this path.
    pub fn place(&self, path: &Path) -> Option<u8> {
        self.paths.iter().position(|own| own == path).and_then(|at| u8::try_from(at).ok())
    }

    /// Returns the cells of the geometries for which a condition may hold; `None` if the index cannot tell.
    pub fn cells_of(&self, test: &GeoTest) -> Option<CellRanges> {
        match (&test.area, &self.grid) {
            (Area::Flat(area), Some(grid)) => {
                let (low, high) = area.bounds();
                Some(grid.cells(low, high))
            }
            (Area::Cap { degrees, radius, .. }, Some(grid)) => Some(grid.cells_around(*degrees, *radius)),
            (Area::Cap { center, radius, .. }, None) => Some(ranges(&cells_around(center, *radius))),
            (Area::Geometry(area), None) => {
                let cells: Vec<CellID> = area.shapes.iter().flat_map(|shape| shape.cells()).collect();
                Some(ranges(&cells))
            }
            (Area::Flat(_), None) | (Area::Geometry(_), Some(_)) => None,
        }
    }

    /// Returns whether the index can find what is near.
    pub fn serves(&self, near: &NearQuery) -> bool {
        match self.kind {
            GeoIndexKind::Sphere => near.by_2dsphere,
            GeoIndexKind::Plane => near.by_2d,
        }
    }

    /// Returns the cells of the geometries within this distance of the center of a query.
    pub fn cells_near(&self, near: &NearQuery, distance: f64) -> CellRanges {
        match (&near.center, &self.grid) {
            (Center::Sphere(center, _), None) => ranges(&cells_around(center, distance)),
            (Center::Sphere(_, degrees), Some(grid)) => grid.cells_around(*degrees, distance),
            (Center::Flat(center), Some(grid)) => {
                let reach = distance * (1.0 + 1e-12);
                grid.cells(center.map(|x| (x - reach).next_down()), center.map(|x| (x + reach).next_up()))
            }
            (Center::Flat(_), None) => vec![(0, u64::MAX)],
        }
    }
}

/// Returns the key of a cell of the field with this number.
pub(crate) fn cell_key(place: u8, cell: u64) -> Key {
    let mut key = KeyBuf::new();
    key.push(place);
    key.extend_from_slice(&cell.to_be_bytes());
    Key(key)
}

fn cells_around(center: &s2::point::Point, radius: f64) -> Vec<CellID> {
    let around = cap(center, radius + 1e-9);
    match around.is_full() {
        true => (0..6).map(CellID::from_face).collect(),
        false => covering(&around),
    }
}

/// Returns the ranges of the cells inside of these, and of those around them.
fn ranges(cells: &[CellID]) -> CellRanges {
    let inside = cells.iter().map(|cell| (cell.range_min().0, cell.range_max().0));
    let around = cells.iter().flat_map(|cell| {
        (0..cell.level()).map(move |level| {
            let parent = cell.parent(level).0;
            (parent, parent)
        })
    });
    merged(inside.chain(around).collect())
}

/// Joins ranges that overlap.
pub(super) fn merged(mut ranges: CellRanges) -> CellRanges {
    ranges.sort_unstable();
    let mut apart: CellRanges = Vec::with_capacity(ranges.len());
    for (low, high) in ranges {
        match apart.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => apart.push((low, high)),
        }
    }
    apart
}

/// Adds the cells of the points of a field with a `2d` index: a pair, or an array of pairs.
fn add_points(grid: &Grid, path: &Path, value: RawValue<'_>, put: &mut dyn FnMut(u64)) -> Result<()> {
    let mut one = |value: RawValue<'_>| {
        budget::step()?;
        let at = pair(value, true).map_err(|_| {
            DocsError::new(
                ErrorCode::NotLegacyPair,
                format!(
                    "geo values must be 'legacy coordinate pairs' for 2d indexes, found {} in `{path}`",
                    display(value)
                ),
            )
        })?;
        put(grid.cell(at)?);
        Ok(())
    };
    match (value.tag, elements(value.bytes).next().map(|first| first.value.tag)) {
        (tag::ARRAY, None) => Ok(()),
        (tag::ARRAY, Some(tag::ARRAY | tag::DOCUMENT)) => {
            elements(value.bytes).try_for_each(|e| one(e.value))
        }
        (tag::ARRAY | tag::DOCUMENT, _) => one(value),
        _ => Err(DocsError::new(
            ErrorCode::NotLegacyPair,
            format!("location object expected in `{path}` for a 2d index, found {}", display(value)),
        )),
    }
}

fn out_of_bounds(value: RawValue<'_>) -> DocsError {
    DocsError::bad_value(format!("longitude/latitude is out of bounds: {}", display(value)))
}

fn not_indexable(doc: &[u8], error: DocsError) -> DocsError {
    if error.ends_work() {
        return error;
    }
    let doc = display(RawValue { tag: tag::DOCUMENT, bytes: doc });
    DocsError::new(ErrorCode::NoGeoKeys, format!("Can't extract geo keys: {doc} {error}"))
}
