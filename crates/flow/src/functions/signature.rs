//! Function signatures: accepted arguments and result type.
//!
//! A form is a string such as `string text, int begin, int length? -> string`. A `?` after a name marks an
//! optional argument, a `*` one that occurs any number of times, including none. `const` before a type
//! requires a constant. Types are those of SiddhiQL, alternatives of them (`string|object`), `number`,
//! `whole` (int, long), `decimal` (float, double), `value` (all but object), `any`, and the type variables
//! `T` (any type) and `N` (any number), which stand for one type within a form.

use std::fmt;

use tidemill_types::FieldType;

use crate::expr::ArgumentType;

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TypeSet(u8);

const ALL_TYPES: [FieldType; 7] = [
    FieldType::String,
    FieldType::Int,
    FieldType::Long,
    FieldType::Float,
    FieldType::Double,
    FieldType::Bool,
    FieldType::Object,
];
const NUMBER: TypeSet = TypeSet(0b001_1110);
const WHOLE: TypeSet = TypeSet(0b000_0110);
const DECIMAL: TypeSet = TypeSet(0b001_1000);
const VALUE: TypeSet = TypeSet(0b011_1111);
const ANY: TypeSet = TypeSet(0b111_1111);

impl TypeSet {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "number" | "N" => NUMBER,
            "whole" => WHOLE,
            "decimal" => DECIMAL,
            "value" => VALUE,
            "any" | "T" => ANY,
            _ => name
                .split('|')
                .try_fold(Self(0), |all, one| Some(Self(all.0 | Self::of(FieldType::parse(one)?).0)))?,
        })
    }

    fn of(ty: FieldType) -> Self {
        let place = ALL_TYPES.iter().position(|t| *t == plain(ty));
        Self(place.map_or(0, |place| 1 << place))
    }

    fn contains(self, ty: FieldType) -> bool {
        self.0 & Self::of(ty).0 != 0
    }
}

/// Maps `time` to `long`: SiddhiQL has no type for instants.
fn plain(ty: FieldType) -> FieldType {
    if ty == FieldType::Time { FieldType::Long } else { ty }
}

impl fmt::Display for TypeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NUMBER => f.write_str("number"),
            ANY => f.write_str("any"),
            VALUE => f.write_str("any-but-object"),
            _ => {
                let names: Vec<_> =
                    ALL_TYPES.iter().filter(|t| self.contains(**t)).map(|t| t.name()).collect();
                f.write_str(&names.join("|"))
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arity {
    Once,
    Optional,
    Repeated,
}

#[derive(Debug, Clone)]
struct Parameter {
    name: &'static str,
    types: TypeSet,
    /// True if the type is the type variable of the form.
    shared: bool,
    constant: bool,
    occurs: Arity,
}

/// One form of a function: its parameters and its result type.
#[derive(Debug, Clone)]
pub(crate) struct Overload {
    parameters: Vec<Parameter>,
    /// Result type, or `None` if it is the type variable.
    result: Option<FieldType>,
}

/// Reason why arguments do not match a form.
enum SignatureMismatch {
    /// Wrong number or types of arguments.
    Types,
    /// The named argument must be constant.
    Variable(&'static str),
}

impl Overload {
    /// Parses a form; returns `None` if it does not follow the syntax in the module documentation.
    fn parse(text: &'static str) -> Option<Self> {
        let (parameters, result) = text.rsplit_once("->")?;
        let parameters = parameters.split(',').map(str::trim).filter(|p| !p.is_empty());
        let parameters = parameters.map(Self::parameter).collect::<Option<Vec<_>>>()?;
        let result = match result.trim() {
            "T" | "N" => None,
            name => Some(FieldType::parse(name)?),
        };
        Some(Self { parameters, result })
    }

    fn parameter(text: &'static str) -> Option<Parameter> {
        let (text, constant) = match text.strip_prefix("const ") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (ty, name) = text.split_once(' ')?;
        let (name, occurs) = match (name.strip_suffix('?'), name.strip_suffix('*')) {
            (Some(name), _) => (name, Arity::Optional),
            (_, Some(name)) => (name, Arity::Repeated),
            _ => (name, Arity::Once),
        };
        let shared = matches!(ty, "T" | "N");
        Some(Parameter { name, types: TypeSet::parse(ty)?, shared, constant, occurs })
    }

    /// Returns the result type for these arguments.
    fn check(&self, args: &[ArgumentType]) -> Result<FieldType, SignatureMismatch> {
        let least = self.parameters.iter().filter(|p| p.occurs == Arity::Once).count();
        let repeated = self.parameters.last().is_some_and(|p| p.occurs == Arity::Repeated);
        if args.len() < least || !repeated && args.len() > self.parameters.len() {
            return Err(SignatureMismatch::Types);
        }
        let mut shared = None;
        let mut variable = None;
        for (arg, parameter) in args.iter().zip(self.expected()) {
            let ty = plain(arg.ty);
            let same = !parameter.shared || *shared.get_or_insert(ty) == ty;
            if !same || !parameter.types.contains(ty) {
                return Err(SignatureMismatch::Types);
            }
            if parameter.constant && arg.constant.is_none() {
                variable.get_or_insert(parameter.name);
            }
        }
        match variable {
            Some(name) => Err(SignatureMismatch::Variable(name)),
            None => Ok(self.result.or(shared).unwrap_or(FieldType::Object)),
        }
    }

    /// Returns the parameter of each argument; the last parameter repeats without end.
    fn expected(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().chain(std::iter::repeat_with(|| self.parameters.last()).map_while(|p| p))
    }

    /// Returns the name of argument `i`.
    pub(crate) fn name(&self, i: usize) -> &'static str {
        self.expected().nth(i).map_or("", |p| p.name)
    }
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (i, p) in self.parameters.iter().enumerate() {
            let (open, close) = match p.occurs {
                Arity::Once => ("", ""),
                Arity::Optional => ("[", "]"),
                Arity::Repeated => ("", "..."),
            };
            let comma = if i == 0 { "" } else { ", " };
            let constant = if p.constant { "constant " } else { "" };
            write!(f, "{comma}{open}{constant}{} {}{close}", p.types, p.name)?;
        }
        f.write_str(")")?;
        if self.parameters.iter().filter(|p| p.shared).count() > 1 {
            f.write_str(" of one type")
        } else {
            Ok(())
        }
    }
}

