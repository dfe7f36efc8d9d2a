//! Floats as text: the shortest digits that lead back to the value, as PostgreSQL prints them.

use std::io::Write;

/// Appends a float of 64 bits.
pub(super) fn put_double(value: f64, out: &mut Vec<u8>) {
    // `{:e}` has the shortest digits
    put(value.is_nan(), value.is_infinite(), value.is_sign_negative(), 15, format_args!("{value:e}"), out);
}

/// Appends a float of 32 bits.
pub(super) fn put_single(value: f32, out: &mut Vec<u8>) {
    put(value.is_nan(), value.is_infinite(), value.is_sign_negative(), 6, format_args!("{value:e}"), out);
}

/// Appends a float from its scientific form. From the exponent `scientific_from` on, and below -4, it stays in that form.
fn put(
    is_nan: bool,
    is_infinite: bool,
    is_negative: bool,
    scientific_from: i32,
    scientific: std::fmt::Arguments<'_>,
    out: &mut Vec<u8>,
) {
    if is_nan {
        return out.extend_from_slice(b"NaN");
    }
    if is_negative {
        out.push(b'-');
    }
    if is_infinite {
        return out.extend_from_slice(b"Infinity");
    }
    // `-1.7976931348623157e-308` is the longest
    let mut buffer = [0; 40];
    let mut rest = &mut buffer[..];
    // a buffer of this size takes it
    let _ = rest.write_fmt(scientific);
    let unused = rest.len();
    let used = 40 - unused;
    let text = std::str::from_utf8(&buffer[..used]).unwrap_or_default().trim_start_matches('-');
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (first, others) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if exponent < -4 || exponent >= scientific_from {
        out.extend_from_slice(mantissa.as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        // a vector takes all that is written
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let Ok(before) = usize::try_from(exponent) else {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', exponent.unsigned_abs() as usize - 1));
        out.extend_from_slice(first.as_bytes());
        return out.extend_from_slice(others.as_bytes());
    };
    out.extend_from_slice(first.as_bytes());
    let others = others.as_bytes();
    if others.len() > before {
        out.extend_from_slice(&others[..before]);
        out.push(b'.');
        out.extend_from_slice(&others[before..]);
    } else {
        out.extend_from_slice(others);
        out.extend(std::iter::repeat_n(b'0', before - others.len()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: f64) -> String {
        let mut out = Vec::new();
        put_double(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_are_printed_as_postgresql_prints_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (123456.789, "123456.789"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00012345, "0.00012345"),
            (0.00001, "1e-05"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(value), expected);
        }
        let mut out = Vec::new();
        for single in [1.1_f32, 1e5, 1e6] {
            put_single(single, &mut out);
            out.push(b' ');
        }
        assert_eq!(out, b"1.1 100000 1e+06 ");
    }

    proptest! {
        #[test]
        fn the_text_leads_back_to_the_value(value: f64) {
            prop_assume!(!value.is_nan());
            let back: f64 = text(value).parse().unwrap();
            prop_assert_eq!(back.to_bits(), value.to_bits());
        }
    }
}
