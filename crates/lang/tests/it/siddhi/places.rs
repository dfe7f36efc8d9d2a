//! Tests that the spans of tree nodes cover the right source text.

use tidemill_lang::siddhi::ast::{
    Definition, ExecutionElement, Expr, ExprKind, HandlerKind, Input, JoinInput, Output, OutputAction, Query,
    SelectItems, Selection, Step, StreamInput,
};
use tidemill_lang::siddhi::{parse, parse_expression_in, parse_on_demand, substitute};
use tidemill_lang::source::SourceFile;

use super::file;

fn queries(file: &SourceFile) -> Vec<Query> {
    let parsed = parse(file);
    assert_eq!(parsed.diagnostics, []);
    let query = |element| match element {
        ExecutionElement::Query(query) => *query,
        ExecutionElement::Partition(_) => panic!("only queries"),
    };
    parsed.app.elements.into_iter().map(query).collect()
}

fn stream(query: &Query) -> &StreamInput {
    let Input::Stream(input) = &query.input else { panic!("a stream") };
    input
}

fn selection(query: &Query) -> &Selection {
    query.select.as_ref().expect("a selection")
}

#[test]
fn clauses() {
    let file = file(
        "define stream S (a int);\n@info(name='q') from #S#f(a)[a > 1]#window.time(1 sec)#g() select a, (b + 1) as c \
         group by a having b > 1 order by a desc limit 5 offset 1 output all every 3 events insert all events into O;",
    );
    let query = &queries(&file)[0];
    let text = |span| file.slice(span);
    assert!(text(query.span).starts_with("@info") && text(query.span).ends_with("into O"));
    assert_eq!(text(query.annotations[0].span), "@info(name='q')");
    let element = query.annotations[0].element("NAME").expect("its name");
    assert_eq!((text(element.span), text(element.value.span)), ("name='q'", "'q'"));
    let input = stream(query);
    assert_eq!(text(input.span), "#S#f(a)[a > 1]#window.time(1 sec)#g()");
    assert_eq!((text(input.stream.span), text(input.stream.name.span)), ("#S", "S"));
    assert_eq!(text(input.handlers[0].span), "#f(a)");
    assert_eq!(text(input.handlers[1].span), "[a > 1]");
    assert_eq!(text(input.window.as_ref().expect("a window").span), "#window.time(1 sec)");
    assert_eq!(text(input.after[0].span), "#g()");
    let select = selection(query);
    assert!(text(select.span).starts_with("select a") && text(select.span).ends_with("offset 1"));
    let SelectItems::List(items) = &select.items else { panic!("a list") };
    assert_eq!((text(items[1].span), text(items[1].expr.span)), ("(b + 1) as c", "(b + 1)"));
    assert_eq!(items[1].name().map(|name| text(name.span)), Some("c"));
    assert_eq!(text(select.group_by[0].span), "a");
    assert_eq!(text(select.order_by[0].span), "a desc");
    assert_eq!(select.limit.as_ref().map(|e| text(e.span)), Some("5"));
    assert_eq!(query.rate.as_ref().map(|rate| text(rate.span)), Some("output all every 3 events"));
    let Output { action: OutputAction::Insert { target }, kind: Some(kind), span } = &query.output else {
        panic!("an insert")
    };
    assert_eq!((text(target.span), text(kind.span)), ("O", "all events"));
    assert_eq!(text(*span), "insert all events into O");
}

