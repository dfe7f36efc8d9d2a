//! Columns: sequences of values of one type, the building blocks of batches and windows.

use std::ops::Range;
use std::sync::Arc;

use tidemill_types::FieldType;

use crate::columns::shareable::Shareable;
pub use crate::columns::string_column::StringColumn;
use crate::columns::value::Value;
use crate::columns::value_ref::ValueRef;

/// A column of nullable values of one type.
///
/// After [`Self::share`], clones cost nothing until one of them is changed.
#[derive(Debug, Clone)]
pub struct Column(Shareable<ColumnValues>);

#[derive(Debug, Clone)]
struct ColumnValues {
    data: Data,
    /// Null flag of each value; empty without nulls.
    nulls: Vec<bool>,
}

impl Default for ColumnValues {
    fn default() -> Self {
        Self { data: Data::Bool(vec![]), nulls: vec![] }
    }
}

/// Values of a column. The value of a null is arbitrary.
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
    Str(StringColumn),
    /// `object`
    Object(Vec<Value>),
}

/// Evaluates an expression for the values of each type.
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
    /// Creates an empty column. Times are longs.
    pub fn new(ty: FieldType) -> Self {
        Self::of(match ty {
            FieldType::Bool => Data::Bool(vec![]),
            FieldType::Int => Data::Int(vec![]),
            FieldType::Long | FieldType::Time => Data::Long(vec![]),
            FieldType::Float => Data::Float(vec![]),
            FieldType::Double => Data::Double(vec![]),
            FieldType::String => Data::Str(StringColumn::default()),
            FieldType::Object => Data::Object(vec![]),
        })
    }

    /// Creates a column without nulls.
    pub fn of(data: Data) -> Self {
        Self::with_nulls(data, vec![])
    }

    /// Creates a column with nulls where `nulls` is true. `nulls` is as long as the values, or empty for
    /// none.
    pub fn with_nulls(data: Data, nulls: Vec<bool>) -> Self {
        let column = Self(Shareable::new(ColumnValues { data, nulls }));
        debug_assert!(column.nulls().is_empty() || column.nulls().len() == column.len());
        column
    }

    /// Returns the values, and whether each is null; empty if none is.
    pub fn into_parts(mut self) -> (Data, Vec<bool>) {
        let ColumnValues { data, nulls } = self.values_mut();
        (std::mem::replace(data, Data::Bool(vec![])), std::mem::take(nulls))
    }

    /// Moves the values into shared memory, so that later clones share them.
    pub fn share(&mut self) {
        self.0.share();
    }

    /// Returns whether the column owns its values.
    pub(crate) fn is_unshared(&self) -> bool {
        !self.0.is_shared()
    }

    #[inline]
    fn values(&self) -> &ColumnValues {
        self.0.get()
    }

    #[inline]
    fn values_mut(&mut self) -> &mut ColumnValues {
        self.0.get_mut()
    }

    /// Returns the values.
    #[inline]
    pub fn data(&self) -> &Data {
        &self.values().data
    }

    /// Returns whether each value is null; empty if none is.
    #[inline]
    pub fn nulls(&self) -> &[bool] {
        &self.values().nulls
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        each!(self.data(), v => v.len())
    }

    /// Returns whether the column has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the type; a time column has type long.
    pub fn ty(&self) -> FieldType {
        match self.data() {
            Data::Bool(_) => FieldType::Bool,
            Data::Int(_) => FieldType::Int,
            Data::Long(_) => FieldType::Long,
            Data::Float(_) => FieldType::Float,
            Data::Double(_) => FieldType::Double,
            Data::Str(_) => FieldType::String,
            Data::Object(_) => FieldType::Object,
        }
    }

    /// Returns whether value `i` is null.
    #[inline]
    pub fn is_null(&self, i: usize) -> bool {
        let nulls = self.nulls();
        !nulls.is_empty() && nulls[i]
    }

    /// Returns value `i`.
    pub fn get(&self, i: usize) -> Value {
        if self.is_null(i) {
            return Value::Null;
        }
        match self.data() {
            Data::Bool(v) => Value::Bool(v[i]),
            Data::Int(v) => Value::Int(v[i]),
            Data::Long(v) => Value::Long(v[i]),
            Data::Float(v) => Value::Float(v[i]),
            Data::Double(v) => Value::Double(v[i]),
            Data::Str(v) => Value::Str(Arc::from(v.get(i))),
            Data::Object(v) => v[i].clone(),
        }
    }

    /// Returns value `i` without a copy.
    #[inline]
    pub fn value_ref(&self, i: usize) -> ValueRef<'_> {
        let ColumnValues { data, nulls } = self.values();
        if !nulls.is_empty() && nulls[i] {
            return ValueRef::Null;
        }
        match data {
            Data::Bool(v) => ValueRef::Bool(v[i]),
            Data::Int(v) => ValueRef::Int(v[i]),
            Data::Long(v) => ValueRef::Long(v[i]),
            Data::Float(v) => ValueRef::Float(v[i]),
            Data::Double(v) => ValueRef::Double(v[i]),
            Data::Str(v) => ValueRef::Str(v.get(i)),
            Data::Object(v) => v[i].borrowed(),
        }
    }

    /// Appends a value as [`Self::push`] does.
    #[inline]
    pub fn push_ref(&mut self, value: &ValueRef<'_>) {
        let ColumnValues { data, nulls } = self.values_mut();
        match (data, *value) {
            (Data::Bool(v), ValueRef::Bool(x)) => v.push(x),
            (Data::Int(v), ValueRef::Int(x)) => v.push(x),
            (Data::Long(v), ValueRef::Long(x)) => v.push(x),
            (Data::Long(v), ValueRef::Int(x)) => v.push(x.into()),
            (Data::Float(v), ValueRef::Float(x)) => v.push(x),
            (Data::Double(v), ValueRef::Double(x)) => v.push(x),
            (Data::Str(v), ValueRef::Str(x)) => v.push(x),
            (Data::Object(v), x) if !x.is_null() => v.push(x.to_value()),
            _ => return self.push_null(),
        }
        if !nulls.is_empty() {
            nulls.push(false);
        }
    }

    /// Replaces value `i` as [`Self::set`] does.
    #[inline]
    pub(crate) fn set_ref(&mut self, i: usize, value: &ValueRef<'_>) {
        let ColumnValues { data, nulls } = self.values_mut();
        match (data, *value) {
            (Data::Bool(v), ValueRef::Bool(x)) => v[i] = x,
            (Data::Int(v), ValueRef::Int(x)) => v[i] = x,
            (Data::Long(v), ValueRef::Long(x)) => v[i] = x,
            (Data::Float(v), ValueRef::Float(x)) => v[i] = x,
            (Data::Double(v), ValueRef::Double(x)) => v[i] = x,
            (Data::Str(v), ValueRef::Str(x)) => v.set(i, x),
            (Data::Object(v), x) if !x.is_null() => v[i] = x.to_value(),
            _ => return self.set_null(i),
        }
        if let Some(null) = nulls.get_mut(i) {
            *null = false;
        }
    }

    /// Appends a value. Callers pass a value of the column's type; an int is widened to a long, any other
    /// value becomes null.
    pub fn push(&mut self, value: Value) {
        let ColumnValues { data, nulls } = self.values_mut();
        match (data, value) {
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
        if !nulls.is_empty() {
            nulls.push(false);
        }
    }

    /// Appends a null.
    pub fn push_null(&mut self) {
        let len = self.len();
        let ColumnValues { data, nulls } = self.values_mut();
        match data {
            Data::Bool(v) => v.push(false),
            Data::Int(v) => v.push(0),
            Data::Long(v) => v.push(0),
            Data::Float(v) => v.push(0.0),
            Data::Double(v) => v.push(0.0),
            Data::Str(v) => v.push(""),
            Data::Object(v) => v.push(Value::Null),
        }
        nulls.resize(len, false);
        nulls.push(true);
    }

    /// Appends value `i` of a column of the same type.
    pub fn push_from(&mut self, other: &Self, i: usize) {
        if other.is_null(i) {
            return self.push_null();
        }
        let ColumnValues { data, nulls } = self.values_mut();
        match (data, other.data()) {
            (Data::Bool(v), Data::Bool(o)) => v.push(o[i]),
            (Data::Int(v), Data::Int(o)) => v.push(o[i]),
            (Data::Long(v), Data::Long(o)) => v.push(o[i]),
            (Data::Float(v), Data::Float(o)) => v.push(o[i]),
            (Data::Double(v), Data::Double(o)) => v.push(o[i]),
            (Data::Str(v), Data::Str(o)) => v.push_from(o, i),
            _ => return self.push(other.get(i)),
        }
        if !nulls.is_empty() {
            nulls.push(false);
        }
    }

    /// Appends the values at `rows` of a column of the same type.
    pub fn gather(&mut self, other: &Self, rows: &[u32]) {
        let ColumnValues { data, nulls } = self.values_mut();
        if !nulls.is_empty() || !other.nulls().is_empty() {
            rows.iter().for_each(|i| self.push_from(other, *i as usize));
            return;
        }
        match (data, other.data()) {
            (Data::Bool(v), Data::Bool(o)) => v.extend(rows.iter().map(|i| o[*i as usize])),
            (Data::Int(v), Data::Int(o)) => v.extend(rows.iter().map(|i| o[*i as usize])),
            (Data::Long(v), Data::Long(o)) => v.extend(rows.iter().map(|i| o[*i as usize])),
            (Data::Float(v), Data::Float(o)) => v.extend(rows.iter().map(|i| o[*i as usize])),
            (Data::Double(v), Data::Double(o)) => v.extend(rows.iter().map(|i| o[*i as usize])),
            (Data::Str(v), Data::Str(o)) => v.gather(o, rows),
            (Data::Object(v), Data::Object(o)) => v.extend(rows.iter().map(|i| o[*i as usize].clone())),
            _ => rows.iter().for_each(|i| self.push_from(other, *i as usize)),
        }
    }

    /// Replaces value `i`. A value of another type becomes null.
    pub fn set(&mut self, i: usize, value: &Value) {
        let ColumnValues { data, nulls } = self.values_mut();
        match (data, value) {
            (Data::Bool(v), Value::Bool(x)) => v[i] = *x,
            (Data::Int(v), Value::Int(x)) => v[i] = *x,
            (Data::Long(v), Value::Long(x)) => v[i] = *x,
            (Data::Float(v), Value::Float(x)) => v[i] = *x,
            (Data::Double(v), Value::Double(x)) => v[i] = *x,
            (Data::Str(v), Value::Str(x)) => v.set(i, x),
            (Data::Object(v), x) if !x.is_null() => v[i] = x.clone(),
            _ => return self.set_null(i),
        }
        if let Some(null) = nulls.get_mut(i) {
            *null = false;
        }
    }

    fn set_null(&mut self, i: usize) {
        let len = self.len();
        let ColumnValues { data, nulls } = self.values_mut();
        match data {
            Data::Str(v) => v.set(i, ""),
            Data::Object(v) => v[i] = Value::Null,
            _ => {}
        }
        nulls.resize(len, false);
        nulls[i] = true;
    }

    /// Replaces value `i` by value `j` of a column of the same type.
    pub fn set_from(&mut self, i: usize, other: &Self, j: usize) {
        if other.is_null(j) {
            return self.set_null(i);
        }
        let ColumnValues { data, nulls } = self.values_mut();
        match (data, other.data()) {
            (Data::Bool(v), Data::Bool(o)) => v[i] = o[j],
            (Data::Int(v), Data::Int(o)) => v[i] = o[j],
            (Data::Long(v), Data::Long(o)) => v[i] = o[j],
            (Data::Float(v), Data::Float(o)) => v[i] = o[j],
            (Data::Double(v), Data::Double(o)) => v[i] = o[j],
            (Data::Str(v), Data::Str(o)) => v.set(i, o.get(j)),
            _ => return self.set(i, &other.get(j)),
        }
        if let Some(null) = nulls.get_mut(i) {
            *null = false;
        }
    }

    /// Appends values `rows` of a column of the same type.
    pub fn extend_range(&mut self, other: &Self, rows: Range<usize>) {
        let ColumnValues { data, nulls } = self.values_mut();
        if !nulls.is_empty() || !other.nulls().is_empty() {
            rows.for_each(|i| self.push_from(other, i));
            return;
        }
        match (data, other.data()) {
            (Data::Bool(v), Data::Bool(o)) => v.extend_from_slice(&o[rows]),
            (Data::Int(v), Data::Int(o)) => v.extend_from_slice(&o[rows]),
            (Data::Long(v), Data::Long(o)) => v.extend_from_slice(&o[rows]),
            (Data::Float(v), Data::Float(o)) => v.extend_from_slice(&o[rows]),
            (Data::Double(v), Data::Double(o)) => v.extend_from_slice(&o[rows]),
            (Data::Str(v), Data::Str(o)) => v.extend_range(o, rows),
            (Data::Object(v), Data::Object(o)) => v.extend_from_slice(&o[rows]),
            _ => rows.for_each(|i| self.push_from(other, i)),
        }
    }

    /// Appends values to a column of ints without nulls; ignored by columns of other types.
    pub(crate) fn extend_ints(&mut self, values: impl Iterator<Item = i32>) {
        if let ColumnValues { data: Data::Int(ints), .. } = self.values_mut() {
            ints.extend(values);
        }
    }

    /// Replaces value `i` of a column of doubles; ignored by columns of other types.
    #[inline]
    pub(crate) fn set_double(&mut self, i: usize, value: f64) {
        let ColumnValues { data, nulls } = self.values_mut();
        if let Data::Double(values) = data {
            values[i] = value;
            if let Some(null) = nulls.get_mut(i) {
                *null = false;
            }
        }
    }

    /// Replaces value `i` of a column of longs; ignored by columns of other types.
    #[inline]
    pub fn set_long(&mut self, i: usize, value: i64) {
        let ColumnValues { data, nulls } = self.values_mut();
        if let Data::Long(values) = data {
            values[i] = value;
            if let Some(null) = nulls.get_mut(i) {
                *null = false;
            }
        }
    }

    /// Keeps the first `len` values.
    pub fn truncate(&mut self, len: usize) {
        let ColumnValues { data, nulls } = self.values_mut();
        each!(data, v => v.truncate(len));
        nulls.truncate(len);
    }
}
