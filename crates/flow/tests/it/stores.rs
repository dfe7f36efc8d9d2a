//! Tables in other systems: what a store is asked for.

use std::sync::Arc;

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use tidemill_connect::{
    Catalog, OptionError, OptionSpec, Options, RefusedRow, StoreContext, StoreExpr, StoreMonitor, StoreType,
    StoreUpdate, TableStore, WritePosition,
};
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{
    Batch, Column, Connectors, EvalError, FieldType, Registry, Value, arrow as flow_arrow, replay,
};
use tidemill_types::{Error, Offset, PartitionId, Result, row_value};

/// Store that writes down its calls. Searches find the row `(key, 10)` for the first parameter `key`, unless that is
/// `none`; inserts of the key `bad` are refused; `down` interrupts.
#[derive(Clone, Default)]
struct Diary {
    calls: Arc<Mutex<Vec<String>>>,
    /// Begins each call of a table other than `T`.
    table: String,
    columns: Vec<(String, FieldType)>,
}

struct DiaryType(Diary);

impl StoreType for DiaryType {
    fn name(&self) -> &'static str {
        "diary"
    }

    fn summary(&self) -> &'static str {
        "Writes down its calls."
    }

    fn options(&self) -> &'static [OptionSpec] {
        const OPTIONS: &[OptionSpec] = &[
            OptionSpec::text("url", "Where it is.").required(),
            OptionSpec::text("table", "Name of the table there."),
        ];
        OPTIONS
    }

    fn table_option(&self) -> Option<&'static str> {
        Some("table")
    }

    fn create(&self, options: &Options, context: &StoreContext) -> Result<Box<dyn TableStore>, OptionError> {
        if context.table == "T" {
            assert_eq!((&context.primary_key, &context.indexes), (&vec![0], &vec![1]));
        }
        let table = match options.get("table").unwrap_or(&context.table) {
            "T" => String::new(),
            other => format!("{other} "),
        };
        let columns = context.schema.fields.iter().map(|field| (field.name.clone(), field.ty));
        Ok(Box::new(Diary { calls: self.0.calls.clone(), table, columns: columns.collect() }))
    }
}

impl Diary {
    fn note(&self, call: String, at: Option<WritePosition>) {
        let at = at.map_or(String::new(), |at| format!(" at {}/{}/{}", at.partition.0, at.offset.0, at.call));
        self.calls.lock().push(format!("{}{call}{at}", self.table));
    }
}

fn rows(batch: &RecordBatch) -> String {
    let row = |row: usize| {
        let value = |column| {
            let mut text = String::new();
            tidemill_connect::write_value(&row_value(batch, column, row), &mut text);
            text
        };
        format!("({})", (0..batch.num_columns()).map(value).collect::<Vec<_>>().join(" "))
    };
    (0..batch.num_rows()).map(row).collect::<Vec<_>>().join(" ")
}

fn expr(x: &StoreExpr) -> String {
    match x {
        StoreExpr::Column(n) => format!("c{n}"),
        StoreExpr::Parameter(n) => format!("${n}"),
        StoreExpr::Compare(op, a, b) => format!("({} {op:?} {})", expr(a), expr(b)),
        StoreExpr::Arithmetic(op, a, b) => format!("({} {op:?} {})", expr(a), expr(b)),
        StoreExpr::And(a, b) => format!("({} and {})", expr(a), expr(b)),
        StoreExpr::Or(a, b) => format!("({} or {})", expr(a), expr(b)),
        StoreExpr::Not(a) => format!("not {}", expr(a)),
        StoreExpr::IsNull(a) => format!("{} is null", expr(a)),
    }
}

fn key(batch: &RecordBatch, row: usize) -> String {
    match batch.num_columns() {
        0 => String::new(),
        _ => row_value(batch, 0, row).to_string().trim_matches('"').to_owned(),
    }
}

impl TableStore for Diary {
    fn find(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        _: Option<usize>,
    ) -> Result<RecordBatch> {
        let condition = condition.map_or("all".to_owned(), expr);
        self.note(format!("find {condition} {}", rows(parameters)), None);
        if self.columns.len() > 2 {
            let columns = self.columns.iter().map(|(_, ty)| Column::new(*ty)).collect();
            return flow_arrow::record_batch(columns, &self.columns);
        }
        let (mut k, mut v) = (Column::new(FieldType::String), Column::new(FieldType::Long));
        if key(parameters, 0) != "none" {
            k.push(Value::text(&key(parameters, 0)));
            v.push(Value::Long(10));
        }
        let attributes = vec![("k".to_owned(), FieldType::String), ("v".to_owned(), FieldType::Long)];
        flow_arrow::record_batch(vec![k, v], &attributes)
    }

