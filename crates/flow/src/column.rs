//! Values of one type, one after the other: what batches and windows consist of.

use std::sync::Arc;

use tidemill_types::FieldType;

use crate::value::Value;

/// A column of values of one type, any of which may be null.
#[derive(Debug, Clone)]
pub struct Column {
    data: Data,
    /// For each value whether it is null; empty while none is.
    nulls: Vec<bool>,
}

/// The values of a column. Where one is null something of the type stands in its place.
#[derive(Debug, Clone)]
pub enum Data {
    /// `bool`
    Bool(Vec<bool>),
    /// `int`
    Int(Vec<i32>),
    /// `long`
    Long(Vec<i64>),
    /// `float`
    Float(Vec<f32>),
    /// `double`
    Double(Vec<f64>),
    /// `string`
    Str(Strings),
    /// `object`
    Object(Vec<Value>),
}

/// Texts, one after the other in one piece of memory.
#[derive(Debug, Clone, Default)]
pub struct Strings {
    text: String,
    ends: Vec<u32>,
    /// What took the place of texts of another length; as long as it has to be.
    replaced: Vec<Option<Box<str>>>,
}

impl Strings {
    /// The texts in `text` that end at `ends`, which are ascending, at characters and at most its length.
    pub fn of(text: String, ends: Vec<u32>) -> Self {
        debug_assert!(ends.is_sorted() && ends.iter().all(|end| text.is_char_boundary(*end as usize)));
        Self { text, ends, replaced: vec![] }
    }

    /// All texts in a row, and where each ends.
    pub fn into_parts(self) -> (String, Vec<u32>) {
        if !self.replaced.is_empty() {
            let mut plain = Self::default();
            (0..self.len()).for_each(|i| plain.push(self.get(i)));
            return (plain.text, plain.ends);
        }
        (self.text, self.ends)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Text `i`.
    #[inline]
    pub fn get(&self, i: usize) -> &str {
        if let Some(Some(text)) = self.replaced.get(i) {
            return text;
        }
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.text[start..self.ends[i] as usize]
    }

    /// Adds a text at the end. Together they have at most 4 GiB; what is beyond is cut off at a character.
    pub fn push(&mut self, text: &str) {
        let room = (u32::MAX as usize) - self.text.len();
        let text = if text.len() <= room { text } else { &text[..text.floor_char_boundary(room)] };
        self.text.push_str(text);
        self.ends.push(self.text.len() as u32);
    }

    /// A copy of the first `len` texts, with room for as many as there are.
    pub fn first(&self, len: usize) -> Self {
        let mut copy = Self::of(String::with_capacity(self.text.len()), Vec::with_capacity(self.ends.len()));
        if !self.replaced.is_empty() {
            (0..len).for_each(|i| copy.push(self.get(i)));
            return copy;
        }
        copy.ends.extend_from_slice(&self.ends[..len]);
        copy.text.push_str(&self.text[..copy.ends.last().map_or(0, |end| *end as usize)]);
        copy
    }

    /// Replaces text `i`. One of the same length takes its place, another is kept beside.
    fn set(&mut self, i: usize, text: &str) {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        let place = start..self.ends[i] as usize;
        if place.len() == text.len() {
            self.text.replace_range(place, text);
            self.replaced.get_mut(i).map(Option::take);
        } else {
            self.replaced.resize(self.replaced.len().max(i + 1), None);
            self.replaced[i] = Some(text.into());
        }
    }

    fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.replaced.truncate(len);
        self.text.truncate(self.ends.last().map_or(0, |e| *e as usize));
    }
}

/// Does the same for the values of each type.
macro_rules! each {
    ($data:expr, $v:ident => $do:expr) => {
        match $data {
            Data::Bool($v) => $do,
            Data::Int($v) => $do,
            Data::Long($v) => $do,
            Data::Float($v) => $do,
            Data::Double($v) => $do,
            Data::Str($v) => $do,
            Data::Object($v) => $do,
        }
    };
}

