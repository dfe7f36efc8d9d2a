//! Tests of aggregations with a store: against the naive model over all events, over crashes, and of what the store gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use proptest::prelude::*;
use tidemill_connect::{
    Catalog, OptionError, OptionSpec, Options, RefusedRow, RowScope, StoreContext, StoreExpr, StoreType,
    StoreUpdate, StoredRow, TableStore, WritePosition, all_values, batch_of, typed_values,
};
use tidemill_types::{Error, FieldType, Offset, PartitionId, Result as StoreResult, StreamSchema};

use crate::aggregation::tests::{Event, START, UNITS, batch, event, per, reckoned, restore, rows, saved};
use crate::aggregation::*;
use crate::{Connectors, Registry, replay};

/// Tables in memory, by name, which remember the position of the last write as databases do.
#[derive(Clone, Default)]
struct MemoryTables(Arc<Mutex<Tables>>);

#[derive(Default)]
struct Tables {
    tables: BTreeMap<String, Vec<StoredRow>>,
    positions: BTreeMap<String, WritePosition>,
    /// Calls that search, and that write.
    finds: usize,
    writes: usize,
    /// Set while every call fails.
    is_down: bool,
}

struct DatabaseTable {
    database: MemoryTables,
    name: String,
    schema: Arc<StreamSchema>,
    types: Vec<FieldType>,
}

impl StoreType for MemoryTables {
    fn name(&self) -> &'static str {
        "database"
    }

    fn summary(&self) -> &'static str {
        "Keeps rows in a test."
    }

    fn options(&self) -> &'static [OptionSpec] {
        const OPTIONS: &[OptionSpec] = &[OptionSpec::text("table", "Name of the table.")];
        OPTIONS
    }

    fn table_option(&self) -> Option<&'static str> {
        Some("table")
    }

    fn create(&self, options: &Options, context: &StoreContext) -> Result<Box<dyn TableStore>, OptionError> {
        Ok(Box::new(DatabaseTable {
            database: self.clone(),
            name: options.get("table").unwrap_or(&context.table).to_owned(),
            schema: context.schema.clone(),
            types: context.schema.fields.iter().map(|field| field.ty).collect(),
        }))
    }
}

impl DatabaseTable {
    fn write(
        &mut self,
        at: Option<WritePosition>,
        change: impl FnOnce(&mut Vec<StoredRow>),
    ) -> StoreResult<Vec<RefusedRow>> {
        let mut all = self.database.0.lock();
        if all.is_down {
            return Err(Error::unavailable("the database is down"));
        }
        if at.is_some() && at <= all.positions.get(&self.name).copied() {
            return Ok(vec![]);
        }
        all.writes += 1;
        at.map(|at| all.positions.insert(self.name.clone(), at));
        change(all.tables.entry(self.name.clone()).or_default());
        Ok(vec![])
    }
}

impl TableStore for DatabaseTable {
    fn find(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        _limit: Option<usize>,
    ) -> StoreResult<RecordBatch> {
        let mut all = self.database.0.lock();
        if all.is_down {
            return Err(Error::unavailable("the database is down"));
        }
        all.finds += 1;
        let parameters = typed_values(parameters).swap_remove(0);
        let holds = |row: &&StoredRow| {
            let scope = RowScope { types: &self.types, row, parameters: &parameters };
            condition.is_none_or(|condition| scope.holds(condition))
        };
        let found: Vec<StoredRow> =
            all.tables.get(&self.name).into_iter().flatten().filter(holds).cloned().collect();
        batch_of(&self.schema, &found)
    }

    fn insert(&mut self, _: &RecordBatch, _: Option<WritePosition>) -> StoreResult<Vec<RefusedRow>> {
        Err(Error::internal("an aggregation replaces rows"))
    }

    fn delete(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        at: Option<WritePosition>,
    ) -> StoreResult<Vec<RefusedRow>> {
        let (types, parameters) = (self.types.clone(), typed_values(parameters).swap_remove(0));
        self.write(at, |rows| {
            rows.retain(|row| {
                let scope = RowScope { types: &types, row, parameters: &parameters };
                !condition.is_none_or(|condition| scope.holds(condition))
            });
        })
    }

