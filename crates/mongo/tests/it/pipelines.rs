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
fn stages_are_told_from_misspelt_ones() {
    let server = TestServer::start(1);
    let fails = |stage| {
        let error = server.collection("things").aggregate([stage]).run().unwrap_err();
        (code(&error), error.to_string())
    };
    let (missing, message) = fails(doc! { "$lookup": { "from": "x" } });
    assert!(missing == 238 && message.contains("not supported yet"), "{message}");
    assert_eq!(fails(doc! { "$mtach": {} }).0, 40324);
}