impl Column {
    /// An empty column of a type. Times are longs.
    pub fn new(ty: FieldType) -> Self {
        let data = match ty {
            FieldType::Bool => Data::Bool(vec![]),
            FieldType::Int => Data::Int(vec![]),
            FieldType::Long | FieldType::Time => Data::Long(vec![]),
            FieldType::Float => Data::Float(vec![]),
            FieldType::Double => Data::Double(vec![]),
            FieldType::String => Data::Str(Strings::default()),
            FieldType::Object => Data::Object(vec![]),
        };
        Self { data, nulls: vec![] }
    }

    /// A column without nulls.
    pub fn of(data: Data) -> Self {
        Self { data, nulls: vec![] }
    }

    /// A column with nulls where `nulls` says so; as long as the values, or empty for none.
    pub fn with_nulls(data: Data, nulls: Vec<bool>) -> Self {
        let column = Self { data, nulls };
        debug_assert!(column.nulls.is_empty() || column.nulls.len() == column.len());
        column
    }

    /// Its values, and for each whether it is null; nothing when none is.
    pub fn into_parts(self) -> (Data, Vec<bool>) {
        (self.data, self.nulls)
    }

    /// Its values.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// For each value whether it is null; empty when none is.
    pub fn nulls(&self) -> &[bool] {
        &self.nulls
    }