    fn insert(&mut self, batch: &RecordBatch, at: Option<WritePosition>) -> Result<Vec<RefusedRow>> {
        self.note(format!("insert {}", rows(batch)), at);
        if (0..batch.num_rows()).any(|row| key(batch, row) == "down") {
            return Err(Error::unavailable("no connection"));
        }
        let bad = (0..batch.num_rows()).filter(|row| key(batch, *row) == "bad");
        Ok(bad.map(|row| RefusedRow { row, reason: "too bad".into() }).collect())
    }

    fn delete(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        let condition = condition.map_or("all".to_owned(), expr);
        self.note(format!("delete {condition} {}", rows(parameters)), at);
        Ok(vec![])
    }

    fn update(
        &mut self,
        change: &StoreUpdate,
        parameters: &RecordBatch,
        insert: Option<&RecordBatch>,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        let set: Vec<String> = change.set.iter().map(|(c, x)| format!("c{c}={}", expr(x))).collect();
        let insert = insert.map_or(String::new(), |batch| format!(" or insert {}", rows(batch)));
        let (on, given) = (expr(&change.condition), rows(parameters));
        self.note(format!("update {on} set {} {given}{insert}", set.join(" ")), at);
        Ok(vec![])
    }
}

fn registry(diary: &Diary) -> Registry {
    let mut catalog = Catalog::default();
    catalog.add_store(DiaryType(diary.clone()));
    let mut registry = Registry::standard();
    registry.set_connectors(Connectors::Catalog(Arc::new(catalog)));
    registry
}

fn app(queries: &str) -> String {
    app_with("@store(type='diary', url='x')", queries)
}

fn app_with(store: &str, queries: &str) -> String {
    format!(
        "define stream In (k string, v long);
         {store} @primaryKey('k') @index('v') define table T (k string, v long);
         {queries}"
    )
}

#[derive(Default)]
struct Seen(Vec<String>);

impl OutputHandler for Seen {
    fn events(&mut self, stream: &str, events: &Batch) {
        if stream == "Out" {
            for row in 0..events.len() {
                let values: Vec<String> = events.columns.iter().map(|c| c.get(row).to_string()).collect();
                self.0.push(format!("Out {}", values.join(" ")));
            }
        }
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, _: &str, failure: &EvalError) {
        let kind = if matches!(failure, EvalError::Interrupted(_)) { "interrupted" } else { "failed" };
        self.0.push(format!("{kind}: {failure}"));
    }
}

/// Sends events with these keys and the values 1, 2, … as record 7 of partition 0. Returns the calls of the store, and
/// what came out.
fn run(text: &str, keys: &[&str]) -> (Vec<String>, Vec<String>) {
    let diary = Diary::default();
    let plan = Arc::new(replay::compile("a.siddhi", text, &registry(&diary), &|_| None).unwrap());
    let mut runtime = AppRuntime::new(plan.clone());
    runtime.open_stores("a.siddhi", &Arc::new(StoreMonitor::default())).unwrap();
    let mut seen = Seen::default();
    runtime.start(0, &mut seen);
    runtime.set_record(PartitionId(0), Offset(7));
    let (mut k, mut v) = (Column::new(FieldType::String), Column::new(FieldType::Long));
    for (key, value) in keys.iter().zip(1..) {
        k.push(Value::text(key));
        v.push(Value::Long(value));
    }
    let stream = plan.catalog.find("In").unwrap();
    runtime.send(stream, vec![k, v], vec![1000; keys.len()], &mut seen).unwrap();
    let calls = diary.calls.lock().clone();
    (calls, seen.0)
}

fn calls(queries: &str, keys: &[&str]) -> Vec<String> {
    run(&app(queries), keys).0
}

#[test]
fn actions_go_out_with_parameters() {
    assert_eq!(calls("from In insert into T;", &["a", "b"]), ["insert (a 1) (b 2) at 0/7/0"]);
    assert_eq!(
        calls("from In delete T on T.k == k and T.v < v * 2;", &["a", "b"]),
        ["delete ((c0 Eq $0) and (c1 Lt $1)) (a 2) (b 4) at 0/7/0"]
    );
    assert_eq!(
        calls("from In update T set T.v = T.v + v on T.k == k;", &["a"]),
        ["update (c0 Eq $0) set c1=(c1 Add $1) (a 1) at 0/7/0"]
    );
    assert_eq!(
        calls("from In update or insert into T set T.v = v on T.k == k and not(T.v is null);", &["a"]),
        ["update ((c0 Eq $0) and not c1 is null) set c1=$1 (a 1) or insert (a 1) at 0/7/0"]
    );
}

