//! The table of functions.

use super::{Kind, Spec, access, definitions, names, session, sizes};
use crate::pg_catalog::rows::Cell;

use Kind::{Bool, Int, Object, Text};

/// Name of the function that replaces `ARRAY(SELECT …)` without rows.
pub(in crate::pg_catalog) const NO_TEXTS: &str = "__no_texts";

const fn strict(
    name: &'static str,
    arguments: &'static [Kind],
    optional: usize,
    result: &'static str,
    body: super::Body,
) -> Spec {
    Spec { name, arguments, optional, result, is_strict: true, body }
}

const fn lenient(
    name: &'static str,
    arguments: &'static [Kind],
    optional: usize,
    result: &'static str,
    body: super::Body,
) -> Spec {
    Spec { name, arguments, optional, result, is_strict: false, body }
}

/// A function that tells of objects that do not exist here, so that its result is null.
const fn nothing(name: &'static str, arguments: &'static [Kind], optional: usize) -> Spec {
    strict(name, arguments, optional, "text", |_, _| Ok(Cell::Null))
}

/// A function that tells whether something is the case that never is.
const fn never(name: &'static str, arguments: &'static [Kind]) -> Spec {
    strict(name, arguments, 0, "bool", |_, _| Ok(Cell::Bool(false)))
}

/// Returns all functions.
pub(super) fn all() -> &'static [Spec] {
    &ALL
}

