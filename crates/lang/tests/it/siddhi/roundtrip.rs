//! Property tests: random expressions and apps survive formatting and parsing.

use proptest::prelude::*;
use tidemill_lang::siddhi::ast::{
    App, Args, AttributeRef, BinaryOp, Call, EventIndex, ExecutionElement, Expr, ExprKind, HandlerKind,
    Ident, IndexKind, Input, Literal, NullOperand, Scope, SourceRef, StreamRef, TimeLiteral,
};
use tidemill_lang::siddhi::{format, parse, parse_expression, structural_text};
use tidemill_lang::source::Span;

use super::{check_format, file};

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
            "not", "AND", "or", "in", "is", "null", "True", "min", "every", "last", "from", "as", "select",
            "window"
        ])
        .prop_map(str::to_owned),
    ]
    .prop_map(ident)
}

/// Generates strings that SiddhiQL can express: none with three double quotes, and no double quote at the end
/// if the string needs triple quotes.
fn text() -> impl Strategy<Value = String> {
    any::<String>().prop_filter("can be written", |text| {
        let plain = !text.contains('"') && !text.chars().any(|c| u32::from(c) < 0x20);
        plain || !text.contains("\"\"\"") && !text.ends_with('"')
    })
}

fn index() -> impl Strategy<Value = Option<EventIndex>> {
    let kind = prop_oneof![(0..9_u32).prop_map(IndexKind::First), (0..9_u32).prop_map(IndexKind::Last)];
    proptest::option::of(kind.prop_map(|kind| EventIndex { kind, span: Span::default() }))
}

fn source() -> impl Strategy<Value = SourceRef> {
    let scope = proptest::sample::select(vec![Scope::App, Scope::Inner, Scope::Fault]);
    (scope, name(), index()).prop_map(|(scope, name, index)| SourceRef {
        stream: StreamRef { name, scope, span: Span::default() },
        index,
        inner: None,
        span: Span::default(),
    })
}

fn attribute() -> impl Strategy<Value = ExprKind> {
    (proptest::option::of(source()), name()).prop_map(|(source, name)| {
        let source = source.map(Box::new);
        ExprKind::Attribute(AttributeRef { source, name, span: Span::default() })
    })
}

fn step_check() -> impl Strategy<Value = ExprKind> {
    let steps = source().prop_filter("no mere name", |source| source.as_name().is_none());
    steps.prop_map(|source| ExprKind::IsNull(NullOperand::Step(Box::new(source))))
}

fn leaf() -> impl Strategy<Value = Expr> {
    let literal = |literal| ExprKind::Literal(literal);
    prop_oneof![
        any::<bool>().prop_map(move |b| literal(Literal::Bool(b))),
        any::<i32>().prop_map(move |n| literal(Literal::Int(n))),
        any::<i64>().prop_map(move |n| literal(Literal::Long(n))),
        any::<f32>().prop_filter("a number", |x| !x.is_nan()).prop_map(move |x| literal(Literal::Float(x))),
        any::<f64>().prop_filter("a number", |x| !x.is_nan()).prop_map(move |x| literal(Literal::Double(x))),
        text().prop_map(move |s| literal(Literal::Text(s))),
        (0..1000_i64).prop_map(|n| ExprKind::Time(TimeLiteral {
            ms: n * 60_000,
            text: format!("{n} min"),
            span: Span::default(),
        })),
        attribute(),
        step_check(),
    ]
    .prop_map(expr)
}

