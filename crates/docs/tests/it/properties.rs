//! Properties of random documents, filters and updates. A failure prints the smallest case and its seed.

use std::collections::BTreeMap;

use bson::{Bson, Document, RawDocumentBuf, doc};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tidemill_docs::{
    BsonDocument, Collation, CollectionSpec, Direction, DocBytes, Filter, FindOptions, IndexSpec, SortOrder,
    Store, StoreLimits, Update,
};
use tidemill_types::{Timestamp, Value};

fn bytes(doc: &Document) -> DocBytes {
    bson::serialize_to_vec(doc).unwrap().into()
}

fn raw(doc: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(doc).unwrap()
}

fn scalar() -> impl Strategy<Value = Bson> + Clone {
    prop_oneof![
        4 => (-2..4_i32).prop_map(Bson::Int32),
        2 => (-2..4_i64).prop_map(Bson::Int64),
        2 => (-4..8_i32).prop_map(|n| Bson::Double(f64::from(n) / 2.0)),
        2 => select(vec!["", "a", "b", "ab", "a\0"]).prop_map(Bson::from),
        1 => Just(Bson::Null),
        1 => any::<bool>().prop_map(Bson::Boolean),
        1 => (0..3_i64).prop_map(|n| Bson::DateTime(bson::DateTime::from_millis(n))),
        1 => select(vec![Bson::Double(f64::NAN), Bson::MinKey, Bson::MaxKey, Bson::Int64(i64::MAX), Bson::Int32(i32::MAX)]),
        1 => select(vec!["0.5", "1", "-1.50", "NaN", "9223372036854775807"]).prop_map(|t| Bson::Decimal128(t.parse().unwrap())),
    ]
}

fn value() -> impl Strategy<Value = Bson> + Clone {
    scalar().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            fields(inner).prop_map(Bson::Document),
        ]
    })
}