static ALL: [Spec; 103] = [
    // definitions of objects
    lenient("format_type", &[Object, Int], 0, "text", definitions::format_type),
    strict("pg_get_constraintdef", &[Object, Bool], 1, "text", definitions::constraint),
    strict("pg_get_indexdef", &[Object, Int, Bool], 2, "text", definitions::index),
    nothing("pg_get_viewdef", &[Object, Bool], 1),
    nothing("pg_get_expr", &[Text, Object, Bool], 1),
    nothing("pg_get_ruledef", &[Object, Bool], 1),
    nothing("pg_get_triggerdef", &[Object, Bool], 1),
    nothing("pg_get_partkeydef", &[Object], 0),
    nothing("pg_get_partition_constraintdef", &[Object], 0),
    nothing("pg_get_serial_sequence", &[Text, Text], 0),
    nothing("pg_get_statisticsobjdef", &[Object], 0),
    nothing("pg_get_statisticsobjdef_columns", &[Object], 0),
    nothing("pg_get_functiondef", &[Object], 0),
    nothing("pg_get_function_sqlbody", &[Object], 0),
    strict("pg_get_function_arguments", &[Object], 0, "text", definitions::function_arguments),
    strict("pg_get_function_identity_arguments", &[Object], 0, "text", definitions::function_arguments),
    strict("pg_get_function_result", &[Object], 0, "text", definitions::function_result),
    strict("obj_description", &[Object, Text], 1, "text", definitions::object_comment),
    strict("col_description", &[Object, Int], 0, "text", definitions::column_comment),
    nothing("shobj_description", &[Object, Text], 0),
    // names
    strict("pg_get_userbyid", &[Object], 0, "name", names::user),
    strict("pg_table_is_visible", &[Object], 0, "bool", names::table_is_visible),
    strict("pg_type_is_visible", &[Object], 0, "bool", names::type_is_visible),
    strict("pg_function_is_visible", &[Object], 0, "bool", names::function_is_visible),
    strict("pg_collation_is_visible", &[Object], 0, "bool", |_, _| Ok(Cell::Bool(true))),
    strict("pg_operator_is_visible", &[Object], 0, "bool", |_, _| Ok(Cell::Bool(true))),
    never("pg_opclass_is_visible", &[Object]),
    never("pg_opfamily_is_visible", &[Object]),
    never("pg_conversion_is_visible", &[Object]),
    never("pg_statistics_obj_is_visible", &[Object]),
    never("pg_ts_config_is_visible", &[Object]),
    never("pg_ts_dict_is_visible", &[Object]),
    never("pg_ts_parser_is_visible", &[Object]),
    never("pg_ts_template_is_visible", &[Object]),
    never("pg_is_other_temp_schema", &[Object]),
    never("pg_relation_is_publishable", &[Object]),
    never("pg_relation_is_updatable", &[Object, Bool]),
    strict("to_regclass", &[Text], 0, "regclass", names::to_regclass),
    strict("to_regtype", &[Text], 0, "regtype", names::to_regtype),
    strict("to_regproc", &[Text], 0, "regproc", names::to_regproc),
    strict("to_regprocedure", &[Text], 0, "regproc", names::to_regproc),
    strict("to_regnamespace", &[Text], 0, "oid", names::to_regnamespace),
    strict("to_regrole", &[Text], 0, "oid", names::to_regrole),
    strict(names::REGCLASS_OID, &[Object], 0, "oid", names::regclass_oid),
    strict(names::REGTYPE_OID, &[Object], 0, "oid", names::regtype_oid),
    strict(names::REGPROC_OID, &[Object], 0, "oid", names::regproc_oid),
    strict(names::REGOPERATOR_OID, &[Object], 0, "oid", names::regoperator_oid),
    strict(names::REGNAMESPACE_OID, &[Object], 0, "oid", names::regnamespace_oid),
    strict(names::REGROLE_OID, &[Object], 0, "oid", names::regrole_oid),
    strict(names::REGCLASS_NAME, &[Object], 0, "text", names::regclass_name),
    strict(names::REGTYPE_NAME, &[Object], 0, "text", names::regtype_name),
    strict(names::REGPROC_NAME, &[Object], 0, "text", names::regproc_name),
    strict(names::REGOPERATOR_NAME, &[Object], 0, "text", names::regoperator_name),
    strict(names::REGNAMESPACE_NAME, &[Object], 0, "text", names::regnamespace_name),
    strict(names::REGROLE_NAME, &[Object], 0, "text", names::regrole_name),
    strict("parse_ident", &[Text, Bool], 1, "text[]", names::parse_ident),
    strict("quote_ident", &[Text], 0, "text", names::quote_ident),
    strict("quote_literal", &[Text], 0, "text", names::quote_literal),
    lenient("quote_nullable", &[Text], 0, "text", names::quote_nullable),
    // the session
    strict("version", &[], 0, "text", session::version),
    strict("current_database", &[], 0, "name", session::database),
    strict("current_catalog", &[], 0, "name", session::database),
    strict("current_schema", &[], 0, "name", session::schema),
    strict("current_schemas", &[Bool], 0, "name[]", session::schemas),
    strict("current_user", &[], 0, "name", session::user),
    strict("session_user", &[], 0, "name", session::user),
    strict("current_role", &[], 0, "name", session::user),
    strict("user", &[], 0, "name", session::user),
    strict("pg_backend_pid", &[], 0, "int4", session::process),
    strict("pg_my_temp_schema", &[], 0, "oid", |_, _| Ok(Cell::Int(0))),
    strict("pg_is_in_recovery", &[], 0, "bool", |_, _| Ok(Cell::Bool(false))),
    strict("pg_is_wal_replay_paused", &[], 0, "bool", |_, _| Ok(Cell::Bool(false))),
    lenient("current_setting", &[Text, Bool], 1, "text", session::setting),
    lenient("set_config", &[Text, Text, Bool], 0, "text", session::set_config),
    strict("getdatabaseencoding", &[], 0, "name", |_, _| Ok("UTF8".into())),
    strict("pg_client_encoding", &[], 0, "name", |_, _| Ok("UTF8".into())),
    strict("pg_encoding_to_char", &[Int], 0, "name", session::encoding),
    strict("pg_char_to_encoding", &[Text], 0, "int4", session::encoding_number),
    // rights
    strict("has_table_privilege", &[Object, Object, Text], 1, "bool", access::table),
    strict("has_any_column_privilege", &[Object, Object, Text], 1, "bool", access::table),
    strict("has_column_privilege", &[Object, Object, Object, Text], 1, "bool", access::column),
    strict("has_schema_privilege", &[Object, Object, Text], 1, "bool", access::schema),
    strict("has_database_privilege", &[Object, Object, Text], 1, "bool", access::database),
    strict("has_function_privilege", &[Object, Object, Text], 1, "bool", access::usage),
    strict("has_type_privilege", &[Object, Object, Text], 1, "bool", access::usage),
    strict("has_language_privilege", &[Object, Object, Text], 1, "bool", access::usage),
    strict("has_tablespace_privilege", &[Object, Object, Text], 1, "bool", access::none),
    strict("has_sequence_privilege", &[Object, Object, Text], 1, "bool", access::none),
    strict("has_foreign_data_wrapper_privilege", &[Object, Object, Text], 1, "bool", access::none),
    strict("has_server_privilege", &[Object, Object, Text], 1, "bool", access::none),
    strict("has_parameter_privilege", &[Object, Object, Text], 1, "bool", access::none),
    strict("pg_has_role", &[Object, Object, Text], 1, "bool", access::role),
    strict("row_security_active", &[Object], 0, "bool", |_, _| Ok(Cell::Bool(false))),
    strict("pg_stat_get_numscans", &[Object], 0, "int8", |_, _| Ok(Cell::Null)),
    // sizes
    strict("pg_size_pretty", &[Int], 0, "text", sizes::pretty),
    strict("pg_relation_size", &[Object, Text], 1, "int8", sizes::relation),
    strict("pg_table_size", &[Object], 0, "int8", sizes::relation),
    strict("pg_total_relation_size", &[Object], 0, "int8", sizes::relation),
    strict("pg_indexes_size", &[Object], 0, "int8", |_, _| Ok(Cell::Int(0))),
    strict("pg_database_size", &[Object], 0, "int8", sizes::database),
    strict("pg_tablespace_size", &[Object], 0, "int8", sizes::tablespace),
    strict("pg_tablespace_location", &[Object], 0, "text", |_, _| Ok("".into())),
    strict(NO_TEXTS, &[], 0, "text[]", |_, _| Ok(Cell::Texts(vec![]))),
];