    fn update(
        &mut self,
        change: &StoreUpdate,
        parameters: &RecordBatch,
        insert: Option<&RecordBatch>,
        at: Option<WritePosition>,
    ) -> StoreResult<Vec<RefusedRow>> {
        let types = self.types.clone();
        let inserted = insert.map(all_values).unwrap_or_default();
        let given = typed_values(parameters);
        self.write(at, |rows| {
            for (new, parameters) in inserted.into_iter().zip(&given) {
                let holds = |row: &&mut StoredRow| {
                    RowScope { types: &types, row, parameters }.holds(&change.condition)
                };
                match rows.iter_mut().find(holds) {
                    Some(row) => {
                        let scope = RowScope { types: &types, row, parameters };
                        let values: Vec<_> =
                            change.set.iter().map(|(column, x)| (*column, scope.value(x).1)).collect();
                        values.into_iter().for_each(|(column, value)| row[column] = value);
                    }
                    None => rows.push(new),
                }
            }
        })
    }
}

impl MemoryTables {
    /// Returns the rows of a table, sorted.
    fn table(&self, name: &str) -> Vec<String> {
        let row = |row: &StoredRow| row.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let mut rows: Vec<String> = self.0.lock().tables.get(name).into_iter().flatten().map(row).collect();
        rows.sort();
        rows
    }

    fn registry(&self) -> Registry {
        let mut catalog = Catalog::default();
        catalog.add_store(self.clone());
        let mut registry = Registry::standard();
        registry.set_connectors(Connectors::Catalog(Arc::new(catalog)));
        registry
    }

    fn plan(&self, definition: &str) -> Arc<AggregationPlan> {
        let text = format!(
            "define stream S (k string, n int, v double, ts long);\n{definition};\nfrom S select k insert into Out;"
        );
        let plan =
            replay::compile("app", &text, &self.registry(), &|_| None).unwrap_or_else(|e| panic!("{e}"));
        plan.catalog.aggregations()[0].clone()
    }

    /// Creates an aggregation with its store open, and `kept` closed buckets in memory.
    fn open(&self, plan: &Arc<AggregationPlan>, kept: usize) -> Aggregation {
        let catalog = self.registry().connectors().catalog().expect("a catalog").clone();
        let mut aggregation = Aggregation::new(plan.clone()).with_closed_buckets_max(kept);
        let opened = aggregation.open_stores(&mut |table| {
            let store = crate::table::create_store(table, "app", &catalog, &Arc::default());
            Ok(store.expect("options").expect("a store"))
        });
        opened.expect("a store");
        aggregation
    }
}

/// Processes events as one record.
fn push(aggregation: &mut Aggregation, offset: usize, events: &[Event]) {
    aggregation.set_record(PartitionId(0), Offset(offset as u64));
    aggregation.push(&batch(events)).expect("events");
    assert_eq!(aggregation.write_changes(), []);
}

const ALL: &str = "@store(type='database') define aggregation A from S select k, n as last, sum(n) as whole, \
                   sum(v) as total, avg(v) as mean, count() as events, min(n) as least, max(v) as greatest, \
                   distinctCount(n) as different group by k aggregate by ts every sec ... year";

