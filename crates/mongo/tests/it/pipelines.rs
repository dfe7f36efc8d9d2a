//! Pipelines.

use mongodb::bson::{Document, doc};

use crate::{TestServer, code};

#[test]
fn documents_are_grouped_sorted_and_cut() {
    let server = TestServer::start(4);
    let sales = server.collection("sales");
    let documents =
        (0..100).map(|n| doc! { "_id": n, "shop": format!("s{}", n % 3), "amount": n, "tags": ["a", "b"] });
    sales.insert_many(documents).run().unwrap();
    let run = |pipeline: Vec<Document>| -> Vec<Document> {
        sales.aggregate(pipeline).run().unwrap().map(Result::unwrap).collect()
    };
    let totals = run(vec![
        doc! { "$match": { "amount": { "$gte": 10 } } },
        doc! { "$group": {
            "_id": "$shop", "n": { "$count": {} }, "sum": { "$sum": "$amount" }, "mean": { "$avg": "$amount" },
            "least": { "$min": "$amount" }, "most": { "$max": "$amount" },
        } },
        doc! { "$sort": { "sum": -1 } },
        doc! { "$limit": 2 },
    ]);
    assert_eq!(
        totals,
        [
            doc! { "_id": "s0", "n": 30, "sum": 1665, "mean": 55.5, "least": 12, "most": 99 },
            doc! { "_id": "s2", "n": 30, "sum": 1635, "mean": 54.5, "least": 11, "most": 98 },
        ]
    );
    let sets = run(vec![doc! { "$group": { "_id": null, "tags": { "$addToSet": "$tags" } } }]);
    assert_eq!(sets, [doc! { "_id": null, "tags": [["a", "b"]] }]);
    assert_eq!(run(vec![doc! { "$match": { "shop": "s1" } }, doc! { "$count": "n" }]), [doc! { "n": 33 }]);
    let shown =
        run(vec![doc! { "$sort": { "_id": 1 } }, doc! { "$skip": 98 }, doc! { "$project": { "amount": 1 } }]);
    assert_eq!(shown, [doc! { "_id": 98, "amount": 98 }, doc! { "_id": 99, "amount": 99 }]);
}

#[test]
fn documents_are_reshaped_by_expressions() {
    let server = TestServer::start(1);
    let orders = server.collection("orders");
    orders.insert_many([
        doc! { "_id": 1, "items": [{ "n": 2, "price": 3 }, { "n": 1, "price": 5 }], "who": { "name": "a" } },
        doc! { "_id": 2, "items": [], "who": { "name": "b" } },
        doc! { "_id": 3, "who": { "name": "a" } },
    ]).run().unwrap();
    let run = |pipeline: Vec<Document>| -> Vec<Document> {
        orders.aggregate(pipeline).run().unwrap().map(Result::unwrap).collect()
    };
    let total = doc! { "$sum": { "$map": { "input": "$items", "in": { "$multiply": ["$$this.n", "$$this.price"] } } } };
    assert_eq!(
        run(vec![doc! { "$project": { "who.name": 1, "total": total.clone() } }, doc! { "$limit": 1 }]),
        [doc! { "_id": 1, "who": { "name": "a" }, "total": 11 }]
    );
    assert_eq!(
        run(vec![doc! { "$match": { "_id": 2 } }, doc! { "$set": { "who.age": 5, "items": "$$REMOVE" } }]),
        [doc! { "_id": 2, "who": { "name": "b", "age": 5 } }]
    );
    assert_eq!(
        run(vec![
            doc! { "$unwind": { "path": "$items", "includeArrayIndex": "at" } },
            doc! { "$project": { "_id": 0, "at": 1, "items.n": 1 } }
        ]),
        [doc! { "items": { "n": 2 }, "at": 0_i64 }, doc! { "items": { "n": 1 }, "at": 1_i64 }]
    );
    let kept = run(vec![
        doc! { "$unwind": { "path": "$items", "preserveNullAndEmptyArrays": true } },
        doc! { "$count": "n" },
    ]);
    assert_eq!(kept, [doc! { "n": 4 }]);
    assert_eq!(
        run(vec![doc! { "$sortByCount": "$who.name" }]),
        [doc! { "_id": "a", "count": 2 }, doc! { "_id": "b", "count": 1 }]
    );
    assert_eq!(
        run(vec![doc! { "$match": { "_id": 3 } }, doc! { "$replaceRoot": { "newRoot": "$who" } }]),
        [doc! { "name": "a" }]
    );
    let grouped = doc! { "$group": { "_id": { "$toUpper": "$who.name" }, "most": { "$max": total } } };
    assert_eq!(
        run(vec![grouped, doc! { "$sort": { "_id": 1 } }]),
        [doc! { "_id": "A", "most": 11 }, doc! { "_id": "B", "most": 0 }]
    );
    let wrong = orders.aggregate([doc! { "$replaceWith": "$who.name" }]).run().unwrap_err();
    assert_eq!(code(&wrong), 40228);
}

