//! Rows: named values, and a hash of them.

use std::borrow::Cow;
use std::io::Write;

use tidemill_types::Timestamp;
use tidemill_types::decode::CellValue;
use xxhash_rust::xxh3::Xxh3;

/// Value of a row. Texts are those of the message, or made of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RowCell<'a> {
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Time(Timestamp),
    Text(Cow<'a, str>),
    /// Text of JSON, whose objects have no key twice.
    Json(Cow<'a, str>),
}

impl RowCell<'_> {
    pub(crate) fn value(&self) -> CellValue<'_> {
        match self {
            Self::Bool(b) => CellValue::Bool(*b),
            Self::Int(n) => CellValue::Int(*n),
            Self::Unsigned(n) => CellValue::Unsigned(*n),
            Self::Float(x) => CellValue::Float(*x),
            Self::Time(time) => CellValue::Time(*time),
            Self::Text(text) => CellValue::Text(text),
            Self::Json(text) => CellValue::Json(text),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Json(text) => text.len(),
            _ => 8,
        }
    }

    /// Adds the value to a hash, so that two rows with the same bytes have the same values.
    fn hash(&self, hash: &mut Xxh3) {
        let (tag, number) = match self {
            Self::Bool(b) => (0, u64::from(*b)),
            Self::Int(n) => (1, *n as u64),
            Self::Unsigned(n) => (2, *n),
            Self::Float(x) => (3, x.to_bits()),
            Self::Time(time) => (4, time.0 as u64),
            Self::Text(text) => (5, text.len() as u64),
            Self::Json(text) => (6, text.len() as u64),
        };
        hash.update(&[tag]);
        hash.update(&number.to_le_bytes());
        if let Self::Text(text) | Self::Json(text) = self {
            hash.update(text.as_bytes());
        }
    }
}

/// Values that all rows of a part of a message have, and their hash.
#[derive(Default)]
pub(crate) struct SharedCells<'a> {
    cells: Vec<(&'a str, RowCell<'a>)>,
    hash: u128,
}

impl<'a> SharedCells<'a> {
    pub(crate) fn of(row: Row<'a, '_>) -> Self {
        Self { hash: row.hash.digest128(), cells: row.cells }
    }
}

/// Values of a row by their names, without those that are missing.
pub(crate) struct Row<'a, 's> {
    shared: &'s [(&'a str, RowCell<'a>)],
    cells: Vec<(&'a str, RowCell<'a>)>,
    hash: Xxh3,
    /// Hash of the values that are the identity of the row, if those are not all.
    identity: Option<u128>,
}

impl<'a, 's> Row<'a, 's> {
    pub(crate) fn new() -> Self {
        Self { shared: &[], cells: vec![], hash: Xxh3::new(), identity: None }
    }

    /// Begins a row that has the shared values, too.
    pub(crate) fn sharing(shared: &'s SharedCells<'a>) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&shared.hash.to_le_bytes());
        Self { shared: &shared.cells, cells: Vec::with_capacity(16), hash, identity: None }
    }

    pub(crate) fn push(&mut self, name: &'a str, cell: RowCell<'a>) {
        self.hash.update(&(name.len() as u64).to_le_bytes());
        self.hash.update(name.as_bytes());
        cell.hash(&mut self.hash);
        self.cells.push((name, cell));
    }

    /// Adds a text; an empty one is missing, as protocol buffers do not tell them apart.
    pub(crate) fn text(&mut self, name: &'a str, text: impl Into<Cow<'a, str>>) {
        let text = text.into();
        if !text.is_empty() {
            self.push(name, RowCell::Text(text));
        }
    }

    pub(crate) fn json(&mut self, name: &'a str, json: Option<String>) {
        if let Some(json) = json {
            self.push(name, RowCell::Json(json.into()));
        }
    }

    pub(crate) fn float(&mut self, name: &'a str, value: Option<f64>) {
        if let Some(value) = value {
            self.push(name, RowCell::Float(value));
        }
    }

    pub(crate) fn time(&mut self, name: &'a str, time: Option<Timestamp>) {
        if let Some(time) = time {
            self.push(name, RowCell::Time(time));
        }
    }

    /// Adds a count that is 0 unless something was lost.
    pub(crate) fn nonzero(&mut self, name: &'a str, count: u32) {
        if count > 0 {
            self.push(name, RowCell::Int(count.into()));
        }
    }

    /// Returns the hash of the values so far.
    pub(crate) fn hash(&self) -> u128 {
        self.hash.digest128()
    }

    /// Makes the values so far, but for those that are not part of the hash, the identity of the row: a second one with them is the same row.
    pub(crate) fn set_identity(&mut self) {
        self.identity = Some(self.hash());
    }

    pub(crate) fn identity(&self) -> Option<u128> {
        self.identity
    }

    /// Adds a value that is not part of the hash.
    pub(crate) fn push_unhashed(&mut self, name: &'a str, cell: RowCell<'a>) {
        self.cells.push((name, cell));
    }

    /// Returns all values, the shared ones last.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (&'a str, &RowCell<'a>)> {
        self.cells.iter().chain(self.shared).map(|(name, cell)| (*name, cell))
    }

    /// Returns the bytes that the row takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.cells().map(|(name, cell)| name.len() + cell.bytes()).sum::<usize>() + 64
    }

    /// Returns the row as a JSON object, for people who look for the reason of a refusal.
    pub(crate) fn to_json(&self) -> String {
        let mut text = JsonText::new();
        text.raw("{");
        for (n, (name, cell)) in self.cells().enumerate() {
            text.raw(if n == 0 { "" } else { "," });
            text.text(name);
            text.raw(":");
            match cell {
                RowCell::Bool(b) => text.raw(if *b { "true" } else { "false" }),
                RowCell::Int(n) => text.raw(&n.to_string()),
                RowCell::Unsigned(n) => text.raw(&n.to_string()),
                RowCell::Float(x) => text.float(*x),
                RowCell::Time(time) => text.text(&time.to_string()),
                RowCell::Text(value) => text.text(value),
                RowCell::Json(json) => text.raw(json),
            }
        }
        text.raw("}");
        text.finish()
    }
}

