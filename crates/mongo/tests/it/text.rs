//! Text indexes, searches for words, and scores.

use mongodb::IndexModel;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{IndexOptions, TextIndexVersion};
use mongodb::sync::Collection;

use crate::{TestServer, code};

fn articles(server: &TestServer) -> Collection<Document> {
    let articles = server.collection("articles");
    let subjects =
        ["coffee", "Coffee Shopping", "Baking a cake", "baking", "Café Con Leche", "coffee and cream"];
    let documents =
        subjects.iter().zip(1..).map(|(subject, id)| doc! { "_id": id, "subject": subject, "n": id % 2 });
    articles.insert_many(documents).run().unwrap();
    articles
}

fn index(articles: &Collection<Document>, keys: Document) -> mongodb::error::Result<String> {
    let made = articles.create_index(IndexModel::builder().keys(keys).build()).run()?;
    Ok(made.index_name)
}

fn search(words: &str) -> Document {
    doc! { "$text": { "$search": words } }
}

fn ids(found: impl Iterator<Item = mongodb::error::Result<Document>>) -> Vec<i32> {
    found.map(|doc| doc.unwrap().get_i32("_id").unwrap()).collect()
}

fn score() -> Document {
    doc! { "$meta": "textScore" }
}

#[test]
fn words_are_found_over_all_partitions() {
    for partitions in [1, 4] {
        let server = TestServer::start(partitions);
        let articles = articles(&server);
        assert_eq!(code(&articles.find(search("coffee")).run().unwrap_err()), 27);
        assert_eq!(code(&articles.count_documents(search("coffee")).run().unwrap_err()), 27);
        assert_eq!(code(&articles.distinct("n", search("coffee")).run().unwrap_err()), 27);
        assert_eq!(code(&articles.delete_many(search("coffee")).run().unwrap_err()), 27);
        assert_eq!(code(&articles.delete_one(search("coffee")).run().unwrap_err()), 27);
        let set = doc! { "$set": { "n": 5 } };
        assert_eq!(code(&articles.update_one(search("coffee"), set.clone()).run().unwrap_err()), 27);
        assert_eq!(code(&articles.find_one_and_update(search("coffee"), set).run().unwrap_err()), 27);
        assert_eq!(index(&articles, doc! { "subject": "text" }).unwrap(), "subject_text");
        let mut found = ids(articles.find(search("coffees cakes -shop")).run().unwrap());
        found.sort_unstable();
        assert_eq!(found, [1, 3, 6]);
        let best = articles
            .find(search("coffee"))
            .sort(doc! { "s": score(), "_id": 1 })
            .projection(doc! { "s": score() });
        let best: Vec<Document> = best.run().unwrap().map(|doc| doc.unwrap()).collect();
        assert_eq!(
            best,
            [
                doc! { "_id": 1, "subject": "coffee", "n": 1, "s": 1.0 },
                doc! { "_id": 2, "subject": "Coffee Shopping", "n": 0, "s": 0.75 },
                doc! { "_id": 6, "subject": "coffee and cream", "n": 0, "s": 0.75 },
            ]
        );
        let page = articles.find(search("coffee")).sort(doc! { "s": score(), "_id": -1 }).skip(1).limit(1);
        assert_eq!(ids(page.run().unwrap()), [6]);
        assert_eq!(articles.count_documents(search("coffee")).run().unwrap(), 3);
        let updated =
            articles.update_many(search("\"con leche\""), doc! { "$set": { "subject": "tea" } }).run();
        assert_eq!(updated.unwrap().modified_count, 1);
        let first = articles
            .find_one_and_update(search("coffee"), doc! { "$inc": { "n": 10 } })
            .sort(doc! { "s": score() });
        assert_eq!(first.run().unwrap().unwrap().get_i32("_id").unwrap(), 1);
        assert_eq!(articles.delete_one(search("shop")).run().unwrap().deleted_count, 1);

        let server = server.restart();
        let articles = server.collection("articles");
        let mut found = ids(articles.find(search("coffee tea")).run().unwrap());
        found.sort_unstable();
        assert_eq!(found, [1, 5, 6]);
    }
}