fn keyed_event() -> impl Strategy<Value = Event> {
    event().prop_map(|(k, n, v, ts)| (Some(k.unwrap_or_else(|| "none".into())), n, v, ts))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Records are processed, states are saved, and the program crashes: then a saved state is restored and the records
    /// behind it are processed again, while the store has what was written until the crash.
    #[test]
    fn buckets_in_a_store_hold_what_a_plain_reckoning_gives(
        events in prop::collection::vec(keyed_event(), 0..60),
        cuts in prop::collection::vec(1usize..9, 60),
        saves in prop::collection::vec(any::<bool>(), 60),
        crashes in prop::collection::vec(prop::bool::weighted(0.2), 60),
        kept in 1usize..4,
        from in -2_000_000i64..200_000_000,
        length in 1i64..300_000_000,
    ) {
        let database = MemoryTables::default();
        let plan = database.plan(ALL);
        let mut records: Vec<&[Event]> = vec![];
        let mut rest = events.as_slice();
        for cut in &cuts {
            let (chunk, later) = rest.split_at((*cut).min(rest.len()));
            records.extend((!chunk.is_empty()).then_some(chunk));
            rest = later;
        }
        let mut aggregation = database.open(&plan, kept);
        let mut state = (0, saved(&aggregation));
        let mut crashed = vec![false; records.len()];
        let mut next = 0;
        while next < records.len() {
            push(&mut aggregation, next, records[next]);
            next += 1;
            if saves[next - 1] {
                state = (next, saved(&aggregation));
            }
            if crashes[next - 1] && !std::mem::replace(&mut crashed[next - 1], true) {
                aggregation = database.open(&plan, kept);
                restore(&mut aggregation, &state.1).expect("a state");
                next = state.0;
            }
        }
        for level in &aggregation.levels {
            prop_assert!(level.closed().len() <= kept);
        }
        for (name, unit) in UNITS.iter().zip(plan.units.iter()) {
            let mut reckoned_rows = reckoned(&events, *unit);
            prop_assert_eq!(per(&aggregation, name), reckoned_rows.clone(), "{}", name);
            let stretch = START + from..START + from + length;
            let second = |e: &&Event| calendar::bucket_range(plan.units[0], e.3).expect("a time").start;
            let inside: Vec<Event> = events.iter().filter(|e| stretch.contains(&second(e))).cloned().collect();
            let query = format!("from A within {}L, {}L per '{name}'", stretch.start, stretch.end);
            let found = rows(&aggregation, &query);
            let start = |row: &str| row.split(' ').next().and_then(|start| start.parse::<i64>().ok());
            prop_assert!(found.is_sorted_by_key(|row| start(row)), "in order of time");
            let mut found = found;
            found.sort();
            prop_assert_eq!(found, reckoned(&inside, *unit), "{} of {:?}", name, stretch);
            // the store has all closed buckets
            let open = aggregation.levels.iter().zip(&plan.units).take_while(|(level, _)| level.unit <= *unit);
            let open: Vec<i64> = open
                .filter_map(|(level, _)| level.open())
                .map(|(start, _)| calendar::bucket_range(*unit, start).expect("a time").start)
                .collect();
            let table = format!("A_{}S", ["SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"]
                [UNITS.iter().position(|known| known == name).expect("a unit")]);
            reckoned_rows.retain(|row| start(row).is_some_and(|start| !open.contains(&start)));
            let closed = database.table(&table).into_iter().filter(|row| {
                start(row).is_some_and(|start| !open.contains(&start))
            });
            prop_assert_eq!(closed.count(), reckoned_rows.len(), "{}", table);
        }
    }
}

fn at(k: &str, n: i32, seconds: i64) -> Event {
    (Some(k.to_owned()), Some(n), None, START + seconds * 1000)
}

const SUMS: &str = "define aggregation A from S select k, sum(n) as total, avg(n) as mean group by k \
                    aggregate by ts every sec, min";

#[test]
fn rows_have_what_is_selected_and_what_restores_them() {
    let database = MemoryTables::default();
    let plan = database.plan(&format!("@store(type='database', table='t') {SUMS}"));
    let names: Vec<&str> = plan.store.as_ref().expect("a store").tables[0]
        .attributes
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names.join(" "), "AGG_TIMESTAMP k total mean AGG_SUM_n AGG_COUNT_n AGG_DOUBLE_SUM_n");
    let mut aggregation = database.open(&plan, 10);
    push(&mut aggregation, 3, &[at("a", 1, 0), at("b", 2, 0), at("a", 4, 0)]);
    assert_eq!(database.table("t_SECONDS"), [""; 0], "the bucket is open");
    push(&mut aggregation, 4, &[at("a", 1, 1)]);
    let rows = [format!("{START} \"a\" 5 2.5 5 2 5"), format!("{START} \"b\" 2 2 2 1 2")];
    assert_eq!(database.table("t_SECONDS"), rows);
    // a late event writes its row only
    push(&mut aggregation, 5, &[at("b", 3, 0)]);
    let rows = [rows[0].clone(), format!("{START} \"b\" 5 2.5 5 2 5")];
    assert_eq!(database.table("t_SECONDS"), rows);
    assert_eq!(database.table("t_MINUTES"), [""; 0]);
}

