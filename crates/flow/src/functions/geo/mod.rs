//! `geo`: distances and relations of places and GeoJSON geometries.

mod geometry;
mod metres;

use std::sync::Arc;

use geo::{Geometry, Point, Relate, relate::IntersectionMatrix};

use super::library::{NamespaceRegistrar, NullPolicy, constant_text, double, text};
use crate::columns::value::Value;
use crate::expr::ArgumentType;
use geometry::{CONSTANT_POSITIONS_MAX, POSITIONS_MAX, parse, place};

/// A geometry and a fence, or a place and a fence.
const FORMS: &[&str] =
    &["number longitude, number latitude, string fence -> bool", "string geometry, string fence -> bool"];
const FORMS_OF_DISTANCE: &[&str] = &[
    "number longitude, number latitude, string fence, number metres -> bool",
    "string geometry, string fence, number metres -> bool",
];

type Related = fn(&IntersectionMatrix) -> bool;

/// Relations of a geometry to a fence.
const RELATIONS: &[(&str, Related)] = &[
    ("within", IntersectionMatrix::is_within),
    // the documentation of the original writes both
    ("contains", IntersectionMatrix::is_within),
    ("intersects", IntersectionMatrix::is_intersects),
    ("disjoint", IntersectionMatrix::is_disjoint),
    ("touches", IntersectionMatrix::is_touches),
    ("overlaps", IntersectionMatrix::is_overlaps),
    ("equals", IntersectionMatrix::is_equal_topo),
];

/// Registers the functions.
pub(super) fn register(geo: &mut NamespaceRegistrar<'_>) {
    geo.add(
        "distance",
        &["number latitude1, number longitude1, number latitude2, number longitude2 -> double"],
        NullPolicy::Fail,
        |args| {
            let from = place(double(args, 1)?, double(args, 0)?)?;
            let to = place(double(args, 3)?, double(args, 2)?)?;
            Ok(Value::Double(metres::between(from, to)))
        },
    );
    for &(name, related) in RELATIONS {
        geo.build(name, FORMS, NullPolicy::Fail, move |args| {
            let operands = Operands::new(args, 0)?;
            Ok(Box::new(move |args, _| {
                let (geometry, fence) = operands.read(args)?;
                Ok(Value::Bool(related(&geometry.relate(fence.as_ref()))))
            }))
        });
    }
    geo.build("withinDistance", FORMS_OF_DISTANCE, NullPolicy::Fail, |args| {
        let operands = Operands::new(args, 1)?;
        Ok(Box::new(move |args, _| {
            let (geometry, fence) = operands.read(args)?;
            let limit = double(args, args.len() - 1)?;
            Ok(Value::Bool(metres::apart(&geometry, &fence)? <= limit))
        }))
    });
}

/// The two geometries of a call. Those that are constants are parsed once.
struct Operands {
    /// True if the first is given as a longitude and a latitude.
    is_place: bool,
    first: Option<Arc<Geometry>>,
    fence: Option<Arc<Geometry>>,
}

impl Operands {
    /// `behind` is the number of arguments after the fence.
    fn new(args: &[ArgumentType], behind: usize) -> Result<Self, String> {
        let is_place = args.len() == 3 + behind;
        let constant = |at: usize| {
            let parsed =
                constant_text(args, at).map(|text| parse(text, CONSTANT_POSITIONS_MAX).map(Arc::new));
            parsed.transpose()
        };
        let first = if is_place { None } else { constant(0)? };
        Ok(Self { is_place, first, fence: constant(1 + usize::from(is_place))? })
    }

    fn read(&self, args: &[Value]) -> Result<(Arc<Geometry>, Arc<Geometry>), String> {
        let known = |known: &Option<Arc<Geometry>>, at: usize| match known {
            Some(known) => Ok(known.clone()),
            None => parse(text(args, at)?, POSITIONS_MAX).map(Arc::new),
        };
        let first = match self.is_place {
            true => Arc::new(Geometry::Point(Point(place(double(args, 0)?, double(args, 1)?)?))),
            false => known(&self.first, 0)?,
        };
        Ok((first, known(&self.fence, 1 + usize::from(self.is_place))?))
    }
}
