//! Indexes of geometries, searches by place and by distance.

use mongodb::IndexModel;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{IndexOptions, Sphere2DIndexVersion};
use mongodb::sync::Collection;

use crate::{TestServer, code};

/// Places on a line of longitude 0, one degree apart, and one that has none.
fn places(server: &TestServer) -> Collection<Document> {
    let places = server.collection("places");
    let point = |n: i32| doc! { "type": "Point", "coordinates": [0, n] };
    places.insert_many((0..40).map(|n| doc! { "_id": n, "at": point(n), "even": n % 2 == 0 })).run().unwrap();
    places.insert_one(doc! { "_id": "nowhere" }).run().unwrap();
    places
}

fn create(places: &Collection<Document>, keys: Document) {
    places.create_index(IndexModel::builder().keys(keys).build()).run().unwrap();
}

fn ids(found: mongodb::sync::Cursor<Document>) -> Vec<i32> {
    found.map(|doc| doc.unwrap().get_i32("_id").unwrap()).collect()
}

fn near(lat: f64, max_m: f64) -> Document {
    let point = doc! { "type": "Point", "coordinates": [0.0, lat] };
    doc! { "at": { "$near": { "$geometry": point, "$maxDistance": max_m } } }
}

/// Metres of one degree.
const DEGREE_M: f64 = 6_378_100.0 * std::f64::consts::PI / 180.0;

#[test]
fn documents_are_found_by_place_and_distance_over_all_partitions() {
    for partitions in [1, 4] {
        let server = TestServer::start(partitions);
        let places = places(&server);
        let missing = places.find(near(10.2, 1e6)).run().unwrap_err();
        assert_eq!(code(&missing), 291);
        create(&places, doc! { "at": "2dsphere" });
        assert_eq!(places.list_index_names().run().unwrap(), ["_id_", "at_2dsphere"]);

        assert_eq!(ids(places.find(near(10.2, 2.0 * DEGREE_M)).run().unwrap()), [10, 11, 9, 12]);
        assert_eq!(ids(places.find(near(10.2, 9e9)).skip(1).limit(3).run().unwrap()), [11, 9, 12]);
        let reversed = places.find(near(10.2, 9e9)).sort(doc! { "$natural": -1 }).run().unwrap_err();
        assert_eq!(code(&reversed), 2);
        let by_hint = places.find(near(10.2, 9e9)).hint(mongodb::options::Hint::Name("_id_".into())).limit(2);
        assert_eq!(ids(by_hint.run().unwrap()), [10, 11]);
        let by_id = places.find(near(10.2, 2.0 * DEGREE_M)).sort(doc! { "_id": -1 }).limit(2);
        assert_eq!(ids(by_id.run().unwrap()), [12, 11]);
        let in_batches = places.find(near(0.0, 9e9)).batch_size(7).run().unwrap();
        assert_eq!(ids(in_batches), (0..40).collect::<Vec<_>>());
        let first = places.find_one(near(33.4, 9e9)).run().unwrap().unwrap();
        assert_eq!(first.get_i32("_id").unwrap(), 33);

        let north =
            doc! { "type": "Polygon", "coordinates": [[[-1, 30], [1, 30], [1, 50], [-1, 50], [-1, 30]]] };
        let within = doc! { "at": { "$geoWithin": { "$geometry": north } } };
        // the southern edge is an arc, and runs north of the thirtieth degree in its middle
        assert_eq!(places.count_documents(within.clone()).run().unwrap(), 9);
        assert_eq!(places.distinct("even", within.clone()).run().unwrap().len(), 2);
        let crossing = doc! { "type": "LineString", "coordinates": [[-1, 20], [0, 20]] };
        let met = places.find(doc! { "at": { "$geoIntersects": { "$geometry": crossing } } }).run().unwrap();
        assert_eq!(ids(met), [20]);

        // writes of one document take the nearest
        let updated = places.update_one(near(7.6, 9e9), doc! { "$set": { "seen": true } }).run().unwrap();
        assert_eq!(updated.modified_count, 1);
        assert_eq!(ids(places.find(doc! { "seen": true }).run().unwrap()), [8]);
        let gone = places.find_one_and_delete(near(19.6, 9e9)).run().unwrap().unwrap();
        assert_eq!(gone.get_i32("_id").unwrap(), 20);
        assert_eq!(places.delete_one(near(19.6, 9e9)).run().unwrap().deleted_count, 1);
        assert_eq!(places.delete_many(near(0.0, 1.5 * DEGREE_M)).run().unwrap().deleted_count, 2);

        let server = server.restart();
        let places = server.collection("places");
        assert_eq!(ids(places.find(near(19.6, 2.0 * DEGREE_M)).run().unwrap()), [21, 18]);
        assert_eq!(ids(places.find(near(0.0, 9e9)).limit(2).run().unwrap()), [2, 3]);
    }
}