/// A restarted app without its state reads what an earlier run has stored, and adds to it.
#[test]
fn rows_of_an_earlier_run_are_found() {
    let database = MemoryTables::default();
    let plan = database.plan(&format!("@store(type='database') {SUMS}"));
    let mut earlier = database.open(&plan, 1);
    push(&mut earlier, 0, &[at("a", 1, 0), at("a", 2, 1), at("a", 4, 2)]);
    let mut later = database.open(&plan, 1);
    assert_eq!(per(&later, "sec"), [format!("{START} a 1 1.0"), format!("{} a 2 2.0", START + 1000)]);
    push(&mut later, 9, &[at("a", 8, 100), at("a", 16, 1)]);
    let second =
        |seconds: i64, total: i64, mean: &str| format!("{} a {total} {mean}", START + seconds * 1000);
    assert_eq!(per(&later, "sec"), [second(0, 1, "1.0"), second(1, 18, "9.0"), second(100, 8, "8.0")]);
    // nor are rows lost where the first event of the new run is in a bucket that the earlier one has closed
    let mut third = database.open(&plan, 1);
    push(&mut third, 20, &[at("a", 32, 1), at("b", 1, 200)]);
    assert_eq!(per(&third, "sec")[..2], [second(0, 1, "1.0"), second(1, 50, "16.666666666666668")]);
    let one = format!("from A on k == 'a' within {}L, {}L per 'sec'", START + 1000, START + 2000);
    assert_eq!(rows(&later, &one).len(), 1);
}

#[test]
fn a_group_is_found_without_reading_others() {
    let database = MemoryTables::default();
    let plan = database.plan(&format!("@store(type='database') {SUMS}"));
    let mut aggregation = database.open(&plan, 1);
    for second in 0..20 {
        push(&mut aggregation, second, &[at("a", 1, second as i64), at("b", 1, second as i64)]);
    }
    assert_eq!(aggregation.levels[0].closed().len(), 1);
    assert_eq!(aggregation.len(), 6, "a closed and an open second, and the minute");
    let finds = database.0.lock().finds;
    assert_eq!(per(&aggregation, "sec").len(), 40);
    assert_eq!(
        rows(&aggregation, &format!("from A within {}L, {}L per 'sec'", START, START + 5000)).len(),
        10
    );
    assert_eq!(database.0.lock().finds, finds + 2);
    // buckets in memory need no call
    rows(&aggregation, &format!("from A within {}L, {}L per 'sec'", START + 18_000, START + 99_000));
    assert_eq!(database.0.lock().finds, finds + 2);
}

#[test]
fn old_rows_are_deleted_from_the_store() {
    let database = MemoryTables::default();
    let purge =
        "@purge(interval='10 sec', @retentionPeriod(sec='120 sec', min='120 min')) @store(type='database')";
    let plan = database.plan(&format!("{purge} {SUMS}"));
    let mut aggregation = database.open(&plan, 1);
    aggregation.start(START);
    for second in 0..200 {
        push(&mut aggregation, second, &[at("a", 1, second as i64)]);
    }
    assert_eq!(database.table("A_SECONDS").len(), 199);
    aggregation.set_record(PartitionId(0), Offset(300));
    assert_eq!(aggregation.purge(START + 200_500), []);
    assert_eq!(database.table("A_SECONDS").len(), 118, "from second 81 on");
    assert_eq!(per(&aggregation, "sec").len(), 119);
    // nothing of these is older, so there is nothing to do
    let writes = database.0.lock().writes;
    aggregation.set_record(PartitionId(0), Offset(301));
    assert_eq!(aggregation.purge(START + 200_900), []);
    assert_eq!(database.0.lock().writes, writes);
    aggregation.skip_purges(START + 100 * 3_600_000);
    let next = aggregation.next_purge().expect("a purge");
    assert!(next <= START + 220_000, "{next}");
    aggregation.set_record(PartitionId(0), Offset(302));
    assert_eq!(aggregation.purge(START + 100 * 3_600_000), []);
    assert_eq!(database.table("A_SECONDS"), [""; 0]);
    // an empty store is not asked again and again
    let writes = database.0.lock().writes;
    aggregation.set_record(PartitionId(0), Offset(303));
    assert_eq!(aggregation.purge(START + 200 * 3_600_000), []);
    assert_eq!(database.0.lock().writes, writes);
}

