//! Rows a second, out and in. Each transfer in begins with empty streams; a row counts when it is acknowledged, on the disk.

use std::path::Path;
use std::pin::pin;
use std::time::Instant;

use anyhow::{Result, ensure};
use arrow::array::{Array, RecordBatch};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use bytes::Bytes;
use futures::{SinkExt, TryStreamExt, stream};
use serde::Serialize;
use tidemill_bench_tsbs::dataset::Table;
use tidemill_bench_tsbs::report::{Spread, record};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use crate::server::{Flight, Server};
use crate::{Rows, encode, postgres};

#[derive(Serialize)]
struct Figure<'a> {
    transfer: &'a str,
    rows: usize,
    bytes: usize,
    rows_per_second: Spread,
}

/// Collects the runs of a transfer.
struct Transfers<'a> {
    runs: usize,
    rows: usize,
    json: Option<&'a Path>,
}

impl Transfers<'_> {
    /// Runs a transfer, which returns its seconds and bytes, and prints its figure.
    fn measure(&self, transfer: &str, mut run: impl FnMut() -> Result<(f64, usize)>) -> Result<()> {
        let (mut rates, mut bytes) = (Vec::new(), 0);
        for _ in 0..self.runs {
            let (seconds, bytes_of_run) = run()?;
            rates.push(self.rows as f64 / seconds);
            bytes = bytes_of_run;
        }
        let figure = Figure { transfer, rows: self.rows, bytes, rows_per_second: Spread::of(&rates) };
        let Spread { median, min, max } = figure.rows_per_second;
        println!(
            "{transfer:<32} {median:>12.0} rows/s ({min:.0} to {max:.0}), {} bytes a row",
            bytes / self.rows
        );
        record(self.json, &figure)
    }
}

/// Measures all transfers.
pub fn run(
    program: &Path,
    scratch: &Path,
    rows: &Rows,
    runs: usize,
    postgres: Option<&postgres::Server>,
    runtime: &Runtime,
    json: Option<&Path>,
) -> Result<()> {
    let transfers = Transfers { runs, rows: rows.readings, json };
    let batches: Vec<&RecordBatch> = rows.of(Table::Readings).map(|batch| &batch.rows).collect();
    let columns = encode::columns(batches[0]);
    let copied = encode::copy_binary(batches.iter().copied())?;
    let total = |pieces: &[Bytes]| pieces.iter().map(Bytes::len).sum::<usize>();
    let bytes = total(&copied);
    let fresh = || Server::start(program, scratch);

    transfers.measure("in: COPY binary", || {
        let server = fresh()?;
        runtime.block_on(async {
            let client = server.postgres().await?;
            client.batch_execute("SET tidemill.copy_atomic = off").await?;
            let seconds = copy_in(&client, &columns, &copied, rows.readings).await?;
            check(&client, rows.readings).await?;
            Ok((seconds, bytes))
        })
    })?;
    if let Some(postgres) = postgres {
        transfers.measure("in: COPY binary, PostgreSQL", || {
            runtime.block_on(async {
                let client = postgres.empty().await?;
                Ok((copy_in(&client, &columns, &copied, rows.readings).await?, bytes))
            })
        })?;
    }
    transfers.measure("in: Flight DoPut", || {
        let server = fresh()?;
        runtime.block_on(async {
            let mut flight = server.flight().await?;
            let seconds = put(&mut flight, &batches, rows.readings).await?;
            check(&server.postgres().await?, rows.readings).await?;
            Ok((seconds, batches.iter().map(|batch| bytes_of(batch)).sum()))
        })
    })?;
    let lines =
        batches.iter().map(|batch| encode::line_protocol("readings", batch)).collect::<Result<Vec<_>>>()?;
    let post = |path: &str, content_type: &str, bodies: &[Vec<u8>]| {
        let server = fresh()?;
        let seconds = post(&server, path, content_type, bodies)?;
        runtime.block_on(async { check(&server.postgres().await?, rows.readings).await })?;
        Ok((seconds, bodies.iter().map(Vec::len).sum()))
    };
    transfers.measure("in: line protocol", || post("/write?precision=u", "text/plain", &lines))?;
    drop(lines);
    let objects = batches.iter().map(|batch| encode::ndjson(batch)).collect::<Result<Vec<_>>>()?;
    transfers.measure("in: NDJSON", || post("/api/v1/streams/readings", "application/x-ndjson", &objects))?;
    drop(objects);

    // out, of one server that has them
    let server = fresh()?;
    let (client, mut flight) = runtime.block_on(async {
        let mut flight = server.flight().await?;
        put(&mut flight, &batches, rows.readings).await?;
        Ok::<_, anyhow::Error>((server.postgres().await?, flight))
    })?;
    let text = format!("SELECT {columns} FROM readings");
    transfers.measure("out: COPY binary", || runtime.block_on(copy_out(&client, &text, rows.readings)))?;
    transfers.measure("out: Flight DoGet", || runtime.block_on(get(&mut flight, &text, rows.readings)))?;
    if let Some(postgres) = postgres {
        let client = runtime.block_on(postgres.connect())?;
        transfers.measure("out: COPY binary, PostgreSQL", || {
            runtime.block_on(copy_out(&client, &text, rows.readings))
        })?;
    }
    Ok(())
}