    /// How many values it has.
    pub fn len(&self) -> usize {
        each!(&self.data, v => v.len())
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its type.
    pub fn ty(&self) -> FieldType {
        match self.data {
            Data::Bool(_) => FieldType::Bool,
            Data::Int(_) => FieldType::Int,
            Data::Long(_) => FieldType::Long,
            Data::Float(_) => FieldType::Float,
            Data::Double(_) => FieldType::Double,
            Data::Str(_) => FieldType::String,
            Data::Object(_) => FieldType::Object,
        }
    }

    /// Whether value `i` is null.
    #[inline]
    pub fn is_null(&self, i: usize) -> bool {
        !self.nulls.is_empty() && self.nulls[i]
    }

    /// Value `i`.
    pub fn get(&self, i: usize) -> Value {
        if self.is_null(i) {
            return Value::Null;
        }
        match &self.data {
            Data::Bool(v) => Value::Bool(v[i]),
            Data::Int(v) => Value::Int(v[i]),
            Data::Long(v) => Value::Long(v[i]),
            Data::Float(v) => Value::Float(v[i]),
            Data::Double(v) => Value::Double(v[i]),
            Data::Str(v) => Value::Str(Arc::from(v.get(i))),
            Data::Object(v) => v[i].clone(),
        }
    }

    /// Adds a value. One of another type is not the caller's to give; a narrower number is widened, anything else becomes null.
    pub fn push(&mut self, value: Value) {
        match (&mut self.data, value) {
            (Data::Bool(v), Value::Bool(x)) => v.push(x),
            (Data::Int(v), Value::Int(x)) => v.push(x),
            (Data::Long(v), Value::Long(x)) => v.push(x),
            (Data::Long(v), Value::Int(x)) => v.push(x.into()),
            (Data::Float(v), Value::Float(x)) => v.push(x),
            (Data::Double(v), Value::Double(x)) => v.push(x),
            (Data::Str(v), Value::Str(x)) => v.push(&x),
            (Data::Object(v), x) if !x.is_null() => v.push(x),
            _ => return self.push_null(),
        }
        if !self.nulls.is_empty() {
            self.nulls.push(false);
        }
    }

    /// Adds a null.
    pub fn push_null(&mut self) {
        let len = self.len();
        match &mut self.data {
            Data::Bool(v) => v.push(false),
            Data::Int(v) => v.push(0),
            Data::Long(v) => v.push(0),
            Data::Float(v) => v.push(0.0),
            Data::Double(v) => v.push(0.0),
            Data::Str(v) => v.push(""),
            Data::Object(v) => v.push(Value::Null),
        }
        self.nulls.resize(len, false);
        self.nulls.push(true);
    }

    /// Adds value `i` of a column of the same type.
    pub fn push_from(&mut self, other: &Self, i: usize) {
        if other.is_null(i) {
            return self.push_null();
        }
        match (&mut self.data, &other.data) {
            (Data::Bool(v), Data::Bool(o)) => v.push(o[i]),
            (Data::Int(v), Data::Int(o)) => v.push(o[i]),
            (Data::Long(v), Data::Long(o)) => v.push(o[i]),
            (Data::Float(v), Data::Float(o)) => v.push(o[i]),
            (Data::Double(v), Data::Double(o)) => v.push(o[i]),
            (Data::Str(v), Data::Str(o)) => v.push(o.get(i)),
            _ => return self.push(other.get(i)),
        }
        if !self.nulls.is_empty() {
            self.nulls.push(false);
        }
    }

    /// Adds the values at `rows` of a column of the same type.
    pub fn gather(&mut self, other: &Self, rows: &[u32]) {
        if !self.nulls.is_empty() || !other.nulls.is_empty() {
            rows.iter().for_each(|i| self.push_from(other, *i as usize));
            return;
        }
        match (&mut self.data, &other.data) {
            (Data::Bool(v), Data::Bool(o)) => v.extend(rows.iter().map(|i| o[*i as usize])),
            (Data::Int(v), Data::Int(o)) => v.extend(rows.iter().map(|i| o[*i as usize])),
            (Data::Long(v), Data::Long(o)) => v.extend(rows.iter().map(|i| o[*i as usize])),
            (Data::Float(v), Data::Float(o)) => v.extend(rows.iter().map(|i| o[*i as usize])),
            (Data::Double(v), Data::Double(o)) => v.extend(rows.iter().map(|i| o[*i as usize])),
            _ => rows.iter().for_each(|i| self.push_from(other, *i as usize)),
        }
    }

    /// Replaces value `i`. What is not of the column's type becomes null.
    pub fn set(&mut self, i: usize, value: &Value) {
        match (&mut self.data, value) {
            (Data::Bool(v), Value::Bool(x)) => v[i] = *x,
            (Data::Int(v), Value::Int(x)) => v[i] = *x,
            (Data::Long(v), Value::Long(x)) => v[i] = *x,
            (Data::Float(v), Value::Float(x)) => v[i] = *x,
            (Data::Double(v), Value::Double(x)) => v[i] = *x,
            (Data::Str(v), Value::Str(x)) => v.set(i, x),
            (Data::Object(v), x) if !x.is_null() => v[i] = x.clone(),
            _ => return self.set_null(i),
        }
        if let Some(null) = self.nulls.get_mut(i) {
            *null = false;
        }
    }

    fn set_null(&mut self, i: usize) {
        match &mut self.data {
            Data::Str(v) => v.set(i, ""),
            Data::Object(v) => v[i] = Value::Null,
            _ => {}
        }
        let len = self.len();
        self.nulls.resize(len, false);
        self.nulls[i] = true;
    }

    /// Replaces value `i` by value `j` of a column of the same type.
    pub fn set_from(&mut self, i: usize, other: &Self, j: usize) {
        if other.is_null(j) {
            return self.set_null(i);
        }
        match (&mut self.data, &other.data) {
            (Data::Bool(v), Data::Bool(o)) => v[i] = o[j],
            (Data::Int(v), Data::Int(o)) => v[i] = o[j],
            (Data::Long(v), Data::Long(o)) => v[i] = o[j],
            (Data::Float(v), Data::Float(o)) => v[i] = o[j],
            (Data::Double(v), Data::Double(o)) => v[i] = o[j],
            (Data::Str(v), Data::Str(o)) => v.set(i, o.get(j)),
            _ => return self.set(i, &other.get(j)),
        }
        if let Some(null) = self.nulls.get_mut(i) {
            *null = false;
        }
    }

    /// Replaces value `i` of a column of longs.
    pub fn set_long(&mut self, i: usize, value: i64) {
        if let Data::Long(values) = &mut self.data {
            values[i] = value;
            if let Some(null) = self.nulls.get_mut(i) {
                *null = false;
            }
        }
    }

    /// Keeps the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        each!(&mut self.data, v => v.truncate(len));
        self.nulls.truncate(len);
    }
}