#[test]
fn an_index_is_described_as_it_was_made() {
    let server = TestServer::start(2);
    let places = server.collection("places");
    let options = IndexOptions::builder().sphere_2d_index_version(Sphere2DIndexVersion::V2).build();
    let keys = doc! { "kind": 1, "at": "2dsphere" };
    places.create_index(IndexModel::builder().keys(keys.clone()).options(options).build()).run().unwrap();
    let plane = IndexOptions::builder().bits(20).min(-10.0).max(10.0).build();
    let plane = IndexModel::builder().keys(doc! { "flat": "2d" }).options(plane).build();
    assert_eq!(places.create_index(plane.clone()).run().unwrap().index_name, "flat_2d");
    places.create_index(plane).run().expect("the same again is there already");
    let database = server.client().database("docs");
    let listed = database.run_cursor_command(doc! { "listIndexes": "places" }).run().unwrap();
    let listed: Vec<Document> = listed.map(|index| index.unwrap()).collect();
    assert_eq!(
        listed[1..],
        [
            doc! { "v": 2, "key": keys.clone(), "name": "kind_1_at_2dsphere", "2dsphereIndexVersion": 2 },
            doc! { "v": 2, "key": { "flat": "2d" }, "name": "flat_2d", "bits": 20, "min": -10.0, "max": 10.0 },
        ]
    );
    let again = |keys: Document| places.create_index(IndexModel::builder().keys(keys).build()).run();
    assert_eq!(code(&again(doc! { "at": "3d" }).unwrap_err()), 67);
    database.run_command(doc! { "dropIndexes": "places", "index": keys }).run().unwrap();
    places.drop_index("flat_2d").run().unwrap();
    assert_eq!(places.list_index_names().run().unwrap(), ["_id_"]);
}

#[test]
fn what_is_no_geometry_does_not_get_into_an_index() {
    let server = TestServer::start(3);
    let places = server.collection("places");
    create(&places, doc! { "at": "2dsphere" });
    let bad = doc! { "_id": 1, "at": { "type": "Point", "coordinates": [0, 91] } };
    let error = places.insert_one(bad).run().unwrap_err();
    assert_eq!(code(&error), 16755);
    assert!(error.to_string().contains("longitude/latitude is out of bounds, lng: 0 lat: 91"), "{error}");
    places.insert_one(doc! { "_id": 2, "at": [1, 2] }).run().unwrap();
    let moved = places.update_one(doc! { "_id": 2 }, doc! { "$set": { "at": "Rome" } }).run().unwrap_err();
    assert_eq!(code(&moved), 16755);
    // an index over what is there already
    let others = server.collection("others");
    others.insert_many((0..9).map(|n| doc! { "_id": n, "at": n })).run().unwrap();
    let index = IndexModel::builder().keys(doc! { "at": "2dsphere" }).build();
    assert_eq!(code(&others.create_index(index).run().unwrap_err()), 16755);
    assert_eq!(others.list_index_names().run().unwrap(), ["_id_"]);
}

#[test]
fn a_transaction_searches_what_it_wrote() {
    let server = TestServer::start(3);
    let places = places(&server);
    create(&places, doc! { "at": "2dsphere" });
    let mut session = server.client().start_session().run().unwrap();
    let own = session.client().database("docs").collection::<Document>("places");
    session.start_transaction().run().unwrap();
    own.insert_one(doc! { "_id": 100, "at": [0.0, 10.1] }).session(&mut session).run().unwrap();
    own.delete_one(doc! { "_id": 10 }).session(&mut session).run().unwrap();
    let found = own.find_one(near(10.0, 9e9)).session(&mut session).run().unwrap().unwrap();
    assert_eq!(found.get_i32("_id").unwrap(), 100);
    assert_eq!(ids(places.find(near(10.0, 9e9)).limit(1).run().unwrap()), [10]);
    session.abort_transaction().run().unwrap();
    assert_eq!(ids(places.find(near(10.0, 9e9)).limit(1).run().unwrap()), [10]);
}

fn run(places: &Collection<Document>, stages: Vec<Document>) -> mongodb::error::Result<Vec<Document>> {
    places.aggregate(stages).run()?.collect()
}