fn tree() -> impl Strategy<Value = Expr> {
    use BinaryOp::*;
    let ops = vec![Or, And, Eq, Ne, Lt, Le, Gt, Ge, Add, Sub, Mul, Div, Rem];
    leaf().prop_recursive(6, 48, 4, move |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let args = prop_oneof![
            proptest::collection::vec(inner, 0..4).prop_map(Args::List),
            Just(Args::All(Span::default())),
        ];
        let call = (proptest::option::of(name()), name(), args)
            .prop_map(|(namespace, name, args)| {
                ExprKind::Call(Box::new(Call { namespace, name, args, span: Span::default() }))
            })
            .boxed();
        let checked = prop_oneof![call.clone(), attribute()].prop_map(expr);
        prop_oneof![
            call,
            checked.prop_map(|value| ExprKind::IsNull(NullOperand::Value(Box::new(value)))),
            boxed.clone().prop_map(ExprKind::Not),
            (proptest::sample::select(ops.clone()), boxed.clone(), boxed.clone())
                .prop_map(|(op, left, right)| ExprKind::Binary { op, left, right }),
            (boxed, name()).prop_map(|(condition, table)| ExprKind::In { condition, table }),
        ]
        .prop_map(expr)
    })
}

/// Returns an app that filters by `condition`.
fn app_with(condition: Expr) -> App {
    let mut app = parse(&file("define stream S (a int); from S[a] insert into O;")).app;
    if let [ExecutionElement::Query(query)] = &mut app.elements[..]
        && let Input::Stream(input) = &mut query.input
        && let HandlerKind::Filter(filter) = &mut input.handlers[0].kind
    {
        *filter = condition;
    }
    app
}

fn word() -> impl Strategy<Value = String> {
    let words = "define stream table window trigger function aggregation from select group by having order asc desc limit \
                 offset output every all first last snapshot events current expired insert into delete update or set on \
                 for return partition with begin end of as and not in is null join left outer full inner unidirectional \
                 within per aggregate at int string S T e1 @info @app:name 'x' \"y\" 1 2.5 3L sec min ... -> => ! \
                 ( ) [ ] , ; : . = == != < > + - * / # ? {} -- /* */ \n \n\n";
    proptest::sample::select(
        words.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect::<Vec<_>>(),
    )
}

/// Generates fragments that form valid queries more often than single words do.
fn piece() -> impl Strategy<Value = String> {
    let pieces = [
        "define stream S (a int);",
        "define table T (k string, v int);",
        "from S",
        "from every e1=A",
        "-> e2=B[v > e1.v]",
        ", e3=C+",
        "[a > 1]",
        "#window.length(5)",
        "join R as r",
        "on S.a == r.a",
        "select a, b + 1 as c",
        "select *",
        "group by a",
        "having a > 1",
        "order by a desc",
        "limit 5",
        "output all every 3 events",
        "within 1 sec",
        "insert into O;",
        "insert all events into #O;",
        "update T set T.v = v on T.k == k;",
        "delete T;",
        "partition with (a of S) begin",
        "end;",
        "@info(name='q')",
        "-- note\n",
        "/* note */",
        "\n\n",
        "not C for 5 sec",
        "and d=D",
        "every (",
        "from (S)",
        "from Every",
        "select not, within",
        "as every",
        ")",
        "(",
    ];
    proptest::sample::select(pieces.map(str::to_owned).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn an_expression_is_read_as_it_was_written(tree in tree()) {
        let written = tree.to_string();
        let read = parse_expression(&file(written.clone()));
        let read = read.unwrap_or_else(|diagnostics| panic!("{written}\n{diagnostics:?}"));
        prop_assert_eq!(&read.to_string(), &written);
        // the formatted expression may hide a difference that the tree shows
        let expected = structural_text(&app_with(tree));
        prop_assert_eq!(&structural_text(&app_with(read)), &expected);

        let app = format!("define stream S (a int); from S[{written}] insert into O;");
        prop_assert_eq!(structural_text(&parse(&file(app.clone())).app), expected);
        prop_assert!(check_format(&app).is_some());
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let _ = format(&file(text));
    }

    #[test]
    fn no_mixture_of_its_words_makes_it_panic(words in proptest::collection::vec(word(), 0..60)) {
        check_format(&words.join(" "));
    }

    #[test]
    fn no_mixture_of_its_clauses_makes_it_panic(pieces in proptest::collection::vec(piece(), 0..30)) {
        check_format(&format!("define stream S (a int);{}", pieces.join(" ")));
    }
}
