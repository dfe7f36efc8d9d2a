//! Expressions of pipelines: MongoDB's `{$add: ["$a", 1]}`.
//!
//! An expression is compiled once and evaluated on documents. A missing field is `None`, which most operators treat as null.

mod arithmetic;
mod arrays;
mod budget;
mod compare;
mod convert;
mod date_format;
mod dates;
mod objects;
mod operators;
mod outside;
mod patterns;
mod selections;
mod strings;

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document};

use crate::collation::Collation;
use crate::error::{DocsError, ErrorCode, Result};
use crate::scripts::{CompiledScript, Scripts};
use crate::text::text_score;
use budget::Budget;
use operators::{Function, Operator};
use outside::meta;
pub use outside::{check_language, script_source};

/// Result of an expression; `None` for a missing value, as of a field that a document does not have.
pub type EvalValue = Option<Bson>;

/// Maximum nesting of an expression.
const DEPTH_MAX: usize = 100;

/// A compiled expression, with the collation of its comparisons.
#[derive(Debug, Clone)]
pub struct Expression(Node, Option<Collation>);

#[derive(Debug, Clone)]
enum Node {
    Constant(Bson),
    /// `$$REMOVE`
    Remove,
    /// `{$meta: "textScore"}`
    TextScore,
    /// `$function`, with the array of its arguments.
    Script(CompiledScript, Box<Self>),
    /// A variable, or the document, and the path inside.
    Path(Option<String>, Vec<String>),
    Object(Vec<(String, Self)>),
    Array(Vec<Self>),
    Call(&'static Operator, Vec<Self>),
    And(Vec<Self>),
    Or(Vec<Self>),
    IfNull(Vec<Self>),
    Cond(Box<[Self; 3]>),
    Switch(Vec<(Self, Self)>, Option<Box<Self>>),
    Let(Vec<(String, Self)>, Box<Self>),
    Map(Box<Self>, String, Box<Self>),
    /// Input, variable, condition, and the number of elements to keep.
    Filter(Box<Self>, String, Box<Self>, Option<Box<Self>>),
    Reduce(Box<[Self; 3]>),
}

/// Input of an expression: the document, and the variables around it, the innermost last.
struct ExpressionScope<'d> {
    document: &'d RawDocument,
    variables: Vec<(String, EvalValue)>,
    budget: Budget,
    collation: Option<&'d Collation>,
}

impl Expression {
    /// Compiles an expression.
    ///
    /// Errors: an unknown operator, a wrong number of arguments, an unknown variable, or deeper than 100 levels.
    pub fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        Self::parse_with(value, &Variables::default())
    }

    /// Compiles an expression in which these variables have their values.
    ///
    /// Errors: as [`Self::parse`].
    pub fn parse_with(value: RawBsonRef<'_>, variables: &Variables) -> Result<Self> {
        let node = ExpressionParser { variables: Vec::new(), given: variables, depth: 0 }.parse(value)?;
        Ok(Self(node, variables.collation.clone()))
    }

    /// Evaluates the expression on a document.
    ///
    /// Errors: an operator does not accept a value, or the values that are made need too much memory.
    pub fn eval(&self, document: &RawDocument) -> Result<EvalValue> {
        let collation = self.1.as_ref();
        self.0.eval(&mut ExpressionScope {
            document,
            variables: Vec::new(),
            budget: Budget::default(),
            collation,
        })
    }

    /// Returns whether a value counts as true: everything but false, null, 0 and no value.
    pub fn is_true(value: &EvalValue) -> bool {
        match value {
            None | Some(Bson::Null | Bson::Undefined | Bson::Boolean(false)) => false,
            Some(Bson::Int32(n)) => *n != 0,
            Some(Bson::Int64(n)) => *n != 0,
            Some(Bson::Double(n)) => *n != 0.0,
            Some(Bson::Decimal128(n)) => crate::values::decimal_math::to_double(*n) != 0.0,
            Some(_) => true,
        }
    }
}