#[test]
fn a_pipeline_begins_with_distances() {
    let server = TestServer::start(4);
    let places = places(&server);
    let at = |lat: f64| doc! { "type": "Point", "coordinates": [0.0, lat] };
    let stage = |options: Document| {
        let mut geo_near = doc! { "near": at(3.25), "distanceField": "d.m" };
        geo_near.extend(options);
        doc! { "$geoNear": geo_near }
    };
    assert_eq!(code(&run(&places, vec![stage(doc! {})]).unwrap_err()), 27);
    create(&places, doc! { "at": "2dsphere" });
    let options = doc! { "query": { "even": true }, "maxDistance": 3.0 * DEGREE_M, "includeLocs": "place", "distanceMultiplier": 0.001 };
    let found = run(&places, vec![stage(options)]).unwrap();
    let found: Vec<(i32, f64, Bson)> = found
        .iter()
        .map(|doc| {
            let distance = doc.get_document("d").unwrap().get_f64("m").unwrap();
            (doc.get_i32("_id").unwrap(), distance * 1000.0 / DEGREE_M, doc.get("place").unwrap().clone())
        })
        .collect();
    let expected = [(4, 0.75), (2, 1.25), (6, 2.75)];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((id, distance, place), (expected_id, expected_distance)) in found.iter().zip(expected) {
        assert_eq!(*id, expected_id);
        assert!((distance - expected_distance).abs() < 1e-9, "{distance}");
        assert_eq!(*place, Bson::from(doc! { "type": "Point", "coordinates": [0, id] }));
    }
    let first = run(
        &places,
        vec![
            stage(doc! { "minDistance": DEGREE_M }),
            doc! { "$limit": 2 },
            doc! { "$project": { "_id": 1 } },
        ],
    );
    assert_eq!(first.unwrap(), [doc! { "_id": 2 }, doc! { "_id": 5 }]);
    let radians = doc! { "$geoNear": { "near": [0.0, 3.25], "spherical": true, "distanceField": "d", "maxDistance": 0.02 } };
    let radians = run(&places, vec![radians]).unwrap();
    assert_eq!(radians.len(), 2);
    assert!((radians[0].get_f64("d").unwrap() - 0.25_f64.to_radians()).abs() < 1e-12);
    let grouped = run(
        &places,
        vec![
            stage(doc! {}),
            doc! { "$group": { "_id": "$even", "nearest": { "$first": "$_id" } } },
            doc! { "$sort": { "_id": 1 } },
        ],
    );
    assert_eq!(grouped.unwrap(), [doc! { "_id": false, "nearest": 3 }, doc! { "_id": true, "nearest": 4 }]);

    let not_first = vec![doc! { "$match": {} }, stage(doc! {})];
    assert_eq!(code(&run(&places, not_first).unwrap_err()), 40602);
    assert_eq!(code(&run(&places, vec![doc! { "$match": near(1.0, 1.0) }]).unwrap_err()), 5_626_500);
    let facet = vec![doc! { "$facet": { "a": [stage(doc! {})] } }];
    assert_eq!(code(&run(&places, facet).unwrap_err()), 40600);
    assert_eq!(code(&places.count_documents(near(1.0, 1.0)).run().unwrap_err()), 5_626_500);
    assert_eq!(run(&server.collection("none"), vec![stage(doc! {})]).unwrap(), Vec::<Document>::new());
    // another index, and it has to be said which
    create(&places, doc! { "home": "2dsphere" });
    assert_eq!(code(&run(&places, vec![stage(doc! {})]).unwrap_err()), 27);
    assert_eq!(run(&places, vec![stage(doc! { "key": "at" })]).unwrap().len(), 40);
}

#[test]
fn plans_are_those_of_the_index() {
    let server = TestServer::start(2);
    let places = places(&server);
    create(&places, doc! { "at": "2dsphere" });
    let database = server.client().database("docs");
    let explained = |command: Document| {
        let reply =
            database.run_command(doc! { "explain": command, "verbosity": "executionStats" }).run().unwrap();
        let stats = reply.get_document("executionStats").unwrap().clone();
        let plan = reply.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap().clone();
        (plan, stats)
    };
    let (plan, stats) = explained(doc! { "find": "places", "filter": near(3.0, 1000.0), "limit": 1 });
    let inner = plan.get_document("inputStage").unwrap();
    assert_eq!(inner.get_str("stage").unwrap(), "GEO_NEAR_2DSPHERE");
    assert_eq!(inner.get_str("indexName").unwrap(), "at_2dsphere");
    assert_eq!(stats.get_i64("nReturned").unwrap(), 1);
    assert!(stats.get_i64("totalDocsExamined").unwrap() <= 2, "{stats}");
    let small = doc! { "at": { "$geoWithin": { "$centerSphere": [[0, 3], 0.01] } } };
    let (plan, stats) = explained(doc! { "find": "places", "filter": small });
    assert_eq!(plan.get_str("stage").unwrap(), "FETCH");
    assert_eq!(plan.get_document("inputStage").unwrap().get_str("stage").unwrap(), "IXSCAN");
    assert!(stats.get_i64("totalDocsExamined").unwrap() < 10, "{stats}");
    let pipeline = vec![
        doc! { "$geoNear": { "near": { "type": "Point", "coordinates": [0, 0] }, "distanceField": "d" } },
    ];
    let command = doc! { "explain": { "aggregate": "places", "pipeline": pipeline, "cursor": {} } };
    let reply = database.run_command(command).run().unwrap();
    assert!(reply.to_string().contains("GEO_NEAR_2DSPHERE"), "{reply}");
}
