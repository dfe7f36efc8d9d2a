//! Encoding of rows and values in a state.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_types::FieldType;

use super::{CHUNK_ROWS, Error, OBJECT_DEPTH_MAX, Reader, SnapshotWriter};
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::{Column, Data, StringColumn};
use crate::columns::value::{Key, OpaqueValue, Value};

/// Location of a row: columns, and its index in them.
pub(crate) type RowLocation<'a> = (&'a [Column], usize);

const NULL: u8 = 0;
const BOOL: u8 = 1;
const INT: u8 = 2;
const LONG: u8 = 3;
const FLOAT: u8 = 4;
const DOUBLE: u8 = 5;
const STRING: u8 = 6;
const LIST: u8 = 7;
const MAP: u8 = 8;
const SET: u8 = 9;
const JSON: u8 = 10;
/// An object that was written before; its id follows.
const AGAIN: u8 = 11;
/// Flag of the tag of an object that may be referenced again; such objects get ids in order.
const SHARED: u8 = 0x80;

/// Returns the tag of a column.
fn tag(ty: FieldType) -> u8 {
    match ty {
        FieldType::Bool => BOOL,
        FieldType::Int => INT,
        FieldType::Long | FieldType::Time => LONG,
        FieldType::Float => FLOAT,
        FieldType::Double => DOUBLE,
        FieldType::String => STRING,
        FieldType::Object => LIST,
    }
}