/// Checks that all rows are stored.
async fn check(client: &Client, rows: usize) -> Result<()> {
    let found: i64 = client.query_one("SELECT count(*) FROM readings", &[]).await?.get(0);
    ensure!(usize::try_from(found)? == rows, "expected {rows} rows stored, found {found}");
    Ok(())
}

async fn copy_in(client: &Client, columns: &str, pieces: &[Bytes], rows: usize) -> Result<f64> {
    copy_into(client, "readings", columns, pieces, rows).await
}

/// Sends rows of a table by `COPY`. Returns the seconds until they are acknowledged.
pub async fn copy_into(
    client: &Client,
    table: &str,
    columns: &str,
    pieces: &[Bytes],
    rows: usize,
) -> Result<f64> {
    let start = Instant::now();
    let sink = client.copy_in(&format!("COPY {table} ({columns}) FROM STDIN (FORMAT binary)")).await?;
    let mut sink = pin!(sink);
    for piece in pieces {
        sink.send(piece.clone()).await?;
    }
    let stored = sink.finish().await?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(usize::try_from(stored)? == rows, "expected {rows} rows stored, found {stored}");
    Ok(seconds)
}

/// Takes rows by `COPY`. Returns the seconds and bytes.
async fn copy_out(client: &Client, text: &str, rows: usize) -> Result<(f64, usize)> {
    let start = Instant::now();
    let pieces: Vec<Bytes> =
        client.copy_out(&format!("COPY ({text}) TO STDOUT (FORMAT binary)")).await?.try_collect().await?;
    let seconds = start.elapsed().as_secs_f64();
    let found = encode::count_copied(&pieces)?;
    ensure!(found == rows, "expected {rows} rows, found {found}");
    Ok((seconds, pieces.iter().map(Bytes::len).sum()))
}

async fn put(flight: &mut Flight, batches: &[&RecordBatch], rows: usize) -> Result<f64> {
    put_into(flight, "readings", batches, rows).await
}

/// Sends rows of a table by Flight SQL. Returns the seconds until they are acknowledged.
pub async fn put_into(
    flight: &mut Flight,
    table: &str,
    batches: &[&RecordBatch],
    rows: usize,
) -> Result<f64> {
    let options = TableDefinitionOptions {
        if_not_exist: TableNotExistOption::Fail as i32,
        if_exists: TableExistsOption::Append as i32,
    };
    let command = CommandStatementIngest {
        table: table.to_owned(),
        table_definition_options: Some(options),
        ..CommandStatementIngest::default()
    };
    let batches: Vec<Result<RecordBatch, FlightError>> =
        batches.iter().map(|batch| Ok((*batch).clone())).collect();
    let start = Instant::now();
    let accepted = flight.execute_ingest(command, stream::iter(batches)).await?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(usize::try_from(accepted)? == rows, "expected {rows} rows accepted, found {accepted}");
    Ok(seconds)
}

/// Returns the bytes of the values of a batch.
fn bytes_of(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default()).sum()
}

/// Takes rows by Flight SQL. Returns the seconds and bytes.
async fn get(flight: &mut Flight, text: &str, rows: usize) -> Result<(f64, usize)> {
    let start = Instant::now();
    let info = flight.execute(text.to_owned(), None).await?;
    let mut batches = flight.do_get(info.endpoint[0].ticket.clone().unwrap_or_default()).await?;
    let (mut found, mut bytes) = (0, 0);
    while let Some(batch) = batches.try_next().await? {
        found += batch.num_rows();
        bytes += bytes_of(&batch);
    }
    let seconds = start.elapsed().as_secs_f64();
    ensure!(found == rows, "expected {rows} rows, found {found}");
    Ok((seconds, bytes))
}

/// Sends bodies over one HTTP connection, one after the other. Returns the seconds.
fn post(server: &Server, path: &str, content_type: &str, bodies: &[Vec<u8>]) -> Result<f64> {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let url = format!("{}{path}", server.base);
    let authorization = format!("Bearer {}", server.token);
    let start = Instant::now();
    for body in bodies {
        let request =
            agent.post(&url).header("authorization", &authorization).header("content-type", content_type);
        let mut reply = request.send(body.as_slice())?;
        let text = reply.body_mut().read_to_string()?;
        ensure!(matches!(reply.status().as_u16(), 200 | 204), "{}: {text}", reply.status());
    }
    Ok(start.elapsed().as_secs_f64())
}
