//! Memory that a message of protocol buffers takes once it is decoded, from its bytes.
//!
//! A message inside of another one takes two bytes if it is empty, and as a structure more than hundred. So a body is walked over before it
//! is decoded, along the messages that it has inside, which are described by [`Shape`]s.

/// Messages inside of a message, and repeated numbers that are packed, by the numbers of their fields.
pub(crate) struct MessageShape {
    /// Bytes of its structure.
    pub size: usize,
    pub parts: &'static [(u32, Part)],
}

/// Content of a field that takes more memory than its bytes.
pub(crate) enum Part {
    Message(&'static MessageShape),
    /// Numbers as varints, which become 8 bytes.
    Varints,
}

/// Messages inside of each other, as the decoder allows.
const DEPTH_MAX: usize = 100;

/// Returns the bytes that a message takes once it is decoded, about. What is not a message counts up to the first wrong byte: the decoder will
/// not come further.
pub(crate) fn decoded_bytes(message: &[u8], shape: &MessageShape) -> usize {
    measure(message, shape, 0)
}

fn measure(mut message: &[u8], shape: &MessageShape, depth: usize) -> usize {
    let mut sum = shape.size + message.len();
    while let Some((field, content)) = next_field(&mut message) {
        let Some(content) = content else { continue };
        match shape.parts.iter().find(|(number, _)| *number == field) {
            Some((_, Part::Message(inner))) if depth < DEPTH_MAX => sum += measure(content, inner, depth + 1),
            Some((_, Part::Varints)) => sum += 8 * content.len(),
            _ => {}
        }
    }
    sum
}

/// Takes the next field of a message: its number, and its content if it has a length.
fn next_field<'m>(rest: &mut &'m [u8]) -> Option<(u32, Option<&'m [u8]>)> {
    let key = varint(rest)?;
    let field = u32::try_from(key >> 3).ok()?;
    let skipped = match key & 7 {
        0 => {
            varint(rest)?;
            0
        }
        1 => 8,
        2 => {
            let len = usize::try_from(varint(rest)?).ok()?;
            let (content, behind) = rest.split_at_checked(len)?;
            *rest = behind;
            return Some((field, Some(content)));
        }
        // the beginning and the end of a group
        3 | 4 => 0,
        5 => 4,
        _ => return None,
    };
    *rest = rest.get(skipped..)?;
    Some((field, None))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    static INNER: MessageShape =
        MessageShape { size: 100, parts: &[(2, Part::Message(&INNER)), (3, Part::Varints)] };
    static OUTER: MessageShape = MessageShape { size: 10, parts: &[(1, Part::Message(&INNER))] };

    #[test]
    fn messages_inside_count_with_their_structures() {
        assert_eq!(decoded_bytes(&[], &OUTER), 10);
        // 1000 empty messages
        let many = [0x0a, 0].repeat(1000);
        assert_eq!(decoded_bytes(&many, &OUTER), 10 + 2000 + 100 * 1000);
        // one with a text of 3 bytes, a number, and one inside with 2 packed numbers
        let message = [0x0a, 13, 0x0a, 3, b'a', b'b', b'c', 0x20, 5, 0x12, 4, 0x1a, 2, 1, 2];
        assert_eq!(decoded_bytes(&message, &OUTER), 10 + 15 + (100 + 13) + (100 + 4 + 16));
        for end in 0..message.len() {
            assert!(decoded_bytes(&message[..end], &OUTER) <= decoded_bytes(&message, &OUTER));
        }
        let mut deep = vec![];
        for _ in 0..200 {
            deep = [&[0x12, deep.len() as u8 & 0x7f], deep.as_slice()].concat();
        }
        assert!(decoded_bytes(&deep, &INNER) > 100);
    }
}