fn run(articles: &Collection<Document>, stages: Vec<Document>) -> mongodb::error::Result<Vec<Document>> {
    articles.aggregate(stages).run()?.collect()
}

#[test]
fn pipelines_know_the_score() {
    let server = TestServer::start(4);
    let articles = articles(&server);
    index(&articles, doc! { "subject": "text" }).unwrap();
    let find = || doc! { "$match": search("coffee") };
    let first = doc! { "_id": 1, "s": 1.0 };
    let second = doc! { "_id": 2, "s": 0.75 };
    let third = doc! { "_id": 6, "s": 0.75 };
    let order = doc! { "$sort": { "s": score(), "_id": 1 } };
    let only_score = || doc! { "$project": { "s": score() } };

    let sorted = run(&articles, vec![find(), order.clone(), doc! { "$limit": 2 }, only_score()]).unwrap();
    assert_eq!(sorted, [first.clone(), second.clone()]);
    // the score stays beside a document that has lost its words
    let late = vec![find(), doc! { "$project": { "n": 1 } }, order.clone(), only_score()];
    assert_eq!(run(&articles, late).unwrap(), [first.clone(), second.clone(), third.clone()]);
    let added = vec![
        find(),
        doc! { "$addFields": { "s": score(), "all": "$$ROOT" } },
        doc! { "$match": { "s": { "$lt": 1 } } },
        doc! { "$sort": { "_id": 1 } },
    ];
    let added = run(&articles, added).unwrap();
    assert_eq!(
        added[0],
        doc! { "_id": 2, "subject": "Coffee Shopping", "n": 0, "s": 0.75, "all": { "_id": 2, "subject": "Coffee Shopping", "n": 0 } }
    );
    let grouped =
        doc! { "$group": { "_id": "$n", "sum": { "$sum": score() }, "all": { "$push": "$$ROOT" } } };
    let grouped = run(&articles, vec![find(), grouped, doc! { "$sort": { "_id": 1 } }]).unwrap();
    assert_eq!(grouped[0].get_f64("sum").unwrap(), 1.5);
    assert_eq!(grouped[1], doc! { "_id": 1, "sum": 1.0, "all": [{ "_id": 1, "subject": "coffee", "n": 1 }] });
    // without a question for it nothing changes
    assert_eq!(
        run(&articles, vec![find(), doc! { "$sort": { "_id": 1 } }]).unwrap()[0],
        doc! { "_id": 1, "subject": "coffee", "n": 1 }
    );

    let not_first = vec![doc! { "$match": {} }, find()];
    assert_eq!(code(&run(&articles, not_first).unwrap_err()), 17313);
    assert_eq!(code(&run(&articles, vec![doc! { "$facet": { "a": [find()] } }]).unwrap_err()), 17313);
    assert_eq!(code(&run(&articles, vec![doc! { "$match": {} }, only_score()]).unwrap_err()), 40218);
    assert_eq!(code(&run(&articles, vec![order.clone()]).unwrap_err()), 40218);
    let behind = vec![find(), doc! { "$group": { "_id": "$n" } }, order];
    assert_eq!(code(&run(&articles, behind).unwrap_err()), 40218);
    assert_eq!(
        code(&run(&server.collection("none"), vec![find()]).err().unwrap_or_else(|| {
            articles.find(search("x")).sort(doc! { "s": { "$meta": "x" } }).run().unwrap_err()
        })),
        2
    );
}

