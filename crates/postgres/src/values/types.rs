//! Types of PostgreSQL, and those of Arrow's columns among them.

use arrow_schema::{DataType, Field, IntervalUnit};
use tidemill_database::PG_TYPE;

use super::catalog_type::CatalogType;

/// Type of a column or a parameter, as clients know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PgType {
    Scalar(Scalar),
    /// List with one dimension.
    Array(Scalar),
    /// Type of a column of PostgreSQL's catalogs.
    Catalog(CatalogType),
}

/// Type that is not a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Bool,
    Bytes,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    /// Objects, and lists that are not of values.
    Json,
    Date,
    Time,
    /// Time of a calendar without a zone.
    Timestamp,
    /// Instant.
    TimestampTz,
    Interval,
}

/// Scalar, its oid, that of its lists, its size in bytes (-1 if that varies), and its name.
const SCALARS: [(Scalar, u32, u32, i16, &str); 15] = [
    (Scalar::Bool, 16, 1000, 1, "boolean"),
    (Scalar::Bytes, 17, 1001, -1, "bytea"),
    (Scalar::Int8, 20, 1016, 8, "bigint"),
    (Scalar::Int2, 21, 1005, 2, "smallint"),
    (Scalar::Int4, 23, 1007, 4, "integer"),
    (Scalar::Text, 25, 1009, -1, "text"),
    (Scalar::Json, 114, 199, -1, "json"),
    (Scalar::Float4, 700, 1021, 4, "real"),
    (Scalar::Float8, 701, 1022, 8, "double precision"),
    (Scalar::Date, 1082, 1182, 4, "date"),
    (Scalar::Time, 1083, 1183, 8, "time without time zone"),
    (Scalar::Timestamp, 1114, 1115, 8, "timestamp without time zone"),
    (Scalar::TimestampTz, 1184, 1185, 8, "timestamp with time zone"),
    (Scalar::Interval, 1186, 1187, 16, "interval"),
    (Scalar::Numeric, 1700, 1231, -1, "numeric"),
];

impl Scalar {
    fn row(self) -> (Scalar, u32, u32, i16, &'static str) {
        // the table has all of them, which a test checks
        SCALARS.into_iter().find(|row| row.0 == self).unwrap_or(SCALARS[5])
    }

    /// Returns the number of the type.
    pub fn oid(self) -> u32 {
        self.row().1
    }

    /// Returns the name in SQL.
    pub fn name(self) -> &'static str {
        self.row().4
    }

    /// Returns the type of values of Arrow's type; `None` for one that is a list or has fields.
    pub fn of(ty: &DataType) -> Option<Self> {
        Some(match ty {
            DataType::Boolean => Self::Bool,
            DataType::Int8 | DataType::UInt8 | DataType::Int16 => Self::Int2,
            DataType::UInt16 | DataType::Int32 => Self::Int4,
            DataType::UInt32 | DataType::Int64 => Self::Int8,
            DataType::UInt64
            | DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => Self::Numeric,
            DataType::Float16 | DataType::Float32 => Self::Float4,
            DataType::Float64 => Self::Float8,
            // a null without a type is a text, as it is for PostgreSQL
            DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Bytes,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Time32(_) | DataType::Time64(_) => Self::Time,
            DataType::Timestamp(_, None) => Self::Timestamp,
            DataType::Timestamp(_, Some(_)) => Self::TimestampTz,
            DataType::Duration(_)
            | DataType::Interval(
                IntervalUnit::YearMonth | IntervalUnit::DayTime | IntervalUnit::MonthDayNano,
            ) => Self::Interval,
            DataType::Dictionary(_, values) => return Self::of(values),
            DataType::RunEndEncoded(_, values) => return Self::of(values.data_type()),
            _ => return None,
        })
    }
}

impl PgType {
    pub const TEXT: Self = Self::Scalar(Scalar::Text);

    /// Returns the type of a column, which may name one of the catalogs' types.
    pub fn of_field(field: &Field) -> Self {
        let named = field.metadata().get(PG_TYPE).and_then(|name| CatalogType::of_name(name));
        let own = Self::of(field.data_type());
        named.filter(|named| named.base() == own).map_or(own, Self::Catalog)
    }

    /// Returns the type of a column of Arrow's type.
    pub fn of(ty: &DataType) -> Self {
        match ty {
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _) => match Scalar::of(item.data_type()) {
                Some(item) => Self::Array(item),
                None => Self::Scalar(Scalar::Json),
            },
            other => Self::Scalar(Scalar::of(other).unwrap_or(Scalar::Json)),
        }
    }

    /// Returns the number of the type.
    pub fn oid(self) -> u32 {
        match self {
            Self::Scalar(scalar) => scalar.oid(),
            Self::Array(item) => item.row().2,
            Self::Catalog(ty) => ty.oid(),
        }
    }

    /// Returns the bytes of a value in the binary format, -1 if they vary.
    pub fn bytes(self) -> i16 {
        match self {
            Self::Scalar(scalar) => scalar.row().3,
            Self::Array(_) => -1,
            Self::Catalog(ty) => ty.bytes(),
        }
    }

    /// Returns the name in SQL.
    pub fn name(self) -> String {
        match self {
            Self::Scalar(scalar) => scalar.name().to_owned(),
            Self::Array(item) => format!("{}[]", item.name()),
            Self::Catalog(ty) => ty.name().to_owned(),
        }
    }
}

