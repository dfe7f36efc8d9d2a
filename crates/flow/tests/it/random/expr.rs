//! Random expressions of a given type.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tidemill_types::FieldType;

/// Names that an expression may use, with their types.
pub type Names = Vec<(String, FieldType)>;

/// Types of attributes.
pub const TYPES: [FieldType; 6] = [
    FieldType::Int,
    FieldType::Long,
    FieldType::Float,
    FieldType::Double,
    FieldType::String,
    FieldType::Bool,
];

pub fn any_type(rng: &mut StdRng) -> FieldType {
    *TYPES.choose(rng).unwrap()
}

pub fn numeric(ty: FieldType) -> bool {
    matches!(ty, FieldType::Int | FieldType::Long | FieldType::Float | FieldType::Double)
}

/// Returns an expression of type `ty` over `names`, nested at most `depth` levels deep.
pub fn expr(rng: &mut StdRng, ty: FieldType, names: &Names, depth: u32) -> String {
    let fitting: Vec<&String> = names.iter().filter(|(_, t)| *t == ty).map(|(n, _)| n).collect();
    if depth == 0 || rng.random_bool(0.4) {
        return match fitting.choose(rng) {
            Some(name) if rng.random_bool(0.8) => (*name).clone(),
            _ => literal(rng, ty),
        };
    }
    let of = |rng: &mut StdRng, ty| expr(rng, ty, names, depth - 1);
    let common = rng.random_range(0..10);
    if common < 3 {
        return match common {
            0 => format!("ifThenElse({}, {}, {})", of(rng, FieldType::Bool), of(rng, ty), of(rng, ty)),
            1 => format!("coalesce({}, {})", of(rng, ty), of(rng, ty)),
            _ => {
                let from = any_type(rng);
                format!("convert({}, '{}')", of(rng, from), ty.name())
            }
        };
    }
    match ty {
        FieldType::Bool => condition(rng, names, depth),
        FieldType::String => match rng.random_range(0..4) {
            0 => format!("str:concat({}, {})", of(rng, FieldType::String), of(rng, FieldType::Int)),
            1 => format!("str:upper({})", of(rng, FieldType::String)),
            2 => format!("str:reverse(coalesce({}, 'x'))", of(rng, FieldType::String)),
            _ => format!("str:substr({}, {})", of(rng, FieldType::String), rng.random_range(0..3)),
        },
        FieldType::Double if rng.random_bool(0.3) => {
            let name = ["sqrt", "abs", "floor", "sin", "ln"].choose(rng).unwrap();
            format!("math:{name}({})", of(rng, FieldType::Double))
        }
        FieldType::Int if rng.random_bool(0.2) => format!("str:length({})", of(rng, FieldType::String)),
        FieldType::Long if rng.random_bool(0.2) => "eventTimestamp()".into(),
        number if rng.random_bool(0.2) => {
            let name = ["maximum", "minimum"].choose(rng).unwrap();
            format!("{name}({}, {})", of(rng, number), of(rng, number))
        }
        number => {
            let op = ["+", "-", "*", "/", "%"].choose(rng).unwrap();
            format!("({} {op} {})", of(rng, number), of(rng, number))
        }
    }
}

/// Returns a bool expression.
pub fn condition(rng: &mut StdRng, names: &Names, depth: u32) -> String {
    let deeper = depth.saturating_sub(1);
    match rng.random_range(0..6) {
        0 if depth > 0 => {
            let (a, b) = (condition(rng, names, deeper), condition(rng, names, deeper));
            format!("({a} {} {b})", ["and", "or"].choose(rng).unwrap())
        }
        1 if depth > 0 => format!("not ({})", condition(rng, names, deeper)),
        2 if !names.is_empty() => format!("{} is null", names.choose(rng).unwrap().0),
        3 => {
            let ty = [FieldType::String, FieldType::Bool].choose(rng).copied().unwrap();
            let op = ["==", "!="].choose(rng).unwrap();
            format!("({} {op} {})", expr(rng, ty, names, deeper), expr(rng, ty, names, deeper))
        }
        _ => {
            let numbers: Vec<FieldType> = names.iter().map(|(_, ty)| *ty).filter(|ty| numeric(*ty)).collect();
            let number = |rng: &mut StdRng| match numbers.choose(rng) {
                Some(ty) if rng.random_bool(0.8) => *ty,
                _ => TYPES[rng.random_range(0..4)],
            };
            let (a, b) = (number(rng), number(rng));
            let op = ["==", "!=", "<", "<=", ">", ">="].choose(rng).unwrap();
            format!("({} {op} {})", expr(rng, a, names, deeper), expr(rng, b, names, deeper))
        }
    }
}

fn literal(rng: &mut StdRng, ty: FieldType) -> String {
    let n: i32 = rng.random_range(-3..8);
    match ty {
        FieldType::Int if rng.random_bool(0.05) => "2147483647".into(),
        FieldType::Int => n.to_string(),
        FieldType::Long => format!("{n}L"),
        FieldType::Float => format!("{n}.5f"),
        FieldType::Double => format!("{n}.25"),
        FieldType::Bool => (n > 2).to_string(),
        _ => format!("'{}'", ["a", "b", "", "ü", "12"].choose(rng).unwrap()),
    }
}

/// Returns an aggregate call and its type.
pub fn aggregate(rng: &mut StdRng, names: &Names) -> (String, FieldType) {
    let numbers: Vec<&(String, FieldType)> = names.iter().filter(|(_, ty)| numeric(*ty)).collect();
    let Some((name, ty)) = numbers.choose(rng).copied().cloned() else {
        return ("count()".into(), FieldType::Long);
    };
    let whole = matches!(ty, FieldType::Int | FieldType::Long);
    match rng.random_range(0..8) {
        0 => ("count()".into(), FieldType::Long),
        1 => (format!("avg({name})"), FieldType::Double),
        2 => (format!("stdDev({name})"), FieldType::Double),
        3 => (format!("distinctCount({name})"), FieldType::Long),
        4 => (format!("max({name})"), ty),
        5 => (format!("minForever({name})"), ty),
        _ => (format!("sum({name})"), if whole { FieldType::Long } else { FieldType::Double }),
    }
}
