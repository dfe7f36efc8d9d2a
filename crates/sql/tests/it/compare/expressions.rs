//! Random expressions of each type over the columns in scope.

use super::random::{Generator, Scope};
use super::tables::Type;

pub const TYPES: [Type; 7] =
    [Type::Int, Type::Float, Type::Text, Type::Bool, Type::Time, Type::Decimal, Type::Date];

impl Generator {
    pub fn column(&mut self, ty: Type, scope: &Scope) -> Option<String> {
        let use_outer = !scope.outer.is_empty() && self.chance(25);
        let sources = if use_outer || scope.sources.is_empty() { &scope.outer } else { &scope.sources };
        let fitting: Vec<String> = sources.iter().flat_map(|s| s.of_type(ty)).collect();
        (!fitting.is_empty()).then(|| fitting[self.below(fitting.len())].clone())
    }

    pub fn literal(&mut self, ty: Type) -> String {
        if self.chance(8) {
            return format!("cast(null as {})", ty.name());
        }
        let choices: &[&'static str] = match ty {
            Type::Int => &["0", "1", "2", "3", "5", "-1", "4"],
            Type::Float => &["0.5", "2.5", "-1.25", "10.0", "1e2", "0.0"],
            Type::Decimal => &[
                "cast(7.75 as decimal(10, 2))",
                "cast(-0.5 as decimal(10, 2))",
                "cast(2 as decimal(10, 2))",
                "cast('12.345' as decimal(12, 3))",
            ],
            Type::Text => &["'ab'", "'b'", "'abc'", "'B'", "''", "'c_d'", "'zz'", "'it''s'", "'é'"],
            Type::Bool => &["true", "false"],
            Type::Time => &[
                "timestamp '2026-01-05 09:00:00'",
                "timestamp '2026-01-06 00:00:00'",
                "timestamp '2026-02-28 12:00:00.5'",
                "timestamp '1969-12-31 23:59:59'",
                "timestamp '2030-06-01 00:00:00'",
            ],
            Type::Date => &["date '2026-01-05'", "date '2026-02-28'", "date '1969-12-31'"],
            Type::Json => &["null"],
        };
        self.one(choices).to_owned()
    }

    /// Returns an expression of type `ty`.
    pub fn value(&mut self, ty: Type, scope: &Scope, depth: usize) -> String {
        if depth == 0 || self.chance(35) {
            let column = if self.chance(80) { self.column(ty, scope) } else { None };
            return column.unwrap_or_else(|| self.literal(ty));
        }
        let depth = depth - 1;
        match self.below(14) {
            0 => {
                let (a, b) = (self.value(ty, scope, depth), self.value(ty, scope, depth));
                return format!("coalesce({a}, {b})");
            }
            1 => return self.case(ty, scope, depth),
            2 if ty != Type::Bool => {
                let (a, b) = (self.value(ty, scope, depth), self.value(ty, scope, depth));
                return format!("nullif({a}, {b})");
            }
            3 if ty != Type::Bool && self.chance(50) => return self.scalar_subquery(ty, scope, depth),
            4 if ty != Type::Bool => {
                let (a, b, c) =
                    (self.value(ty, scope, depth), self.value(ty, scope, 0), self.value(ty, scope, 0));
                return format!("{}({a}, {b}, {c})", self.one(&["greatest", "least"]));
            }
            _ => {}
        }
        match ty {
            Type::Int => self.whole_number(scope, depth),
            Type::Float => self.number(scope, depth),
            Type::Decimal => self.decimal(scope, depth),
            Type::Text => self.text(scope, depth),
            Type::Bool => {
                let text = self.predicate(scope, depth);
                format!("({text})")
            }
            Type::Time => self.time(scope, depth),
            Type::Date => self.date(scope, depth),
            Type::Json => self.column(Type::Json, scope).unwrap_or_else(|| "null".to_owned()),
        }
    }