#[test]
fn stages_are_told_from_misspelt_ones() {
    let server = TestServer::start(1);
    let fails = |stage| {
        let error = server.collection("things").aggregate([stage]).run().unwrap_err();
        (code(&error), error.to_string())
    };
    let (missing, message) = fails(doc! { "$planCacheStats": {} });
    assert!(missing == 238 && message.contains("not supported yet"), "{message}");
    assert_eq!(fails(doc! { "$mtach": {} }).0, 40324);
}

/// Runs the pipelines of `tests/cases/pipelines.txt`; `UPDATE_CASES=1` writes what they return into it.
#[test]
fn pipelines_return_what_their_cases_say() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/pipelines.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let server = TestServer::start(2);
    let parse =
        |text: &str| -> Document { serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}")) };
    let (mut written, mut collection) = (String::new(), String::new());
    for line in text.lines().filter(|line| !line.starts_with("=> ")) {
        written += line;
        written.push('\n');
        if let Some(name) = line.strip_prefix("docs ") {
            collection = name.to_owned();
            server.collection(&collection).drop().run().unwrap();
        } else if line.starts_with('{') {
            server.collection(&collection).insert_one(parse(line)).run().unwrap();
        } else if let Some(run) = line.strip_prefix("run ") {
            let (name, pipeline) = run.split_once(' ').unwrap();
            let stages = parse(&format!("{{\"stages\": {pipeline}}}"));
            let stages =
                stages.get_array("stages").unwrap().iter().map(|stage| stage.as_document().unwrap().clone());
            let found = match name {
                "-" => server.client().database("docs").aggregate(stages).run(),
                name => server.collection(name).aggregate(stages).run(),
            };
            let found = found.and_then(|found| found.collect::<mongodb::error::Result<Vec<_>>>());
            match found {
                Ok(found) if found.is_empty() => written += "=> nothing\n",
                Ok(found) => found.iter().for_each(|document| written += &format!("=> {document}\n")),
                Err(error) => written += &format!("=> error {}: {}\n", code(&error), message(&error)),
            }
        }
    }
    match std::env::var_os("UPDATE_CASES") {
        Some(_) => std::fs::write(&path, written).unwrap(),
        None => assert!(written == text, "expected the outputs in {}, found\n{written}", path.display()),
    }
}

fn message(error: &mongodb::error::Error) -> String {
    match error.kind.as_ref() {
        mongodb::error::ErrorKind::Command(error) => error.message.clone(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_rate_of_documents_is_sampled() {
    let server = TestServer::start(2);
    let things = server.collection("things");
    things.insert_many((0..2000).map(|n| doc! { "_id": n, "g": n % 2 })).run().unwrap();
    let count = |condition: Document| {
        let pipeline = vec![doc! { "$match": condition }, doc! { "$count": "n" }];
        let found = things.aggregate(pipeline).run()?.next().transpose()?;
        Ok::<_, mongodb::error::Error>(found.map_or(0, |found| found.get_i32("n").unwrap()))
    };
    assert_eq!(count(doc! { "$sampleRate": 1.0, "g": 1 }).unwrap(), 1000);
    assert_eq!(count(doc! { "$sampleRate": 0 }).unwrap(), 0);
    // 1000 draws with a probability of a half: outside of this once in 10^80
    let half = count(doc! { "g": 1, "$sampleRate": 0.5 }).unwrap();
    assert!((200..800).contains(&half), "{half}");
    for wrong in [doc! { "$sampleRate": 1.5 }, doc! { "$sampleRate": "half" }, doc! { "$sampleRate": -1 }] {
        assert_eq!(crate::code(&count(wrong).unwrap_err()), 2);
    }
}
