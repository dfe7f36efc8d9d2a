//! Time of a prepared statement over one connection, from the call to its last row.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Int32Type, TimestampMicrosecondType};
use futures::TryStreamExt;
use serde::Serialize;
use tidemill_bench_tsbs::dataset::Table;
use tidemill_bench_tsbs::report::{percentile, record};
use tidemill_bench_tsbs::statements::{Dialect, Set, statements};
use tokio::runtime::Runtime;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::server::{Flight, Server};
use crate::throughput::{copy_into, put_into};
use crate::{Rows, encode, postgres};

/// Part of the asks that comes before the time is taken: plans and hot data are made.
const WARM_PART: usize = 10;

/// A point that exists, and the name of a truck.
struct Keys {
    truck: i32,
    time_us: i64,
    name: String,
}

/// Values of a statement's parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    None,
    /// Truck and time.
    Point,
    /// Name of a truck.
    Name,
}

struct Ask {
    name: &'static str,
    text: String,
    values: Values,
}

#[derive(Serialize)]
struct Figure<'a> {
    wire: &'a str,
    statement: &'a str,
    asks: usize,
    rows: usize,
    p50_ms: f64,
    p99_ms: f64,
}

/// Returns the statements in a dialect: a point, and those of TSBS without a bound of time.
fn asks(dialect: Dialect) -> Result<Vec<Ask>> {
    let all = statements(Set::Small, dialect, true)?;
    let text = |name: &str| {
        let found = all.iter().find(|statement| statement.name == format!("{name}-nobound"));
        Ok::<_, anyhow::Error>(found.with_context(|| format!("no statement {name}"))?.text.clone())
    };
    let point = "SELECT longitude, latitude, velocity FROM readings WHERE tags_id = $1 AND time = $2";
    Ok(vec![
        Ask { name: "point", text: point.to_owned(), values: Values::Point },
        Ask { name: "q12", text: text("q12")?.replace("'truck_35'", "$1"), values: Values::Name },
        Ask { name: "q07", text: text("q07")?, values: Values::None },
        Ask { name: "q08", text: text("q08")?, values: Values::None },
        Ask { name: "q11", text: text("q11")?, values: Values::None },
    ])
}

/// Returns keys from the rows, one for each ask.
fn keys(rows: &Rows, count: usize) -> Result<Vec<Keys>> {
    let mut names = BTreeMap::new();
    for batch in rows.of(Table::Tags) {
        let column =
            |name: &str| batch.rows.column_by_name(name).with_context(|| format!("no column {name}"));
        let (ids, texts) = (column("id")?.as_primitive::<Int32Type>(), column("name")?.as_string::<i32>());
        names.extend((0..batch.rows.num_rows()).map(|row| (ids.value(row), texts.value(row).to_owned())));
    }
    let batches: Vec<&RecordBatch> = rows.of(Table::Readings).map(|batch| &batch.rows).collect();
    let mut keys = Vec::with_capacity(count);
    let mut at = 0_usize;
    while keys.len() < count {
        // spread over all rows, the same ones in each run
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let batch = batches[(at >> 33) % batches.len()];
        let row = (at >> 20) % batch.num_rows();
        let column = |name: &str| batch.column_by_name(name).with_context(|| format!("no column {name}"));
        let trucks = column("tags_id")?.as_primitive::<Int32Type>();
        if trucks.is_null(row) {
            continue;
        }
        let truck = trucks.value(row);
        let time_us = column("time")?.as_primitive::<TimestampMicrosecondType>().value(row);
        let name = names.get(&truck).with_context(|| format!("truck {truck} has no name"))?.clone();
        keys.push(Keys { truck, time_us, name });
    }
    Ok(keys)
}

