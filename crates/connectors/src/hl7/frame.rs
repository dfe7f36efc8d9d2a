//! Frames of MLLP: a vertical tab, the message, a file separator and a carriage return.

use bytes::{Buf, Bytes, BytesMut};

const BEGIN: u8 = 0x0b;
const END: [u8; 2] = [0x1c, 0x0d];

/// Takes the next message out of `buffer`; `None` if it is not complete yet.
///
/// Errors: the bytes are not a frame, or the frame has more than `bytes_max`.
pub(super) fn decode(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Bytes>, String> {
    // some senders end lines behind a frame
    let spaces = buffer.iter().take_while(|byte| byte.is_ascii_whitespace() && **byte != BEGIN).count();
    buffer.advance(spaces);
    match buffer.first() {
        None => return Ok(None),
        Some(&BEGIN) => {}
        Some(byte) => {
            return Err(format!(
                "expected the byte 0x0b, with which a frame of MLLP begins, found 0x{byte:02x}"
            ));
        }
    }
    match memchr::memmem::find(buffer, &END) {
        Some(end) if end <= bytes_max => {
            let frame = buffer.split_to(end + END.len()).freeze();
            Ok(Some(frame.slice(1..end)))
        }
        found if found.is_some() || buffer.len() > bytes_max => {
            Err(format!("the message has more than {bytes_max} bytes (`max.message.bytes`)"))
        }
        _ => Ok(None),
    }
}

/// Returns a message in a frame.
///
/// Errors: the message contains what ends a frame.
pub(super) fn encode(message: &[u8]) -> Result<Vec<u8>, String> {
    if message.contains(&BEGIN) || message.contains(&END[0]) {
        return Err("the message has a byte 0x0b or 0x1c, which frames of MLLP have around messages".into());
    }
    Ok([&[BEGIN], message, &END].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_framed() {
        let framed = encode(b"MSH|a\rPID|b").unwrap();
        assert_eq!(framed, b"\x0bMSH|a\rPID|b\x1c\r");
        let mut buffer = BytesMut::from(&[&framed[..], b"\r\n", &framed[..], &framed[..4]].concat()[..]);
        for _ in 0..2 {
            assert_eq!(decode(&mut buffer, 100).unwrap().unwrap(), &b"MSH|a\rPID|b"[..]);
        }
        assert_eq!(decode(&mut buffer, 100), Ok(None));
        assert_eq!(buffer.len(), 4);
        assert!(encode(b"a\x1cb").is_err() && encode(b"\x0b").is_err());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let refused = |bytes: &[u8], max| decode(&mut BytesMut::from(bytes), max).unwrap_err();
        assert!(refused(b"GET / HTTP/1.1", 100).contains("found 0x47"));
        assert!(refused(b"\x0b12345678\x1c\r", 5).contains("more than 5 bytes"));
        assert!(refused(b"\x0b12345678", 5).contains("more than 5 bytes"));
    }
}
