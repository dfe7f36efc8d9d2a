//! `$bitsAllSet`, `$bitsAnySet`, `$bitsAllClear`, `$bitsAnyClear`.

use crate::error::{DocsError, Result};
use crate::values::display::display;
use crate::values::raw::{RawValue, elements, tag};

/// Largest position of a bit that a filter may name.
const POSITION_MAX: i64 = 8 * (16 << 20);

/// A test of bits.
#[derive(Debug, Clone)]
pub(crate) struct BitTest {
    /// Positions, the lowest bit is 0.
    positions: Vec<u32>,
    /// True if the bits must be set, false if they must be clear.
    set: bool,
    /// True if all of the bits must match, false if any must.
    all: bool,
}

impl BitTest {
    /// Parses an operator with its operand: a mask, positions, or binary data.
    pub fn parse(operator: &str, v: RawValue<'_>) -> Result<Self> {
        let wrong = || {
            DocsError::bad_value(format!(
                "{operator} takes a mask of 0 or more, an array of positions, or binary data; found {}",
                display(v)
            ))
        };
        let positions = match v.tag {
            tag::ARRAY => elements(v.bytes)
                .map(|e| {
                    let position =
                        whole(e.value).filter(|n| (0..=POSITION_MAX).contains(n)).ok_or_else(wrong)?;
                    u32::try_from(position).map_err(|_| wrong())
                })
                .collect::<Result<_>>()?,
            tag::BINARY => bits_of(binary(v)),
            _ => {
                let mask = whole(v).filter(|mask| *mask >= 0).ok_or_else(wrong)?;
                bits_of(&mask.to_le_bytes())
            }
        };
        let (set, all) = (operator.ends_with("Set"), operator.starts_with("$bitsAll"));
        Ok(Self { positions, set, all })
    }

    pub fn holds(&self, value: RawValue<'_>) -> bool {
        let number;
        let (bytes, negative): (&[u8], bool) = match value.tag {
            tag::BINARY => (binary(value), false),
            _ => {
                let Some(whole) = whole(value) else { return false };
                number = whole.to_le_bytes();
                (&number, whole < 0)
            }
        };
        let is_set = |position: &u32| {
            let byte = bytes.get(*position as usize / 8);
            byte.map_or(negative, |byte| byte >> (position % 8) & 1 == 1)
        };
        let mut wanted = self.positions.iter().map(|position| is_set(position) == self.set);
        if self.all { wanted.all(|is| is) } else { wanted.any(|is| is) }
    }
}

fn whole(value: RawValue<'_>) -> Option<i64> {
    match value.tag {
        tag::DOUBLE => {
            let x = value.f64();
            (x.fract() == 0.0 && x.abs() < 9.2e18).then_some(x as i64)
        }
        tag::INT32 | tag::INT64 => value.as_integer(),
        _ => None,
    }
}

/// Returns the bytes of binary data, after length and subtype.
fn binary(value: RawValue<'_>) -> &[u8] {
    value.bytes.get(5..).unwrap_or_default()
}

fn bits_of(bytes: &[u8]) -> Vec<u32> {
    (0..bytes.len() as u32 * 8).filter(|at| bytes[*at as usize / 8] >> (at % 8) & 1 == 1).collect()
}
