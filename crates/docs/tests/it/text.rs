//! Properties of random texts: an index finds what the documents say. A failure prints the smallest case and its seed.

use bson::{Bson, Document, RawDocumentBuf, doc};
use proptest::prelude::*;
use proptest::sample::select;
use tidemill_docs::{
    CollectionSpec, Direction, DocBytes, DocumentCommand, Filter, FindOptions, IndexSpec, SortOrder, Store,
    StoreLimits, TextIndexSpec,
};
use tidemill_types::Timestamp;

fn bytes(doc: &Document) -> DocBytes {
    bson::serialize_to_vec(doc).unwrap().into()
}

fn words() -> impl Strategy<Value = String> + Clone {
    let word = select(vec![
        "dog", "Dogs", "the", "running", "run", "Käse", "kase", "l'eau", "a-b", "cats", "häuser",
    ]);
    prop::collection::vec(word, 0..6).prop_map(|words| words.join(" "))
}

fn fields() -> impl Strategy<Value = Document> + Clone {
    let language = select(vec![None, None, Some("german"), Some("none"), Some("fr")]);
    (words(), words(), language, 0..3_i32).prop_map(|(a, b, language, k)| {
        let mut doc = doc! { "a": a, "b": [{ "c": b }], "k": k };
        doc.extend(language.map(|language| ("language".to_owned(), Bson::from(language))));
        doc
    })
}

fn documents() -> impl Strategy<Value = Vec<Document>> {
    prop::collection::vec(fields(), 0..25).prop_map(|docs| {
        let with_id = |(id, fields): (usize, Document)| {
            let mut doc = doc! { "_id": id as i32 };
            doc.extend(fields);
            doc
        };
        docs.into_iter().enumerate().map(with_id).collect()
    })
}

fn index(weights: &[(&str, f64)], prefix: Option<&str>) -> IndexSpec {
    let fields = prefix.into_iter().chain(["_fts", "_ftsx"]);
    IndexSpec {
        name: "text".into(),
        fields: fields.map(|path| (path.to_owned(), Direction::Ascending)).collect(),
        text: Some(TextIndexSpec {
            weights: weights.iter().map(|(path, weight)| ((*path).to_owned(), *weight)).collect(),
            ..TextIndexSpec::default()
        }),
        ..IndexSpec::default()
    }
}

fn search() -> impl Strategy<Value = Document> {
    let part =
        (select(vec!["", "-", "\"", "-\""]), words()).prop_map(|(mark, words)| match mark.ends_with('"') {
            true => format!("{mark}{words}\""),
            false => format!("{mark}{words}"),
        });
    let options = (any::<bool>(), any::<bool>(), select(vec![None, None, Some("none"), Some("de")]));
    (prop::collection::vec(part, 1..4), options).prop_map(|(parts, (case, diacritics, language))| {
        let mut search =
            doc! { "$search": parts.join(" "), "$caseSensitive": case, "$diacriticSensitive": diacritics };
        search.extend(language.map(|language| ("$language".to_owned(), Bson::from(language))));
        search
    })
}

fn ids(docs: &[DocBytes]) -> Vec<i32> {
    docs.iter().map(|d| bson::RawDocument::from_bytes(d).unwrap().get_i32("_id").unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_finds_what_documents_say(
        docs in documents(),
        weights in select(vec![vec![("a", 1.0)], vec![("a", 3.0), ("b.c", 0.5)], vec![("$**", 1.0), ("b.c", 2.0)]]),
        prefix in any::<bool>(),
        searches in prop::collection::vec(search(), 1..4),
        changed in fields(),
    ) {
        let mut store = Store::new(StoreLimits::default());
        store.create_collection(&CollectionSpec::new("c")).unwrap();
        let c = store.collection_mut("c").unwrap();
        let (early, late) = docs.split_at(docs.len() / 2);
        early.iter().for_each(|doc| drop(c.insert(bytes(doc)).unwrap()));
        c.create_index(index(&weights, prefix.then_some("k"))).unwrap();
        late.iter().for_each(|doc| drop(c.insert(bytes(doc)).unwrap()));
        for (step, search) in searches.iter().enumerate() {
            let mut filter = doc! { "$text": search };
            if prefix {
                filter.insert("k", 1);
            }
            let filter = Filter::parse(&RawDocumentBuf::try_from(&filter).unwrap()).unwrap();
            let c = store.collection("c").unwrap();
            let order = bson::rawdoc! { "s": { "$meta": "textScore" }, "_id": 1 };
            let options = FindOptions { sort: SortOrder::parse_query(&order).unwrap(), ..FindOptions::default() };
            let found = c.find(&filter, &options).unwrap();
            // the filter knows the words by now
            let mut expected: Vec<(f64, i32)> = c
                .iter()
                .filter(|doc| filter.matches(bson::RawDocument::from_bytes(doc).unwrap()))
                .map(|doc| (filter.text_score(doc).unwrap().unwrap(), ids(std::slice::from_ref(doc))[0]))
                .collect();
            filter.check().unwrap();
            expected.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            prop_assert!(expected.iter().all(|(score, _)| *score > 0.0), "{:?}", expected);
            let expected: Vec<i32> = expected.into_iter().map(|(_, id)| id).collect();
            prop_assert_eq!(ids(&found), expected, "{} by {}", search, c.explain(&filter, &SortOrder::default()));
            prop_assert_eq!(c.count(&filter).unwrap(), found.len() as u64);
            let update = |id: i32, update: Document| DocumentCommand::Update {
                collection: "c".into(),
                filter: bytes(&doc! { "_id": id }),
                update: bytes(&update),
                multi: false,
                upsert: false,
                upsert_id: None,
            };
            let first = step as i32 * 4;
            for command in [
                DocumentCommand::Delete { collection: "c".into(), filter: bytes(&doc! { "_id": first }), multi: false },
                update(first + 1, doc! { "$set": changed.clone() }),
                // other words are the same terms in another language, and are found with another value before them
                update(first + 2, doc! { "$set": { "language": "none" } }),
                update(first + 3, doc! { "$set": { "k": 1 } }),
            ] {
                store.apply(&command, Timestamp(0)).unwrap();
            }
        }
        prop_assert_eq!(store.collection("c").unwrap().check_indexes(), Vec::<String>::new());
        let mut file = Vec::new();
        store.snapshot().write_to(&mut file).unwrap();
        let loaded = Store::read_from(&mut file.as_slice(), StoreLimits::default()).unwrap();
        prop_assert_eq!(loaded.bytes(), store.bytes());
    }
}
