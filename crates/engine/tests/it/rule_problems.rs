//! Rules that fail are problems of the engine, once each with a count.

use tidemill_engine::{App, Engine};

use crate::{quiet, send};

const RULES: &str = "
    event R { id: string } key id;
    event L { n: long } key n;
    entity Kept key id;
    rule Keep { when { r: R(); } then { insert Kept { id: r.id }; } }
    rule Loop { when { l: L(); } then { emit L(l.n); } }
";

#[test]
fn rules_that_fail_are_problems_with_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(quiet(App::from_rules("failing", RULES)))).unwrap();
    send(&engine, "R", "{\"id\":\"a\"}\n");
    assert_eq!(engine.health().problems, Vec::<String>::new());
    let of_rule = |rule: &str| {
        let problems = engine.health().problems;
        let start = format!("rules: `{rule}` failed ");
        let mut of_rule =
            problems.iter().filter_map(|problem| problem.strip_prefix(&start).map(str::to_owned));
        let problem = of_rule.next().unwrap_or_else(|| panic!("{problems:?}"));
        assert_eq!(of_rule.next(), None, "one problem of a rule");
        problem
    };
    send(&engine, "R", "{\"id\":\"a\"}\n");
    assert!(of_rule("Keep").starts_with("once, last: "), "{}", of_rule("Keep"));
    send(&engine, "R", "{\"id\":\"a\"}\n{\"id\":\"a\"}\n");
    let problem = of_rule("Keep");
    assert!(problem.starts_with("3 times, last: ") && problem.contains("Kept"), "{problem}");
    send(&engine, "L", "{\"n\":1}\n");
    assert!(of_rule("Loop").contains("16"), "{}", of_rule("Loop"));
    assert!(engine.health().ready, "the engine goes on");
}
