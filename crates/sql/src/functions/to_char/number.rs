//! PostgreSQL's patterns of numbers: `9`, `0`, `.` or `D`, `,` or `G`, `S`, `MI`, `FM`.

/// A format that is parsed.
#[derive(Debug)]
pub(super) struct NumberFormat {
    /// Patterns before and after the point.
    whole: Vec<Place>,
    fraction: Vec<Place>,
    has_point: bool,
    fill: bool,
    sign: Sign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A digit, a space if the number has none there.
    Nine,
    /// A digit, `0` if the number has none there.
    Zero,
    Comma,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// A minus sign or a space before the number.
    Plain,
    /// `S` at the front or the end: `+` or `-`.
    Before,
    After,
    /// `MI` at the end: `-` or a space.
    Minus,
}

impl NumberFormat {
    /// Parses a format.
    ///
    /// Errors: why it cannot be written.
    pub fn parse(format: &str) -> Result<Self, String> {
        let mut template =
            Self { whole: vec![], fraction: vec![], has_point: false, fill: true, sign: Sign::Plain };
        let upper = format.to_ascii_uppercase();
        let mut rest = upper.as_str();
        while let Some(first) = rest.chars().next() {
            let places = if template.has_point { &mut template.fraction } else { &mut template.whole };
            let begun = !places.is_empty() || template.has_point;
            let length = match first {
                '9' => {
                    places.push(Place::Nine);
                    1
                }
                '0' => {
                    places.push(Place::Zero);
                    1
                }
                ',' | 'G' if !template.has_point => {
                    places.push(Place::Comma);
                    1
                }
                '.' | 'D' if !template.has_point => {
                    template.has_point = true;
                    1
                }
                'F' if rest.starts_with("FM") => {
                    template.fill = false;
                    2
                }
                'S' if template.sign == Sign::Plain && (!begun || rest.len() == 1) => {
                    template.sign = if begun { Sign::After } else { Sign::Before };
                    1
                }
                'M' if rest == "MI" && template.sign == Sign::Plain => {
                    template.sign = Sign::Minus;
                    2
                }
                _ => {
                    return Err(format!(
                        "{first} is not supported in a format of numbers: use 9, 0, a point, commas, S, MI and FM"
                    ));
                }
            };
            rest = &rest[length..];
        }
        match template.whole.iter().chain(&template.fraction).any(|place| *place != Place::Comma) {
            true => Ok(template),
            false => Err("it has no place for a digit: write, for example, '999.99'".to_owned()),
        }
    }

    /// Writes a number that is given as decimal text.
    pub fn write(&self, number: &str) -> String {
        let digits = self.fraction.len();
        let Some((negative, whole, fraction)) = rounded(number, digits) else {
            return self.overflow(number.starts_with('-'));
        };
        let places = self.whole.iter().filter(|p| **p != Place::Comma).count();
        let significant = whole.trim_start_matches('0');
        if significant.len() > places {
            return self.overflow(negative);
        }
        let first_zero = self.whole.iter().position(|p| *p == Place::Zero).unwrap_or(usize::MAX);
        let mut body = String::new();
        let mut place = 0;
        let mut begun = false;
        for (at, pattern) in self.whole.iter().enumerate() {
            if *pattern == Place::Comma {
                body.push(if begun { ',' } else { ' ' });
                continue;
            }
            let index = (place + significant.len()).checked_sub(places);
            place += 1;
            match index.and_then(|index| significant.as_bytes().get(index)) {
                Some(digit) => {
                    body.push(char::from(*digit));
                    begun = true;
                }
                None if at >= first_zero => {
                    body.push('0');
                    begun = true;
                }
                // a number without places after the point shows its zero
                None if place == places && digits == 0 => {
                    body.push('0');
                    begun = true;
                }
                None => body.push(' '),
            }
        }
        let padding = body.len() - body.trim_start().len();
        let mut text = body.trim_start().to_owned();
        if digits > 0 {
            let mut fraction = fraction.as_str();
            if !self.fill {
                let kept = self.fraction.iter().rposition(|p| *p == Place::Zero).map_or(0, |at| at + 1);
                fraction = &fraction[..fraction.trim_end_matches('0').len().max(kept)];
            }
            if text.is_empty() && fraction.is_empty() {
                text.push('0');
            }
            text.push('.');
            text.push_str(fraction);
        }
        let (before, after) = self.signs(negative);
        let padding = if self.fill { " ".repeat(padding) } else { String::new() };
        format!("{padding}{before}{text}{after}")
    }

