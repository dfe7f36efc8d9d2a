//! Types that columns of PostgreSQL's catalogs have, and no others: they are values of the other types under another number.

use super::types::{PgType, Scalar};

/// Type of a column of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CatalogType {
    /// One character.
    Char,
    Name,
    Varchar,
    /// Number of an object: four bytes without a sign.
    Oid,
    Xid,
    Oids,
    /// Lists whose elements are counted from 0.
    Int2Vector,
    OidVector,
}

/// Type, its name in catalogs, its oid, its size in bytes (-1 if that varies), and the type whose values it has.
const TYPES: [(CatalogType, &str, u32, i16, PgType); 8] = [
    (CatalogType::Char, "char", 18, 1, PgType::TEXT),
    (CatalogType::Name, "name", 19, 64, PgType::TEXT),
    (CatalogType::Int2Vector, "int2vector", 22, -1, PgType::Array(Scalar::Int2)),
    (CatalogType::Oid, "oid", 26, 4, PgType::Scalar(Scalar::Int8)),
    (CatalogType::Xid, "xid", 28, 4, PgType::Scalar(Scalar::Int8)),
    (CatalogType::OidVector, "oidvector", 30, -1, PgType::Array(Scalar::Int8)),
    (CatalogType::Oids, "oid[]", 1028, -1, PgType::Array(Scalar::Int8)),
    (CatalogType::Varchar, "varchar", 1043, -1, PgType::TEXT),
];

impl CatalogType {
    fn row(self) -> (CatalogType, &'static str, u32, i16, PgType) {
        // the table has all of them, which a test checks
        TYPES.into_iter().find(|row| row.0 == self).unwrap_or(TYPES[0])
    }

    /// Returns the type with this name in catalogs; `None` for one whose values come as another type.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = match name {
            // functions and types by their numbers
            "regproc" | "regtype" | "regclass" => "oid",
            other => other,
        };
        TYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    pub fn name(self) -> &'static str {
        self.row().1
    }

    pub fn oid(self) -> u32 {
        self.row().2
    }

    pub fn bytes(self) -> i16 {
        self.row().3
    }

    /// Returns the type whose values it has.
    pub fn base(self) -> PgType {
        self.row().4
    }

    /// Returns the oid of the elements of a list whose elements have a type of the catalogs.
    pub fn item_oid(self) -> Option<u32> {
        match self {
            Self::Oids | Self::OidVector => Some(26),
            _ => None,
        }
    }

    /// Returns whether numbers have four bytes without a sign.
    pub fn has_oids(self) -> bool {
        matches!(self, Self::Oid | Self::Xid | Self::Oids | Self::OidVector)
    }

    /// Returns whether elements are counted from 0, and written with spaces between them.
    pub fn is_vector(self) -> bool {
        matches!(self, Self::Int2Vector | Self::OidVector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_type_once() {
        for (ty, name, oid, ..) in TYPES {
            assert_eq!((ty.row().0, CatalogType::of_name(name), ty.oid()), (ty, Some(ty), oid));
        }
    }
}
