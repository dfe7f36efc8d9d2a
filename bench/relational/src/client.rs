//! Plain loops over the client libraries.

use std::pin::pin;
use std::time::Instant;

use anyhow::Context;
use bytes::Bytes;
use futures::{SinkExt, StreamExt, stream};
use mysql_async::prelude::Queryable;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

use crate::events::{COLUMNS, Event, NAMES};
use crate::{BATCH, Times, UPDATE_BATCH};

/// Table of the measurements.
pub const TABLE: &str = "bench_readings";

/// Connection.
pub struct Client {
    runtime: Runtime,
    server: Server,
}

enum Server {
    Postgres(tokio_postgres::Client),
    MariaDb(mysql_async::Conn),
}

impl Client {
    /// Returns the name of a server's kind.
    pub fn name(url: &str) -> &'static str {
        if url.starts_with("mysql") { "MariaDB" } else { "PostgreSQL" }
    }

    pub fn connect(url: &str) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let server = runtime.block_on(async {
            anyhow::Ok(match Self::name(url) {
                "MariaDB" => {
                    let url: &str = url.split('?').next().unwrap_or(url);
                    let options = mysql_async::OptsBuilder::from_opts(mysql_async::Opts::from_url(url)?);
                    Server::MariaDb(mysql_async::Conn::new(options.prefer_socket(false)).await?)
                }
                _ => {
                    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
                    tokio::spawn(connection);
                    Server::Postgres(client)
                }
            })
        });
        Ok(Self { runtime, server: server.context("cannot connect")? })
    }

    fn run(&mut self, sql: &str) -> anyhow::Result<()> {
        self.runtime.block_on(async {
            match &mut self.server {
                Server::Postgres(client) => client.batch_execute(sql).await?,
                Server::MariaDb(connection) => connection.query_drop(sql).await?,
            }
            Ok(())
        })
    }

    /// Creates an empty table.
    pub fn create_table(&mut self) -> anyhow::Result<()> {
        self.drop_table()?;
        self.run(&format!("CREATE TABLE {TABLE} ({COLUMNS})"))
    }

    /// Drops the table.
    pub fn drop_table(&mut self) -> anyhow::Result<()> {
        self.run(&format!("DROP TABLE IF EXISTS {TABLE}"))
    }

    /// Calls `work` for each chunk, and returns the times.
    fn timed(
        &mut self,
        events: &[Event],
        rows: usize,
        mut work: impl AsyncFnMut(&mut Server, &[Event]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Times> {
        let server = &mut self.server;
        self.runtime.block_on(async {
            let mut times = vec![];
            for chunk in events.chunks(rows) {
                let start = Instant::now();
                work(server, chunk).await?;
                times.push(start.elapsed());
            }
            Ok(times)
        })
    }

    /// Inserts events, a transaction for each batch.
    pub fn insert(&mut self, events: &[Event]) -> anyhow::Result<Times> {
        self.timed(events, BATCH, async |server, chunk| {
            let mut text = String::with_capacity(chunk.len() * 200);
            chunk.iter().for_each(|event| event.write_text(&mut text));
            let data = Bytes::from(text);
            match server {
                Server::Postgres(client) => {
                    let sql = format!("COPY {TABLE} ({NAMES}) FROM STDIN");
                    let mut copy = pin!(client.copy_in::<_, Bytes>(&sql).await?);
                    copy.send(data).await?;
                    copy.finish().await?;
                }
                Server::MariaDb(connection) => {
                    connection.set_infile_handler(async move { Ok(stream::iter([Ok(data)]).boxed()) });
                    let sql = format!("LOAD DATA LOCAL INFILE 'rows' INTO TABLE {TABLE} ({NAMES})");
                    connection.query_drop(sql).await?;
                }
            }
            Ok(())
        })
    }

    /// Updates rows by key, a statement for each.
    pub fn update_single(&mut self, events: &[Event]) -> anyhow::Result<Times> {
        self.timed(events, UPDATE_BATCH, async |server, chunk| {
            match server {
                Server::Postgres(client) => {
                    let sql = format!(
                        "UPDATE {TABLE} SET machine = $2, sensor = $3, value = $4, low = $5, high = $6, state = $7, quality = $8, \
                         lot = $9, unit = $10, message = $11 WHERE id = $1"
                    );
                    let transaction = client.transaction().await?;
                    let statement = transaction.prepare(&sql).await?;
                    for e in chunk {
                        transaction
                            .execute(
                                &statement,
                                &[
                                    &e.id, &e.machine, &e.sensor, &e.value, &e.low, &e.high, &e.state, &e.quality, &e.lot,
                                    &e.unit, &e.message,
                                ],
                            )
                            .await?;
                    }
                    transaction.commit().await?;
                }
                Server::MariaDb(connection) => {
                    let sql = format!(
                        "UPDATE {TABLE} SET machine = ?, sensor = ?, value = ?, low = ?, high = ?, state = ?, quality = ?, \
                         lot = ?, unit = ?, message = ? WHERE id = ?"
                    );
                    connection.query_drop("START TRANSACTION").await?;
                    for e in chunk {
                        connection.exec_drop(&sql, values(e, false)).await?;
                    }
                    connection.query_drop("COMMIT").await?;
                }
            }
            Ok(())
        })
    }

    /// Updates rows by key, a statement for each 1,000.
    pub fn update(&mut self, events: &[Event]) -> anyhow::Result<Times> {
        self.timed(events, UPDATE_BATCH, async |server, chunk| match server {
            Server::Postgres(client) => update_arrays(client, chunk).await,
            Server::MariaDb(connection) => {
                let row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
                let set = NAMES.split(", ").skip(1).map(|name| format!("{name} = VALUES({name})"));
                let sql = format!(
                    "INSERT INTO {TABLE} ({NAMES}) VALUES {} ON DUPLICATE KEY UPDATE {}",
                    vec![row; chunk.len()].join(", "),
                    set.collect::<Vec<_>>().join(", ")
                );
                let all: Vec<mysql_async::Value> =
                    chunk.iter().flat_map(|event| values(event, true)).collect();
                connection.exec_drop(sql, all).await?;
                Ok(())
            }
        })
    }

    /// Returns how many of these events the table has with their values.
    pub fn count_equal(&mut self, events: &[Event]) -> anyhow::Result<usize> {
        let sql = format!("SELECT id, value, message FROM {TABLE} ORDER BY id");
        let rows: Vec<(i64, f64, String)> = self.runtime.block_on(async {
            anyhow::Ok(match &mut self.server {
                Server::Postgres(client) => {
                    let rows = client.query(&sql, &[]).await?;
                    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
                }
                Server::MariaDb(connection) => connection.exec(&sql, ()).await?,
            })
        })?;
        let is_equal = |event: &&Event| {
            let found = rows.binary_search_by_key(&event.id, |row| row.0).ok().map(|at| &rows[at]);
            found.is_some_and(|(_, value, message)| *value == event.value && *message == event.message)
        };
        Ok(events.iter().filter(is_equal).count())
    }
}

async fn update_arrays(client: &tokio_postgres::Client, chunk: &[Event]) -> anyhow::Result<()> {
    let set =
        NAMES.split(", ").skip(1).map(|name| format!("{name} = v.{name}")).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "UPDATE {TABLE} AS t SET {set} FROM unnest($1::bigint[], $2::text[], $3::text[], $4::float8[], $5::float8[], \
         $6::float8[], $7::integer[], $8::integer[], $9::bigint[], $10::text[], $11::text[]) AS v ({NAMES}) WHERE t.id = v.id"
    );
    fn column<'e, T>(chunk: &'e [Event], of: impl Fn(&'e Event) -> T) -> Vec<T> {
        chunk.iter().map(of).collect()
    }
    client
        .execute(
            &sql,
            &[
                &column(chunk, |e| e.id),
                &column(chunk, |e| e.machine.as_str()),
                &column(chunk, |e| e.sensor.as_str()),
                &column(chunk, |e| e.value),
                &column(chunk, |e| e.low),
                &column(chunk, |e| e.high),
                &column(chunk, |e| e.state),
                &column(chunk, |e| e.quality),
                &column(chunk, |e| e.lot),
                &column(chunk, |e| e.unit.as_str()),
                &column(chunk, |e| e.message.as_str()),
            ],
        )
        .await?;
    Ok(())
}

/// Returns the values of an event, with the id at the beginning or at the end.
fn values(e: &Event, id_first: bool) -> Vec<mysql_async::Value> {
    let mut values: Vec<mysql_async::Value> = vec![
        e.machine.as_str().into(),
        e.sensor.as_str().into(),
        e.value.into(),
        e.low.into(),
        e.high.into(),
        e.state.into(),
        e.quality.into(),
        e.lot.into(),
        e.unit.as_str().into(),
        e.message.as_str().into(),
    ];
    values.insert(if id_first { 0 } else { values.len() }, e.id.into());
    values
}