#[test]
fn an_index_is_described_as_it_was_made() {
    let server = TestServer::start(2);
    let articles = server.collection("articles");
    let options = IndexOptions::builder()
        .weights(doc! { "title": 10, "body": 2.5 })
        .default_language("german".to_owned())
        .language_override("sprache".to_owned())
        .text_index_version(TextIndexVersion::V3)
        .build();
    let keys = doc! { "shop": 1, "title": "text", "$**": "text" };
    let model = IndexModel::builder().keys(keys).options(options).build();
    assert_eq!(articles.create_index(model.clone()).run().unwrap().index_name, "shop_1_title_text_$**_text");
    articles.create_index(model).run().expect("the same again is there already");
    let database = server.client().database("docs");
    let list = || -> Vec<Document> {
        let listed = database.run_cursor_command(doc! { "listIndexes": "articles" }).run().unwrap();
        listed.map(|index| index.unwrap()).collect()
    };
    let described = doc! {
        "v": 2, "key": { "shop": 1, "_fts": "text", "_ftsx": 1 }, "name": "shop_1_title_text_$**_text",
        "weights": { "$**": 1, "body": 2.5, "title": 10 }, "default_language": "german", "language_override": "sprache",
        "textIndexVersion": 3,
    };
    assert_eq!(list()[1], described);
    // what is listed can be made again, as dump and restore do
    articles.drop_index("shop_1_title_text_$**_text").run().unwrap();
    database.run_command(doc! { "createIndexes": "articles", "indexes": [described.clone()] }).run().unwrap();
    assert_eq!(list()[1], described);
    assert_eq!(code(&index(&articles, doc! { "other": "text" }).unwrap_err()), 67);
    assert_eq!(
        code(&index(&server.collection("x"), doc! { "a": "text", "b": 1, "c": "text" }).unwrap_err()),
        67
    );
    assert_eq!(code(&articles.find(search("x")).run().unwrap_err()), 291);
    articles.insert_one(doc! { "shop": "a", "body": "Die Häuser" }).run().unwrap();
    let found = articles.find_one(doc! { "shop": "a", "$text": { "$search": "Haus" } }).run().unwrap();
    assert!(found.is_some());
    let unknown = articles.insert_one(doc! { "shop": "a", "sprache": "klingon" }).run().unwrap_err();
    assert_eq!(code(&unknown), 17262);
}

#[test]
fn a_transaction_searches_what_it_wrote() {
    let server = TestServer::start(3);
    let articles = articles(&server);
    index(&articles, doc! { "subject": "text" }).unwrap();
    let mut session = server.client().start_session().run().unwrap();
    let own = session.client().database("docs").collection::<Document>("articles");
    session.start_transaction().run().unwrap();
    own.insert_one(doc! { "_id": 100, "subject": "coffee house" }).session(&mut session).run().unwrap();
    own.delete_one(doc! { "_id": 1 }).session(&mut session).run().unwrap();
    let mut found = own.find(search("coffee")).session(&mut session).run().unwrap();
    let mut seen = Vec::new();
    while let Some(doc) = found.next(&mut session) {
        seen.push(doc.unwrap().get_i32("_id").unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, [2, 6, 100]);
    session.abort_transaction().run().unwrap();
    assert_eq!(articles.find_one(search("house")).run().unwrap(), None);
}

#[test]
fn the_plan_is_that_of_the_index() {
    let server = TestServer::start(2);
    let articles = articles(&server);
    index(&articles, doc! { "subject": "text" }).unwrap();
    let command = doc! { "explain": { "find": "articles", "filter": search("cakes -tea \"a cake\"") }, "verbosity": "executionStats" };
    let reply = server.client().database("docs").run_command(command).run().unwrap();
    let plan = reply.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    assert_eq!(plan.get_str("stage").unwrap(), "TEXT_MATCH");
    assert_eq!(
        plan.get_document("parsedTextQuery").unwrap(),
        &doc! { "terms": ["cake"], "negatedTerms": ["tea"], "phrases": ["a cake"], "negatedPhrases": [] }
    );
    let stats = reply.get_document("executionStats").unwrap();
    assert_eq!(stats.get("totalDocsExamined").unwrap(), &Bson::Int64(1));
}