/// Variables that have their values before an expression is evaluated: `$$NOW`, and those of `let`.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    /// The time of the command; without it `$$NOW` is refused.
    pub now: Option<bson::DateTime>,
    /// Further variables; a value may be missing.
    pub values: Vec<(String, EvalValue)>,
    /// Order and equality of strings in comparisons; those of their bytes if `None`.
    pub collation: Option<Collation>,
    /// Engine for functions in JavaScript; `None` where a replay of the log has to decide alike.
    pub scripts: Option<Scripts>,
}

struct ExpressionParser<'v> {
    /// Variables that the expression itself binds.
    variables: Vec<String>,
    given: &'v Variables,
    depth: usize,
}

impl ExpressionParser<'_> {
    fn parse(&mut self, value: RawBsonRef<'_>) -> Result<Node> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(DocsError::new(
                ErrorCode::Overflow,
                format!("an expression is nested deeper than {DEPTH_MAX} levels"),
            ));
        }
        let node = match value {
            RawBsonRef::String(text) if text.starts_with('$') => self.path(text)?,
            RawBsonRef::Document(document) => self.document(document)?,
            RawBsonRef::Array(array) => {
                let elements = array.into_iter().map(|element| self.parse(element.map_err(invalid)?));
                Node::Array(elements.collect::<Result<_>>()?)
            }
            other => Node::Constant(Bson::try_from(other).map_err(invalid)?),
        };
        self.depth -= 1;
        Ok(node)
    }

    fn path(&self, text: &str) -> Result<Node> {
        let path = |text: &str| -> Result<Vec<String>> {
            match text.split('.').all(|name| !name.is_empty() && !name.starts_with('$')) {
                true => Ok(text.split('.').map(str::to_owned).collect()),
                false => Err(DocsError::parse(format!(
                    "'{text}' is not a field path: expected names, with dots between"
                ))),
            }
        };
        let Some(variable) = text.strip_prefix("$$") else { return Ok(Node::Path(None, path(&text[1..])?)) };
        let (name, rest) =
            variable.split_once('.').map_or((variable, None), |(name, rest)| (name, Some(rest)));
        let rest = rest.map(path).transpose()?.unwrap_or_default();
        match name {
            "ROOT" | "CURRENT" => Ok(Node::Path(None, rest)),
            "REMOVE" if rest.is_empty() => Ok(Node::Remove),
            name if self.variables.iter().any(|known| known == name) => {
                Ok(Node::Path(Some(name.to_owned()), rest))
            }
            "NOW" => match self.given.now {
                Some(now) => Ok(constant(Some(Bson::DateTime(now)), &rest)),
                None => Err(DocsError::bad_value("$$NOW has no value here")),
            },
            name => match self.given.values.iter().rev().find(|(given, _)| given == name) {
                Some((_, value)) => Ok(constant(value.clone(), &rest)),
                None => Err(DocsError::new(
                    ErrorCode::UndefinedVariable,
                    format!("Use of undefined variable: {name}"),
                )),
            },
        }
    }

    fn document(&mut self, document: &RawDocument) -> Result<Node> {
        let mut fields = document.into_iter();
        let Some(first) = fields.next().transpose().map_err(invalid)? else {
            return Ok(Node::Constant(Bson::Document(Document::new())));
        };
        if first.0.as_str().starts_with('$') {
            if let Some(second) = fields.next() {
                let (name, second) = (first.0.as_str(), second.map_err(invalid)?.0.as_str());
                let message = format!(
                    "an expression must have exactly one operator, found `{name}` and `{second}` in one object"
                );
                return Err(DocsError::new(ErrorCode::ExpressionFields, message));
            }
            return self.call(first.0.as_str(), first.1);
        }
        let mut object = Vec::new();
        for field in document {
            let (name, value) = field.map_err(invalid)?;
            let name = name.as_str();
            if name.starts_with('$') || name.contains('.') {
                return Err(DocsError::new(
                    ErrorCode::ExpressionFields,
                    format!("field `{name}` is not allowed in an object of an expression"),
                ));
            }
            object.push((name.to_owned(), self.parse(value)?));
        }
        Ok(Node::Object(object))
    }

    fn call(&mut self, name: &str, value: RawBsonRef<'_>) -> Result<Node> {
        match name {
            "$literal" => return Ok(Node::Constant(Bson::try_from(value).map_err(invalid)?)),
            "$meta" => return meta(value),
            "$function" => return self.function(object(name, value)?),
            "$and" => return Ok(Node::And(self.arguments(value)?)),
            "$or" => return Ok(Node::Or(self.arguments(value)?)),
            "$ifNull" => {
                let arguments = self.arguments(value)?;
                return match arguments.len() {
                    2.. => Ok(Node::IfNull(arguments)),
                    n => Err(arity(name, "at least 2", n)),
                };
            }
            "$cond" => return self.cond(value),
            "$switch" => return self.switch(object(name, value)?),
            "$let" => return self.bind(object(name, value)?),
            "$map" => {
                let options = object(name, value)?;
                known_options(options, &["input", "as", "in"], name)?;
                let (input, variable) = self.input(options, name)?;
                let body = self.scoped(&[&variable], options, "in", name)?;
                return Ok(Node::Map(Box::new(input), variable, Box::new(body)));
            }
            "$filter" => {
                let options = object(name, value)?;
                known_options(options, &["input", "as", "cond", "limit"], name)?;
                let (input, variable) = self.input(options, name)?;
                let limit = options.get("limit").map_err(invalid)?;
                let limit = limit.map(|limit| self.parse(limit).map(Box::new)).transpose()?;
                let condition = self.scoped(&[&variable], options, "cond", name)?;
                return Ok(Node::Filter(Box::new(input), variable, Box::new(condition), limit));
            }
            "$reduce" => {
                let options = object(name, value)?;
                known_options(options, &["input", "initialValue", "in"], name)?;
                let input = self.parse(option(options, "input", name)?)?;
                let start = self.parse(option(options, "initialValue", name)?)?;
                let body = self.scoped(&["this", "value"], options, "in", name)?;
                return Ok(Node::Reduce(Box::new([input, start, body])));
            }
            _ => {}
        }
        if matches!(name, "$accumulator" | "$rand") {
            return Err(DocsError::bad_value(format!("{name} is not supported")));
        }
        let Some(operator) = operators::find(name) else {
            return Err(DocsError::new(
                ErrorCode::InvalidPipelineOperator,
                format!("Unrecognized expression '{name}'"),
            ));
        };
        let mut arguments = match (operator.options, value) {
            ([], value) => self.arguments(value)?,
            // named arguments, in the operator's order
            (names, RawBsonRef::Document(options)) if operator.takes_options(options) => {
                let names_without_marks: Vec<&str> =
                    names.iter().map(|name| name.trim_end_matches('?')).collect();
                known_options(options, &names_without_marks, name)?;
                let mut arguments = Vec::new();
                for argument in names {
                    arguments.push(match argument.strip_suffix('?') {
                        Some(argument) => match options.get(argument).map_err(invalid)? {
                            Some(value) => self.parse(value)?,
                            None => Node::Remove,
                        },
                        None => self.parse(option(options, argument, name)?)?,
                    });
                }
                arguments
            }
            (_, value) if operator.single => self.arguments(value)?,
            (names, _) => {
                return Err(DocsError::parse(format!("{name} expects an object with {}", names.join(", "))));
            }
        };
        // without an input it is the document
        if name == "$getField" && matches!(arguments.get(1), None | Some(Node::Remove)) {
            arguments.truncate(1);
            arguments.push(Node::Path(None, Vec::new()));
        }
        if !operator.arity.contains(&arguments.len()) {
            let (least, most) = (operator.arity.start(), operator.arity.end());
            let expected = if least == most { least.to_string() } else { format!("{least} to {most}") };
            return Err(arity(name, &expected, arguments.len()));
        }
        Ok(Node::Call(operator, arguments))
    }

    /// Parses arguments: an array of them, or a single one.
    fn arguments(&mut self, value: RawBsonRef<'_>) -> Result<Vec<Node>> {
        match value {
            RawBsonRef::Array(array) => {
                array.into_iter().map(|argument| self.parse(argument.map_err(invalid)?)).collect()
            }
            single => Ok(vec![self.parse(single)?]),
        }
    }

    fn cond(&mut self, value: RawBsonRef<'_>) -> Result<Node> {
        let [condition, yes, no] = match value {
            RawBsonRef::Document(options) => {
                known_options(options, &["if", "then", "else"], "$cond")?;
                let mut branch = |name| self.parse(option(options, name, "$cond")?);
                [branch("if")?, branch("then")?, branch("else")?]
            }
            value => {
                let arguments = self.arguments(value)?;
                let count = arguments.len();
                arguments.try_into().map_err(|_| arity("$cond", "3", count))?
            }
        };
        Ok(Node::Cond(Box::new([condition, yes, no])))
    }

    fn switch(&mut self, options: &RawDocument) -> Result<Node> {
        known_options(options, &["branches", "default"], "$switch")?;
        let RawBsonRef::Array(array) = option(options, "branches", "$switch")? else {
            return Err(DocsError::parse("$switch expects an array of branches"));
        };
        let mut branches = Vec::new();
        for branch in array {
            let branch = object("$switch", branch.map_err(invalid)?)?;
            let condition = self.parse(option(branch, "case", "$switch")?)?;
            branches.push((condition, self.parse(option(branch, "then", "$switch")?)?));
        }
        let otherwise = options.get("default").map_err(invalid)?;
        Ok(Node::Switch(branches, otherwise.map(|value| self.parse(value).map(Box::new)).transpose()?))
    }

    fn bind(&mut self, options: &RawDocument) -> Result<Node> {
        known_options(options, &["vars", "in"], "$let")?;
        let mut bound = Vec::new();
        for variable in object("$let", option(options, "vars", "$let")?)? {
            let (name, value) = variable.map_err(invalid)?;
            bound.push((name.as_str().to_owned(), self.parse(value)?));
        }
        let names: Vec<&str> = bound.iter().map(|(name, _)| name.as_str()).collect();
        let body = self.scoped(&names, options, "in", "$let")?;
        Ok(Node::Let(bound, Box::new(body)))
    }

    /// Parses the input of `$map` or `$filter`. Returns it with the name of its variable.
    fn input(&mut self, options: &RawDocument, name: &str) -> Result<(Node, String)> {
        let variable = match options.get("as").map_err(invalid)? {
            None => "this",
            Some(RawBsonRef::String(variable)) => variable,
            Some(_) => return Err(DocsError::parse(format!("{name}: `as` is not a string"))),
        };
        Ok((self.parse(option(options, "input", name)?)?, variable.to_owned()))
    }

    /// Parses an option in which variables are known.
    fn scoped(&mut self, variables: &[&str], options: &RawDocument, field: &str, name: &str) -> Result<Node> {
        let outer = self.variables.len();
        self.variables.extend(variables.iter().map(|variable| (*variable).to_owned()));
        let node = option(options, field, name).and_then(|value| self.parse(value));
        self.variables.truncate(outer);
        node
    }
}

