//! Flight SQL over the engine, at the address of HTTP, by the client of the crate `arrow-flight`.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_cast::display::array_value_to_string;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandGetTables, CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use futures::{TryStreamExt, stream};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::{Serving, run, served, tidemill};

const RULES: &str = r#"
event Reading { id: string, device: string, speed: double, lanes: long, at: time } id id key device time at;
event Secret { id: string } id id;
entity Device key name;
"#;

type Client = FlightSqlServiceClient<Channel>;

struct World {
    dir: TempDir,
    serving: Serving,
    runtime: Runtime,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (data, app) = (dir.path().join("data"), dir.path().join("app.rules"));
        std::fs::write(&app, RULES).unwrap();
        run(&["run", app.to_str().unwrap(), "--data", data.to_str().unwrap(), "--until-idle"], 0);
        let arguments = ["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let serving = served(tidemill(&arguments), &data, "Ready: ");
        Self { dir, serving, runtime: Runtime::new().unwrap() }
    }

    fn client(&self, token: &str) -> Client {
        let endpoint = Endpoint::new(self.serving.base.clone()).unwrap();
        let mut client = FlightSqlServiceClient::new(self.runtime.block_on(endpoint.connect()).unwrap());
        client.set_token(token.to_owned());
        client
    }

    /// Returns the rows of a statement as texts.
    fn query(&self, client: &mut Client, text: &str) -> Result<Vec<String>, FlightError> {
        self.runtime.block_on(async {
            let info = client.execute(text.to_owned(), None).await?;
            let announced = info.clone().try_decode_schema();
            let rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await?;
            let batches: Vec<RecordBatch> = rows.try_collect().await?;
            if let Ok(announced) = announced {
                assert!(batches.iter().all(|batch| batch.schema().as_ref() == &announced), "{announced}");
            }
            Ok(show(&batches))
        })
    }

    fn ingest(&self, client: &mut Client, stream: &str, batch: RecordBatch) -> Result<i64, FlightError> {
        let options = TableDefinitionOptions {
            if_not_exist: TableNotExistOption::Fail as i32,
            if_exists: TableExistsOption::Append as i32,
        };
        let command = CommandStatementIngest {
            table: stream.to_owned(),
            table_definition_options: Some(options),
            ..CommandStatementIngest::default()
        };
        self.runtime.block_on(client.execute_ingest(command, stream::iter([Ok(batch)])))
    }
}

pub fn show(batches: &[RecordBatch]) -> Vec<String> {
    let row = |batch: &RecordBatch, row: usize| {
        let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join("|")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |at| row(batch, at))).collect()
}

