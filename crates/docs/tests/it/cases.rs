//! Cases as text: documents, an operation, its result.
//!
//! A file in `tests/cases` is a list of paragraphs. `docs` starts a new collection with the documents below
//! it (and may have a definition: `docs {"shard_key": "k", "options": {…}}`); every other paragraph is one operation and its
//! expected result after `=>`:
//!
//! - `find FILTER [OPTIONS]` documents, or an error; options are `sort`, `projection`, `skip`, `limit`
//! - `ids FILTER [OPTIONS]` their ids in one line
//! - `update FILTER UPDATE [OPTIONS]` the outcome, and the documents that matched before as they are now
//! - `replace FILTER DOCUMENT [OPTIONS]` likewise; `insert DOCUMENT`, `delete FILTER [OPTIONS]` the outcome
//! - `modify FILTER CHANGE [OPTIONS]` the document before and after; `CHANGE` may be `"remove"`, options are `sort`, `upsert`
//! - `eval EXPRESSION` its value on each document, one in a line; `-` for no value
//! - `index SPEC`, `drop_index NAME` `ok` or the error
//! - `explain FILTER [SORT]` the plan; `stages FILTER [OPTIONS]`, `count_stages FILTER` the plan as MongoDB shows it
//! - `all` every document; `collation DOCUMENT` the collation with all of its options
//! - `change CHANGE` changes the definition, `expire` deletes what has expired; `unvalidated DOCUMENT` inserts it anyway
//!
//! Options may have a `collation`, as may the second argument of `eval` and the third of `explain`.
//!
//! Values are Extended JSON; results write long integers as `$numberLong` and doubles with a dot. Run with
//! `UPDATE_CASES=1` to write the actual results into the files, then read the difference.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use bson::{Bson, Document, RawDocumentBuf, doc};
use bytes::Bytes;
use tidemill_docs::{
    BsonDocument, Collation, CollectionChange, CollectionSpec, CommandOutcome, DocBytes, DocsError,
    DocumentCommand, ExplainQuery, Expression, Filter, FindOptions, IndexSpec, Modification, Projection,
    SortOrder, Store, StoreLimits, Variables,
};
use tidemill_types::Timestamp;

const NOW: Timestamp = Timestamp(1_357_035_420_000_000);

#[test]
fn cases() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let update = std::env::var_os("UPDATE_CASES").is_some();
    let (mut count, mut failures) = (0, String::new());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut runner = Runner { store: Store::new(StoreLimits::default()) };
        let mut out = Vec::new();
        for paragraph in text.trim().split("\n\n") {
            let (result, is_case) = runner.paragraph(paragraph);
            count += usize::from(is_case);
            if result.trim_end() != paragraph.trim_end() && !update {
                writeln!(failures, "{}:\nexpected\n{paragraph}\nfound\n{result}\n", file.display()).unwrap();
            }
            out.push(result);
        }
        if update {
            fs::write(&file, out.join("\n\n") + "\n").unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}\nUPDATE_CASES=1 writes what was found into the files");
    assert!(count >= 150, "only {count} cases");
}

struct Runner {
    store: Store,
}

impl Runner {
    /// Returns the paragraph with its actual result, and whether it is a case.
    fn paragraph(&mut self, text: &str) -> (String, bool) {
        let comments: Vec<&str> = text.lines().take_while(|l| l.starts_with('#')).collect();
        let body: Vec<&str> =
            text.lines().skip(comments.len()).take_while(|l| !l.starts_with("=>")).collect();
        let mut kept = comments.join("\n");
        if !comments.is_empty() && !body.is_empty() {
            kept.push('\n');
        }
        kept.push_str(&body.join("\n"));
        let Some((first, rest)) = body.split_first() else {
            return (kept, false);
        };
        let (op, args) = first.split_once(' ').unwrap_or((first, ""));
        if op == "docs" {
            self.start(&values(args), rest);
            return (kept, false);
        }
        let result =
            self.operation(op, &values(&format!("{args} {}", rest.join(" ")))).unwrap_or_else(|e| error(&e));
        let result: Vec<String> = result.lines().map(|l| format!("=> {l}")).collect();
        let result = if result.is_empty() { "=> nothing".to_owned() } else { result.join("\n") };
        (format!("{kept}\n{result}"), true)
    }