#[test]
fn joins_and_patterns() {
    let file = file(
        "define stream S (a int); from L[a > 1] as l unidirectional join R as r on l.a == r.a within 1L, 2L per 'days' \
         insert into O; from every (a=A -> b=B[v > a[last - 1].v]<2:5>) -> not C for 5 sec within 1 min insert into O;",
    );
    let queries = queries(&file);
    let text = |span| file.slice(span);
    let Input::Join(join) = &queries[0].input else { panic!("a join") };
    let JoinInput { left, right, on, within, .. } = &**join;
    assert_eq!(text(left.span), "L[a > 1] as l");
    assert_eq!(left.unidirectional.map(text), Some("unidirectional"));
    assert_eq!(right.alias.as_ref().map(|alias| text(alias.span)), Some("r"));
    assert_eq!(on.as_ref().map(|on| text(on.span)), Some("l.a == r.a"));
    assert_eq!(within.as_ref().map(|within| text(within.span)), Some("within 1L, 2L per 'days'"));
    let Input::State(state) = &queries[1].input else { panic!("a pattern") };
    assert_eq!(state.groups[0].every.map(text), Some("every"));
    let steps: Vec<&str> = state.steps().map(|step| text(step.span())).collect();
    assert_eq!(steps, ["a=A", "b=B[v > a[last - 1].v]<2:5>", "not C for 5 sec"]);
    let Step::Stream(step) = &state.groups[0].steps[1] else { panic!("a stream") };
    assert_eq!(step.count.map(|count| text(count.span)), Some("<2:5>"));
    let HandlerKind::Filter(Expr { kind: ExprKind::Binary { right, .. }, .. }) = &step.handlers[0].kind
    else {
        panic!("a comparison")
    };
    let ExprKind::Attribute(attribute) = &right.kind else { panic!("an attribute") };
    let source = attribute.source.as_ref().expect("a step");
    assert_eq!((text(attribute.span), text(source.span)), ("a[last - 1].v", "a[last - 1]"));
    assert_eq!(source.index.map(|index| text(index.span)), Some("[last - 1]"));
    assert_eq!(state.within.as_ref().map(|within| text(within.span)), Some("1 min"));
}

#[test]
fn definitions() {
    let file = file(
        "@a define stream S (a int, b string);\ndefine function f[js] return int { x };\n\
         define aggregation A from S select a aggregate by a every sec ... year;",
    );
    let parsed = parse(&file);
    assert_eq!(parsed.diagnostics, []);
    let text = |span| file.slice(span);
    let [Definition::Stream(stream), Definition::Function(function), Definition::Aggregation(aggregation)] =
        &parsed.app.definitions[..]
    else {
        panic!("three definitions")
    };
    assert_eq!(text(stream.span), "@a define stream S (a int, b string)");
    assert_eq!((text(stream.attributes[1].span), text(stream.attributes[1].ty.span)), ("b string", "string"));
    assert_eq!((text(function.body.span), function.body.value.as_str()), ("{ x }", " x "));
    assert!(text(aggregation.span).ends_with("every sec ... year"));
}

#[test]
fn an_expression_in_a_text_has_its_places_in_the_app() {
    for (quoted, inner) in [("'a + = 1'", "="), ("\"\"\"\n a + = 1\"\"\"", "=")] {
        let file =
            file(format!("define stream S (a int); from S#window.expression({quoted}) insert into O;"));
        let query = &queries(&file)[0];
        let argument = &stream(query).window.as_ref().expect("a window").call.args.list()[0];
        assert_eq!(file.slice(argument.span), quoted);
        let diagnostics = parse_expression_in(&file, argument.span).expect_err("no value after `+`");
        assert_eq!(file.slice(diagnostics[0].span), inner);
    }
    let good = file("'count() <= 20 and last.v - first.v < 5'");
    let whole = parse_expression_in(&good, tidemill_lang::Span::new(good.id(), 0, good.text().len() as u32));
    let expr = whole.expect("an expression");
    assert_eq!(expr.to_string(), "count() <= 20 and last.v - first.v < 5");
    assert_eq!(good.slice(expr.span), "count() <= 20 and last.v - first.v < 5");
}

#[test]
fn variables_are_replaced_before_an_app_is_read() {
    let text = file("define stream ${NAME} (a int);\nfrom ${NAME} insert into ${OTHER};");
    let replaced = substitute(&text, |name| Some(format!("{name}_1"))).expect("all have values");
    assert_eq!(replaced.name(), text.name());
    let query = &queries(&replaced)[0];
    assert_eq!(stream(query).stream.name.name, "NAME_1");
    let missing =
        substitute(&text, |name| (name == "NAME").then(|| "S".to_owned())).expect_err("one is missing");
    assert_eq!(missing.iter().map(|d| text.slice(d.span)).collect::<Vec<_>>(), ["${OTHER}"]);
}

#[test]
fn an_on_demand_query_has_places_too() {
    use tidemill_lang::siddhi::ast::OnDemandQuery;
    let file = file("from T as t on t.v > 2 select k;");
    let Ok(OnDemandQuery::Find(find)) = parse_on_demand(&file) else { panic!("it finds") };
    assert_eq!(file.slice(find.span), "from T as t on t.v > 2 select k");
    assert_eq!(find.alias.map(|alias| file.slice(alias.span).to_owned()).as_deref(), Some("t"));
    assert_eq!(find.on.map(|on| file.slice(on.span).to_owned()).as_deref(), Some("t.v > 2"));
}
