//! Property tests: random expressions and declarations survive formatting and parsing.

use proptest::prelude::*;
use tidemill_lang::rules::ast::{
    BinaryOp, Condition, Expr, ExprKind, Ident, Item, Literal, ObjectField, SpanLiteral, TypeName, UnaryOp,
};
use tidemill_lang::rules::{format, parse, structural_text};
use tidemill_lang::source::{FileId, SourceFile, Span};
use tidemill_types::{EpochUnit, FieldType};

fn expr(kind: ExprKind) -> Expr {
    Expr { kind, span: Span::default() }
}

fn ident(name: impl Into<String>) -> Ident {
    Ident { name: name.into(), span: Span::default() }
}

fn name() -> impl Strategy<Value = Ident> {
    prop_oneof![
        "[a-zA-Z_][a-zA-Z0-9_]{0,6}",
        "[ a-zäß0-9.'\"]{1,5}",
        proptest::sample::select(vec![
            "not", "AND", "rule", "in", "let", "now", "Null", "min", "when", "push"
        ])
        .prop_map(str::to_owned),
    ]
    .prop_map(ident)
}

fn leaf() -> impl Strategy<Value = Expr> {
    prop_oneof![
        Just(ExprKind::Literal(Literal::Null)),
        Just(ExprKind::Now),
        any::<bool>().prop_map(|b| ExprKind::Literal(Literal::Bool(b))),
        (0..=i64::MAX).prop_map(|n| ExprKind::Literal(Literal::Int(n))),
        Just(ExprKind::Literal(Literal::Int(i64::MIN))),
        (0.0..f64::MAX).prop_map(|x| ExprKind::Literal(Literal::Float(x))),
        (0.0..1e6_f64).prop_map(|x| ExprKind::Literal(Literal::Float(x))),
        any::<String>().prop_map(|s| ExprKind::Literal(Literal::Str(s))),
        (0..1000_i64).prop_map(|n| ExprKind::Span(SpanLiteral {
            micros: n * 60_000_000,
            text: format!("{n} min"),
            span: Span::default(),
        })),
        name().prop_map(ExprKind::Name),
    ]
    .prop_map(expr)
}

fn object(fields: Vec<(Ident, Expr)>) -> ExprKind {
    let mut seen = std::collections::HashSet::new();
    let fields = fields.into_iter().filter(|(n, _)| seen.insert(n.name.clone()));
    ExprKind::Object(fields.map(|(name, value)| ObjectField { name, value, span: Span::default() }).collect())
}

fn tree() -> impl Strategy<Value = Expr> {
    use BinaryOp::*;
    let ops = vec![Or, And, Eq, Ne, Lt, Le, Gt, Ge, Add, Sub, Mul, Div, Rem];
    leaf().prop_recursive(6, 48, 4, move |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        // constants have no fields
        let base = prop_oneof![
            name().prop_map(|n| expr(ExprKind::Name(n))),
            inner.clone().prop_filter("has fields", |e| !matches!(
                e.kind,
                ExprKind::Literal(_) | ExprKind::Span(_) | ExprKind::Now
            )),
        ]
        .prop_map(Box::new);
        let args = proptest::collection::vec(inner.clone(), 0..4);
        let fields = proptest::collection::vec((name(), inner), 0..4);
        prop_oneof![
            (base.clone(), name()).prop_map(|(base, field)| ExprKind::Field { base, field }),
            (base, name()).prop_map(|(base, method)| ExprKind::MethodCall { base, method }),
            (name(), args.clone()).prop_map(|(function, args)| ExprKind::Call { function, args }),
            boxed.clone().prop_map(|operand| ExprKind::Unary { op: UnaryOp::Not, operand }),
            boxed.clone().prop_map(|operand| ExprKind::Unary { op: UnaryOp::Neg, operand }),
            (proptest::sample::select(ops.clone()), boxed.clone(), boxed.clone())
                .prop_map(|(op, left, right)| ExprKind::Binary { op, left, right }),
            (boxed.clone(), boxed).prop_map(|(value, list)| ExprKind::In { value, list }),
            fields.prop_map(object),
            args.prop_map(ExprKind::Array),
        ]
        .prop_map(expr)
    })
}

fn rule_with(value: &str) -> SourceFile {
    let text = format!("rule R {{ when {{ x: A(); let v = {value}; }} then {{ delete x; }} }}");
    SourceFile::new(FileId(0), "t.rules", text)
}

