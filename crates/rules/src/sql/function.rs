//! Translates functions of the rule language to SQL.

use super::{SqlQuery, TIMESTAMP, value, value_as};
use crate::expr::{Expr, ExprType, Func};

/// Translates a call of `func`; `ty` is its result type.
pub(super) fn call(query: &SqlQuery<'_>, func: Func, args: &[Expr], ty: ExprType) -> String {
    let number = |i: usize| value_as(query, &args[i], ExprType::Float);
    let text = |i: usize| value_as(query, &args[i], ExprType::Str);
    let time = |i: usize| value_as(query, &args[i], ExprType::Time);
    let own = |i: usize| value(query, &args[i]);
    let instant = |i: usize| format!("arrow_cast({}, '{TIMESTAMP}')", time(i));
    let part = |name: &str| format!("CAST(date_part('{name}', {}) AS BIGINT)", instant(0));
    match func {
        Func::Abs => format!("abs({})", if args[0].ty == ExprType::Any { number(0) } else { own(0) }),
        Func::Round if args.len() == 2 => format!("round({}, {})", number(0), own(1)),
        Func::Round | Func::Floor | Func::Ceil if args[0].ty == ExprType::Int => own(0),
        Func::Round => format!("round({})", number(0)),
        Func::Floor => format!("floor({})", number(0)),
        Func::Ceil => format!("ceil({})", number(0)),
        Func::Sqrt => format!("(CASE WHEN {0} >= 0 THEN sqrt({0}) END)", number(0)),
        Func::Pow => format!("power({}, {})", number(0), number(1)),
        Func::Min | Func::Max => {
            let name = if func == Func::Min { "least" } else { "greatest" };
            let all: Vec<String> = args.iter().map(|x| value_as(query, x, ty)).collect();
            // SQL `least` and `greatest` skip nulls; in the rule language one missing argument makes the
            // result missing
            let there: Vec<String> = all.iter().map(|x| format!("{x} IS NOT NULL")).collect();
            format!("(CASE WHEN {} THEN {name}({}) END)", there.join(" AND "), all.join(", "))
        }
        Func::Div => match (args[0].ty, args[1].ty) {
            (ExprType::Int, ExprType::Int) => format!("({} / NULLIF({}, 0))", own(0), own(1)),
            (ExprType::Span, _) | (_, ExprType::Span) => {
                let span = |i: usize| value_as(query, &args[i], ExprType::Span);
                format!("({} / NULLIF({}, 0))", span(0), span(1))
            }
            _ => format!("CAST(trunc({} / NULLIF({}, 0)) AS BIGINT)", number(0), number(1)),
        },
        Func::Mod => {
            let as_ty = if ty == ExprType::Any { ExprType::Float } else { ty };
            let of = |i: usize| value_as(query, &args[i], as_ty);
            format!("({} % NULLIF({}, 0))", of(0), of(1))
        }
        Func::Lower => format!("lower({})", text(0)),
        Func::Upper => format!("upper({})", text(0)),
        Func::Trim => format!("trim({})", text(0)),
        Func::Length => format!("character_length({})", text(0)),
        Func::Contains => format!("(strpos({}, {}) > 0)", text(0), text(1)),
        Func::StartsWith => format!("starts_with({}, {})", text(0), text(1)),
        Func::EndsWith => format!("ends_with({}, {})", text(0), text(1)),
        Func::Substring => {
            let from = format!("greatest({}, 0) + 1", own(1));
            match args.get(2) {
                Some(_) => format!("substr({}, {from}, greatest({}, 0))", text(0), own(2)),
                None => format!("substr({}, {from})", text(0)),
            }
        }
        Func::Replace => format!("replace({}, {}, {})", text(0), text(1), text(2)),
        Func::Concat => {
            format!("({})", (0..args.len()).map(text_of(query, args)).collect::<Vec<_>>().join(" || "))
        }
        Func::Text => text_of(query, args)(0),
        Func::Number => match args[0].ty {
            ExprType::Int | ExprType::Float => own(0),
            _ => format!("TRY_CAST({} AS DOUBLE)", text(0)),
        },
        Func::Time => match args[0].ty {
            ExprType::Time => own(0),
            _ => format!("CAST(arrow_cast({}, '{TIMESTAMP}') AS BIGINT)", own(0)),
        },
        Func::Truncate => {
            let span = value_as(query, &args[1], ExprType::Span);
            format!("({0} - ((({0} % {span}) + {span}) % {span}))", time(0))
        }
        Func::Year => part("year"),
        Func::Month => part("month"),
        Func::Day => part("day"),
        Func::Hour => part("hour"),
        Func::Minute => part("minute"),
        Func::Weekday => {
            // whole days since 1970, rounded down; 1970-01-01 was a Thursday
            let days = format!("CAST(floor(CAST({} AS DOUBLE) / 86400000000) AS BIGINT)", time(0));
            format!("(((({days} + 3) % 7) + 7) % 7 + 1)")
        }
        Func::Format => format!("to_char({}, {})", instant(0), text(1)),
    }
}

/// Converts an argument to a string.
fn text_of<'q>(query: &'q SqlQuery<'_>, args: &'q [Expr]) -> impl Fn(usize) -> String + 'q {
    move |i| match args[i].ty {
        ExprType::Str => value(query, &args[i]),
        ExprType::Time => {
            format!("to_char(arrow_cast({}, '{TIMESTAMP}'), '%Y-%m-%dT%H:%M:%SZ')", value(query, &args[i]))
        }
        _ => format!("CAST({} AS VARCHAR)", value(query, &args[i])),
    }
}