#[test]
fn writes_of_a_record_are_numbered() {
    let both = "from In insert into T; from In[v > 0] delete T on T.k == k;";
    assert_eq!(calls(both, &["a"]), ["insert (a 1) at 0/7/0", "delete (c0 Eq $0) (a) at 0/7/1"]);
}

#[test]
fn searches_go_out_with_parameters() {
    let join = "from In join T on T.k == In.k select T.k as k, T.v as v insert into Out;";
    let (calls, seen) = run(&app(join), &["a", "none"]);
    assert_eq!(calls, ["find (c0 Eq $0) (a)", "find (c0 Eq $0) (none)"]);
    assert_eq!(seen, ["Out a 10"]);
    let (calls, seen) = run(&app("from In[(T.k == k and T.v >= 5) in T] insert into Out;"), &["a", "none"]);
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(calls[1], "find ((c0 Eq $0) and (c1 Ge $1)) (none 5)");
    assert_eq!(seen, ["Out a 1"]);
}

#[test]
fn a_cache_answers_repeated_searches_until_a_write() {
    let store = "@store(type='diary', url='x', @cache(size='5', cache.policy='LRU'))";
    let join = "from In join T on T.k == In.k select T.k as k, T.v as v insert into Out;";
    let (calls, seen) = run(&app_with(store, join), &["a", "none", "a", "none"]);
    assert_eq!(calls, ["find (c0 Eq $0) (a)", "find (c0 Eq $0) (none)"]);
    assert_eq!(seen, ["Out a 10", "Out a 10"]);
}

#[test]
fn a_refused_row_fails_and_an_interruption_is_told() {
    let (calls, seen) = run(&app("from In insert into T;"), &["a", "bad", "b"]);
    assert_eq!(calls, ["insert (a 1) (bad 2) (b 3) at 0/7/0"]);
    assert_eq!(seen, ["failed: table `T`: the row is refused: too bad"]);
    let (_, seen) = run(&app("from In insert into T;"), &["down"]);
    assert_eq!(seen, ["interrupted: no connection"]);
}

#[test]
fn what_a_store_cannot_do_is_refused() {
    let error = |text: String| {
        let found = replay::compile("a.siddhi", &text, &registry(&Diary::default()), &|_| None);
        found.err().unwrap_or_default().lines().next().unwrap_or_default().to_owned()
    };
    for (queries, message) in [
        (
            "from In delete T on str:length(T.k) > v;",
            "error[F0816]: the store of `T` cannot evaluate a function of the table's columns",
        ),
        (
            "from In join T on str:length(T.k) > In.v select T.k as k insert into Out;",
            "error[F0816]: the store of `T` cannot evaluate a function of the table's columns",
        ),
        (
            "from In[(str:length(T.k) > v) in T] insert into Out;",
            "error[F0816]: the store of `T` cannot evaluate a function of the table's columns",
        ),
        (
            "from In update T set T.v = v, T.v = T.v + 1 on T.k == k;",
            "error[F0816]: the store of `T` cannot evaluate an assignment that reads a column which another one changes",
        ),
    ] {
        assert_eq!(error(app(queries)), message);
    }
    let aggregation = |annotations: &str, definitions: &str| {
        error(format!(
            "{annotations} define stream In (k string, v long); {definitions}
             define aggregation A from In select k, sum(v) as total group by k aggregate every sec, min;
             from In select k insert into Out;"
        ))
    };
    for (app, definitions, message) in [
        ("", "@store(url='x')", "error[F0801]: a store needs a `type`"),
        ("", "@store(type='diary')", "error[F0615]: the store `diary` needs the option `url`"),
        (
            "",
            "@store(type='diary', url='x', @cache(size='5'))",
            "error[F0801]: an aggregation has no cache of its store: its latest buckets are in memory anyway",
        ),
        (
            "",
            "define table A_MINUTES (k string); @store(type='diary', url='x')",
            "error[F0205]: the name `A_MINUTES` is already taken by a table",
        ),
        (
            "@app:playback @late(policy='correct', allowed='1 min')",
            "@store(type='diary', url='x')",
            "error[F0817]: an app that corrects its output cannot have aggregations with a store: it runs several times",
        ),
    ] {
        assert_eq!(aggregation(app, definitions), message);
    }
    for (store, message) in [
        ("@store(url='x')", "error[F0801]: a store needs a `type`"),
        ("@store(ref='x')", "error[F0607]: app.toml has no settings `x`"),
        (
            "@store(type='diari', url='x')",
            "error[F0615]: unknown store `diari`. Did you mean `diary`? (`tidemill connectors` lists all)",
        ),
        ("@store(type='diary')", "error[F0615]: the store `diary` needs the option `url`"),
        (
            "@store(type='diary', url='x', @cache(size='no'))",
            "error[F0818]: `size`: expected a number of rows from 1, found `no`",
        ),
        (
            "@store(type='diary', url='x', @cache(policy='ARC'))",
            "error[F0505]: unknown action `ARC`. Known: FIFO, LFU, LRU",
        ),
    ] {
        assert_eq!(error(app_with(store, "from In insert into T;")), message);
    }
}

