//! Properties of random geometries: an index finds what a scan finds, and the nearest documents come first. A failure prints the
//! smallest case and its seed.

use bson::{Bson, Document, RawDocumentBuf, bson, doc};
use proptest::prelude::*;
use proptest::sample::select;
use tidemill_docs::{
    CollectionSpec, Direction, DocBytes, DocumentCommand, Filter, FindOptions, GeoIndexKind, GeoIndexSpec,
    IndexSpec, SortOrder, Store, StoreLimits,
};
use tidemill_types::Timestamp;

fn bytes(doc: &Document) -> DocBytes {
    bson::serialize_to_vec(doc).unwrap().into()
}

fn filter(doc: &Document) -> Filter {
    Filter::parse(&RawDocumentBuf::try_from(doc).unwrap()).unwrap()
}

fn index(kind: GeoIndexKind) -> IndexSpec {
    IndexSpec {
        name: "place".into(),
        fields: vec![("p".into(), Direction::Ascending)],
        geo: Some(GeoIndexSpec {
            kind,
            paths: vec!["p".into()],
            bits: None,
            min: None,
            max: None,
            version: None,
        }),
        ..IndexSpec::default()
    }
}

fn store(docs: &[Document], index: Option<IndexSpec>) -> Store {
    let mut store = Store::new(StoreLimits::default());
    store.create_collection(&CollectionSpec::new("c")).unwrap();
    let c = store.collection_mut("c").unwrap();
    // before and after the first half, so that entries come in both ways
    let (early, late) = docs.split_at(docs.len() / 2);
    for doc in early {
        c.insert(bytes(doc)).unwrap();
    }
    if let Some(index) = index {
        c.create_index(index).unwrap();
    }
    for doc in late {
        c.insert(bytes(doc)).unwrap();
    }
    store
}

/// Positions on a grid of half degrees around a few places, so that borders touch: the line of dates and a pole, too.
fn position() -> impl Strategy<Value = [f64; 2]> + Clone {
    let place = select(vec![[0.0, 0.0], [8.0, 47.0], [177.5, -17.0], [-179.5, -17.0], [30.0, 87.0]]);
    (place, 0..6_i32, 0..6_i32).prop_map(|([x, y], east, north)| {
        let x = x + f64::from(east) / 2.0;
        [if x > 180.0 { x - 360.0 } else { x }, y + f64::from(north) / 2.0]
    })
}

fn square([x, y]: [f64; 2], size: f64) -> Bson {
    let (east, north) = ((x + size).min(180.0), (y + size).min(90.0));
    bson!([[x, y], [east, y], [east, north], [x, north], [x, y]])
}

fn polygon() -> impl Strategy<Value = Bson> + Clone {
    (position(), 1..5_i32, any::<bool>()).prop_map(|(at, size, hole)| {
        let size = f64::from(size) / 2.0;
        let at = [at[0].min(179.0), at[1].min(89.0)];
        let mut loops = vec![square(at, size)];
        if hole && size > 1.0 {
            loops.push(square([at[0] + 0.25, at[1] + 0.25], 0.25));
        }
        bson!({ "type": "Polygon", "coordinates": loops })
    })
}

fn geometry() -> impl Strategy<Value = Bson> + Clone {
    let pair = |[x, y]: [f64; 2]| bson!([x, y]);
    prop_oneof![
        3 => position().prop_map(pair),
        3 => position().prop_map(move |at| bson!({ "type": "Point", "coordinates": pair(at) })),
        2 => (position(), 0..4_i32, 1..4_i32).prop_map(move |(at, east, north)| {
            let to = [(at[0] + f64::from(east) / 2.0).min(180.0), (at[1] - f64::from(north) / 2.0)];
            bson!({ "type": "LineString", "coordinates": [pair(at), pair(to)] })
        }),
        3 => polygon(),
        1 => (position(), polygon()).prop_map(move |(at, polygon)| {
            bson!({ "type": "GeometryCollection", "geometries": [{ "type": "Point", "coordinates": pair(at) }, polygon] })
        }),
    ]
}

fn documents(geometry: impl Strategy<Value = Bson>) -> impl Strategy<Value = Vec<Document>> {
    let value = prop_oneof![9 => geometry.prop_map(Some), 1 => Just(None)];
    prop::collection::vec(value, 0..30).prop_map(|values| {
        let document = |(id, value): (usize, Option<Bson>)| {
            let mut doc = doc! { "_id": id as i32 };
            doc.extend(value.map(|value| ("p".to_owned(), value)));
            doc
        };
        values.into_iter().enumerate().map(document).collect()
    })
}

fn condition() -> impl Strategy<Value = Document> {
    prop_oneof![
        (position(), 0..60_i32).prop_map(|([x, y], r)| {
            doc! { "$geoWithin": { "$centerSphere": [[x, y], f64::from(r) / 1000.0] } }
        }),
        polygon().prop_map(|area| doc! { "$geoWithin": { "$geometry": area } }),
        geometry()
            .prop_filter("GeoJSON", |value| value.as_document().is_some())
            .prop_map(|area| doc! { "$geoIntersects": { "$geometry": area } }),
        (position(), position()).prop_map(|([x, y], [u, v])| {
            doc! { "$geoWithin": { "$box": [[x, y], [u, v]] } }
        }),
        (position(), 0..8_i32).prop_map(|([x, y], r)| {
            doc! { "$geoWithin": { "$center": [[x, y], f64::from(r) / 2.0] } }
        }),
    ]
}

