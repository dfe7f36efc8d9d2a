//! Quoted-printable, where it was left in.

use memchr::memchr;

use crate::spaces::trimmed;

/// The text with soft line breaks (`=` at the end of a line) taken out, `=XY` as the printable character or tab that it
/// means, and without blanks at its ends. `decoded` is where it lies when something was decoded.
pub fn decode<'t>(text: &'t str, decoded: &'t mut String) -> &'t str {
    let bytes = text.as_bytes();
    let Some(mut at) = memchr(b'=', bytes) else { return trimmed(text) };
    decoded.clear();
    // what is behind this is not copied yet
    let mut from = 0;
    loop {
        let (length, c) = match &bytes[at + 1..] {
            [b'\n', ..] => (2, None),
            [b'\r', b'\n', ..] => (3, None),
            [x, y, ..] => match character(*x, *y) {
                Some(c) => (3, Some(c)),
                None => (0, None),
            },
            _ => (0, None),
        };
        if length > 0 {
            decoded.push_str(&text[from..at]);
            decoded.extend(c);
            from = at + length;
        }
        let next = at + length.max(1);
        match memchr(b'=', &bytes[next..]) {
            Some(found) => at = next + found,
            None => break,
        }
    }
    if from == 0 {
        return trimmed(text);
    }
    decoded.push_str(&text[from..]);
    trimmed(decoded)
}

fn character(x: u8, y: u8) -> Option<char> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    };
    let byte = digit(x)? * 16 + digit(y)?;
    (byte == 9 || (0x20..=0x7e).contains(&byte)).then_some(char::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decoded_is_not_looked_at_again() {
        for (text, wanted) in [
            (" plain \n", "plain"),
            ("a=\nb=\r\nc", "abc"),
            ("=20a=3D41=20", "a=41"),
            ("=3d=00=7F==41=", "=3d=00=7F=A="),
            ("é=09é", "é\té"),
            ("=\n", ""),
            ("1 =2", "1 =2"),
        ] {
            assert_eq!(decode(text, &mut String::new()), wanted, "{text:?}");
        }
    }
}