    fn case(&mut self, ty: Type, scope: &Scope, depth: usize) -> String {
        let (a, b) = (self.value(ty, scope, depth), self.value(ty, scope, depth));
        let otherwise = if self.chance(70) { format!(" else {b}") } else { String::new() };
        if self.chance(30) {
            // the simple form
            let compared = self.one(&[Type::Int, Type::Text, Type::Bool]);
            let of = self.value(compared, scope, depth);
            let (first, second) = (self.value(compared, scope, 0), self.value(compared, scope, 0));
            let c = self.value(ty, scope, 0);
            return format!("case {of} when {first} then {a} when {second} then {c}{otherwise} end");
        }
        let condition = self.predicate(scope, depth);
        if self.chance(25) {
            let second = self.predicate(scope, 0);
            let c = self.value(ty, scope, 0);
            return format!("case when {condition} then {a} when {second} then {c}{otherwise} end");
        }
        format!("case when {condition} then {a}{otherwise} end")
    }

    fn whole_number(&mut self, scope: &Scope, depth: usize) -> String {
        let a = self.value(Type::Int, scope, depth);
        match self.below(16) {
            0 => format!("abs({a})"),
            1 => format!("- {a}"),
            2 => {
                let text = self.value(Type::Text, scope, depth);
                let function = self.one(&["length", "char_length", "octet_length", "ascii"]);
                format!("{function}({text})")
            }
            3 => {
                let text = format!("{a} % {}", self.one(&["3", "-2", "nullif(0, 0)"]));
                self.bracket(text)
            }
            4 | 5 => {
                let part = self.one(&[
                    "year", "month", "day", "hour", "minute", "dow", "doy", "quarter", "week", "isodow",
                ]);
                let time = self.value(Type::Time, scope, depth);
                format!("cast(extract({part} from {time}) as bigint)")
            }
            6 => {
                let b = self.value(Type::Int, scope, 0);
                let text = format!("{a} / nullif({b}, 0)");
                self.bracket(text)
            }
            7 => {
                let text = self.value(Type::Text, scope, depth);
                match self.chance(50) {
                    true => format!("strpos({text}, {})", self.one(&["'b'", "''", "'zz'"])),
                    false => format!("position({} in {text})", self.one(&["'b'", "'c'"])),
                }
            }
            8 => match self.column(Type::Json, scope) {
                Some(json) => self
                    .one(&[
                        "cast({} ->> 'a' as bigint)",
                        "cast({} -> 'c' ->> 'x' as bigint)",
                        "cast({} -> 'l' ->> 1 as bigint)",
                    ])
                    .replace("{}", &json),
                None => a,
            },
            9 => format!("sign({a})"),
            10 => {
                let b = self.value(Type::Int, scope, 0);
                let op = self.one(&["&", "|", "<<", ">>"]);
                let b = if op.len() == 2 { "2".to_owned() } else { b };
                format!("({a} {op} {b})")
            }
            11 => format!("mod({a}, {})", self.one(&["2", "-3"])),
            _ => {
                let op = self.one(&["+", "-", "*", "+", "-"]);
                let b = self.value(Type::Int, scope, depth);
                let text = format!("{a} {op} {b}");
                self.bracket(text)
            }
        }
    }

    fn number(&mut self, scope: &Scope, depth: usize) -> String {
        let a = self.value(Type::Float, scope, depth);
        match self.below(10) {
            0 => format!("{}({a})", self.one(&["floor", "ceil", "abs", "trunc", "sign"])),
            1 => format!("sqrt(abs({a}))"),
            2 => {
                let b = self.value(Type::Float, scope, 0);
                format!("({a} / nullif({b}, 0))")
            }
            3 => {
                let time = self.value(Type::Time, scope, depth);
                format!("cast(extract({} from {time}) as double precision)", self.one(&["epoch", "second"]))
            }
            4 => format!("power({a}, {})", self.one(&["2", "0", "3"])),
            5 => format!("cast({} as double precision)", {
                let ty = self.one(&[Type::Int, Type::Decimal]);
                self.value(ty, scope, depth)
            }),
            n => {
                let ty = if n % 2 == 0 { Type::Float } else { Type::Int };
                let b = self.value(ty, scope, depth);
                let op = self.one(&["+", "-", "*", "^"]);
                let text = match op {
                    "^" => format!("{a} ^ 2"),
                    op => format!("{a} {op} {b}"),
                };
                self.bracket(text)
            }
        }
    }