/// A bucket is written when it is closed, and a late event writes its rows again; the writes of an event have one number.
/// The diary finds nothing, so what a late event adds to the first minute is all that its row has.
#[test]
fn aggregations_write_closed_buckets() {
    let text = "define stream In (k string, v long);
                @store(type='diary', url='x', table='sums') @purge(enable='false')
                define aggregation A from In select k, count() as n group by k aggregate by v every sec, min;
                from In[k == 'a'] as e join A as a on a.k == e.k within 0L, 1000L per 'sec'
                select a.k as k, a.n as n insert into Out;";
    let diary = Diary::default();
    let plan = Arc::new(replay::compile("a.siddhi", text, &registry(&diary), &|_| None).unwrap());
    let mut runtime = AppRuntime::new(plan.clone());
    runtime.open_stores("a.siddhi", &Arc::new(StoreMonitor::default())).unwrap();
    let mut seen = Seen::default();
    runtime.start(0, &mut seen);
    let records =
        [vec![("b", 5000), ("c", 5500)], vec![("b", 9000), ("b", 65_000)], vec![("b", 9100), ("a", 100)]];
    for (offset, events) in records.into_iter().enumerate() {
        runtime.set_record(PartitionId(0), Offset(offset as u64));
        for (key, time) in events {
            let (mut k, mut v) = (Column::new(FieldType::String), Column::new(FieldType::Long));
            k.push(Value::text(key));
            v.push(Value::Long(time));
            runtime.send(plan.catalog.find("In").unwrap(), vec![k, v], vec![1000], &mut seen).unwrap();
        }
    }
    let upsert = "update ((c0 Eq $0) and (c1 Eq $1)) set c2=$2 c3=$3";
    let row = |row: &str| format!("{row} or insert {row}");
    let (found, written) = ("find (((c0 Ge $0) and (c0 Lt $1)) and (c1 Eq $2))", diary.calls.lock().clone());
    assert_eq!(
        written,
        [
            // the first bucket may have rows of an earlier run
            "sums_SECONDS find ((c0 Ge $0) and (c0 Lt $1)) (5000 5001)".to_owned(),
            format!("sums_SECONDS {upsert} {} at 0/1/0", row("(5000 b 1 1) (5000 c 1 1)")),
            format!("sums_SECONDS {upsert} {} at 0/1/1", row("(9000 b 1 1)")),
            "sums_MINUTES find ((c0 Ge $0) and (c0 Lt $1)) (0 1)".to_owned(),
            format!("sums_MINUTES {upsert} {} at 0/1/1", row("(0 b 2 2) (0 c 1 1)")),
            format!("sums_SECONDS {upsert} {} at 0/2/0", row("(9000 b 2 2)")),
            format!("sums_MINUTES {found} (0 1 b)"),
            format!("sums_MINUTES {upsert} {} at 0/2/0", row("(0 b 1 1)")),
            format!("sums_SECONDS {found} (0 1 a)"),
            format!("sums_SECONDS {upsert} {} at 0/2/1", row("(0 a 1 1)")),
            format!("sums_MINUTES {found} (0 1 a)"),
            format!("sums_MINUTES {upsert} {} at 0/2/1", row("(0 a 1 1)")),
            format!("sums_SECONDS {found} (0 1000 a)"),
        ]
    );
    assert_eq!(seen.0, [""; 0]);
}
