//! Changes of messages: of their documents, of their form, of their bytes.

use std::io::Write;

use bson::{Bson, Document, doc};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

const OP_QUERY: i32 = 2004;
const OP_COMPRESSED: i32 = 2012;
const OP_MSG: i32 = 2013;
/// Documents that mutation may make larger.
const DOCUMENT_BYTES_MAX: usize = 200_000;

/// Names and values of all seeds, of which others are made.
pub struct Pool {
    names: Vec<String>,
    values: Vec<Bson>,
}

impl Pool {
    pub fn of(seeds: &[Document]) -> Self {
        let mut pool = Self { names: Vec::new(), values: Vec::new() };
        for seed in seeds {
            pool.take(&Bson::Document(seed.clone()));
        }
        pool.names.sort();
        pool.names.dedup();
        pool
    }

    fn take(&mut self, value: &Bson) {
        match value {
            Bson::Document(document) => {
                for (name, value) in document {
                    self.names.push(name.clone());
                    self.values.push(value.clone());
                    // an operator with its argument, which makes sense in other places
                    if name.starts_with('$') {
                        self.values.push(Bson::Document(doc! { name: value.clone() }));
                    }
                    self.take(value);
                }
            }
            Bson::Array(array) => array.iter().for_each(|value| self.take(value)),
            _ => {}
        }
    }

    fn value(&self, random: &mut StdRng) -> Bson {
        if random.random_bool(0.6) {
            return self.values.choose(random).cloned().unwrap_or(Bson::Null);
        }
        match random.random_range(0..30) {
            0 => Bson::Int32(0),
            1 => Bson::Int32(-1),
            2 => Bson::Int32(i32::MAX),
            3 => Bson::Int32(i32::MIN),
            4 => Bson::Int64(i64::MAX),
            5 => Bson::Int64(i64::MIN),
            6 => Bson::Double(f64::NAN),
            7 => Bson::Double(f64::INFINITY),
            8 => Bson::Double(-f64::MAX),
            9 => Bson::Double(5e-324),
            10 => Bson::Double(-0.0),
            11 => Bson::String(String::new()),
            12 => Bson::String("$".into()),
            13 => Bson::String("$$".into()),
            14 => Bson::String("ä\u{10FFFF}\0x".into()),
            15 => Bson::String("a".repeat(random.random_range(0..5000))),
            16 => Bson::String("$$ROOT".into()),
            17 => Bson::DateTime(bson::DateTime::from_millis(i64::MAX)),
            18 => Bson::DateTime(bson::DateTime::from_millis(i64::MIN)),
            19 => Bson::Array(vec![]),
            20 => Bson::Document(doc! {}),
            21 => Bson::MinKey,
            22 => Bson::MaxKey,
            23 => Bson::Decimal128("9.999999999999999999999999999999999E+6144".parse().expect("a decimal")),
            24 => Bson::Decimal128("NaN".parse().expect("a decimal")),
            25 => Bson::Decimal128("-1E-6176".parse().expect("a decimal")),
            26 => Bson::Timestamp(bson::Timestamp { time: u32::MAX, increment: u32::MAX }),
            27 => {
                let depth = random.random_range(1..95);
                (0..depth).fold(Bson::Int32(1), |inner, n| match n % 2 {
                    0 => Bson::Document(doc! { "a": inner }),
                    _ => Bson::Array(vec![inner]),
                })
            }
            28 => Bson::Array((0..random.random_range(0..300)).map(Bson::Int32).collect()),
            _ => Bson::Int32(random.random()),
        }
    }

    fn name(&self, random: &mut StdRng) -> String {
        match random.random_range(0..20) {
            0 => String::new(),
            1 => "$".into(),
            2 => "a..b".into(),
            3 => "a.".repeat(random.random_range(1..200)),
            4 => "a.4294967296".into(),
            5 => "a.1499999".into(),
            _ => self.names.choose(random).cloned().unwrap_or_default(),
        }
    }
}