/// Text of JSON that is being written.
pub(crate) struct JsonText(Vec<u8>);

impl JsonText {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn raw(&mut self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        // writing to memory does not fail, nor does a text
        let _ = serde_json::to_writer(&mut self.0, text);
    }

    pub(crate) fn integer(&mut self, number: impl std::fmt::Display) {
        let _ = write!(self.0, "{number}");
    }

    /// Adds a number; those that JSON does not have are the texts that protocol buffers write for them.
    pub(crate) fn float(&mut self, x: f64) {
        match x {
            x if x.is_nan() => self.raw("\"NaN\""),
            f64::INFINITY => self.raw("\"Infinity\""),
            f64::NEG_INFINITY => self.raw("\"-Infinity\""),
            x => {
                let _ = serde_json::to_writer(&mut self.0, &x);
            }
        }
    }

    /// Adds an array.
    pub(crate) fn array<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.raw("[");
        for (n, item) in items.into_iter().enumerate() {
            self.raw(if n == 0 { "" } else { "," });
            write(self, item);
        }
        self.raw("]");
    }

    pub(crate) fn finish(self) -> String {
        String::from_utf8(self.0).expect("only texts are written, which are UTF-8")
    }
}

/// Returns an instant in nanoseconds since 1970 as RFC 3339.
pub(crate) fn instant_text(nanos: u64) -> String {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let whole = Timestamp(seconds as i64 * 1_000_000).to_string();
    match rest {
        0 => whole,
        rest => format!("{}.{rest:09}Z", whole.trim_end_matches('Z')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_names_values_and_what_is_shared() {
        let row = |shared: &str, name: &'static str, cell: RowCell<'static>| {
            let mut outer = Row::new();
            outer.text("service", shared.to_owned());
            let shared = SharedCells::of(outer);
            let mut row = Row::sharing(&shared);
            row.push(name, cell);
            row.hash()
        };
        let mut all = vec![
            row("a", "x", RowCell::Int(1)),
            row("b", "x", RowCell::Int(1)),
            row("a", "y", RowCell::Int(1)),
            row("a", "x", RowCell::Int(2)),
            row("a", "x", RowCell::Unsigned(1)),
            row("a", "x", RowCell::Text("1".into())),
            row("a", "x", RowCell::Json("1".into())),
        ];
        // hashes are stored: another algorithm would store what is sent again
        assert_eq!(format!("{:032x}", all[0]), "7b2afd0a41911e97b09c531342a8c4d4");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 7);
    }

    #[test]
    fn nanoseconds_of_instants_are_kept() {
        assert_eq!(instant_text(1_767_603_600_000_000_001), "2026-01-05T09:00:00.000000001Z");
        assert_eq!(instant_text(1_767_603_600_000_000_000), "2026-01-05T09:00:00Z");
        assert_eq!(instant_text(i64::MAX as u64), "2262-04-11T23:47:16.854775807Z");
    }

    #[test]
    fn rejected_rows_are_json() {
        let mut row = Row::new();
        row.text("a\"", "x\ny");
        row.json("o", Some("{\"k\":1}".to_owned()));
        row.float("x", Some(f64::NAN));
        row.push("b", RowCell::Bool(true));
        row.time("t", Some(Timestamp(0)));
        let json = row.to_json();
        assert_eq!(json, r#"{"a\"":"x\ny","o":{"k":1},"x":"NaN","b":true,"t":"1970-01-01T00:00:00Z"}"#);
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    }
}
