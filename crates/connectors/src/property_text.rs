//! Bytes of other systems, such as keys and headers, as texts for attributes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Prefix of the text of bytes that are not UTF-8.
const BASE64: &str = "base64:";

/// Returns the text of bytes in UTF-8, and of others `base64:` with their Base64, so that different bytes have different texts.
pub(crate) fn property_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("{BASE64}{}", STANDARD.encode(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_bytes_have_different_texts() {
        for (bytes, text) in [
            ("é1".as_bytes(), "é1"),
            (b"", ""),
            (b"\xff\x01", "base64:/wE="),
            (b"\xff\x02", "base64:/wI="),
            (b"\xef\xbf\xbd", "\u{fffd}"),
        ] {
            assert_eq!(property_text(bytes), text);
        }
    }
}