fn value_of(file: &SourceFile) -> (String, Expr) {
    let parsed = parse(file);
    assert_eq!(parsed.diagnostics, [], "{}", file.text());
    let [Item::Rule(rule)] = &parsed.module.items[..] else { panic!("one rule") };
    let Condition::Let(condition) = &rule.conditions[1] else { panic!("a let") };
    (structural_text(&parsed.module), condition.expr.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn an_expression_is_read_as_it_was_written(tree in tree()) {
        let written = tree.to_string();
        let file = rule_with(&written);
        let (all, read) = value_of(&file);
        prop_assert_eq!(&read.to_string(), &written);
        // the formatted expression may hide a difference that the tree shows
        let expected = structural_text(&module_of(tree));
        let got = structural_text(&module_of(read));
        prop_assert_eq!(got, expected);

        let canonical = format(&file).expect("no errors");
        let again = SourceFile::new(FileId(0), "t.rules", canonical.clone());
        prop_assert_eq!(value_of(&again).0, all);
        prop_assert_eq!(format(&again).expect("no errors"), canonical);
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let file = SourceFile::new(FileId(0), "t.rules", text);
        let _ = format(&file);
    }

    #[test]
    fn no_mixture_of_its_words_makes_it_panic(words in proptest::collection::vec(word(), 0..60)) {
        let file = SourceFile::new(FileId(0), "t.rules", words.join(" "));
        if let Ok(canonical) = format(&file) {
            let again = SourceFile::new(FileId(0), "t.rules", canonical.clone());
            prop_assert_eq!(format(&again), Ok(canonical));
            prop_assert_eq!(structural_text(&parse(&again).module), structural_text(&parse(&file).module));
        }
    }
}

fn word() -> impl Strategy<Value = String> {
    let words = "event entity relation rule when then aggregate groupby do over every update unset insert upsert delete \
                 emit new let not in and or key id time shard index unique by on null now true x y F 1 2.5 min 's' ` \
                 { } ( ) [ ] , ; : . = == != < + - * / ! && // /* */ \n \n\n";
    proptest::sample::select(
        words.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect::<Vec<_>>(),
    )
}

fn module_of(value: Expr) -> tidemill_lang::rules::ast::Module {
    let file = rule_with("1");
    let mut module = parse(&file).module;
    if let [Item::Rule(rule)] = &mut module.items[..]
        && let Condition::Let(condition) = &mut rule.conditions[1]
    {
        condition.expr = value;
    }
    module
}

/// Generates a declaration with random field names and types, with units for times, and its source text.
fn declaration() -> impl Strategy<Value = (Vec<(String, TypeName)>, String)> {
    let ty = prop_oneof![
        proptest::sample::select(FieldType::NAMES.to_vec())
            .prop_map(|name| (FieldType::parse(name).unwrap(), None)),
        proptest::sample::select(EpochUnit::ALL.to_vec()).prop_map(|unit| (FieldType::Time, Some(unit))),
    ]
    .prop_map(|(ty, unit)| TypeName { ty, unit, span: Span::default() });
    let space = proptest::sample::select(vec!["", " ", "\n", "\t", " /* c */ "]);
    proptest::collection::btree_map("[a-z]{1,4}[0-9]", (ty, space), 1..6).prop_map(|fields| {
        let mut text = "event E {".to_owned();
        for (name, (ty, space)) in &fields {
            let spread =
                ty.to_string().replace('(', &format!("{space}({space}")).replace(')', &format!("{space})"));
            text.push_str(&format!("{space}{name}{space}:{space}{spread}{space},"));
        }
        (fields.into_iter().map(|(name, (ty, _))| (name, ty)).collect(), text + "};")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn declared_types_keep_their_units((fields, text) in declaration()) {
        let declared = |text: &str| {
            let parsed = parse(&SourceFile::new(FileId(0), "t.rules", text.to_owned()));
            assert_eq!(parsed.diagnostics, [], "{text}");
            let [Item::Event(event)] = &parsed.module.items[..] else { panic!("one event") };
            let types = event.fields.iter();
            types.map(|f| (f.name.name.clone(), TypeName { span: Span::default(), ..f.ty })).collect::<Vec<_>>()
        };
        prop_assert_eq!(declared(&text), fields.clone());
        let canonical = format(&SourceFile::new(FileId(0), "t.rules", text)).expect("no errors");
        prop_assert_eq!(declared(&canonical), fields);
        let again = format(&SourceFile::new(FileId(0), "t.rules", canonical.clone())).expect("no errors");
        prop_assert_eq!(again, canonical);
    }
}