    fn start(&mut self, args: &[Bson], docs: &[&str]) {
        self.store = Store::new(StoreLimits::default());
        let mut spec = CollectionSpec::new("c");
        if let Some(Bson::Document(options)) = args.first() {
            spec.shard_key = options.get_str("shard_key").ok().map(str::to_owned);
            if let Some(options) = options.get("options") {
                spec.options = bson::deserialize_from_bson(options.clone()).unwrap();
            }
        }
        self.store.create_collection(&spec).unwrap();
        for doc in docs {
            let [value] = values(doc).try_into().unwrap();
            self.store
                .collection_mut("c")
                .unwrap()
                .insert(bytes(&value))
                .unwrap_or_else(|e| panic!("{doc}: {e}"));
        }
    }

    fn operation(&mut self, op: &str, args: &[Bson]) -> Result<String, DocsError> {
        let empty = Bson::Document(doc! {});
        let arg = |i: usize| args.get(i).unwrap_or(&empty);
        let options = |i: usize| arg(i).as_document().unwrap().clone();
        let collection = "c".to_owned();
        // the options are the last argument; without a collation there, it is that of the collection
        let given = args.last().and_then(|last| last.as_document()?.get_document("collation").ok());
        let given = given.map(|given| BsonDocument::new(&RawDocumentBuf::try_from(given).unwrap()));
        let by = match &given {
            Some(given) => Collation::parse(given.as_raw())?,
            None => self.store.collection("c").unwrap().collation().cloned(),
        };
        let by = by.as_ref();
        match op {
            "collation" => {
                let parsed = Collation::parse(document(&bytes(arg(0))))?;
                Ok(parsed.map_or("simple".to_owned(), |parsed| {
                    lines(&[parsed.document().as_bytes().to_vec().into()])
                }))
            }
            "find" | "ids" => {
                let filter = filter(arg(0), by)?;
                let options = find_options(&options(1), &filter, by)?;
                let found = self.store.collection("c").unwrap().find(&filter, &options)?;
                Ok(if op == "ids" { ids(&found) } else { lines(&found) })
            }
            "all" => Ok(lines(&self.store.collection("c").unwrap().documents())),
            "update" => {
                let o = options(2);
                let before = self
                    .store
                    .collection("c")
                    .unwrap()
                    .find(&filter(arg(0), by)?, &FindOptions::default())?;
                let command = DocumentCommand::Update {
                    collection,
                    filter: bytes(arg(0)),
                    update: bytes(arg(1)),
                    multi: o.get_bool("multi").unwrap_or(false),
                    upsert: o.get_bool("upsert").unwrap_or(false),
                    upsert_id: o.get_object_id("upsert_id").ok(),
                };
                let outcome = self.apply(&command.with_collation(given))?;
                Ok(outcome + &self.again(&before))
            }
            "replace" => {
                let o = options(2);
                let before = self
                    .store
                    .collection("c")
                    .unwrap()
                    .find(&filter(arg(0), by)?, &FindOptions::default())?;
                let command = DocumentCommand::Replace {
                    collection,
                    filter: bytes(arg(0)),
                    doc: bytes(arg(1)),
                    upsert: o.get_bool("upsert").unwrap_or(false),
                    upsert_id: o.get_object_id("upsert_id").ok(),
                };
                let outcome = self.apply(&command.with_collation(given))?;
                Ok(outcome + &self.again(&before))
            }
            "insert" => {
                let ordered = args.last() != Some(&Bson::String("unordered".into()));
                let docs = args.iter().filter(|a| a.as_document().is_some()).map(bytes).collect();
                self.apply(&DocumentCommand::Insert { collection, docs, ordered })
            }
            "modify" => {
                let o = options(2);
                let change = match arg(1) {
                    Bson::Document(change)
                        if change.keys().next().is_some_and(|name| name.starts_with('$')) =>
                    {
                        Modification::Update(bytes(arg(1)))
                    }
                    Bson::Document(_) => Modification::Replace(bytes(arg(1))),
                    _ => Modification::Remove,
                };
                let command = DocumentCommand::FindAndModify {
                    collection,
                    filter: bytes(arg(0)),
                    sort: o.get("sort").map(bytes),
                    change,
                    upsert: o.get_bool("upsert").unwrap_or(false),
                    upsert_id: None,
                };
                let command = command.with_collation(given);
                let outcome = self.store.apply(&DocumentCommand::from_bytes(&command.to_bytes()?)?, NOW)?;
                let shown = |document: Option<DocBytes>| match document {
                    Some(document) => lines(&[document]),
                    None => "-\n".to_owned(),
                };
                Ok(shown(outcome.before) + &shown(outcome.after))
            }
            "eval" => {
                let wrapped = RawDocumentBuf::try_from(&doc! { "e": arg(0).clone() }).unwrap();
                let expression = Expression::parse_with(
                    wrapped.get("e").unwrap().unwrap(),
                    &Variables { collation: by.cloned(), ..Variables::default() },
                )?;
                let mut text = String::new();
                for document in self.store.collection("c").unwrap().documents() {
                    match expression.eval(bson::RawDocument::from_bytes(&document).unwrap()) {
                        Ok(None) => text.push_str("-\n"),
                        Ok(Some(value)) => {
                            // shown as a field, so that all values look as they do in documents
                            let line = lines(&[bytes(&Bson::Document(doc! { "v": value }))]);
                            let line = line
                                .trim()
                                .strip_prefix("{\"v\":")
                                .and_then(|line| line.strip_suffix('}'))
                                .unwrap();
                            writeln!(text, "{}", line.trim()).unwrap();
                        }
                        Err(e) => writeln!(text, "{}", error(&e)).unwrap(),
                    }
                }
                Ok(text)
            }
            "delete" => {
                let multi = options(1).get_bool("multi").unwrap_or(false);
                let delete = DocumentCommand::Delete { collection, filter: bytes(arg(0)), multi };
                self.apply(&delete.with_collation(given))
            }
            "index" => {
                let index: IndexSpec = bson::deserialize_from_bson(arg(0).clone()).unwrap();
                self.apply(&DocumentCommand::CreateIndex { collection, index })
            }
            "change" => {
                let change: CollectionChange = bson::deserialize_from_bson(arg(0).clone()).unwrap();
                self.apply(&DocumentCommand::Modify { collection, change })
            }
            "expire" => self.apply(&DocumentCommand::Expire { collection }),
            "unvalidated" => {
                let insert = DocumentCommand::Insert { collection, docs: vec![bytes(arg(0))], ordered: true };
                self.apply(&insert.without_validation())
            }
            "drop_index" => self
                .apply(&DocumentCommand::DropIndex { collection, name: arg(0).as_str().unwrap().to_owned() }),
            "explain" => {
                let sort = SortOrder::parse_query(&RawDocumentBuf::try_from(&options(1)).unwrap())?;
                let sort = sort.with_collation(by.cloned());
                Ok(self.store.collection("c").unwrap().explain(&filter(arg(0), by)?, &sort).to_string())
            }
            "stages" | "count_stages" => {
                let (options, filter_document) = (options(1), bytes(arg(0)));
                let raw = |name: &str| {
                    options.get_document(name).ok().map(|d| RawDocumentBuf::try_from(d).unwrap())
                };
                let projection = raw("projection");
                let filter = filter(arg(0), by)?;
                let query = ExplainQuery {
                    filter: &filter,
                    options: &find_options(&options, &filter, by)?,
                    filter_document: document(&filter_document),
                    sort_document: &raw("sort").unwrap_or_default(),
                    projection_document: projection.as_deref(),
                    counts: op == "count_stages",
                };
                let found = self.store.collection("c").unwrap().explain_query(&query, true)?;
                let (returned, keys, docs) = (found.returned, found.keys_examined, found.docs_examined);
                let counts = format!("returned {returned} keys {keys} documents {docs}");
                Ok(lines(&[found.winning_plan.into_bytes().into()]) + &counts)
            }
            other => panic!("unknown operation {other:?}"),
        }
    }