/// Makes a message of the seeds.
pub fn message(seeds: &[Document], pool: &Pool, random: &mut StdRng) -> Vec<u8> {
    let mut document = seeds.choose(random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(0..4) {
        change(&mut document, pool, random);
    }
    let Ok(mut body) = bson::serialize_to_vec(&document) else { return plain(&doc! { "ping": 1 }) };
    if body.len() > DOCUMENT_BYTES_MAX {
        return plain(&doc! { "ping": 1 });
    }
    if random.random_bool(0.15) {
        damage(&mut body, random);
    }
    let mut bytes = framed(&body, &document, random);
    if random.random_bool(0.1) {
        damage(&mut bytes, random);
    }
    if random.random_bool(0.9) && bytes.len() >= 16 {
        // most damaged messages have the right length, so that they get beyond the header
        let length = bytes.len() as i32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
    }
    bytes
}

/// Changes one place of a document.
fn change(document: &mut Document, pool: &Pool, random: &mut StdRng) {
    let mut places = 0;
    count(document, &mut places);
    // the name of the command stays more often than not
    let wanted = random.random_range(0..places.max(1));
    let wanted = if wanted == 0 && random.random_bool(0.8) { places / 2 } else { wanted };
    let mut at = 0;
    change_at(document, wanted, &mut at, pool, random);
}

fn count(document: &Document, places: &mut usize) {
    for (_, value) in document {
        *places += 1;
        count_value(value, places);
    }
}

fn count_value(value: &Bson, places: &mut usize) {
    match value {
        Bson::Document(inner) => count(inner, places),
        Bson::Array(array) => {
            for value in array {
                *places += 1;
                count_value(value, places);
            }
        }
        _ => {}
    }
}

fn change_at(document: &mut Document, wanted: usize, at: &mut usize, pool: &Pool, random: &mut StdRng) {
    let mut changed = None;
    for (index, (name, value)) in document.iter_mut().enumerate() {
        if *at == wanted {
            *at += 1;
            if random.random_bool(0.6) {
                change_value(value, pool, random);
            } else {
                changed = Some((index, name.clone()));
            }
            break;
        }
        *at += 1;
        if descend(value, wanted, at, pool, random) {
            return;
        }
    }
    let Some((_, name)) = changed else { return };
    match random.random_range(0..4) {
        0 => drop(document.remove(&name)),
        1 => drop(document.insert(pool.name(random), pool.value(random))),
        // with another name at the same place
        _ => {
            let other = pool.name(random);
            let fields = std::mem::take(document).into_iter();
            *document = fields.map(|(n, v)| if n == name { (other.clone(), v) } else { (n, v) }).collect();
        }
    }
}

/// Returns whether the place is inside the value.
fn descend(value: &mut Bson, wanted: usize, at: &mut usize, pool: &Pool, random: &mut StdRng) -> bool {
    match value {
        Bson::Document(inner) => {
            let mut places = 0;
            count(inner, &mut places);
            if wanted < *at + places {
                change_at(inner, wanted, at, pool, random);
                return true;
            }
            *at += places;
        }
        Bson::Array(array) => {
            for index in 0..array.len() {
                if *at == wanted {
                    *at += 1;
                    match random.random_range(0..5) {
                        0 => drop(array.remove(index)),
                        1 => array.insert(index, pool.value(random)),
                        2 => {
                            let copy = array[index].clone();
                            let times = random.random_range(1..20);
                            array.extend(std::iter::repeat_n(copy, times));
                        }
                        _ => change_value(&mut array[index], pool, random),
                    }
                    return true;
                }
                *at += 1;
                if descend(&mut array[index], wanted, at, pool, random) {
                    return true;
                }
            }
        }
        _ => {}
    }
    false
}

fn change_value(value: &mut Bson, pool: &Pool, random: &mut StdRng) {
    let old = std::mem::replace(value, Bson::Null);
    *value = match random.random_range(0..10) {
        0 => Bson::Array(vec![old]),
        1 => Bson::Document(doc! { pool.name(random): old }),
        2 => Bson::Array(vec![old, pool.value(random)]),
        3 => match old {
            Bson::String(mut text) => {
                text.push_str(
                    ["", ".0", ".a.b", "%", "\\", "(", "[", "{1000}", "$", "é"].choose(random).unwrap_or(&""),
                );
                Bson::String(text)
            }
            Bson::Int32(n) => Bson::Int64(i64::from(n) << random.random_range(0..32)),
            Bson::Document(mut document) => {
                document.insert(pool.name(random), pool.value(random));
                Bson::Document(document)
            }
            other => other,
        },
        _ => pool.value(random),
    };
}

/// Changes bytes.
fn damage(bytes: &mut Vec<u8>, random: &mut StdRng) {
    for _ in 0..random.random_range(1..4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..6) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = random.random(),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.random()),
            4 => {
                let numbers = [0, -1, 1, 4, 5, i32::MAX, i32::MIN, 48_000_000, 16 << 20];
                let number = numbers.choose(random).copied().unwrap_or(0).to_le_bytes();
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            _ => {
                let end = (at + random.random_range(1..64)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                let to = random.random_range(0..bytes.len());
                bytes.splice(to..to, part);
            }
        }
    }
}