    /// Returns the text before and after the digits.
    fn signs(&self, negative: bool) -> (&'static str, &'static str) {
        let space = if self.fill { " " } else { "" };
        match (self.sign, negative) {
            (Sign::Plain | Sign::Before, true) => ("-", ""),
            (Sign::Plain, false) => (space, ""),
            (Sign::Before, false) => ("+", ""),
            (Sign::After | Sign::Minus, true) => ("", "-"),
            (Sign::After, false) => ("", "+"),
            (Sign::Minus, false) => ("", space),
        }
    }

    /// Returns what stands for a number that has more digits than the format.
    fn overflow(&self, negative: bool) -> String {
        let (before, after) = self.signs(negative);
        let mut text = before.to_owned();
        text.extend(self.whole.iter().map(|place| if *place == Place::Comma { ',' } else { '#' }));
        if self.has_point {
            text.push('.');
            text.extend(self.fraction.iter().map(|_| '#'));
        }
        text + after
    }
}

/// Returns sign, digits before the point and `digits` after it, rounded half away from zero. `None` for NaN and infinities.
fn rounded(number: &str, digits: usize) -> Option<(bool, String, String)> {
    let (negative, number) = match number.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, number),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|b| b.is_ascii_digit()) || exponent.abs() > 400 {
        return None;
    }
    // digits before the point; may be negative or more than there are
    let point = i32::try_from(whole.len()).ok()? + exponent;
    let mut kept: Vec<u8> = vec![];
    let last = point + i32::try_from(digits).ok()?;
    for at in point.min(0)..=last {
        let digit = usize::try_from(at).ok().and_then(|at| all.as_bytes().get(at).copied()).unwrap_or(b'0');
        kept.push(digit);
    }
    // one more digit than are kept decides
    let up = kept.pop().is_some_and(|digit| digit >= b'5');
    if up {
        let mut carry = true;
        for digit in kept.iter_mut().rev() {
            if !carry {
                break;
            }
            carry = *digit == b'9';
            *digit = if carry { b'0' } else { *digit + 1 };
        }
        if carry {
            kept.insert(0, b'1');
        }
    }
    let text = String::from_utf8(kept).ok()?;
    let (whole, fraction) = text.split_at(text.len().checked_sub(digits)?);
    let negative = negative && text.bytes().any(|b| b != b'0');
    Some((negative, whole.to_owned(), fraction.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Format, number and result, as PostgreSQL 15 writes it.
    const WRITTEN: &str = include_str!("numbers.txt");

    #[test]
    fn numbers_are_written_as_by_postgresql() {
        let mut lines = 0;
        for line in WRITTEN.lines().filter(|line| !line.starts_with('#')) {
            let parts: Vec<&str> = line.split('\t').collect();
            let [format, number, written] = parts.as_slice() else { panic!("{line}") };
            let text = NumberFormat::parse(format).unwrap().write(number);
            assert_eq!(format!("[{text}]"), *written, "to_char({number}, '{format}')");
            lines += 1;
        }
        assert!(lines > 100, "{lines}");
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        for format in ["", "RN", "9V9", "9.9.9", "999PR", "9EEEE", "L999", "abc", "9S9", ","] {
            assert!(NumberFormat::parse(format).is_err(), "{format}");
        }
        assert_eq!(NumberFormat::parse("999").unwrap().write("NaN"), " ###");
        assert_eq!(NumberFormat::parse("FM999.99").unwrap().write("1.5e1"), "15.");
        assert_eq!(NumberFormat::parse("FM0.999").unwrap().write("1.5e-2"), "0.015");
    }
}