    /// Applies a command after encoding and decoding it.
    fn apply(&mut self, command: &DocumentCommand) -> Result<String, DocsError> {
        let command = DocumentCommand::from_bytes(&command.to_bytes()?)?;
        let outcome = self.store.apply(&command, NOW)?;
        Ok(show_outcome(&outcome))
    }

    /// Formats the current versions of the documents, or the last document if there were none.
    fn again(&self, before: &[DocBytes]) -> String {
        let c = self.store.collection("c").unwrap();
        let docs: Vec<DocBytes> = if before.is_empty() {
            c.iter().last().cloned().into_iter().collect()
        } else {
            before
                .iter()
                .filter_map(|d| c.get(&tidemill_docs::get_path(document(d), "_id")).cloned())
                .collect()
        };
        lines(&docs)
    }
}

fn document(bytes: &DocBytes) -> &bson::RawDocument {
    bson::RawDocument::from_bytes(bytes).unwrap()
}

fn filter(value: &Bson, by: Option<&Collation>) -> Result<Filter, DocsError> {
    Filter::parse_by(document(&bytes(value)), by)
}

fn find_options(
    options: &Document,
    filter: &Filter,
    by: Option<&Collation>,
) -> Result<FindOptions, DocsError> {
    let raw = |name: &str| options.get_document(name).ok().map(|d| RawDocumentBuf::try_from(d).unwrap());
    Ok(FindOptions {
        bounds: None,
        natural: None,
        sort: raw("sort")
            .map(|d| SortOrder::parse_query(&d))
            .transpose()?
            .unwrap_or_default()
            .with_collation(by.cloned()),
        projection: raw("projection")
            .map(|d| Projection::parse_for(&d, filter, &Variables::default()))
            .transpose()?,
        skip: options.get_i32("skip").unwrap_or(0) as u64,
        limit: options.get_i32("limit").ok().map(|n| n as u64),
    })
}