#[test]
fn changes_wait_for_a_store_that_fails() {
    let database = MemoryTables::default();
    let plan = database.plan(&format!("@store(type='database') {SUMS}"));
    let mut aggregation = database.open(&plan, 1);
    for second in 0..5 {
        push(&mut aggregation, second, &[at("a", 1, second as i64)]);
    }
    database.0.lock().is_down = true;
    aggregation.set_record(PartitionId(0), Offset(9));
    aggregation.push(&batch(&[at("a", 2, 0), at("a", 3, 9)])).expect("events");
    let failures = aggregation.write_changes();
    assert!(matches!(failures.as_slice(), [EvalError::Interrupted(_)]), "{failures:?}");
    let state = saved(&aggregation);
    database.0.lock().is_down = false;
    let mut restored = database.open(&plan, 1);
    restore(&mut restored, &state).expect("a state");
    push(&mut restored, 10, &[at("a", 0, 9)]);
    let first = format!("from A within {START}L, {}L per 'sec'", START + 1000);
    assert_eq!(rows(&restored, &first), [format!("{START} a 3 1.5")]);
}

/// A state that was saved before there was a store has its buckets written, and one with a store can be read without.
#[test]
fn states_are_restored_with_and_without_a_store() {
    let (database, without) = (MemoryTables::default(), MemoryTables::default());
    let plain = without.plan(SUMS);
    let stored = database.plan(&format!("@store(type='database') {SUMS}"));
    let mut before = Aggregation::new(plain.clone());
    before.push(&batch(&[at("a", 1, 0), at("a", 2, 1), at("a", 3, 2)])).expect("events");
    let mut after = database.open(&stored, 1);
    restore(&mut after, &saved(&before)).expect("a state");
    push(&mut after, 1, &[at("a", 4, 2)]);
    assert_eq!(database.table("A_SECONDS").len(), 2);
    assert_eq!(after.levels[0].closed().len(), 1);
    assert_eq!(per(&after, "sec").len(), 3);
    let mut again = Aggregation::new(plain);
    restore(&mut again, &saved(&after)).expect("a state");
    assert_eq!(per(&again, "sec").len(), 2, "those in memory");
}

#[test]
fn a_group_with_a_null_is_refused() {
    let database = MemoryTables::default();
    let plan = database.plan(&format!("@store(type='database') {SUMS}"));
    let mut aggregation = database.open(&plan, 1);
    let failure = aggregation.push(&batch(&[(None, Some(1), None, START)])).expect_err("a null");
    assert_eq!(
        failure.to_string(),
        "`k` is null: it is part of the primary key in the store of aggregation `A`"
    );
    assert!(aggregation.is_empty());
}

/// The clock closes a bucket, and then an event of an earlier one arrives: the bucket that it opens is not the latest.
#[test]
fn an_event_behind_the_clock_is_late() {
    let database = MemoryTables::default();
    let definition = "@purge(interval='10 sec') define aggregation A from S select k, sum(n) as total group by k \
                      aggregate every sec, min";
    for store in ["", "@store(type='database') "] {
        let plan = database.plan(&format!("{store}{definition}"));
        let mut aggregation = database.open(&plan, 1);
        aggregation.push(&batch(&[at("a", 1, 0), at("a", 2, 5)])).expect("events");
        aggregation.write_changes();
        aggregation.purge(START + 10_000);
        aggregation.push(&batch(&[at("a", 4, 3), at("a", 8, 5)])).expect("events");
        aggregation.write_changes();
        let second = |second: i64, total: i64| format!("{} a {total}", START + second * 1000);
        assert_eq!(per(&aggregation, "sec"), [second(0, 1), second(3, 4), second(5, 10)]);
        assert_eq!(per(&aggregation, "min"), [second(0, 15)]);
        let state = saved(&aggregation);
        let mut restored = database.open(&plan, 1);
        restore(&mut restored, &state).expect("a state");
        assert_eq!(per(&restored, "min"), [second(0, 15)]);
    }
}
