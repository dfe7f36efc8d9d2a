//! The grid of a `2d` index: cells of a square, numbered so that the cells inside of a larger one are a range.

use super::index::{CellRanges, GeoIndexSpec, merged};
use crate::error::{DocsError, ErrorCode, Result};

/// Cells that cover an area, if these are enough.
const CELLS_MAX: usize = 32;
/// Degrees by which a box around a part of the sphere is larger.
const MARGIN_DEGREES: f64 = 1e-7;

/// Places of points on a square.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grid {
    bits: u32,
    min: f64,
    max: f64,
}

/// A square of cells: its first column and row, and its size.
#[derive(Clone, Copy)]
struct Square {
    x: u64,
    y: u64,
    size: u64,
}

impl Grid {
    /// Returns the grid of a definition, or what is wrong with it.
    pub fn of(spec: &GeoIndexSpec) -> Result<Self, String> {
        let grid = Self {
            bits: spec.bits.unwrap_or(26),
            min: spec.min.unwrap_or(-180.0),
            max: spec.max.unwrap_or(180.0),
        };
        if !(1..=32).contains(&grid.bits) {
            return Err(format!(
                "bits for hash must be > 0 and <= 32, but {} bits were specified",
                grid.bits
            ));
        }
        if !(grid.min.is_finite() && grid.max.is_finite() && grid.min < grid.max) {
            let (min, max) = (grid.min, grid.max);
            return Err(format!(
                "region for hash must be valid and have positive area, but [{min}, {max}] was specified"
            ));
        }
        Ok(grid)
    }

    /// Returns the cell of a point. Errors: it is outside of the grid.
    pub fn cell(&self, at: [f64; 2]) -> Result<u64> {
        if !at.iter().all(|x| (self.min..=self.max).contains(x)) {
            let (min, max) = (self.min, self.max);
            return Err(DocsError::new(
                ErrorCode::OutsideOfGrid,
                format!("point not in interval of [ {min}, {max} ]: [ {}, {} ]", at[0], at[1]),
            ));
        }
        Ok(self.number(self.column(at[0]), self.column(at[1])))
    }

    fn column(&self, x: f64) -> u64 {
        let cells = (1_u64 << self.bits) as f64;
        let part = (x.clamp(self.min, self.max) - self.min) / (self.max - self.min);
        ((part * cells) as u64).min((1 << self.bits) - 1)
    }

    /// Returns the bits of column and row, in turn.
    fn number(&self, x: u64, y: u64) -> u64 {
        (0..self.bits).rev().fold(0, |number, bit| (number << 2) | ((x >> bit & 1) << 1) | (y >> bit & 1))
    }

    /// Returns the cells of the points in a box.
    pub fn cells(&self, low: [f64; 2], high: [f64; 2]) -> CellRanges {
        if low[0] > self.max || low[1] > self.max || high[0] < self.min || high[1] < self.min {
            return Vec::new();
        }
        let (low, high) = (low.map(|x| self.column(x)), high.map(|x| self.column(x)));
        let apart = |s: &Square| {
            s.x > high[0] || s.y > high[1] || s.x + (s.size - 1) < low[0] || s.y + (s.size - 1) < low[1]
        };
        let inside = |s: &Square| {
            s.x >= low[0] && s.y >= low[1] && s.x + (s.size - 1) <= high[0] && s.y + (s.size - 1) <= high[1]
        };
        let mut squares = vec![Square { x: 0, y: 0, size: 1 << self.bits }];
        loop {
            let mut finer = Vec::new();
            let mut divided = false;
            for square in &squares {
                if inside(square) || square.size == 1 {
                    finer.push(*square);
                    continue;
                }
                divided = true;
                let half = square.size / 2;
                let parts = [(0, 0), (0, half), (half, 0), (half, half)];
                let parts = parts.map(|(x, y)| Square { x: square.x + x, y: square.y + y, size: half });
                finer.extend(parts.iter().filter(|part| !apart(part)));
            }
            if !divided || finer.len() > CELLS_MAX {
                break;
            }
            squares = finer;
        }
        let range = |s: &Square| {
            let first = self.number(s.x, s.y);
            // a square of all cells of a grid with 32 bits has 2^64
            (first, first.wrapping_add(s.size.wrapping_mul(s.size)).wrapping_sub(1))
        };
        merged(squares.iter().map(range).collect())
    }

    /// Returns the cells of the points, in degrees, within some radians of another one on the sphere.
    pub fn cells_around(&self, [lng, lat]: [f64; 2], radius: f64) -> CellRanges {
        let reach = radius.to_degrees() + MARGIN_DEGREES;
        let (south, north) = (lat - reach, lat + reach);
        let whole = self.cells([self.min, south.max(self.min)], [self.max, north.min(self.max)]);
        if south <= -90.0 || north >= 90.0 {
            return whole;
        }
        let aside = libm::asin((libm::sin(radius) / libm::cos(lat.to_radians())).clamp(-1.0, 1.0));
        let aside = aside.to_degrees() + MARGIN_DEGREES;
        // across the meridian where longitudes begin
        if lng - aside < -180.0 || lng + aside > 180.0 {
            return whole;
        }
        self.cells([lng - aside, south], [lng + aside, north])
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::GeoIndexKind;
    use super::*;

    fn grid(bits: u32) -> Grid {
        let spec = GeoIndexSpec {
            kind: GeoIndexKind::Plane,
            paths: vec!["a".into()],
            bits: Some(bits),
            min: None,
            max: None,
            version: None,
        };
        Grid::of(&spec).unwrap()
    }

    #[test]
    fn a_box_has_the_cells_of_its_points() {
        for bits in [1, 5, 26, 32] {
            let grid = grid(bits);
            let cells = grid.cells([-10.0, 20.0], [35.0, 21.0]);
            let has = |at: [f64; 2]| {
                let cell = grid.cell(at).unwrap();
                cells.iter().any(|(low, high)| (*low..=*high).contains(&cell))
            };
            assert!(has([-10.0, 20.0]) && has([35.0, 21.0]) && has([0.0, 20.5]), "{bits}");
            assert!(bits < 6 || !has([0.0, -100.0]), "{bits}");
            assert_eq!(grid.cells([-180.0; 2], [180.0; 2]).len(), 1, "{bits}");
        }
        assert!(grid(26).cell([180.0, 180.0]).is_ok());
        assert_eq!(grid(26).cell([180.1, 0.0]).unwrap_err().code(), 13027);
    }
}
