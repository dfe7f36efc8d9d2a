//! Casts, operators and calls of PostgreSQL in other words.

use datafusion::logical_expr::sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, BinaryOperator, DataType, ExactNumberInfo, Expr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, Query, SelectItem, SetExpr, Statement as Ast,
    Value,
};
use tidemill_types::{Error, Result};

use super::build::{arguments, call, called, number, take, text};
use super::last_part;
use crate::pg_catalog::functions;
use crate::pg_catalog::functions::object_types::{self, ObjectType};

/// Returns the type of objects with this name, such as `regclass`.
pub(super) fn object_type(name: &str) -> Option<&'static ObjectType> {
    object_types::ALL.iter().find(|ty| ty.name == name)
}

/// Replaces an expression whose parts were replaced before.
///
/// Errors: `Invalid` for an operator or a collation that is not supported.
pub(super) fn replace(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Collate { expr: inner, collation } => {
            let (name, _) = last_part(collation);
            if !["default", "c", "posix", "ucs_basic"].contains(&name.as_str()) {
                return Err(Error::invalid(format!(
                    "the collation `{name}` is not supported: texts are compared by their bytes, leave COLLATE out"
                )));
            }
            *expr = take(inner);
        }
        Expr::BinaryOp { left, op, right } => {
            if matches!(op, BinaryOperator::Eq | BinaryOperator::NotEq) {
                for side in [left, right] {
                    if let Some(list) = literal_of(side).and_then(|literal| list_of_numbers(&literal)) {
                        **side = list;
                    }
                }
            }
            if let BinaryOperator::PGCustomBinaryOperator(parts) = op {
                let name = parts.last().cloned().unwrap_or_default();
                *op = operator(&name).ok_or_else(|| {
                    Error::invalid(format!(
                        "OPERATOR({}) is not supported: write another operator",
                        parts.join(".")
                    ))
                })?;
            }
        }
        Expr::Function(function) => {
            let (name, is_of_catalogs) = last_part(&function.name);
            if name.starts_with("pg_") && !functions::is_known(&name) {
                return Err(Error::not_found(format!(
                    "there is no function `{name}`: not all of PostgreSQL's functions exist here. SHOW FUNCTIONS lists those of SQL"
                )));
            }
            if is_of_catalogs {
                function.name = ObjectName::from(vec![Ident::new(name)]);
            }
            if matches!(function.args, FunctionArguments::None) {
                function.args = FunctionArguments::List(FunctionArgumentList {
                    duplicate_treatment: None,
                    args: vec![],
                    clauses: vec![],
                });
            }
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            let names = access_chain.iter().map(|access| match access {
                AccessExpr::Dot(Expr::Identifier(name)) => Some(name.value.clone()),
                _ => None,
            });
            if let Some(names) = names.collect::<Option<Vec<String>>>() {
                let root = take(root);
                *expr = names.iter().fold(root, |of, name| call("get_field", vec![of, text(name)]));
            }
        }
        Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
            let literal = match right.as_ref() {
                Expr::Nested(inner) => literal_of(inner),
                other => literal_of(other),
            };
            if let Some(list) = literal.and_then(|literal| list(&literal, None)) {
                **right = list;
            }
        }
        Expr::Cast { expr: inner, data_type, .. } => {
            if let Some(replaced) = cast(inner, data_type) {
                *expr = replaced;
            }
        }
        _ => {}
    }
    Ok(())
}

fn operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        ">" => BinaryOperator::Gt,
        "<=" => BinaryOperator::LtEq,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        _ => return None,
    })
}

/// Returns a constant text.
fn literal_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the name of a type, without its schema and in lower case.
fn type_name(ty: &DataType) -> String {
    match ty {
        DataType::Custom(name, _) => last_part(name).0,
        DataType::Regclass => "regclass".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}

/// Returns a cast in other words; changes the type where that is enough.
fn cast(inner: &mut Expr, ty: &mut DataType) -> Option<Expr> {
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item)) =
        ty
    {
        if let Some(known) = plain_type(&type_name(item)) {
            **item = known;
        }
        return literal_of(inner).and_then(|literal| list(&literal, Some(item)));
    }
    let name = type_name(ty);
    if let Some(object) = object_type(&name) {
        return Some(call(object.oid_function, vec![take(inner)]));
    }
    let is_text =
        matches!(name.as_str(), "text" | "name" | "bpchar" | "cstring" | "sql_identifier" | "character_data")
            || name.starts_with("varchar")
            || name.starts_with("character varying");
    if is_text {
        let object = called(inner).and_then(|of| object_types::ALL.iter().find(|ty| ty.oid_function == of));
        if let Some(object) = object {
            let value = take(inner);
            return Some(call(object.name_function, vec![value]));
        }
    }
    if let Some(known) = plain_type(&name).filter(|_| matches!(ty, DataType::Custom(..))) {
        *ty = known;
    }
    None
}