/// Loads the rows, and asks the statements over each wire.
pub fn run(
    program: &Path,
    scratch: &Path,
    rows: &Rows,
    asks_max: usize,
    postgres: Option<&postgres::Server>,
    runtime: &Runtime,
    json: Option<&Path>,
) -> Result<()> {
    let keys = keys(rows, asks_max + asks_max / WARM_PART + 1)?;
    let server = Server::start(program, scratch)?;
    runtime.block_on(async {
        let (client, mut flight) = (server.postgres().await?, server.flight().await?);
        for table in Table::ALL {
            let batches: Vec<&RecordBatch> = rows.of(table).map(|batch| &batch.rows).collect();
            let count = batches.iter().map(|batch| batch.num_rows()).sum();
            if count > 0 {
                put_into(&mut flight, table.name(), &batches, count).await?;
            }
        }
        let measured = Measured { keys: &keys, asks: asks_max, json };
        for ask in asks(Dialect::Tidemill)? {
            measured.over_postgres("PostgreSQL's protocol", &client, &ask).await?;
            measured.over_flight(&mut flight, &ask).await?;
        }
        let Some(postgres) = postgres else { return Ok(()) };
        let client = postgres.empty().await?;
        for table in Table::ALL {
            let batches: Vec<&RecordBatch> = rows.of(table).map(|batch| &batch.rows).collect();
            let Some(first) = batches.first() else { continue };
            let (columns, count) =
                (encode::columns(first), batches.iter().map(|batch| batch.num_rows()).sum());
            let pieces = encode::copy_binary(batches.iter().copied())?;
            copy_into(&client, table.name(), &columns, &pieces, count).await?;
        }
        client.batch_execute("VACUUM ANALYZE").await?;
        let version: String = client.query_one("SHOW server_version", &[]).await?.get(0);
        for ask in asks(Dialect::Postgres)? {
            measured.over_postgres(&format!("PostgreSQL {version}"), &client, &ask).await?;
        }
        Ok(())
    })
}

struct Measured<'a> {
    keys: &'a [Keys],
    asks: usize,
    json: Option<&'a Path>,
}

impl Measured<'_> {
    fn report(&self, wire: &str, ask: &Ask, mut ms: Vec<f64>, rows: usize) -> Result<()> {
        // the first ones are not measured
        let ms = ms.split_off(ms.len() - self.asks);
        let (p50_ms, p99_ms) = (percentile(&ms, 0.5), percentile(&ms, 0.99));
        println!("{:<6} {wire:<24} p50 {p50_ms:>9.3} ms, p99 {p99_ms:>9.3} ms, {rows} rows in all", ask.name);
        record(self.json, &Figure { wire, statement: ask.name, asks: self.asks, rows, p50_ms, p99_ms })
    }

    async fn over_postgres(&self, wire: &str, client: &Client, ask: &Ask) -> Result<()> {
        let statement = client.prepare(&ask.text).await.with_context(|| ask.text.clone())?;
        let (mut ms, mut rows) = (Vec::with_capacity(self.keys.len()), 0);
        for key in self.keys {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_micros(u64::try_from(key.time_us)?);
            let values: &[&(dyn ToSql + Sync)] = match ask.values {
                Values::None => &[],
                Values::Point => &[&key.truck, &time],
                Values::Name => &[&key.name],
            };
            let start = Instant::now();
            let found = client.query(&statement, values).await?.len();
            ms.push(start.elapsed().as_secs_f64() * 1e3);
            ensure!(ask.values == Values::None || found > 0, "{}: no row was found", ask.name);
            rows += found;
        }
        self.report(wire, ask, ms, rows)
    }

    async fn over_flight(&self, flight: &mut Flight, ask: &Ask) -> Result<()> {
        let mut statement = flight.prepare(ask.text.clone(), None).await.with_context(|| ask.text.clone())?;
        let (mut ms, mut rows) = (Vec::with_capacity(self.keys.len()), 0);
        for key in self.keys {
            let values = match ask.values {
                Values::None => None,
                Values::Point => {
                    let time = TimestampMicrosecondArray::from(vec![key.time_us]).with_timezone("UTC");
                    let columns: [(&str, ArrayRef); 2] =
                        [("$1", Arc::new(Int32Array::from(vec![key.truck]))), ("$2", Arc::new(time))];
                    Some(RecordBatch::try_from_iter(columns)?)
                }
                Values::Name => {
                    let names: ArrayRef = Arc::new(StringArray::from(vec![key.name.as_str()]));
                    Some(RecordBatch::try_from_iter([("$1", names)])?)
                }
            };
            let start = Instant::now();
            // the values, the ticket, the rows: three calls, and two without values
            if let Some(values) = values {
                statement.set_parameters(values)?;
            }
            let info = statement.execute().await?;
            let mut batches = flight.do_get(info.endpoint[0].ticket.clone().unwrap_or_default()).await?;
            let mut found = 0;
            while let Some(batch) = batches.try_next().await? {
                found += batch.num_rows();
            }
            ms.push(start.elapsed().as_secs_f64() * 1e3);
            ensure!(ask.values == Values::None || found > 0, "{}: no row was found", ask.name);
            rows += found;
        }
        statement.close().await?;
        self.report("Flight SQL", ask, ms, rows)
    }
}
