//! Types whose values are objects: numbers that are shown as names.

use super::names;

/// A type whose values are objects.
#[derive(Debug)]
pub(in crate::pg_catalog) struct ObjectType {
    pub name: &'static str,
    /// Function for the number of an object with a name or a number.
    pub oid_function: &'static str,
    /// Function for the name of an object with a number.
    pub name_function: &'static str,
}

const fn of(name: &'static str, oid_function: &'static str, name_function: &'static str) -> ObjectType {
    ObjectType { name, oid_function, name_function }
}

/// All types of objects.
pub(in crate::pg_catalog) const ALL: [ObjectType; 7] = [
    of("regclass", names::REGCLASS_OID, names::REGCLASS_NAME),
    of("regtype", names::REGTYPE_OID, names::REGTYPE_NAME),
    of("regproc", names::REGPROC_OID, names::REGPROC_NAME),
    of("regprocedure", names::REGPROC_OID, names::REGPROC_NAME),
    of("regoperator", names::REGOPERATOR_OID, names::REGOPERATOR_NAME),
    of("regnamespace", names::REGNAMESPACE_OID, names::REGNAMESPACE_NAME),
    of("regrole", names::REGROLE_OID, names::REGROLE_NAME),
];