fn fields(value: impl Strategy<Value = Bson> + Clone) -> impl Strategy<Value = Document> + Clone {
    prop::collection::vec((select(vec!["a", "b", "c", "0"]), value), 0..4)
        .prop_map(|f| f.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
}

fn documents() -> impl Strategy<Value = Vec<Document>> {
    prop::collection::vec(fields(value()), 0..25).prop_map(|docs| {
        let with_id = |(i, d): (usize, Document)| {
            let mut doc = doc! { "_id": i as i32 };
            doc.extend(d);
            doc
        };
        docs.into_iter().enumerate().map(with_id).collect()
    })
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(select(vec!["a", "b", "c", "0", "1"]), 1..4).prop_map(|parts| parts.join("."))
}

fn condition() -> impl Strategy<Value = Bson> + Clone {
    let op = select(vec!["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]);
    prop_oneof![
        2 => value(),
        4 => (op.clone(), value()).prop_map(|(op, v)| doc! { op: v }.into()),
        2 => (scalar(), scalar()).prop_map(|(a, b)| doc! { "$gte": a, "$lt": b }.into()),
        1 => prop::collection::vec(scalar(), 0..4).prop_map(|v| doc! { "$in": v }.into()),
        1 => any::<bool>().prop_map(|b| doc! { "$exists": b }.into()),
        1 => (0..3_i32).prop_map(|n| doc! { "$size": n }.into()),
        1 => (op, scalar()).prop_map(|(op, v)| doc! { "$elemMatch": { op: v } }.into()),
    ]
}

fn filter() -> impl Strategy<Value = Document> {
    let short = select(vec!["a", "b", "a.b", "_id", "a.0", "c"]);
    let one = prop::collection::vec((short, condition()), 0..3)
        .prop_map(|f| f.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Document>());
    (one.clone(), one, 0..4).prop_map(|(a, b, shape)| match shape {
        0 => doc! { "$and": [a, b] },
        1 => doc! { "$or": [a, b] },
        _ => a,
    })
}

fn store(docs: &[Document], indexes: &[IndexSpec]) -> Store {
    let mut store = Store::new(StoreLimits::default());
    store.create_collection(&CollectionSpec::new("c")).unwrap();
    let c = store.collection_mut("c").unwrap();
    for index in indexes {
        c.create_index(index.clone()).unwrap();
    }
    for doc in docs {
        // parallel arrays cannot be indexed; such documents are left out of both stores
        let _ = c.insert(bytes(doc));
    }
    store
}

fn indexes() -> Vec<IndexSpec> {
    let index = |fields: &[(&str, Direction)]| IndexSpec {
        name: format!("{fields:?}"),
        fields: fields.iter().map(|(p, d)| ((*p).to_owned(), *d)).collect(),
        ..IndexSpec::default()
    };
    let (up, down) = (Direction::Ascending, Direction::Descending);
    vec![
        index(&[("a", up), ("_id", up)]),
        index(&[("a", down), ("b", up), ("_id", down)]),
        index(&[("b", down)]),
        index(&[("a.b", up)]),
        index(&[("a.0", up), ("a.b", down)]),
        index(&[("a.b", up), ("a", up), ("b", up)]),
        IndexSpec { sparse: true, ..index(&[("b", up), ("a", down)]) },
        IndexSpec { hashed: Some("b".into()), ..index(&[("b", up)]) },
        IndexSpec { hashed: Some("a".into()), ..index(&[("b", up), ("a", up)]) },
        index(&[("$**", up)]),
        index(&[("a.$**", down)]),
        IndexSpec {
            partial_filter: Some(BsonDocument::new(&bson::rawdoc! { "b": { "$gt": 0 } })),
            ..index(&[("a", up)])
        },
    ]
}

/// Collations in which some of the strings below are equal that differ in others.
fn collations() -> Vec<RawDocumentBuf> {
    vec![
        bson::rawdoc! { "locale": "simple" },
        bson::rawdoc! { "locale": "en", "strength": 1 },
        bson::rawdoc! { "locale": "en", "strength": 2 },
        bson::rawdoc! { "locale": "sv" },
    ]
}

fn collated_indexes() -> Vec<IndexSpec> {
    let mut all = Vec::new();
    for collation in collations() {
        let collation =
            Collation::parse(&collation).unwrap().map(|collation| BsonDocument::new(collation.document()));
        for index in indexes().into_iter().take(10) {
            let name = format!("{} {collation:?}", index.name);
            all.push(IndexSpec { name, collation: collation.clone(), ..index });
        }
    }
    all
}

fn lettered_value() -> impl Strategy<Value = Bson> + Clone {
    let text = select(vec!["", "a", "A", "á", "Ä", "b", "B", "ab", "AB", "a b", "z", "a\0", "å"]);
    let text = text.prop_map(Bson::from);
    prop_oneof![
        6 => text.clone(),
        1 => (0..3_i32).prop_map(Bson::Int32),
        1 => Just(Bson::Null),
        1 => text.clone().prop_map(|text| doc! { "b": text }.into()),
        1 => prop::collection::vec(text, 0..3).prop_map(Bson::Array),
    ]
}

fn lettered_documents() -> impl Strategy<Value = Vec<Document>> {
    let fields = (lettered_value(), lettered_value()).prop_map(|(a, b)| doc! { "a": a, "b": b });
    prop::collection::vec(fields, 0..25).prop_map(|docs| {
        let with_id = |(i, fields): (usize, Document)| {
            let mut doc = doc! { "_id": i as i32 };
            doc.extend(fields);
            doc
        };
        docs.into_iter().enumerate().map(with_id).collect()
    })
}

fn lettered_filter() -> impl Strategy<Value = Document> {
    let op = select(vec!["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]);
    let condition = prop_oneof![
        4 => (op, lettered_value()).prop_map(|(op, v)| doc! { op: v }),
        2 => (lettered_value(), lettered_value()).prop_map(|(a, b)| doc! { "$gte": a, "$lt": b }),
        2 => prop::collection::vec(lettered_value(), 0..4).prop_map(|v| doc! { "$in": v }),
    ];
    prop::collection::vec((select(vec!["a", "b", "a.b"]), condition), 1..3)
        .prop_map(|fields| fields.into_iter().map(|(path, c)| (path.to_owned(), Bson::from(c))).collect())
}

fn ids(docs: &[DocBytes]) -> Vec<i32> {
    docs.iter().map(|d| bson::RawDocument::from_bytes(d).unwrap().get_i32("_id").unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_finds_what_a_scan_finds(docs in documents(), chosen in subsequence(indexes(), 0..=3), filters in prop::collection::vec(filter(), 1..6)) {
        let indexed = store(&docs, &chosen);
        let indexed = indexed.collection("c").unwrap();
        // documents that could not be indexed are left out
        let kept: Vec<Document> = indexed.iter().map(|d| Document::try_from(bson::RawDocument::from_bytes(d).unwrap()).unwrap()).collect();
        let plain = store(&kept, &[]);
        let plain = plain.collection("c").unwrap();
        let up = SortOrder::default().then("a", Direction::Ascending).then("_id", Direction::Ascending);
        let down = SortOrder::default().then("a", Direction::Descending).then("b", Direction::Ascending).then("_id", Direction::Descending);
        let back = SortOrder::default().then("a", Direction::Ascending).then("b", Direction::Descending).then("_id", Direction::Ascending);
        for filter in &filters {
            let parsed = Filter::parse(&raw(filter)).unwrap();
            let mut found = ids(&indexed.find(&parsed, &FindOptions::default()).unwrap());
            found.sort_unstable();
            let expected = ids(&plain.find(&parsed, &FindOptions::default()).unwrap());
            prop_assert_eq!(&found, &expected, "{} by {}", filter, indexed.explain(&parsed, &SortOrder::default()));
            prop_assert_eq!(indexed.count(&parsed).unwrap(), expected.len() as u64);
            for sort in [&up, &down, &back] {
                let options = FindOptions { sort: sort.clone(), skip: 1, limit: Some(7), ..FindOptions::default() };
                let found = ids(&indexed.find(&parsed, &options).unwrap());
                let expected = ids(&plain.find(&parsed, &options).unwrap());
                prop_assert_eq!(found, expected, "{} by {}", filter, indexed.explain(&parsed, sort));
            }
        }
    }

    #[test]
    fn an_index_with_a_collation_finds_what_a_scan_finds(
        docs in lettered_documents(),
        chosen in subsequence(collated_indexes(), 0..=3),
        filters in prop::collection::vec(lettered_filter(), 1..6),
        locale in select(collations()),
    ) {
        let collation = Collation::parse(&locale).unwrap();
        let indexed = store(&docs, &chosen);
        let indexed = indexed.collection("c").unwrap();
        prop_assert_eq!(indexed.check_indexes(), Vec::<String>::new());
        // documents that could not be indexed are left out
        let kept: Vec<Document> = indexed.iter().map(|d| Document::try_from(bson::RawDocument::from_bytes(d).unwrap()).unwrap()).collect();
        let plain = store(&kept, &[]);
        let plain = plain.collection("c").unwrap();
        let order = SortOrder::default().then("a", Direction::Descending).then("b", Direction::Ascending);
        let order = order.then("_id", Direction::Ascending).with_collation(collation.clone());
        for filter in &filters {
            let parsed = Filter::parse_by(&raw(filter), collation.as_ref()).unwrap();
            let mut found = ids(&indexed.find(&parsed, &FindOptions::default()).unwrap());
            found.sort_unstable();
            let expected = ids(&plain.find(&parsed, &FindOptions::default()).unwrap());
            prop_assert_eq!(&found, &expected, "{} by {}", filter, indexed.explain(&parsed, &SortOrder::default()));
            prop_assert_eq!(indexed.count(&parsed).unwrap(), expected.len() as u64);
            let options = FindOptions { sort: order.clone(), limit: Some(5), ..FindOptions::default() };
            let found = ids(&indexed.find(&parsed, &options).unwrap());
            prop_assert_eq!(found, ids(&plain.find(&parsed, &options).unwrap()), "{} by {}", filter, indexed.explain(&parsed, &order));
        }
    }

    #[test]
    fn find_by_finds_what_equality_finds(docs in documents(), chosen in subsequence(indexes(), 0..=3), path in path(), value in value()) {
        let store = store(&docs, &chosen);
        let c = store.collection("c").unwrap();
        let holder = raw(&doc! { "v": value });
        let value = tidemill_docs::get_path(&holder, "v");
        let mut found: Vec<i32> = ids(&c.find_by(&path, &value).cloned().collect::<Vec<_>>());
        found.sort_unstable();
        let mut expected = ids(&c.find(&Filter::eq_value(&path, &value), &FindOptions::default()).unwrap());
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn updates_do_what_the_tree_model_does(doc in fields(value()), ops in prop::collection::vec((path(), change()), 1..4)) {
        let mut update = Update::new();
        for (path, change) in &ops {
            update = match change {
                Change::Set(v) => update.set(path, v.clone()),
                Change::Unset => update.unset(path),
                Change::Inc(n) => update.inc(path, *n),
                Change::Push(v) => update.push(path, v.clone()),
            };
        }
        let result = update.apply(&raw(&doc), Timestamp(0));
        if result.as_ref().is_err_and(|e| e.code() == 40) {
            return Ok(());
        }
        let mut sorted = ops.clone();
        sorted.sort_by_key(|(path, _)| path.split('.').map(|p| (p.parse::<u32>().map_or((1, 0), |n| (0, n)), p.to_owned())).collect::<Vec<_>>());
        let mut model = Bson::Document(doc);
        let model_result = sorted.iter().try_for_each(|(path, change)| {
            let parts: Vec<&str> = path.split('.').collect();
            change_at(&mut model, &parts, change)
        });
        match (result, model_result) {
            (Ok(after), Ok(())) => prop_assert_eq!(after, raw(model.as_document().unwrap())),
            (Err(_), Err(())) => {}
            (found, expected) => prop_assert!(false, "{found:?} where the model has {expected:?} {model}"),
        }
    }

    #[test]
    fn a_store_is_a_map_and_survives_its_checkpoint(steps in prop::collection::vec((0..12_i32, 0..4, fields(value())), 0..80)) {
        let mut store = store(&[], &indexes()[..1]);
        let mut model: BTreeMap<i32, DocBytes> = BTreeMap::new();
        let c = store.collection_mut("c").unwrap();
        for (id, kind, fields) in steps {
            let mut doc = doc! { "_id": id };
            doc.extend(fields);
            let doc = bytes(&doc);
            match kind {
                0 | 1 => prop_assert_eq!(c.insert(doc.clone()).is_ok(), model.insert(id, doc.clone()).is_none_or(|old| { model.insert(id, old); false })),
                2 => {
                    let replaced = c.replace(doc.clone()).unwrap();
                    prop_assert_eq!(replaced.before.as_ref(), model.get(&id));
                    if let Some(old) = model.get_mut(&id) { *old = doc; }
                }
                _ => prop_assert_eq!(c.delete_by_id(&Value::Int(id.into())).unwrap(), model.remove(&id)),
            }
            prop_assert_eq!(c.get(&Value::Float(f64::from(id))), model.get(&id));
        }
        prop_assert_eq!(c.len(), model.len());
        let mut saved = Vec::new();
        store.snapshot().write_to(&mut saved).unwrap();
        let loaded = Store::read_from(&mut saved.as_slice(), StoreLimits::default()).unwrap();
        prop_assert_eq!(loaded.bytes(), store.bytes());
        prop_assert_eq!(loaded.collection("c").unwrap().documents(), store.collection("c").unwrap().documents());
    }
}

#[derive(Debug, Clone)]
enum Change {
    Set(Bson),
    Unset,
    Inc(i32),
    Push(Bson),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => value().prop_map(Change::Set),
        2 => Just(Change::Unset),
        2 => (-2..3_i32).prop_map(Change::Inc),
        1 => value().prop_map(Change::Push),
    ]
}

/// Applies a change to a decoded tree, as a simple model of updates.
fn change_at(here: &mut Bson, parts: &[&str], change: &Change) -> Result<(), ()> {
    let creates = !matches!(change, Change::Unset);
    let (name, rest) = parts.split_first().unwrap();
    match here {
        Bson::Document(d) => match d.get_mut(*name) {
            Some(inner) if !rest.is_empty() => change_at(inner, rest, change),
            None if !creates => Ok(()),
            None if !rest.is_empty() => {
                let mut made = Bson::Document(doc! {});
                change_at(&mut made, rest, change)?;
                d.insert(*name, made);
                Ok(())
            }
            old => match changed(old.map(|o| &*o), change)? {
                Some(new) => {
                    d.insert(*name, new);
                    Ok(())
                }
                None => {
                    d.remove(*name);
                    Ok(())
                }
            },
        },
        Bson::Array(a) => {
            let Ok(at) = name.parse::<usize>() else {
                return if creates { Err(()) } else { Ok(()) };
            };
            if at >= a.len() {
                if !creates {
                    return Ok(());
                }
                a.resize(at, Bson::Null);
                a.push(Bson::Undefined);
                if rest.is_empty() {
                    a[at] = changed(None, change)?.unwrap();
                } else {
                    a[at] = Bson::Document(doc! {});
                    change_at(&mut a[at], rest, change)?;
                }
                return Ok(());
            }
            if rest.is_empty() {
                a[at] = changed(Some(&a[at]), change)?.unwrap_or(Bson::Null);
                return Ok(());
            }
            change_at(&mut a[at], rest, change)
        }
        _ if creates => Err(()),
        _ => Ok(()),
    }
}

fn changed(old: Option<&Bson>, change: &Change) -> Result<Option<Bson>, ()> {
    Ok(Some(match (change, old) {
        (Change::Set(v), _) => v.clone(),
        (Change::Unset, _) => return Ok(None),
        (Change::Inc(n), None) => Bson::Int32(*n),
        (Change::Inc(n), Some(Bson::Int32(old))) => {
            old.checked_add(*n).map_or(Bson::Int64(i64::from(*old) + i64::from(*n)), Bson::Int32)
        }
        (Change::Inc(n), Some(Bson::Int64(old))) => Bson::Int64(old.checked_add((*n).into()).ok_or(())?),
        (Change::Inc(n), Some(Bson::Double(old))) => Bson::Double(old + f64::from(*n)),
        (Change::Inc(n), Some(Bson::Decimal128(old))) => Bson::Decimal128(decimal_sum(&old.to_string(), *n)),
        (Change::Inc(_), Some(_)) => return Err(()),
        (Change::Push(v), None) => Bson::Array(vec![v.clone()]),
        (Change::Push(v), Some(Bson::Array(old))) => Bson::Array(old.iter().chain([v]).cloned().collect()),
        (Change::Push(_), Some(_)) => return Err(()),
    }))
}

/// Adds to a decimal that [`value`] makes.
fn decimal_sum(old: &str, n: i32) -> bson::Decimal128 {
    if old == "NaN" {
        return old.parse().unwrap();
    }
    let (whole, fraction) = old.split_once('.').unwrap_or((old, ""));
    let unscaled: i128 = format!("{whole}{fraction}").parse().unwrap();
    let sum = unscaled + i128::from(n) * 10_i128.pow(fraction.len() as u32);
    format!("{sum}E-{}", fraction.len()).parse().unwrap()
}
