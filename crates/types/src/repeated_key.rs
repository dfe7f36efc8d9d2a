//! Detection of objects that have a key twice.
//!
//! JSON readers disagree on which of the values counts, so such an object has no meaning that a sender and all later readers
//! of the stored text share.

use std::borrow::Cow;
use std::collections::HashSet;

/// Number of keys up to which comparing with each one is faster than hashing.
const COMPARED_MAX: usize = 16;

/// Returns the path of the first key that an object in `json` has twice, such as `a.b` or `[1].b`.
///
/// `json` is valid JSON. Depth does not matter: nothing recurs.
pub fn repeated_key(json: &str) -> Option<String> {
    if !json.contains('{') {
        return None;
    }
    let mut levels: Vec<Level<'_>> = Vec::new();
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' => levels.push(Level::Object(ObjectKeys::default())),
            b'[' => levels.push(Level::Array(0)),
            b'}' | b']' => drop(levels.pop()),
            b',' => match levels.last_mut() {
                Some(Level::Object(keys)) => keys.expects_key = true,
                Some(Level::Array(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let end = end_of_text(bytes, at + 1);
                if let Some(Level::Object(keys)) = levels.last_mut()
                    && std::mem::take(&mut keys.expects_key)
                    && !keys.add(text(&json[at..=end.min(bytes.len() - 1)]))
                {
                    return Some(path(&levels));
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// An object or array that has begun.
enum Level<'t> {
    Object(ObjectKeys<'t>),
    /// With the index of the current element.
    Array(usize),
}

/// The keys of an object so far.
struct ObjectKeys<'t> {
    list: Vec<Cow<'t, str>>,
    /// All keys, once there are more than [`COMPARED_MAX`].
    set: HashSet<Cow<'t, str>>,
    expects_key: bool,
}

impl Default for ObjectKeys<'_> {
    fn default() -> Self {
        Self { list: Vec::new(), set: HashSet::new(), expects_key: true }
    }
}

impl<'t> ObjectKeys<'t> {
    /// Adds a key. Returns whether it is new.
    fn add(&mut self, key: Cow<'t, str>) -> bool {
        let is_new = match self.list.len() {
            0..=COMPARED_MAX => !self.list.contains(&key),
            _ => {
                if self.set.is_empty() {
                    self.set.extend(self.list.iter().cloned());
                }
                self.set.insert(key.clone())
            }
        };
        self.list.push(key);
        is_new
    }
}

/// Returns the position of the quote that ends the text that begins at `from`.
fn end_of_text(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Returns the text of a JSON string with its quotes.
fn text(quoted: &str) -> Cow<'_, str> {
    let inner = quoted.trim_matches('"');
    match inner.contains('\\') {
        true => serde_json::from_str(quoted).map_or(Cow::Borrowed(inner), Cow::Owned),
        false => Cow::Borrowed(inner),
    }
}

fn path(levels: &[Level<'_>]) -> String {
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Object(keys) => {
                let dot = if path.is_empty() { "" } else { "." };
                path += &format!("{dot}{}", keys.list.last().map_or("", |key| key));
            }
            Level::Array(index) => path += &format!("[{index}]"),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_in_their_object() {
        for (json, expected) in [
            (r#"{"a":1,"b":2}"#, None),
            (r#"{"a":1,"a":2}"#, Some("a")),
            (r#"{"a":{"a":1},"b":{"a":1}}"#, None),
            (r#"[{"a":1},{"a":1}]"#, None),
            (r#"[{"a":1},{"b":[0,{"c":1,"c":1}]}]"#, Some("[1].b[1].c")),
            (r#"{"a":"{\"x\":1,\"x\":2}","b":"a"}"#, None),
            (r#"{"a":1,"\u0061":2}"#, Some("a")),
            (r#"{"a\"b":1,"a":["b","b"],"b":"\\"}"#, None),
            (r#"{"x": {"y": [], "z": {}, "y": 1}}"#, Some("x.y")),
            ("{}", None),
            ("7", None),
            (r#""{""#, None),
        ] {
            assert_eq!(repeated_key(json).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn many_keys_and_great_depth_are_no_exception() {
        let keys: Vec<String> = (0..100).map(|n| format!("\"k{n}\":{n}")).collect();
        assert_eq!(repeated_key(&format!("{{{}}}", keys.join(","))), None);
        for repeated in [0, 15, 16, 17, 99] {
            let json = format!("{{{},\"k{repeated}\":0}}", keys.join(","));
            assert_eq!(repeated_key(&json), Some(format!("k{repeated}")));
        }
        let deep = format!("{}{{\"a\":1,\"a\":1}}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(repeated_key(&deep).unwrap().ends_with("[0].a"));
    }

    /// The repeated keys are exactly the entries that a parser which keeps the last value of a key loses.
    #[test]
    fn random_objects_agree_with_a_parser() {
        let mut seed = 0x5eed_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        fn value(random: &mut impl FnMut(u64) -> u64, depth: u64, entries: &mut usize) -> String {
            match random(if depth == 0 { 2 } else { 4 }) {
                0 => "1".into(),
                1 => r#""a,{\"""#.into(),
                2 => {
                    let items: Vec<String> =
                        (0..random(3)).map(|_| value(random, depth - 1, entries)).collect();
                    format!("[{}]", items.join(","))
                }
                _ => {
                    let count = random(4);
                    *entries += count as usize;
                    let items: Vec<String> = (0..count)
                        .map(|_| format!("\"k{}\":{}", random(6), value(random, depth - 1, entries)))
                        .collect();
                    format!("{{{}}}", items.join(", "))
                }
            }
        }
        fn kept(json: &serde_json::Value) -> usize {
            match json {
                serde_json::Value::Array(all) => all.iter().map(kept).sum(),
                serde_json::Value::Object(all) => all.len() + all.values().map(kept).sum::<usize>(),
                _ => 0,
            }
        }
        for _ in 0..3000 {
            let mut entries = 0;
            let json = value(&mut random, 4, &mut entries);
            let parsed = serde_json::from_str(&json).unwrap();
            assert_eq!(repeated_key(&json).is_some(), kept(&parsed) < entries, "{json}");
        }
    }
}
