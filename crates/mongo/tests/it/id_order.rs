//! Ranges and orders of `_id`: an index in order that the first queries make the collection build.

use mongodb::bson::{Document, doc};

use crate::TestServer;

#[test]
fn pages_by_id_read_the_index_in_order_over_all_partitions() {
    let server = TestServer::start(4);
    let database = server.client().database("shop");
    let things = database.collection::<Document>("things");
    let id = |n: i32| (n * 7919) % 10_007;
    things.insert_many((0..1000).map(|n| doc! { "_id": id(n), "n": n })).run().unwrap();
    let mut expected: Vec<i32> = (0..1000).map(id).collect();
    expected.sort_unstable();
    let pages = |size: usize| {
        let (mut found, mut last) = (Vec::<i32>::new(), -1);
        loop {
            let page =
                things.find(doc! { "_id": { "$gt": last } }).sort(doc! { "_id": 1 }).limit(size as i64);
            let page: Vec<i32> = page.run().unwrap().map(|d| d.unwrap().get_i32("_id").unwrap()).collect();
            found.extend(&page);
            match page.last() {
                Some(end) if page.len() == size => last = *end,
                _ => return found,
            }
        }
    };
    let examined = || {
        let find = doc! { "find": "things", "filter": { "_id": { "$gte": 500 } }, "sort": { "_id": 1 }, "limit": 10 };
        let explained = database.run_command(doc! { "explain": find }).run().unwrap();
        let plan = explained.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
        let plan = plan.get_document("inputStage").and_then(|plan| plan.get_document("inputStage")).cloned();
        let name = plan.ok().and_then(|plan| plan.get_str("indexName").map(str::to_owned).ok());
        let stats = explained.get_document("executionStats").unwrap();
        (name, stats.get_i64("totalDocsExamined").unwrap())
    };
    assert_eq!(examined(), (None, 1000));
    assert_eq!(pages(37), expected);
    assert_eq!(examined(), (Some("_id_".to_owned()), 40));
    things.insert_one(doc! { "_id": 20_000 }).run().unwrap();
    things.delete_one(doc! { "_id": expected[3] }).run().unwrap();
    expected.remove(3);
    expected.push(20_000);
    assert_eq!(pages(100), expected);
    assert_eq!(examined(), (Some("_id_".to_owned()), 40));
    let last = vec![doc! { "$sort": { "_id": -1 } }, doc! { "$limit": 1 }];
    assert_eq!(things.aggregate(last).run().unwrap().next().unwrap().unwrap(), doc! { "_id": 20_000 });
    let bounded = doc! {
        "find": "things", "hint": "_id_", "min": { "_id": expected[10] }, "max": { "_id": expected[13] }, "limit": 2,
    };
    let found = database.run_command(bounded).run().unwrap();
    let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let ids: Vec<i32> = found.iter().map(|d| d.as_document().unwrap().get_i32("_id").unwrap()).collect();
    assert_eq!(ids, expected[10..12]);
    // it is not stored, and built again after a restart
    let server = server.restart();
    let things = server.client().database("shop").collection::<Document>("things");
    let first = things.find(doc! {}).sort(doc! { "_id": 1 }).limit(3).run().unwrap();
    let first: Vec<i32> = first.map(|d| d.unwrap().get_i32("_id").unwrap()).collect();
    assert_eq!(first, expected[..3]);
}