fn readings(count: usize) -> RecordBatch {
    let texts =
        |prefix: &str| Arc::new((0..count).map(|n| Some(format!("{prefix}{n}"))).collect::<StringArray>());
    let columns: [(&str, ArrayRef); 4] = [
        ("id", texts("r")),
        ("device", texts("d")),
        ("speed", Arc::new(Float64Array::from_iter_values((0..count).map(|n| n as f64 / 2.0)))),
        ("lanes", Arc::new(Int64Array::from_iter_values(0..count as i64))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn assert_refused<T>(result: Result<T, FlightError>, code: Code, part: &str) {
    match result {
        Err(FlightError::Tonic(status)) => {
            assert!(status.code() == code && status.message().contains(part), "{status}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the call was not refused: {part}"),
    }
}

#[test]
fn events_are_sent_read_and_changed() {
    let world = World::new();
    let mut client = world.client(&world.serving.token);
    assert_eq!(world.ingest(&mut client, "Reading", readings(10_000)).unwrap(), 10_000);
    // what was acknowledged is read
    let sums =
        world.query(&mut client, "SELECT count(*), sum(lanes), max(device) FROM events.\"Reading\"").unwrap();
    assert_eq!(sums, ["10000|49995000|d9999"]);
    assert_eq!(
        world.query(&mut client, "SELECT value FROM generate_series(1, 100000)").unwrap().len(),
        100_000
    );
    let changed = world
        .runtime
        .block_on(client.execute_update("DELETE FROM events.\"Reading\" WHERE lanes >= 10".to_owned(), None));
    assert_eq!(changed.unwrap(), 9_990);
    let changed =
        world.query(&mut client, "UPDATE events.\"Reading\" SET speed = 7 WHERE lanes = 1").unwrap();
    assert_eq!(changed, ["1"]);
    for (text, code, part) in [
        ("SELECT speeed FROM events.\"Reading\"", Code::InvalidArgument, "Did you mean `speed`?"),
        ("SELECT * FROM events.\"Readings\"", Code::NotFound, "Reading"),
        ("SELEKT 1", Code::InvalidArgument, "line 1, column 1"),
        ("KILL QUERY 999999", Code::NotFound, "999999"),
        ("SELECT 1 / 0", Code::InvalidArgument, "zero"),
    ] {
        assert_refused(world.query(&mut client, text), code, part);
    }
    let shown = world.query(&mut client, "SHOW TABLES").unwrap();
    assert!(shown.iter().any(|row| row.contains("Reading")), "{shown:?}");
    assert!(!world.query(&mut client, "EXPLAIN SELECT * FROM events.\"Reading\"").unwrap().is_empty());
    let own = "SELECT origin, caller FROM system.statements WHERE statement LIKE 'SELECT origin, caller%'";
    assert_eq!(world.query(&mut client, own).unwrap(), ["flight|admin"]);
    let prepared = world.runtime.block_on(async {
        let text = "SELECT count(*) FROM events.\"Reading\" WHERE lanes < $1 AND device <> $2".to_owned();
        let mut statement = client.prepare(text, None).await?;
        let columns: [(&str, ArrayRef); 2] = [
            ("$1", Arc::new(Int64Array::from(vec![5, 3]))),
            ("$2", Arc::new(StringArray::from(vec!["d0", "x"]))),
        ];
        statement.set_parameters(RecordBatch::try_from_iter(columns).unwrap())?;
        let info = statement.execute().await?;
        let rows = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await?;
        let batches: Vec<RecordBatch> = rows.try_collect().await?;
        Ok::<_, FlightError>(show(&batches))
    });
    assert_eq!(prepared.unwrap(), ["4", "3"]);
}

#[test]
fn bad_rows_and_columns_are_told_and_recorded() {
    let world = World::new();
    let mut client = world.client(&world.serving.token);
    let unknown =
        RecordBatch::try_from_iter([("lane", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap();
    assert_refused(
        world.ingest(&mut client, "Reading", unknown),
        Code::InvalidArgument,
        "Did you mean `lanes`?",
    );
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(StringArray::from(vec!["a", "bad", "b"]))),
        ("at", Arc::new(Int64Array::from(vec![Some(1), Some(i64::MAX), None]))),
    ];
    let rows =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
    assert_refused(
        world.ingest(&mut client, "Reading", rows),
        Code::InvalidArgument,
        "2 events were accepted. row 1: ",
    );
    let found = world.query(&mut client, "SELECT id FROM events.\"Reading\" ORDER BY id").unwrap();
    assert_eq!(found, ["a", "b"]);
    let rejected =
        world.query(&mut client, "SELECT count(*) FROM system.rejected WHERE stream = 'Reading'").unwrap();
    assert_eq!(rejected, ["2"]);
    assert_refused(world.ingest(&mut client, "Nothing", readings(1)), Code::NotFound, "Nothing");
}

#[test]
fn a_user_sees_and_writes_what_is_granted() {
    let world = World::new();
    let data = world.dir.path().join("data");
    let data = data.to_str().unwrap();
    run(&["users", "add", "ana", "--grant", "read stream:Reading", "--no-password", "--data", data], 0);
    let (token, _) = run(&["tokens", "new", "ana", "--data", data], 0);
    let mut admin = world.client(&world.serving.token);
    world.ingest(&mut admin, "Reading", readings(3)).unwrap();
    let mut ana = world.client(token.trim());
    // the server looks for new tokens once in a while
    let begun = std::time::Instant::now();
    while let Err(e) = world.query(&mut ana, "SELECT 1") {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{e}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(world.query(&mut ana, "SELECT count(*) FROM events.\"Reading\"").unwrap(), ["3"]);
    for text in
        ["SELECT * FROM events.\"Secret\"", "SELECT * FROM events.\"Secred\"", "SELECT * FROM \"Secret\""]
    {
        let refused = world.query(&mut ana, text).unwrap_err().to_string();
        let named = refused.replace("`events.Secret`", "").replace("`Secret`", "").replace("\"Secret\"", "");
        assert!(!named.contains("Secret") || text.contains("\"Secret\""), "{refused}");
    }
    assert_refused(
        world.ingest(&mut ana, "Secret", readings(1)),
        Code::PermissionDenied,
        "users grant ana write stream:Secret",
    );
    let tables = world.runtime.block_on(async {
        let command = CommandGetTables { include_schema: true, ..CommandGetTables::default() };
        let info = ana.get_tables(command).await?;
        let rows = ana.do_get(info.endpoint[0].ticket.clone().unwrap()).await?;
        let batches: Vec<RecordBatch> = rows.try_collect().await?;
        Ok::<_, FlightError>(batches)
    });
    let tables: Vec<RecordBatch> =
        tables.unwrap().iter().map(|batch| batch.project(&[1, 2]).unwrap()).collect();
    let tables = show(&tables);
    assert!(tables.contains(&"events|Reading".to_owned()), "{tables:?}");
    assert!(tables.iter().all(|table| !table.contains("Secret")), "{tables:?}");
    let mut wrong = world.client("wrong");
    assert_refused(world.query(&mut wrong, "SELECT 1"), Code::Unauthenticated, "Bearer TOKEN");
}
