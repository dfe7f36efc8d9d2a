//! PostgreSQL's types of columns.

use arrow::datatypes::{DataType, Field};

use super::definitions;

/// Returns the number and the modifier of PostgreSQL's type for a column, as the wire describes it.
pub(super) fn type_of(field: &Field) -> (u32, i64) {
    if let Some(name) = field.metadata().get(tidemill_database::PG_TYPE) {
        let ty = definitions::type_of_name(&name.replace("char[]", "\"char\"[]"));
        let ty = if name == "char" { definitions::type_of_name("\"char\"") } else { ty };
        return (ty.map_or(25, |ty| ty.oid), -1);
    }
    (type_oid(field.data_type()), modifier(field.data_type()))
}

/// Returns precision and scale of a decimal as PostgreSQL packs them.
fn modifier(ty: &DataType) -> i64 {
    match ty {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale)
            if *scale >= 0 =>
        {
            (i64::from(*precision) << 16) + i64::from(*scale) + 4
        }
        _ => -1,
    }
}

fn type_oid(ty: &DataType) -> u32 {
    match ty {
        DataType::Boolean => 16,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => 21,
        DataType::UInt16 | DataType::Int32 => 23,
        DataType::UInt32 | DataType::Int64 => 20,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => 1700,
        DataType::Float16 | DataType::Float32 => 700,
        DataType::Float64 => 701,
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 25,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => 17,
        DataType::Date32 | DataType::Date64 => 1082,
        DataType::Time32(_) | DataType::Time64(_) => 1083,
        DataType::Timestamp(_, None) => 1114,
        DataType::Timestamp(_, Some(_)) => 1184,
        DataType::Duration(_) | DataType::Interval(_) => 1186,
        DataType::Dictionary(_, values) => type_oid(values),
        DataType::RunEndEncoded(_, values) => type_oid(values.data_type()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => {
            let list = definitions::type_of_oid(type_oid(item.data_type())).map_or(0, |ty| ty.list);
            if list == 0 || list == 199 { 114 } else { list }
        }
        _ => 114,
    }
}