    fn decimal(&mut self, scope: &Scope, depth: usize) -> String {
        let depth = depth.min(1);
        let a = self.value(Type::Decimal, scope, depth);
        match self.below(8) {
            0 => {
                let n = self.value(Type::Int, scope, depth);
                format!("cast({n} as decimal(12, 2))")
            }
            1 => {
                let n = self.column(Type::Float, scope).unwrap_or_else(|| "1.25".to_owned());
                format!("cast({n} as decimal(10, 2))")
            }
            2 => format!("round({a}, 1)"),
            3 => format!("abs({a})"),
            4 => format!("- {a}"),
            n => {
                let ty = if n % 2 == 0 { Type::Decimal } else { Type::Int };
                let b = self.value(ty, scope, 0);
                let text = format!("{a} {} {b}", self.one(&["+", "-", "*"]));
                self.bracket(text)
            }
        }
    }

    fn text(&mut self, scope: &Scope, depth: usize) -> String {
        let a = self.value(Type::Text, scope, depth);
        let call = match self.below(30) {
            0 => "upper({})",
            1 => "lower({})",
            2 => "substr({}, 1, 2)",
            3 => "replace({}, 'b', 'xy')",
            4 => "concat({}, '-')",
            5 => "trim({})",
            6 => "left({}, 1)",
            7 => "right({}, -1)",
            8 => "left({}, -1)",
            9 => "lpad({}, 4, '*')",
            10 => "rpad({}, 2, '+')",
            11 => "reverse({})",
            12 => "repeat({}, 2)",
            13 => "initcap({})",
            14 => "split_part({}, 'b', 2)",
            15 => "substring({} from 2)",
            16 => "substring({} from 0 for 2)",
            17 => "translate({}, 'ab', 'x')",
            18 => "concat_ws('/', {}, null, 'k')",
            19 => "overlay({} placing 'Q' from 2 for 1)",
            20 => "trim(both 'a' from {})",
            21 => "ltrim({}, 'ab')",
            22 => {
                let n = self.value(Type::Int, scope, depth);
                return format!("cast({n} as text)");
            }
            23 | 24 => {
                let Some(json) = self.column(Type::Json, scope) else { return a };
                let access = self.one(&[
                    "({} ->> 'b')",
                    "({} ->> 'a')",
                    "({} -> 'c' ->> 'y')",
                    "({} -> 'l' ->> 0)",
                    "({} -> 'l' ->> -1)",
                    "({} ->> 'none')",
                    "({} ->> 't')",
                ]);
                return access.replace("{}", &json);
            }
            25 => "btrim({}, 'c')",
            26 => {
                let time = self.value(Type::Time, scope, depth);
                let format = self.one(&["YYYY-MM-DD", "HH24:MI:SS", "Mon DD", "IYYY-IW", "Q"]);
                return format!("to_char({time}, '{format}')");
            }
            _ => {
                let b = self.value(Type::Text, scope, depth);
                let text = format!("{a} || {b}");
                return self.bracket(text);
            }
        };
        call.replace("{}", &a)
    }

    fn time(&mut self, scope: &Scope, depth: usize) -> String {
        let a = self.value(Type::Time, scope, depth);
        match self.below(7) {
            0 => {
                let unit = self.one(&["day", "hour", "month", "year", "week", "quarter", "minute", "second"]);
                format!("date_trunc('{unit}', {a})")
            }
            1 => format!("({a} + interval '90 minutes')"),
            2 => format!("({a} - interval '1 month')"),
            3 => format!("({a} + interval '1 year 2 months')"),
            4 => {
                let date = self.value(Type::Date, scope, depth);
                format!("cast({date} as timestamp)")
            }
            5 => {
                let b = self.value(Type::Time, scope, 0);
                format!("({a} + (timestamp '2026-01-07 01:00:00' - date_trunc('day', {b})))")
            }
            _ => format!("({a} + interval '2 days')"),
        }
    }

    fn date(&mut self, scope: &Scope, depth: usize) -> String {
        match self.below(3) {
            0 => {
                let date = self.value(Type::Date, scope, depth);
                format!("({date} {} {})", self.one(&["+", "-"]), self.one(&["1", "30"]))
            }
            _ => {
                let time = self.value(Type::Time, scope, depth);
                format!("cast({time} as date)")
            }
        }
    }
}