/// Returns the node of a value that is known, at a path inside.
fn constant(value: EvalValue, path: &[String]) -> Node {
    value.as_ref().and_then(|value| value_at(value, path)).map_or(Node::Remove, Node::Constant)
}

impl Node {
    fn eval(&self, scope: &mut ExpressionScope<'_>) -> Result<EvalValue> {
        let value = self.value(scope)?;
        scope.budget.charge(&value)?;
        Ok(value)
    }

    fn value(&self, scope: &mut ExpressionScope<'_>) -> Result<EvalValue> {
        Ok(match self {
            Self::Constant(value) => Some(value.clone()),
            Self::Remove => None,
            Self::Script(script, arguments) => match arguments.eval(scope)? {
                Some(Bson::Array(arguments)) => Some(script.call(arguments)?),
                _ => None,
            },
            Self::TextScore => Some(Bson::Double(text_score()?)),
            Self::Path(None, path) if path.is_empty() => {
                Some(Bson::try_from(RawBsonRef::Document(scope.document)).map_err(invalid)?)
            }
            Self::Path(None, path) => raw_at(RawBsonRef::Document(scope.document), path)?,
            Self::Path(Some(variable), path) => {
                let value = scope.variables.iter().rev().find(|(name, _)| name == variable);
                value.and_then(|(_, value)| value.as_ref()).and_then(|value| value_at(value, path))
            }
            Self::Object(fields) => {
                let mut object = Document::new();
                for (name, node) in fields {
                    if let Some(value) = node.eval(scope)? {
                        object.insert(name, value);
                    }
                }
                Some(Bson::Document(object))
            }
            Self::Array(elements) => {
                let elements = elements.iter().map(|node| Ok(node.eval(scope)?.unwrap_or(Bson::Null)));
                Some(Bson::Array(elements.collect::<Result<_>>()?))
            }
            Self::Call(operator, arguments) => {
                let values: Vec<EvalValue> =
                    arguments.iter().map(|node| node.eval(scope)).collect::<Result<_>>()?;
                match operator.function {
                    Function::Plain(function) => function(operator.name, &values)?,
                    Function::Comparing(function) => function(operator.name, &values, scope.collation)?,
                }
            }
            Self::And(conditions) => {
                for condition in conditions {
                    if !Expression::is_true(&condition.eval(scope)?) {
                        return Ok(Some(Bson::Boolean(false)));
                    }
                }
                Some(Bson::Boolean(true))
            }
            Self::Or(conditions) => {
                for condition in conditions {
                    if Expression::is_true(&condition.eval(scope)?) {
                        return Ok(Some(Bson::Boolean(true)));
                    }
                }
                Some(Bson::Boolean(false))
            }
            Self::IfNull(values) => {
                let Some((last, first)) = values.split_last() else { return Ok(None) };
                for value in first {
                    let value = value.eval(scope)?;
                    if !is_nullish(&value) {
                        return Ok(value);
                    }
                }
                last.eval(scope)?
            }
            Self::Cond(branches) => {
                let [condition, yes, no] = &**branches;
                if Expression::is_true(&condition.eval(scope)?) { yes.eval(scope)? } else { no.eval(scope)? }
            }
            Self::Switch(branches, otherwise) => {
                for (condition, then) in branches {
                    if Expression::is_true(&condition.eval(scope)?) {
                        return then.eval(scope);
                    }
                }
                match otherwise {
                    Some(otherwise) => otherwise.eval(scope)?,
                    None => {
                        let message = "$switch could not find a matching branch for an input, and no default was specified";
                        return Err(DocsError::new(ErrorCode::NoSwitchBranch, message));
                    }
                }
            }
            Self::Let(variables, body) => {
                let values = variables.iter().map(|(name, node)| Ok((name.clone(), node.eval(scope)?)));
                let values = values.collect::<Result<Vec<_>>>()?;
                scope.within(values, |scope| body.eval(scope))?
            }
            Self::Map(input, variable, body) => {
                let Some(elements) = elements("$map", input.eval(scope)?)? else {
                    return Ok(Some(Bson::Null));
                };
                let mapped = elements.into_iter().map(|element| {
                    let bound = vec![(variable.clone(), Some(element))];
                    Ok(scope.within(bound, |scope| body.eval(scope))?.unwrap_or(Bson::Null))
                });
                Some(Bson::Array(mapped.collect::<Result<_>>()?))
            }
            Self::Filter(input, variable, condition, limit) => {
                let Some(elements) = elements("$filter", input.eval(scope)?)? else {
                    return Ok(Some(Bson::Null));
                };
                let most = match limit.as_ref().map(|limit| limit.eval(scope)).transpose()? {
                    Some(limit) if !is_nullish(&limit) => positive("$filter", &limit)?,
                    _ => usize::MAX,
                };
                let mut kept = Vec::new();
                for element in elements {
                    let bound = vec![(variable.clone(), Some(element.clone()))];
                    if Expression::is_true(&scope.within(bound, |scope| condition.eval(scope))?) {
                        kept.push(element);
                    }
                    if kept.len() == most {
                        break;
                    }
                }
                Some(Bson::Array(kept))
            }
            Self::Reduce(parts) => {
                let [input, start, body] = &**parts;
                let Some(elements) = elements("$reduce", input.eval(scope)?)? else {
                    return Ok(Some(Bson::Null));
                };
                let mut value = start.eval(scope)?;
                for element in elements {
                    let bound = vec![("this".to_owned(), Some(element)), ("value".to_owned(), value)];
                    value = scope.within(bound, |scope| body.eval(scope))?;
                }
                value
            }
        })
    }
}