/// All forms of a function.
#[derive(Debug, Clone)]
pub(crate) struct Signature(Vec<Overload>);

impl Signature {
    /// Parses forms in the syntax of the module documentation. Invalid forms are dropped; debug builds assert
    /// that all are valid.
    pub(crate) fn parse(forms: &[&'static str]) -> Self {
        let read: Vec<_> = forms.iter().filter_map(|form| Overload::parse(form)).collect();
        debug_assert_eq!(read.len(), forms.len(), "{forms:?}");
        Self(read)
    }

    /// Returns the form that the arguments match, and the result type. Errors: no form matches; names the
    /// given and the accepted types.
    pub(crate) fn check(&self, args: &[ArgumentType]) -> Result<(&Overload, FieldType), String> {
        let mut variable = None;
        for form in &self.0 {
            match form.check(args) {
                Ok(ty) => return Ok((form, ty)),
                Err(SignatureMismatch::Variable(name)) => variable = Some(name),
                Err(SignatureMismatch::Types) => {}
            }
        }
        if let Some(name) = variable {
            return Err(format!("`{name}` must be a constant"));
        }
        let given: Vec<_> = args.iter().map(|a| plain(a.ty).name()).collect();
        let wanted: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        Err(format!("expected {}, found ({})", wanted.join(" or "), given.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(types: &[FieldType]) -> Vec<ArgumentType> {
        types.iter().map(|ty| ArgumentType { ty: *ty, constant: None }).collect()
    }

    #[test]
    fn optional_and_repeated_arguments_and_shared_types() {
        use FieldType::{Double, Int, Long, String, Time};
        let optional = Signature::parse(&["string text, int from, int length? -> string"]);
        assert!(optional.check(&args(&[String, Int])).is_ok());
        assert!(optional.check(&args(&[String, Int, Int])).is_ok());
        assert_eq!(
            optional.check(&args(&[String])).unwrap_err(),
            "expected (string text, int from, [int length]), found (string)"
        );
        let repeated = Signature::parse(&["N x, N more* -> N"]);
        assert_eq!(repeated.check(&args(&[Long, Long, Time])).unwrap().1, Long);
        assert_eq!(
            repeated.check(&args(&[Long, Double])).unwrap_err(),
            "expected (number x, number more...) of one type, found (long, double)"
        );
        let constant = Signature::parse(&["any x, const string type -> T"]);
        assert_eq!(constant.check(&args(&[Int, String])).unwrap_err(), "`type` must be a constant");
    }
}