/// Type of a parameter. A client may name types that no column has; their values are taken as one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParameterType {
    /// Number that the client has given, or that of the type that the database expects.
    pub oid: u32,
    /// Type as which its values are read; `None` if they cannot be.
    pub read_as: Option<ReadAs>,
}

/// Type as which values of a parameter are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadAs {
    Scalar(ScalarType),
    /// List of such values.
    List(ScalarType),
}

/// Number of a type, and the type as which its values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScalarType {
    pub oid: u32,
    pub scalar: Scalar,
}

/// Types without a column of ours: their oid, that of their lists (0 for none), and the type as which their values are read.
const OTHERS: [(u32, u32, Scalar); 7] = [
    (18, 1002, Scalar::Text), // "char"
    (19, 1003, Scalar::Text), // name
    (OID, OID_LIST, Scalar::Int8),
    (705, 0, Scalar::Text),     // unknown
    (1042, 1014, Scalar::Text), // bpchar
    (1043, 1015, Scalar::Text), // varchar
    (3802, 3807, Scalar::Json), // jsonb
];

/// Oid of `jsonb`, whose binary format begins with its version.
pub(crate) const JSONB: u32 = 3802;
/// Oid of `oid`, whose binary format is that of an unsigned number of four bytes.
pub(crate) const OID: u32 = 26;
/// Oid of `oid[]`.
pub(crate) const OID_LIST: u32 = 1028;

impl ParameterType {
    /// Returns the type of this number.
    pub fn of_oid(oid: u32) -> Self {
        let own = SCALARS.iter().map(|row| (row.1, row.2, row.0));
        let read_as = own.chain(OTHERS).find_map(|(own, list, scalar)| {
            let ty = ScalarType { oid: own, scalar };
            match oid {
                0 => None,
                oid if oid == own => Some(ReadAs::Scalar(ty)),
                oid if oid == list => Some(ReadAs::List(ty)),
                _ => None,
            }
        });
        Self { oid, read_as }
    }

    /// Returns the type that the database expects; a text if it does not say.
    pub fn of_column(ty: Option<&DataType>) -> Self {
        let ty = ty.map_or(PgType::TEXT, PgType::of);
        Self::of_oid(ty.oid())
    }

    /// Returns the type with this name in `PREPARE`, whose words have one space between them; `None` for an unknown one.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        if let Some(item) = name.strip_suffix("[ ]").or_else(|| name.strip_suffix("[]")) {
            let item = SCALARS.iter().find(|row| row.4 == full_name(item.trim_end()))?;
            return Some(Self::of_oid(item.2));
        }
        let row = SCALARS.iter().find(|row| row.4 == full_name(&name))?;
        Some(Self::of_oid(row.1))
    }
}

/// Returns the name in SQL of a type that may have a short one.
fn full_name(name: &str) -> &str {
    match name {
        "bool" => "boolean",
        "int8" => "bigint",
        "int2" => "smallint",
        "int" | "int4" => "integer",
        "float4" => "real",
        "float8" | "float" | "double" => "double precision",
        "decimal" => "numeric",
        "varchar" | "character varying" | "char" | "bpchar" | "name" | "unknown" => "text",
        "jsonb" => "json",
        "time" => "time without time zone",
        "timestamp" => "timestamp without time zone",
        "timestamptz" => "timestamp with time zone",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_has_each_type_once() {
        let oids: BTreeSet<u32> = SCALARS.iter().flat_map(|row| [row.1, row.2]).collect();
        assert_eq!(oids.len(), 2 * SCALARS.len());
        for (scalar, ..) in SCALARS {
            assert_eq!(scalar.row().0, scalar);
            let ty = ScalarType { oid: scalar.oid(), scalar };
            let list = PgType::Array(scalar).oid();
            assert_eq!(ParameterType::of_oid(scalar.oid()).read_as, Some(ReadAs::Scalar(ty)));
            assert_eq!(ParameterType::of_oid(list).read_as, Some(ReadAs::List(ty)));
            assert_eq!(ParameterType::of_name(scalar.name()), Some(ParameterType::of_oid(scalar.oid())));
            for name in [format!("{}[]", scalar.name()), format!("{} [ ]", scalar.name())] {
                assert_eq!(ParameterType::of_name(&name), Some(ParameterType::of_oid(list)));
            }
        }
        let names = ParameterType::of_oid(1003).read_as;
        assert_eq!(names, Some(ReadAs::List(ScalarType { oid: 19, scalar: Scalar::Text })), "name[]");
        assert_eq!((ParameterType::of_oid(0).read_as, ParameterType::of_oid(600).read_as), (None, None));
    }
}
