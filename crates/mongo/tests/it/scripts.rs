//! `$where`, `$function` and `$accumulator`: JavaScript in reads, within limits.

use std::time::{Duration, Instant};

use mongodb::bson::{Bson, Document, doc};
use mongodb::sync::Collection;

use crate::{TestServer, code};

fn things(server: &TestServer) -> Collection<Document> {
    let things = server.collection("things");
    things.insert_many((0..20).map(|n| doc! { "_id": n, "a": n % 5, "b": n % 3, "g": n % 2 })).run().unwrap();
    things
}

fn ids(found: impl Iterator<Item = mongodb::error::Result<Document>>) -> Vec<i32> {
    found.map(|doc| doc.unwrap().get_i32("_id").unwrap()).collect()
}

fn run(things: &Collection<Document>, stages: Vec<Document>) -> mongodb::error::Result<Vec<Document>> {
    things.aggregate(stages).run()?.collect()
}

#[test]
fn a_condition_is_javascript() {
    let server = TestServer::start(3);
    let things = things(&server);
    let expected: Vec<i32> = (0..20).filter(|n| n % 5 == n % 3 && *n > 3).collect();
    for condition in ["this.a == this.b", "return obj.a == obj.b;", "function() { return this.a == this.b; }"]
    {
        let filter = doc! { "$where": condition, "_id": { "$gt": 3 } };
        assert_eq!(
            ids(things.find(filter.clone()).sort(doc! { "_id": 1 }).run().unwrap()),
            expected,
            "{condition}"
        );
        let code_filter = doc! { "$where": Bson::JavaScriptCode(condition.to_owned()), "_id": { "$gt": 3 } };
        assert_eq!(
            ids(things.find(code_filter).sort(doc! { "_id": 1 }).run().unwrap()),
            expected,
            "{condition}"
        );
    }
    let either = doc! { "$or": [{ "$where": "this.a + this.b == 6" }, { "_id": 1 }] };
    assert_eq!(ids(things.find(either).sort(doc! { "_id": 1 }).run().unwrap()), [1, 14]);
    let mut distinct = things.distinct("g", doc! { "$where": "this.a == 4" }).run().unwrap();
    distinct.sort_by_key(|value| value.as_i32());
    assert_eq!(distinct, [Bson::Int32(0), Bson::Int32(1)]);
    let database = server.client().database("docs");
    let counted = database.run_command(doc! { "count": "things", "query": { "$where": "this.a > 3" } });
    assert_eq!(counted.run().unwrap().get_i32("n").unwrap(), 4);

    let refused = |filter: Document| code(&things.find(filter).run().unwrap_err());
    assert_eq!(refused(doc! { "$where": "this." }), 139);
    assert_eq!(refused(doc! { "$where": "throw new Error('no')" }), 139);
    assert_eq!(refused(doc! { "$where": 5 }), 14);
    assert_eq!(refused(doc! { "list": { "$elemMatch": { "$where": "true" } } }), 2);
    assert_eq!(code(&run(&things, vec![doc! { "$match": { "$where": "true" } }]).unwrap_err()), 2);
    // what the log repeats has to decide alike
    let filter = || doc! { "$where": "true" };
    assert_eq!(code(&things.delete_many(filter()).run().unwrap_err()), 238);
    assert_eq!(code(&things.update_one(filter(), doc! { "$set": { "c": 1 } }).run().unwrap_err()), 238);
    assert_eq!(code(&things.find_one_and_delete(filter()).run().unwrap_err()), 238);
    let computed = vec![
        doc! { "$set": { "c": { "$function": { "body": "function() { return 1 }", "args": [], "lang": "js" } } } },
    ];
    assert_eq!(code(&things.update_many(doc! {}, computed).run().unwrap_err()), 238);
    let create = doc! { "create": "checked", "validator": { "$where": "true" } };
    let created = server.client().database("docs").run_command(create).run().unwrap_err();
    assert_eq!(code(&created), 238);
    assert_eq!(things.count_documents(doc! { "c": { "$exists": true } }).run().unwrap(), 0);
}

#[test]
fn expressions_call_functions() {
    let server = TestServer::start(2);
    let things = things(&server);
    let function =
        |body: &str, args: Vec<Bson>| doc! { "$function": { "body": body, "args": args, "lang": "js" } };
    let sum = function("function(a, b) { return a * 10 + b }", vec!["$a".into(), "$b".into()]);
    let found =
        run(&things, vec![doc! { "$match": { "_id": 7 } }, doc! { "$project": { "s": sum } }]).unwrap();
    assert_eq!(found, [doc! { "_id": 7, "s": 21.0 }]);
    let named = function("function(d) { d.n = d.a > 2 ? 'high' : 'low'; return d }", vec!["$$ROOT".into()]);
    let found =
        run(&things, vec![doc! { "$match": { "_id": 3 } }, doc! { "$replaceRoot": { "newRoot": named } }])
            .unwrap();
    assert_eq!(found[0].get_str("n").unwrap(), "high");
    let odd =
        doc! { "$match": { "$expr": function("function(n) { return n % 2 == 1 }", vec!["$_id".into()]) } };
    assert_eq!(run(&things, vec![odd]).unwrap().len(), 10);
    let wrong = |stage: Document| code(&run(&things, vec![stage]).unwrap_err());
    assert_eq!(wrong(doc! { "$project": { "s": function("1 + 1", vec![]) } }), 139);
    let language = doc! { "$function": { "body": "function() {}", "args": [], "lang": "python" } };
    assert_eq!(wrong(doc! { "$project": { "s": language } }), 2);

    let average = doc! {
        "init": "function() { return { count: 0, sum: 0 } }",
        "accumulate": "function(state, n) { return { count: state.count + 1, sum: state.sum + n } }",
        "accumulateArgs": ["$_id"],
        "merge": "function(a, b) { return { count: a.count + b.count, sum: a.sum + b.sum } }",
        "finalize": "function(state) { return state.sum / state.count }",
        "lang": "js",
    };
    let stages = vec![
        doc! { "$sort": { "_id": 1 } },
        doc! { "$group": { "_id": "$g", "average": { "$accumulator": average } } },
        doc! { "$sort": { "_id": 1 } },
    ];
    assert_eq!(
        run(&things, stages).unwrap(),
        [doc! { "_id": 0, "average": 9.0 }, doc! { "_id": 1, "average": 10.0 }]
    );
}

#[test]
fn endless_scripts_end() {
    let server = TestServer::start(2);
    let things = things(&server);
    let steps = things.find(doc! { "_id": 1, "$where": "for (;;);" }).run().unwrap_err();
    assert_eq!(code(&steps), 139);
    assert!(steps.to_string().contains("steps"), "{steps}");
    let memory =
        things.find(doc! { "_id": 1, "$where": "let x = []; for (;;) x.push(new Array(1e5).fill(1));" });
    assert_eq!(code(&memory.run().unwrap_err()), 139);
    // each call is short, but there are many; the time of the command holds for all of them
    let started = Instant::now();
    let slow = things.find(doc! { "$where": "let n = 0; while (n < 5e6) n++; return true;" });
    let slow = slow.max_time(Duration::from_millis(200)).run();
    if let Err(error) = &slow {
        assert_eq!(code(error), 50);
    } else {
        assert!(started.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(things.find(doc! { "$where": "this.a == 1" }).run().unwrap().count(), 4, "others go on");
}
