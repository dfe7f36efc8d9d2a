//! Sequence numbers in front of messages: `id:number~message`, in binary messages behind the length of that text.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};

/// Puts id and number in front of a message.
pub(super) fn add_sequence(id: &str, number: u64, message: &[u8], is_binary: bool) -> Bytes {
    let header = format!("{id}:{number}~");
    let mut out = BytesMut::with_capacity(header.len() + message.len() + 4);
    if is_binary {
        out.put_u32(header.len() as u32);
    }
    out.put_slice(header.as_bytes());
    out.put_slice(message);
    out.freeze()
}

/// Splits a message into id, number and the rest.
fn split_sequence(message: &Bytes, is_binary: bool) -> Option<(&str, u64, Bytes)> {
    let (header, rest) = match is_binary {
        true => {
            let (length, _) = message.split_first_chunk::<4>()?;
            let end = 4usize.checked_add(u32::from_be_bytes(*length) as usize)?;
            let header = message.get(4..end)?.strip_suffix(b"~")?;
            (header, message.slice(end..))
        }
        false => {
            let end = message.iter().position(|byte| *byte == b'~')?;
            (&message[..end], message.slice(end + 1..))
        }
    };
    let (id, number) = std::str::from_utf8(header).ok()?.rsplit_once(':')?;
    Some((id, number.parse().ok()?, rest))
}

/// Result of the check of a message's sequence number.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sequenced {
    /// It is new.
    New(Bytes),
    /// It came before.
    Duplicate,
    /// It has no sequence number.
    Missing,
}

/// The last number of each sender in each partition, since the source started.
#[derive(Default)]
pub(super) struct SequenceFilter {
    last: HashMap<(String, i32), u64>,
}

impl SequenceFilter {
    pub(super) fn accept(&mut self, partition: i32, message: &Bytes, is_binary: bool) -> Sequenced {
        let Some((id, number, rest)) = split_sequence(message, is_binary) else {
            return Sequenced::Missing;
        };
        match self.last.entry((id.to_owned(), partition)) {
            std::collections::hash_map::Entry::Occupied(last) if *last.get() >= number => {
                Sequenced::Duplicate
            }
            entry => {
                *entry.insert_entry(number).get_mut() = number;
                Sequenced::New(rest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_split_off_and_duplicates_found() {
        for is_binary in [false, true] {
            let mut filter = SequenceFilter::default();
            let message = add_sequence("sink:1", 7, b"a~b", is_binary);
            assert_eq!(filter.accept(0, &message, is_binary), Sequenced::New(Bytes::from_static(b"a~b")));
            assert_eq!(filter.accept(0, &message, is_binary), Sequenced::Duplicate);
            assert_eq!(filter.accept(1, &message, is_binary), Sequenced::New(Bytes::from_static(b"a~b")));
            let before = add_sequence("sink:1", 6, b"", is_binary);
            assert_eq!(filter.accept(0, &before, is_binary), Sequenced::Duplicate);
            let wrong: &[&[u8]] = match is_binary {
                true => &[b"", b"\0\0", b"\0\0\0\x03a:1", b"\0\0\0\x09a:1~", b"\xff\xff\xff\xffa:1~"],
                false => &[b"", b"no number", b"a:b~c", b"a:-1~c", b"a1~c", b"\xff\xff\xff\xffa:1~"],
            };
            for wrong in wrong {
                assert_eq!(
                    filter.accept(0, &Bytes::from_static(wrong), is_binary),
                    Sequenced::Missing,
                    "{wrong:?}"
                );
            }
        }
    }
}