/// Returns the type that has the values of a type of the catalogs.
fn plain_type(name: &str) -> Option<DataType> {
    Some(match name {
        "text" | "name" | "char" | "bpchar" | "varchar" | "cstring" | "unknown" | "sql_identifier"
        | "character_data" | "yes_or_no" | "pg_node_tree" | "aclitem" => DataType::Text,
        "oid" | "xid" | "cid" | "int8" | "regproc" | "regclass" | "regtype" => DataType::BigInt(None),
        "int4" | "cardinal_number" => DataType::Integer(None),
        "int2" => DataType::SmallInt(None),
        "float4" => DataType::Real,
        "float8" => DataType::Double(ExactNumberInfo::None),
        "bool" => DataType::Boolean,
        "numeric" => DataType::Numeric(ExactNumberInfo::None),
        "json" | "jsonb" => DataType::Text,
        _ => return None,
    })
}

/// Returns the list that a text such as `{a,"b c"}` is; its elements have the type `ty`, or are numbers if all are.
fn list(literal: &str, ty: Option<&DataType>) -> Option<Expr> {
    let inner = literal.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut elements: Vec<Option<String>> = vec![];
    let mut chars = inner.chars().peekable();
    while chars.peek().is_some() {
        let (mut element, mut is_quoted) = (String::new(), false);
        while let Some(c) = chars.next() {
            match c {
                '"' => {
                    is_quoted = true;
                    while let Some(c) = chars.next() {
                        match c {
                            '"' => break,
                            '\\' => element.extend(chars.next()),
                            c => element.push(c),
                        }
                    }
                }
                ',' => break,
                // lists of lists
                '{' | '}' => return None,
                c => element.push(c),
            }
        }
        let is_null = !is_quoted && element.trim().eq_ignore_ascii_case("null");
        elements.push((!is_null).then(|| if is_quoted { element } else { element.trim().to_owned() }));
    }
    let is_number =
        |element: &Option<String>| element.as_ref().is_none_or(|text| text.parse::<i64>().is_ok());
    let are_texts = ty.is_some_and(|ty| matches!(ty, DataType::Text));
    let numbers = !are_texts && !elements.is_empty() && elements.iter().all(is_number);
    if elements.is_empty() {
        return are_texts.then(|| call(crate::pg_catalog::functions::NO_TEXTS, vec![]));
    }
    let elem = elements.iter().map(|element| match element {
        None => super::build::null(),
        Some(element) if numbers => number(element.parse().unwrap_or(0)),
        Some(element) => text(element),
    });
    Some(Expr::Array(Array { elem: elem.collect(), named: true }))
}

/// Returns the list that a text such as `{0}` is; `None` for one that has other elements than numbers.
fn list_of_numbers(literal: &str) -> Option<Expr> {
    let inner = literal.strip_prefix('{')?.strip_suffix('}')?;
    match inner.split(',').all(|element| element.trim().parse::<i64>().is_ok()) {
        true => list(literal, None),
        false => None,
    }
}

/// Shows objects in the result of a statement by their names, as PostgreSQL shows values of type `regclass`.
pub(super) fn show_names(ast: &mut Ast) {
    if let Ast::Query(query) = ast {
        show_names_of(query);
    }
}

fn show_names_of(query: &mut Query) {
    let mut bodies = vec![query.body.as_mut()];
    while let Some(body) = bodies.pop() {
        match body {
            SetExpr::Select(select) => {
                for item in &mut select.projection {
                    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                        && let Some(of) = called(expr)
                        && let Some(object) = object_types::ALL.iter().find(|ty| ty.oid_function == of)
                        && arguments(expr).len() == 1
                    {
                        let value = take(expr);
                        *expr = call(object.name_function, vec![value]);
                    }
                }
            }
            SetExpr::SetOperation { left, right, .. } => {
                bodies.push(left);
                bodies.push(right);
            }
            SetExpr::Query(inner) => bodies.push(inner.body.as_mut()),
            _ => {}
        }
    }
}