impl SnapshotWriter<'_> {
    /// Writes rows of columns of these types, column by column, at most [`CHUNK_ROWS`]. The reader must know
    /// their number.
    pub(crate) fn rows(&mut self, types: &[FieldType], rows: &[RowLocation<'_>]) -> Result<(), Error> {
        for (c, ty) in types.iter().enumerate() {
            self.bytes(&[tag(*ty)])?;
            self.nulls(c, rows)?;
            for (columns, row) in rows {
                match columns[c].data() {
                    Data::Bool(v) => self.flag(v[*row])?,
                    Data::Int(v) => self.bytes(&v[*row].to_le_bytes())?,
                    Data::Long(v) => self.bytes(&v[*row].to_le_bytes())?,
                    Data::Float(v) => self.bytes(&v[*row].to_le_bytes())?,
                    Data::Double(v) => self.bytes(&v[*row].to_le_bytes())?,
                    Data::Str(v) => self.text(v.get(*row))?,
                    Data::Object(v) => self.value(&v[*row])?,
                }
            }
        }
        Ok(())
    }

    /// Writes whether some values are null, and if so a bitmap, the first row in the lowest bit.
    fn nulls(&mut self, c: usize, rows: &[RowLocation<'_>]) -> Result<(), Error> {
        let is_null = |(columns, row): &RowLocation<'_>| columns[c].is_null(*row);
        let any = rows.iter().any(is_null);
        self.flag(any)?;
        for eight in rows.chunks(8).filter(|_| any) {
            let bit = |(i, row)| u8::from(is_null(row)) << i;
            self.bytes(&[eight.iter().enumerate().map(bit).sum()])?;
        }
        Ok(())
    }

    /// Writes a batch: rows with times, kinds and groups, but without chunks.
    pub(crate) fn batch(&mut self, batch: &Batch) -> Result<(), Error> {
        let types: Vec<FieldType> = batch.columns.iter().map(Column::ty).collect();
        self.number(batch.len() as u64)?;
        self.flag(!batch.groups.is_empty())?;
        for start in (0..batch.len()).step_by(CHUNK_ROWS) {
            let rows = start..batch.len().min(start + CHUNK_ROWS);
            for row in rows.clone() {
                self.signed(batch.times[row])?;
                self.kind(batch.kinds[row])?;
                if let Some(group) = batch.groups.get(row) {
                    self.text(group)?;
                }
            }
            let rows: Vec<RowLocation<'_>> = rows.map(|row| (batch.columns.as_slice(), row)).collect();
            self.rows(&types, &rows)?;
        }
        Ok(())
    }

    /// Writes an event kind.
    pub(crate) fn kind(&mut self, kind: EventKind) -> Result<(), Error> {
        self.bytes(&[match kind {
            EventKind::Current => 0,
            EventKind::Expired => 1,
            EventKind::Reset => 2,
        }])
    }

    /// Writes a value of any type.
    pub fn value(&mut self, value: &Value) -> Result<(), Error> {
        self.nested(value, 0)
    }

    fn nested(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > OBJECT_DEPTH_MAX {
            return Err(Error::TooDeep);
        }
        match value {
            Value::Null => self.bytes(&[NULL]),
            Value::Bool(b) => self.bytes(&[BOOL, u8::from(*b)]),
            Value::Int(n) => self.bytes(&[INT]).and_then(|()| self.signed((*n).into())),
            Value::Long(n) => self.bytes(&[LONG]).and_then(|()| self.signed(*n)),
            Value::Float(n) => self.bytes(&[FLOAT]).and_then(|()| self.bytes(&n.to_le_bytes())),
            Value::Double(n) => self.bytes(&[DOUBLE]).and_then(|()| self.bytes(&n.to_le_bytes())),
            Value::Str(text) => self.bytes(&[STRING]).and_then(|()| self.text(text)),
            Value::Object(object) => self.object(object, depth + 1),
        }
    }

    fn object(&mut self, object: &OpaqueValue, depth: usize) -> Result<(), Error> {
        let (tag, address, holders) = match object {
            OpaqueValue::List(list) => (LIST, Arc::as_ptr(list).addr(), Arc::strong_count(list)),
            OpaqueValue::Map(map) => (MAP, Arc::as_ptr(map).addr(), Arc::strong_count(map)),
            OpaqueValue::Set(set) => (SET, Arc::as_ptr(set).addr(), Arc::strong_count(set)),
            // immutable, so its sharing need not be preserved
            OpaqueValue::Json(json) => {
                self.bytes(&[JSON])?;
                return self.json(json.as_ref());
            }
        };
        if let Some(number) = self.objects.get(&address).copied().filter(|_| holders > 1) {
            self.bytes(&[AGAIN])?;
            return self.number(number);
        }
        self.bytes(&[tag | if holders > 1 { SHARED } else { 0 }])?;
        match object {
            OpaqueValue::List(list) => {
                let list = list.lock();
                self.number(list.len() as u64)?;
                list.iter().try_for_each(|item| self.nested(item, depth))?;
            }
            OpaqueValue::Map(map) => {
                let map = map.lock();
                self.number(map.len() as u64)?;
                for (key, value) in map.iter() {
                    self.nested(&key.0, depth)?;
                    self.nested(value, depth)?;
                }
            }
            OpaqueValue::Set(set) => {
                let set = set.lock();
                self.number(set.len() as u64)?;
                for (item, count) in set.iter() {
                    self.nested(&item.0, depth)?;
                    self.number(*count)?;
                }
            }
            OpaqueValue::Json(_) => {}
        }
        if holders > 1 {
            // entered after its contents, so that no object can be read that contains itself
            self.objects.insert(address, self.objects.len() as u64);
        }
        Ok(())
    }
}

impl Reader<'_> {
    /// Reads `rows` rows of columns of these types, at most [`CHUNK_ROWS`].
    pub(crate) fn rows(&mut self, types: &[FieldType], rows: usize) -> Result<Vec<Column>, Error> {
        types.iter().map(|ty| self.column(*ty, rows)).collect()
    }

    fn column(&mut self, ty: FieldType, rows: usize) -> Result<Column, Error> {
        let found = self.byte()?;
        if found != tag(ty) {
            return Err(self.damaged(format!("expected a column of type {}, found type {found}", ty.name())));
        }
        let mut nulls = Vec::new();
        if self.flag()? {
            let mut bits = vec![0; rows.div_ceil(8)];
            self.bytes(&mut bits)?;
            nulls.extend((0..rows).map(|i| bits[i / 8] >> (i % 8) & 1 == 1));
        }
        let data = match ty {
            FieldType::Bool => Data::Bool((0..rows).map(|_| self.flag()).collect::<Result<_, _>>()?),
            FieldType::Int => Data::Int(self.fixed(rows, i32::from_le_bytes)?),
            FieldType::Long | FieldType::Time => Data::Long(self.fixed(rows, i64::from_le_bytes)?),
            FieldType::Float => Data::Float(self.fixed(rows, f32::from_le_bytes)?),
            FieldType::Double => Data::Double(self.fixed(rows, f64::from_le_bytes)?),
            FieldType::String => {
                let mut texts = StringColumn::default();
                let mut bytes = Vec::new();
                for _ in 0..rows {
                    bytes.clear();
                    let len = self.number()?;
                    self.append(len, &mut bytes)?;
                    let text = std::str::from_utf8(&bytes);
                    texts.push(text.map_err(|_| self.damaged("a string is not UTF-8"))?);
                }
                Data::Str(texts)
            }
            FieldType::Object => Data::Object((0..rows).map(|_| self.value()).collect::<Result<_, _>>()?),
        };
        Ok(Column::with_nulls(data, nulls))
    }

    fn fixed<T, const N: usize>(&mut self, rows: usize, of: fn([u8; N]) -> T) -> Result<Vec<T>, Error> {
        let mut values = Vec::with_capacity(rows);
        let mut bytes = [0; N];
        for _ in 0..rows {
            self.bytes(&mut bytes)?;
            values.push(of(bytes));
        }
        Ok(values)
    }

    /// Reads a batch of columns of these types, without chunks.
    pub(crate) fn batch(&mut self, types: &[FieldType]) -> Result<Batch, Error> {
        let mut batch = Batch::new(types.iter().copied());
        let mut left = self.number()?;
        let grouped = self.flag()?;
        while left > 0 {
            let rows = left.min(CHUNK_ROWS as u64) as usize;
            for _ in 0..rows {
                batch.times.push(self.signed()?);
                batch.kinds.push(self.kind()?);
                if grouped {
                    batch.groups.push(self.text()?);
                }
            }
            let read = self.rows(types, rows)?;
            for (column, read) in batch.columns.iter_mut().zip(&read) {
                (0..rows).for_each(|row| column.push_from(read, row));
            }
            left -= rows as u64;
        }
        Ok(batch)
    }

    /// Reads an event kind.
    pub(crate) fn kind(&mut self) -> Result<EventKind, Error> {
        Ok(match self.byte()? {
            0 => EventKind::Current,
            1 => EventKind::Expired,
            2 => EventKind::Reset,
            other => return Err(self.damaged(format!("unknown event kind {other}"))),
        })
    }

    /// Reads a value of any type.
    pub fn value(&mut self) -> Result<Value, Error> {
        self.nested(0)
    }

    fn nested(&mut self, depth: usize) -> Result<Value, Error> {
        if depth > OBJECT_DEPTH_MAX {
            return Err(self.damaged("an object is nested too deeply"));
        }
        let tag = self.byte()?;
        Ok(match tag {
            NULL => Value::Null,
            BOOL => Value::Bool(self.flag()?),
            INT => {
                let n = self.signed()?;
                Value::Int(n.try_into().map_err(|_| self.damaged(format!("{n} is out of the range of int")))?)
            }
            LONG => Value::Long(self.signed()?),
            FLOAT => Value::Float(self.fixed(1, f32::from_le_bytes)?[0]),
            DOUBLE => Value::Double(self.fixed(1, f64::from_le_bytes)?[0]),
            STRING => Value::Str(self.text()?.into()),
            JSON => Value::Object(OpaqueValue::Json(Arc::new(self.json()?))),
            AGAIN => {
                let number = self.number()?;
                let known = usize::try_from(number).ok().and_then(|n| self.objects.get(n));
                let known = known.cloned();
                Value::Object(known.ok_or_else(|| {
                    self.damaged(format!("reference to object {number}, which does not exist"))
                })?)
            }
            _ => self.object(tag, depth + 1)?,
        })
    }

    fn object(&mut self, tag: u8, depth: usize) -> Result<Value, Error> {
        let object = match tag & !SHARED {
            LIST => OpaqueValue::list(vec![]),
            MAP => OpaqueValue::map(BTreeMap::new()),
            SET => OpaqueValue::Set(Arc::new(Mutex::new(BTreeMap::new()))),
            other => return Err(self.damaged(format!("unknown value type {other}"))),
        };
        for _ in 0..self.number()? {
            let item = self.nested(depth)?;
            match &object {
                OpaqueValue::List(list) => list.lock().push(item),
                OpaqueValue::Map(map) => {
                    let value = self.nested(depth)?;
                    map.lock().insert(Key(item), value);
                }
                OpaqueValue::Set(set) => {
                    let count = self.number()?;
                    set.lock().insert(Key(item), count);
                }
                OpaqueValue::Json(_) => {}
            }
        }
        if tag & SHARED != 0 {
            self.objects.push(object.clone());
        }
        Ok(Value::Object(object))
    }
}