/// Makes a message of a command.
pub fn plain(command: &Document) -> Vec<u8> {
    let body = bson::serialize_to_vec(command).expect("a command is BSON");
    with_header(OP_MSG, &[&[0; 5], body.as_slice()].concat())
}

/// Makes a message of a body, in one of the forms that messages have.
fn framed(body: &[u8], command: &Document, random: &mut StdRng) -> Vec<u8> {
    let mut content = vec![0; 5];
    content.extend_from_slice(body);
    match random.random_range(0..20) {
        0 => {
            content[0] = 1;
            let mut message = with_header(OP_MSG, &[content.as_slice(), &[0; 4]].concat());
            let end = message.len() - 4;
            let checksum = crc32c::crc32c(&message[..end]).to_le_bytes();
            message[end..].copy_from_slice(&checksum);
            message
        }
        1 => {
            let mut content = 0_i32.to_le_bytes().to_vec();
            content.extend_from_slice(b"admin.$cmd\0\0\0\0\0\xFF\xFF\xFF\xFF");
            content.extend_from_slice(body);
            with_header(OP_QUERY, &content)
        }
        2 => compressed(0, content.clone(), content.len()),
        3 => {
            let packed = snap::raw::Encoder::new().compress_vec(&content).expect("snappy");
            compressed(1, packed, content.len())
        }
        4 => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&content).expect("zlib");
            compressed(2, encoder.finish().expect("zlib"), content.len())
        }
        5 => compressed(3, zstd::bulk::compress(&content, 1).expect("zstd"), content.len()),
        6 | 7 => {
            // a list beside the body
            let lists = ["documents", "updates", "deletes", "ops", "nsInfo"];
            let Some((name, list)) = command
                .iter()
                .find_map(|(n, v)| Some((lists.iter().find(|list| *list == n)?, v.as_array()?)))
            else {
                return with_header(OP_MSG, &content);
            };
            let mut rest = command.clone();
            rest.remove(name);
            let Ok(rest) = bson::serialize_to_vec(&rest) else { return with_header(OP_MSG, &content) };
            let mut section = name.as_bytes().to_vec();
            section.push(0);
            for document in list.iter().filter_map(Bson::as_document) {
                section.extend(bson::serialize_to_vec(document).unwrap_or_default());
            }
            let mut content = vec![0; 5];
            content.extend_from_slice(&rest);
            content.push(1);
            content.extend_from_slice(&(section.len() as i32 + 4).to_le_bytes());
            content.extend_from_slice(&section);
            with_header(OP_MSG, &content)
        }
        _ => with_header(OP_MSG, &content),
    }
}

fn compressed(compressor: u8, packed: Vec<u8>, length: usize) -> Vec<u8> {
    let mut outer = OP_MSG.to_le_bytes().to_vec();
    outer.extend_from_slice(&(length as i32).to_le_bytes());
    outer.push(compressor);
    outer.extend_from_slice(&packed);
    with_header(OP_COMPRESSED, &outer)
}

fn with_header(op: i32, content: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(16 + content.len());
    for number in [16 + content.len() as i32, 7, 0, op] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.extend_from_slice(content);
    message
}
