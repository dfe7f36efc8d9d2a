//! Messages of Protocol Buffers, for seeds.

/// Returns a field with a length: a text, bytes, or a message of fields.
pub fn bytes(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [key(number, 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// Returns a whole number.
pub fn int(number: u8, value: u64) -> Vec<u8> {
    [key(number, 0), varint(value)].concat()
}

/// Returns a field of eight bytes: a time, a count or the bits of a float.
pub fn fixed(number: u8, value: u64) -> Vec<u8> {
    [key(number, 1), value.to_le_bytes().to_vec()].concat()
}

pub fn double(number: u8, value: f64) -> Vec<u8> {
    fixed(number, value.to_bits())
}

/// Returns a field of four bytes.
pub fn fixed_32(number: u8, value: u32) -> Vec<u8> {
    [key(number, 5), value.to_le_bytes().to_vec()].concat()
}

/// Returns whole numbers in one field.
pub fn packed(number: u8, values: &[u64]) -> Vec<u8> {
    bytes(number, values.iter().flat_map(|value| varint(*value)).collect::<Vec<u8>>())
}

/// Returns values of eight bytes in one field.
pub fn packed_fixed(number: u8, values: &[u64]) -> Vec<u8> {
    bytes(number, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

fn key(number: u8, kind: u8) -> Vec<u8> {
    varint(u64::from(number) << 3 | u64::from(kind))
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = vec![];
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}