/// Parses a sequence of values.
fn values(text: &str) -> Vec<Bson> {
    serde_json::Deserializer::from_str(text)
        .into_iter::<Bson>()
        .map(|v| v.unwrap_or_else(|e| panic!("{text}: {e}")))
        .collect()
}

fn bytes(value: &Bson) -> Bytes {
    let doc = value.as_document().unwrap_or_else(|| panic!("expected a document, found {value}"));
    RawDocumentBuf::try_from(doc).unwrap().into_bytes().into()
}

fn error(e: &DocsError) -> String {
    format!("error {}: {e}", e.code())
}

fn show_outcome(outcome: &CommandOutcome) -> String {
    let mut text = String::new();
    for (name, n) in [
        ("inserted", outcome.inserted),
        ("matched", outcome.matched),
        ("modified", outcome.modified),
        ("deleted", outcome.deleted),
    ] {
        if n > 0 {
            write!(text, "{name} {n} ").unwrap();
        }
    }
    if let Some(id) = &outcome.upserted_id {
        write!(text, "upserted {} ", show(id)).unwrap();
    }
    let mut text = if text.is_empty() { "ok\n".to_owned() } else { text.trim_end().to_owned() + "\n" };
    for e in &outcome.errors {
        writeln!(text, "document {}: {}", e.index, error(&e.error)).unwrap();
    }
    text
}

fn lines(docs: &[DocBytes]) -> String {
    docs.iter().map(|d| show(&Bson::Document(Document::try_from(document(d)).unwrap())) + "\n").collect()
}

fn ids(docs: &[DocBytes]) -> String {
    let ids: Vec<String> =
        docs.iter().map(|d| show(Document::try_from(document(d)).unwrap().get("_id").unwrap())).collect();
    ids.join(" ")
}

/// Formats as Extended JSON that keeps types and the order of fields.
pub fn show(value: &Bson) -> String {
    match value {
        Bson::Document(d) => {
            let fields: Vec<String> = d
                .iter()
                .map(|(k, v)| format!("{}: {}", Bson::String(k.clone()).into_relaxed_extjson(), show(v)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        Bson::Array(a) => format!("[{}]", a.iter().map(show).collect::<Vec<_>>().join(", ")),
        Bson::Int64(_) => value.clone().into_canonical_extjson().to_string(),
        Bson::Double(x) if x.is_finite() => format!("{x:?}"),
        other => other.clone().into_relaxed_extjson().to_string(),
    }
}
