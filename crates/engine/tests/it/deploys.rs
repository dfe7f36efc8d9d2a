//! Edits of an app on a directory with data: the outcome of each kind of edit, and that none loses data, at
//! whatever step a crash occurs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidemill_engine::{App, ChangedQueries, Engine, crash_points};
use tidemill_types::{Field, FieldType, StreamSchema, event_json};

use crate::send;

/// Crashes simulated in every third edit. `TIDEMILL_DEPLOY_CRASHES=10` simulates that many in each, which
/// takes minutes.
const CRASHES: usize = 2;
/// Seed that selects the steps of the crashes. `TIDEMILL_DEPLOY_SEED` sets another one;
/// `TIDEMILL_DEPLOY_CASE` selects edits by title.
const SEED: u64 = 20;

const TOML: &str = "
name = \"shop\"
[vars]
limit = \"20\"
[settings]
partitions = 2
flush_interval = \"1h\"
checkpoint_interval = \"1h\"
";

const RULES: &str = "
event Order { id: string, customer: string, amount: double, note: string } key customer id id;
event Big { order: string, customer: string, amount: double } key customer;
event Audit { class: string, order: string, extra: object } key class;
event Scan { code: string, at: time } id code time at;
event Quiet { a: string, n: int } key a;
entity Customer key id index city;
entity Class key id replicated;
entity Nobody key id;
relation Order.who(): Customer by customer;
rule Count { when { o: Order(); c: o.who(); } then { update c.orders += 1; } }
rule BigOne {
  when { o: Order(amount >= 100); }
  then {
    emit Big { order: o.id, customer: o.customer, amount: o.amount };
    emit Audit { class: \"big\", order: o.id, extra: { a: 1 } };
  }
}
";

const WINDOWS: &str = "
@key('customer') define stream Order (id string, customer string, amount double);
@info(name='totals') from Order#window.length(5) select customer, sum(amount) as total insert into Totals;
";

const FILTERS: &str = "
@key('customer') define stream Order (id string, customer string, amount double);
@info(name='small') from Order[amount < ${limit}] select customer, id insert into Small;
";

/// Returns the files of the app that every edit starts from.
fn former_app() -> BTreeMap<String, String> {
    let files =
        [("app.toml", TOML), ("app.rules", RULES), ("filters.siddhi", FILTERS), ("windows.siddhi", WINDOWS)];
    files.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
}

const STREAMS: [&str; 6] = ["Order", "Big", "Audit", "Scan", "Totals", "Small"];
const COLLECTIONS: [&str; 3] = ["Customer", "Class", "Spare"];

/// Writes these files and reads the app.
fn read(root: &Path, name: &str, files: &BTreeMap<String, String>) -> Result<App, String> {
    let dir = root.join(name);
    for (file, text) in files {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    App::read(&dir, &[]).map_err(|e| e.to_string())
}

/// Reads the former app; it deploys even if the state of changed queries is lost.
fn read_former(root: &Path) -> App {
    let mut app = read(root, "former", &former_app()).unwrap();
    app.settings.changed_queries = ChangedQueries::Restart;
    app
}

fn orders(from: usize, n: usize) -> String {
    let order = |i: usize| {
        format!(
            "{{\"id\":\"o{i}\",\"customer\":\"c{}\",\"amount\":{},\"note\":\"n{i}\"}}\n",
            i % 4,
            (i % 6) * 30
        )
    };
    (from..from + n).map(order).collect()
}

fn scans(from: usize, n: usize) -> String {
    (from..from + n).map(|i| format!("{{\"code\":\"s{i}\",\"at\":\"2026-01-01T00:00:{i:02}Z\"}}\n")).collect()
}

/// Fills a directory by the former app: some of its data is in a checkpoint, the rest in the log only.
fn prepare(dir: &Path, app: App) {
    let engine = Engine::open(dir, Some(app)).unwrap();
    let insert = |collection: &str, documents: &[bson::Document]| {
        let docs = documents.iter().map(|d| bson::serialize_to_vec(d).unwrap().into()).collect();
        let command =
            tidemill_docs::DocumentCommand::Insert { collection: collection.into(), docs, ordered: true };
        let outcome = engine.write_documents(command, None).unwrap();
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    };
    let customer = |i: i32| {
        bson::doc! { "id": format!("c{i}"), "city": if i < 3 { "N" } else { "S" }, "mail": format!("m{i}"), "orders": 0 }
    };
    insert("Customer", &(0..4).map(customer).collect::<Vec<_>>());
    insert("Class", &[bson::doc! { "id": "big" }]);
    insert("Spare", &[bson::doc! { "_id": "x", "id": "x", "site": "A" }]);
    send(&engine, "Order", &orders(0, 12));
    send(&engine, "Scan", &scans(0, 5));
    engine.wait_idle();
    engine.checkpoint().unwrap();
    send(&engine, "Order", &orders(12, 12));
    send(&engine, "Scan", &scans(5, 5));
    engine.wait_idle();
    engine.abandon();
}

/// Returns the facts that no deploy may change: stored events with their values, the ledger, documents.
fn facts(engine: &Engine) -> String {
    engine.flush().unwrap();
    let mut text = String::new();
    let ledgers: BTreeMap<_, _> = [engine.streams().unwrap(), engine.former_streams().unwrap()]
        .concat()
        .into_iter()
        .map(|s| (s.schema.name.clone(), s))
        .collect();
    for stream in STREAMS {
        let values = stored(engine, stream);
        let counts = ledgers.get(stream).map(|s| (s.ledger.received, s.ledger.stored, s.rows_in_table));
        writeln!(text, "{stream} {counts:?} {} {values:?}", values.len()).unwrap();
    }
    for collection in COLLECTIONS {
        let documents = engine.collection_documents(collection).unwrap().unwrap_or_default();
        let mut documents: Vec<String> = documents
            .iter()
            .map(|doc| bson::Document::from_reader(doc.as_ref()).unwrap().to_string())
            .collect();
        documents.sort();
        writeln!(text, "{collection} {documents:?}").unwrap();
    }
    text
}

/// Returns the fields of the former app in each stored event.
fn stored(engine: &Engine, stream: &str) -> Vec<String> {
    let fields = ["id", "customer", "amount", "note", "order", "class", "extra", "code", "at", "total"];
    let snapshot = engine.table_snapshot(stream).unwrap().unwrap_or_else(|| panic!("no table {stream}"));
    assert!(snapshot.tail.is_empty());
    let mut rows = Vec::new();
    for tablet in snapshot.tablets.iter() {
        let file = fs::File::open(Path::new("/").join(tablet.path.as_ref())).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        for batch in reader.map(Result::unwrap) {
            let schema = as_written(stream, &batch);
            rows.extend((0..batch.num_rows()).map(|row| {
                let mut event = event_json(&schema, &batch, row);
                event.retain(|field, _| fields.contains(&field.as_str()));
                serde_json::Value::from(event).to_string()
            }));
        }
    }
    rows.sort();
    rows
}

/// Returns the stream schema of a file's own columns, independent of any app.
fn as_written(name: &str, batch: &RecordBatch) -> StreamSchema {
    let schema = batch.schema();
    let own = schema.fields().iter().position(|f| f.name() == "_time").unwrap();
    let types =
        ["bool", "int", "long", "float", "double", "string", "time"].map(|t| FieldType::parse(t).unwrap());
    let fields = schema.fields()[..own].iter().map(|f| {
        let ty = types.iter().find(|ty| ty.arrow() == *f.data_type());
        Field::new(f.name().clone(), *ty.unwrap())
    });
    StreamSchema { name: name.to_owned(), fields: fields.collect(), key: None, id: vec![], time: None }
}

/// Returns a number below `n`, derived from the other arguments.
fn below(n: usize, from: (u64, u64, usize)) -> usize {
    let mut hash = DefaultHasher::new();
    from.hash(&mut hash);
    (hash.finish() % n as u64) as usize
}

/// Edit: its title, the changes of files, and the expected outcome.
struct Case {
    title: String,
    edits: Vec<String>,
    outcome: String,
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for paragraph in text.trim().split("\n\n") {
        let mut lines = paragraph.lines().skip_while(|l| l.starts_with('#'));
        let title = lines.next().expect("a case has a title").to_owned();
        let (outcome, edits): (Vec<&str>, Vec<&str>) = lines.partition(|l| l.starts_with("=> "));
        let edits = edits.into_iter().map(str::to_owned).collect();
        cases.push(Case { title, edits, outcome: outcome.join("\n") });
    }
    cases
}

/// Applies `FILE: old ==> new`, `FILE: + text` or `FILE: -`. `\n` is a line break, `ROOT` a directory of the
/// case.
fn edit(files: &mut BTreeMap<String, String>, edit: &str) {
    let edit = edit.replace("\\n", "\n");
    let (file, what) = edit.split_once(": ").unwrap_or_else(|| panic!("{edit}: expected `FILE: …`"));
    if what == "-" {
        files.remove(file).unwrap_or_else(|| panic!("{edit}: no such file"));
    } else if let Some(text) = what.strip_prefix("+ ") {
        files.entry(file.to_owned()).or_default().push_str(&format!("{text}\n"));
    } else {
        let (old, new) = what.split_once(" ==> ").unwrap_or_else(|| panic!("{edit}: expected ` ==> `"));
        let text = files.get_mut(file).unwrap_or_else(|| panic!("{edit}: no such file"));
        assert!(text.contains(old), "{edit}: not in\n{text}");
        *text = text.replace(old, new);
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// Starting point of all edits.
struct Base {
    root: PathBuf,
    data: PathBuf,
    facts: String,
    crashes: Option<usize>,
    seed: u64,
}

impl Base {
    fn crashes(&self, edit: usize) -> usize {
        self.crashes.unwrap_or(if (edit as u64 + self.seed).is_multiple_of(3) { CRASHES } else { 0 })
    }
}

/// Deploys an edit with all its crashes and returns the outcome. Panics if data is lost.
fn try_edit(base: &Base, number: usize, case: &Case) -> String {
    let root = base.root.join(format!("case-{number}"));
    let data = root.join("data");
    copy_dir(&base.data, &data);
    let mut files = former_app();
    let root_text = root.display().to_string();
    case.edits.iter().for_each(|e| edit(&mut files, &e.replace("ROOT", &root_text)));
    let title = &case.title;
    let app = match read(&root, "app", &files) {
        Ok(app) => app,
        Err(e) => {
            // the list of known settings changes over time
            let (told, _) = e.split_once(", expected one of").unwrap_or((&e, ""));
            return said("refused", [told.replace(&root.display().to_string(), "ROOT")]);
        }
    };
    let new_rules = app.rules.clone();
    let former_rules = read_former(&root).rules;
    let crashes = Arc::new(Mutex::new(Vec::<(String, PathBuf)>::new()));
    let (from, to, wanted, images) = (data.clone(), root.clone(), base.crashes(number), crashes.clone());
    let mut step = 0;
    let (seed, case_number) = (base.seed, number as u64);
    let watcher = move |what: &str| {
        // reservoir sampling: each step is equally likely to be selected
        let mut kept = images.lock().unwrap();
        let place = if kept.len() < wanted { kept.len() } else { below(step + 1, (seed, case_number, step)) };
        step += 1;
        if place < wanted {
            let image = to.join(format!("crash-{place}"));
            let _ = fs::remove_dir_all(&image);
            copy_dir(&from, &image);
            kept.retain(|(_, known)| *known != image);
            kept.push((what.to_owned(), image));
        }
    };
    let opened = crash_points::watch(watcher, || Engine::open(&data, Some(app)));
    let (accepted, mut outcome) = match opened {
        Ok(engine) => {
            let report = &engine.recovery;
            let told =
                report.changes.iter().cloned().chain(report.warnings.iter().map(|w| format!("warning: {w}")));
            let told: Vec<String> = told.collect();
            engine.stop().unwrap();
            (true, said("accepted", told))
        }
        Err(e) => (false, said("refused", [e.to_string()])),
    };
    outcome =
        outcome.replace(&data.display().to_string(), "DATA").replace(&root.display().to_string(), "ROOT");
    outcome = without_offsets(&outcome);
    // the directory opens again, and with the former app it has all of its data
    let engine = Engine::open(&data, None).unwrap_or_else(|e| panic!("{title}: does not open again: {e}"));
    let runs = if accepted { &new_rules } else { &former_rules };
    assert_eq!(&engine.app().rules, runs, "{title}: the version that last worked");
    assert_eq!(facts(&engine), base.facts, "{title}: after the deploy");
    engine.stop().unwrap();
    drop(engine);
    let forgets = outcome.contains("its id is") || case.edits.iter().any(|e| e.contains("dedupe_ids"));
    back(base, &root, &data, forgets, &format!("{title}: back"));
    for (what, image) in crashes.lock().unwrap().drain(..) {
        let at = format!("{title}: after a crash before: {what}");
        let engine = Engine::open(&image, None).unwrap_or_else(|e| panic!("{at}: does not open: {e}"));
        let rules = &engine.app().rules;
        assert!(*rules == former_rules || accepted && *rules == new_rules, "{at}: neither app");
        assert_eq!(facts(&engine), base.facts, "{at}");
        engine.abandon();
        drop(engine);
        back(base, &root, &image, forgets, &at);
    }
    fs::remove_dir_all(&root).unwrap();
    outcome
}

/// Deploys the former app again: all its data and its remembered ids are there, unless the edit `forgets`
/// ids.
fn back(base: &Base, root: &Path, data: &Path, forgets: bool, at: &str) {
    let engine =
        Engine::open(data, Some(read_former(root))).unwrap_or_else(|e| panic!("{at}: former app: {e}"));
    assert_eq!(facts(&engine), base.facts, "{at}: former app");
    if !forgets {
        assert_eq!(send(&engine, "Order", &orders(0, 24)).duplicates, Some(24), "{at}: duplicates");
        assert_eq!(send(&engine, "Scan", &scans(0, 10)).duplicates, Some(10), "{at}: duplicates");
    }
    engine.abandon();
}

fn said(how: &str, lines: impl IntoIterator<Item = String>) -> String {
    let mut text = format!("=> {how}");
    for line in lines.into_iter().flat_map(|l| l.lines().map(str::to_owned).collect::<Vec<_>>()) {
        write!(text, "\n=>   {line}").unwrap();
    }
    text
}

#[test]
fn an_app_that_cannot_be_opened_gives_way_when_nothing_waits_for_it() {
    let root = tempfile::tempdir().unwrap();
    let (data, other) = (root.path().join("data"), root.path().join("other"));
    prepare(&data, read_former(root.path()));
    let mut files = former_app();
    edit(&mut files, "app.rules: note: string } ==> note: int }");
    let broken = read(root.path(), "broken", &files).unwrap();
    Engine::open(&other, Some(broken)).unwrap().stop().unwrap();
    let working = fs::read(data.join("app.json")).unwrap();
    fs::copy(other.join("app.json"), data.join("app.json")).unwrap();

    let refused = Engine::open(&data, Some(read_former(root.path()))).err().unwrap().to_string();
    assert!(refused.contains("belong to the deployed app") && refused.contains("`note`"), "{refused}");
    fs::write(data.join("app.json"), working).unwrap();
    let engine = Engine::open(&data, None).unwrap();
    let before = facts(&engine);
    engine.stop().unwrap();
    drop(engine);
    fs::copy(other.join("app.json"), data.join("app.json")).unwrap();
    assert!(Engine::open(&data, None).is_err());
    let engine = Engine::open(&data, Some(read_former(root.path()))).unwrap();
    assert!(
        engine.recovery.warnings.iter().any(|w| w.contains("has taken its place")),
        "{:?}",
        engine.recovery
    );
    assert_eq!(facts(&engine), before);
    engine.stop().unwrap();
    drop(engine);
    assert_eq!(facts(&Engine::open(&data, None).unwrap()), before);
}

/// A deploy leaves one checkpoint that the new app can read, and a copy of it.
#[test]
fn damage_after_a_deploy_never_brings_back_records_of_the_app_before() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    prepare(&data, read_former(root.path()));
    let mut files = former_app();
    edit(&mut files, "app.rules: amount >= 100 ==> amount >= 30");
    let changed = || read(root.path(), "app", &files).unwrap();
    let engine = Engine::open(&data, Some(changed())).unwrap();
    let before = facts(&engine);
    engine.abandon();
    drop(engine);
    let damage = |copy: bool| {
        for p in 0..2 {
            let dir = data.join(format!("checkpoints/p{p:05}"));
            let files = fs::read_dir(dir).unwrap().map(|f| f.unwrap().path());
            let mut files: Vec<_> = files
                .filter(|f| f.extension().is_some_and(|e| e == "ckpt"))
                .filter(|f| f.to_str().unwrap().ends_with("-copy.ckpt") == copy)
                .collect();
            files.sort();
            let newest = files.pop().unwrap();
            let mut bytes = fs::read(&newest).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(newest, bytes).unwrap();
        }
    };
    damage(false);
    let engine = Engine::open(&data, None).unwrap();
    assert_eq!(engine.recovery.records, 0);
    assert!(
        engine.recovery.warnings.iter().all(|w| w.contains("-copy.ckpt")),
        "{:?}",
        engine.recovery.warnings
    );
    assert_eq!(engine.recovery.warnings.len(), 2);
    assert_eq!(facts(&engine), before);
    engine.abandon();
    drop(engine);
    damage(true);
    let error = Engine::open(&data, None).err().unwrap().to_string();
    assert!(error.contains("what lies before it belongs to an earlier app"), "{error}");
}

/// An event without a key but with an id stays in its partition, whatever the queries want, because its ids
/// are remembered there.
#[test]
fn new_queries_do_not_let_duplicates_in() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let app = |name: &str, queries: &str| {
        let rules = "event Scan { code: string } id code;\nevent Scanned { code: string } id code;";
        let toml = "[settings]\npartitions = 4\nflush_interval = \"1h\"\ncheckpoint_interval = \"1h\"\n";
        let files = [("app.rules", rules), ("app.toml", toml), ("q.siddhi", queries)];
        let files = files.map(|(file, text)| (file.to_owned(), text.to_owned()));
        read(root.path(), name, &files.into()).unwrap()
    };
    let window = |stream: &str| {
        format!(
            "define stream {stream} (code string); from {stream}#window.length(2) select code, count() as n insert into Seen;"
        )
    };
    let scans: String = (0..20).map(|i| format!("{{\"code\":\"s{i}\"}}\n")).collect();
    let first = Engine::open(&data, Some(app("one", &window("Scanned")))).unwrap();
    send(&first, "Scan", &scans);
    send(&first, "Scanned", &scans);
    first.stop().unwrap();
    drop(first);
    let mut restart = app("two", &window("Scan"));
    restart.settings.changed_queries = ChangedQueries::Restart;
    let second = Engine::open(&data, Some(restart)).unwrap();
    for stream in ["Scan", "Scanned"] {
        assert_eq!(send(&second, stream, &scans).duplicates, Some(20), "{stream}");
    }
    send(&second, "Scan", "{\"code\":\"new\"}");
    second.wait_idle();
    second.flush().unwrap();
    assert_eq!(
        second.table_snapshot("Seen").unwrap().unwrap().tablets.iter().map(|t| t.rows).sum::<u64>(),
        21
    );
}

/// Removes the offsets from names of checkpoints: the newest checkpoint depends on timing.
fn without_offsets(outcome: &str) -> String {
    let (named, last) =
        outcome.rsplit_once(".ckpt").map_or((None, outcome), |(named, last)| (Some(named), last));
    let named = named.into_iter().flat_map(|named| named.split(".ckpt"));
    let named =
        named.map(|part| part.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned() + "OFFSET.ckpt");
    named.collect::<String>() + last
}

#[test]
fn edits_are_done_or_refused_and_lose_nothing() {
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().unwrap());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/deploys.txt");
    let text = fs::read_to_string(&file).unwrap();
    let all = cases(&text);
    let root = tempfile::tempdir().unwrap();
    let mut base = Base {
        root: root.path().to_owned(),
        data: root.path().join("data"),
        facts: String::new(),
        crashes: number("TIDEMILL_DEPLOY_CRASHES").map(|n| n as usize),
        seed: number("TIDEMILL_DEPLOY_SEED").unwrap_or(SEED),
    };
    println!("TIDEMILL_DEPLOY_SEED={}", base.seed);
    prepare(&base.data, read_former(root.path()));
    let look = root.path().join("look");
    copy_dir(&base.data, &look);
    let engine = Engine::open(&look, None).unwrap();
    base.facts = facts(&engine);
    drop(engine);
    assert!(base.facts.contains("Order Some((24, 24, 24)) 24"), "{}", base.facts);

    let (base, next, results) = (&base, AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let only = std::env::var("TIDEMILL_DEPLOY_CASE").ok();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get().min(4)) {
            scope.spawn(|| {
                while let Some((number, case)) = all.get(next.fetch_add(1, Ordering::Relaxed)).map(|c| {
                    let number = all.iter().position(|other| std::ptr::eq(other, c)).unwrap();
                    (number, c)
                }) {
                    if only.as_ref().is_none_or(|only| case.title.contains(only)) {
                        results.lock().unwrap().insert(number, try_edit(base, number, case));
                    }
                }
            });
        }
    });
    let results = results.into_inner().unwrap();
    let mut new = text.clone();
    let mut failures = String::new();
    for (number, outcome) in &results {
        let case = &all[*number];
        if case.outcome != *outcome {
            writeln!(failures, "{}\nexpected\n{}\nfound\n{outcome}\n", case.title, case.outcome).unwrap();
            let head = format!("{}\n{}", case.title, case.edits.join("\n"));
            let old =
                if case.outcome.is_empty() { head.clone() } else { format!("{head}\n{}", case.outcome) };
            new = new.replace(&old, &format!("{head}\n{outcome}"));
        }
    }
    if std::env::var_os("UPDATE_CASES").is_some() {
        fs::write(&file, new).unwrap();
        return;
    }
    assert!(failures.is_empty(), "{failures}\nUPDATE_CASES=1 writes what was found into the file");
    assert!(all.len() >= 40, "only {} edits", all.len());
}