impl ExpressionScope<'_> {
    /// Evaluates with further variables.
    fn within<T>(
        &mut self,
        variables: Vec<(String, EvalValue)>,
        eval: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer = self.variables.len();
        self.variables.extend(variables);
        let result = eval(self);
        self.variables.truncate(outer);
        result
    }
}

/// Returns the value at a path of a document; of an array on the way, those of its documents.
fn raw_at(value: RawBsonRef<'_>, path: &[String]) -> Result<EvalValue> {
    let Some((name, rest)) = path.split_first() else {
        return Bson::try_from(value).map(Some).map_err(invalid);
    };
    match value {
        RawBsonRef::Document(document) => match document.get(name.as_str()).map_err(invalid)? {
            None => Ok(None),
            Some(inner) => raw_at(inner, rest),
        },
        RawBsonRef::Array(array) => {
            let mut values = Vec::new();
            for element in array {
                let element = element.map_err(invalid)?;
                if matches!(element, RawBsonRef::Document(_)) {
                    values.extend(raw_at(element, path)?);
                }
            }
            Ok(Some(Bson::Array(values)))
        }
        _ => Ok(None),
    }
}

/// Does the same with a value.
fn value_at(value: &Bson, path: &[String]) -> EvalValue {
    let Some((name, rest)) = path.split_first() else { return Some(value.clone()) };
    match value {
        Bson::Document(document) => value_at(document.get(name)?, rest),
        Bson::Array(array) => {
            let documents = array.iter().filter(|element| matches!(element, Bson::Document(_)));
            Some(Bson::Array(documents.filter_map(|element| value_at(element, path)).collect()))
        }
        _ => None,
    }
}

