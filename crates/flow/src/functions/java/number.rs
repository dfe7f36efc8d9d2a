//! Parsing and formatting of numbers with Java's semantics.

/// Parses a whole number in a base from 2 to 36: an optional sign and digits, nothing else.
///
/// Errors: `text` is not such a number, the number exceeds 64 bits, or the base is out of range.
pub(crate) fn parse_whole(text: &str, base: u32) -> Result<i64, String> {
    let unreadable = || format!("`{text}` is not a whole number");
    if !(2..=36).contains(&base) {
        return Err(format!("base {base} is out of range: expected 2 to 36"));
    }
    i64::from_str_radix(text, base).map_err(|_| unreadable())
}

/// Parses a whole number of 32 bits, as [`parse_whole`] does.
pub(crate) fn parse_int(text: &str, base: u32) -> Result<i32, String> {
    let n = parse_whole(text, base)?;
    i32::try_from(n).map_err(|_| format!("`{text}` is out of the range of int"))
}

/// Returns the part of `text` that `str::parse` reads as Java does: without surrounding blanks and a suffix
/// `d` or `f`. Returns `None` for names other than `NaN` and `Infinity`.
fn decimal(text: &str) -> Option<&str> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return Some(text);
    }
    let text = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    (!text.is_empty() && text.chars().all(digits)).then_some(text)
}

/// Parses a double: `1.5`, ` 1e3 `, `2d`, `-Infinity`.
pub(crate) fn parse_double(text: &str) -> Result<f64, String> {
    decimal(text).and_then(|t| t.parse().ok()).ok_or_else(|| format!("`{text}` is not a number"))
}

/// Parses a float directly; going through a double would round twice.
pub(crate) fn parse_float(text: &str) -> Result<f32, String> {
    decimal(text).and_then(|t| t.parse().ok()).ok_or_else(|| format!("`{text}` is not a number"))
}

/// Formats a whole number in a base from 2 to 36, with lowercase digits.
pub(crate) fn in_base(n: i32, base: u32) -> String {
    let mut rest = n.unsigned_abs();
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit(rest % base, base));
        rest /= base;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        digits.push('-');
    }
    digits.iter().rev().collect()
}

/// Formats a double in Java's hexadecimal form: `0x1.8p1`, subnormal ones as `0x0.8p-1022`.
pub(crate) fn hex_double(n: f64) -> String {
    hex_binary(n.to_bits(), 52, 11, n.is_nan(), n.is_infinite())
}

/// Formats a float in Java's hexadecimal form.
pub(crate) fn hex_float(n: f32) -> String {
    // 23 bits are no whole number of hexadecimal digits; add one, as Java does
    let bits = u64::from(n.to_bits());
    let fraction = (bits & ((1 << 23) - 1)) << 1;
    let widened = (bits >> 23) << 24 | fraction;
    hex_binary(widened, 24, 8, n.is_nan(), n.is_infinite())
}

/// Formats a binary floating-point number with `fraction` and `exponent` bits below its sign bit.
fn hex_binary(bits: u64, fraction: u32, exponent: u32, nan: bool, infinite: bool) -> String {
    if nan {
        return "NaN".into();
    }
    let sign = if bits >> (fraction + exponent) & 1 == 1 { "-" } else { "" };
    if infinite {
        return format!("{sign}Infinity");
    }
    let bias = (1_i64 << (exponent - 1)) - 1;
    let power = (bits >> fraction & ((1 << exponent) - 1)) as i64;
    let rest = bits & ((1 << fraction) - 1);
    let (lead, power) = match (power, rest) {
        (0, 0) => (0, 0),
        (0, _) => (0, 1 - bias),
        _ => (1, power - bias),
    };
    let digits = format!("{rest:0width$x}", width = (fraction / 4) as usize);
    let digits = digits.trim_end_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    format!("{sign}0x{lead}.{digits}p{power}")
}

/// Rounds half up to a whole number: 2.5 gives 3, -2.5 gives -2.
pub(crate) fn round_half_up(n: f64) -> f64 {
    let below = n.floor();
    if n - below >= 0.5 { below + 1.0 } else { below }
}

/// `java.util.Random`, for users who pass a seed and expect Java's sequence: a linear congruential generator
/// modulo 2^48 that returns the upper bits.
pub(crate) struct JavaRandom(u64);

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MASK: u64 = (1 << 48) - 1;

impl JavaRandom {
    /// Creates a generator from a seed.
    pub(crate) fn new(seed: i64) -> Self {
        Self((seed as u64 ^ MULTIPLIER) & MASK)
    }

    fn next(&mut self, bits: u32) -> u64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        self.0 >> (48 - bits)
    }

    /// Returns a number in the range [0, 1).
    pub(crate) fn next_double(&mut self) -> f64 {
        let upper = self.next(26) << 27;
        (upper + self.next(27)) as f64 / (1_u64 << 53) as f64
    }
}