fn ids(docs: &[DocBytes]) -> Vec<i32> {
    docs.iter().map(|d| bson::RawDocument::from_bytes(d).unwrap().get_i32("_id").unwrap()).collect()
}

fn found(store: &Store, filter: &Filter, limit: Option<u64>) -> Vec<i32> {
    let options = FindOptions { limit, ..FindOptions::default() };
    ids(&store.collection("c").unwrap().find(filter, &options).unwrap())
}

fn sorted(mut ids: Vec<i32>) -> Vec<i32> {
    ids.sort_unstable();
    ids
}

fn round_trip(store: &Store) -> Store {
    let mut file = Vec::new();
    store.snapshot().write_to(&mut file).unwrap();
    Store::read_from(&mut file.as_slice(), StoreLimits::default()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_of_the_sphere_finds_what_a_scan_finds(docs in documents(geometry()), conditions in prop::collection::vec(condition(), 1..5), moved in geometry()) {
        let (mut indexed, mut plain) = (store(&docs, Some(index(GeoIndexKind::Sphere))), store(&docs, None));
        for (step, condition) in conditions.iter().enumerate() {
            let filter = filter(&doc! { "p": condition });
            let by = indexed.collection("c").unwrap().explain(&filter, &SortOrder::default()).to_string();
            prop_assert_eq!(sorted(found(&indexed, &filter, None)), sorted(found(&plain, &filter, None)), "{} by {}", condition, by);
            // one goes, one moves
            let commands = [
                DocumentCommand::Delete { collection: "c".into(), filter: bytes(&doc! { "_id": step as i32 * 3 }), multi: false },
                DocumentCommand::Update {
                    collection: "c".into(),
                    filter: bytes(&doc! { "_id": step as i32 * 3 + 1 }),
                    update: bytes(&doc! { "$set": { "p": moved.clone() } }),
                    multi: false,
                    upsert: false,
                    upsert_id: None,
                },
            ];
            for command in &commands {
                indexed.apply(command, Timestamp(0)).unwrap();
                plain.apply(command, Timestamp(0)).unwrap();
            }
        }
        prop_assert_eq!(indexed.collection("c").unwrap().check_indexes(), Vec::<String>::new());
        let again = round_trip(&indexed);
        let filter = filter(&doc! { "p": &conditions[0] });
        prop_assert_eq!(found(&again, &filter, None), found(&indexed, &filter, None));
    }

    #[test]
    fn an_index_of_the_plane_finds_what_a_scan_finds(docs in documents(position().prop_map(|[x, y]| bson!([x, y]))), conditions in prop::collection::vec(condition(), 1..5)) {
        let (indexed, plain) = (store(&docs, Some(index(GeoIndexKind::Plane))), store(&docs, None));
        for condition in &conditions {
            let filter = filter(&doc! { "p": condition });
            prop_assert_eq!(sorted(found(&indexed, &filter, None)), sorted(found(&plain, &filter, None)), "{}", condition);
        }
    }

    #[test]
    fn the_nearest_come_first(docs in documents(geometry()), [x, y] in position(), limit in 1..5_u64, max in 0..300_i32) {
        let store = store(&docs, Some(index(GeoIndexKind::Sphere)));
        let near = |max: f64| filter(&doc! { "p": { "$nearSphere": [x, y], "$maxDistance": max } });
        let all = near(4.0);
        let everything = found(&store, &all, None);
        prop_assert_eq!(everything.len(), docs.iter().filter(|doc| doc.contains_key("p")).count());
        let distance = |id: &i32| {
            let doc = docs.iter().find(|doc| doc.get_i32("_id").unwrap() == *id).unwrap();
            all.nearest(&bytes(doc)).unwrap().unwrap().0
        };
        let distances: Vec<f64> = everything.iter().map(distance).collect();
        prop_assert!(distances.is_sorted(), "{:?}", distances);
        let first = found(&store, &all, Some(limit));
        prop_assert_eq!(&first, &everything[..everything.len().min(limit as usize)]);
        let max = f64::from(max) / 1000.0;
        let within = everything.iter().filter(|id| distance(id) <= max).copied().collect::<Vec<_>>();
        prop_assert_eq!(found(&store, &near(max), None), within);
    }

    #[test]
    fn the_nearest_of_many_points_come_first(points in prop::collection::vec((-1.0..1.0_f64, -1.0..1.0_f64), 1..120), limit in 1..4_u64) {
        let docs: Vec<Document> =
            points.iter().zip(0..).map(|((x, y), id)| doc! { "_id": id, "p": [*x, *y] }).collect();
        for (kind, operator) in [(GeoIndexKind::Sphere, "$nearSphere"), (GeoIndexKind::Plane, "$nearSphere"), (GeoIndexKind::Plane, "$near")] {
            let store = store(&docs, Some(index(kind)));
            let near = filter(&doc! { "p": { operator: [0.1, 0.1] } });
            let everything = found(&store, &near, None);
            prop_assert_eq!(found(&store, &near, Some(limit)), &everything[..everything.len().min(limit as usize)], "{:?} {}", kind, operator);
        }
    }
}