fn is_nullish(value: &EvalValue) -> bool {
    matches!(value, None | Some(Bson::Null | Bson::Undefined))
}

/// Returns the elements of an array; `None` for null.
fn elements(name: &str, value: EvalValue) -> Result<Option<Vec<Bson>>> {
    match value {
        Some(Bson::Array(elements)) => Ok(Some(elements)),
        value if is_nullish(&value) => Ok(None),
        value => Err(wrong_type(name, "an array", &value)),
    }
}

fn object<'v>(name: &str, value: RawBsonRef<'v>) -> Result<&'v RawDocument> {
    match value {
        RawBsonRef::Document(document) => Ok(document),
        _ => Err(DocsError::parse(format!("{name} expects an object with its arguments"))),
    }
}

fn option<'v>(options: &'v RawDocument, field: &str, name: &str) -> Result<RawBsonRef<'v>> {
    let value = options.get(field).map_err(invalid)?;
    value.ok_or_else(|| DocsError::parse(format!("Missing '{field}' parameter to {name}")))
}

/// Refuses options that an operator does not have.
fn known_options(options: &RawDocument, known: &[&str], name: &str) -> Result<()> {
    for field in options {
        let field = field.map_err(invalid)?.0.as_str();
        if !known.contains(&field) {
            return Err(DocsError::parse(format!(
                "{name} has no argument `{field}`: expected {}",
                known.join(", ")
            )));
        }
    }
    Ok(())
}

/// Returns a limit, which must be above 0.
fn positive(name: &str, value: &EvalValue) -> Result<usize> {
    let number = match value {
        Some(Bson::Int32(n)) => Some(i64::from(*n)),
        Some(Bson::Int64(n)) => Some(*n),
        _ => None,
    };
    let number = number.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    number.ok_or_else(|| wrong_type(name, "a limit of 1 or more", value))
}

fn arity(name: &str, expected: &str, found: usize) -> DocsError {
    DocsError::new(
        ErrorCode::ExpressionArity,
        format!("Expression {name} takes {expected} arguments. {found} were passed in."),
    )
}

fn wrong_type(name: &str, expected: &str, found: &EvalValue) -> DocsError {
    let found = found.as_ref().map_or("missing", convert::type_name);
    DocsError::type_mismatch(format!("{name} expects {expected}, found {found}"))
}

fn invalid(error: impl std::fmt::Display) -> DocsError {
    DocsError::new(ErrorCode::InvalidBson, error.to_string())
}
