//! Steps over PostgreSQL's protocol: a statement, on one connection for each user.
//!
//! Rows are separated by ` / `, their values by `|`. `COPY … FROM STDIN << DATA` sends data. `prepare NAME STATEMENT` and
//! `execute NAME` use the extended protocol. `\COMMAND` runs psql, where it is installed. What
//! a step keeps is its first value.

use std::collections::HashMap;
use std::process::Command;

use bytes::Bytes;
use futures::{SinkExt, TryStreamExt};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage, Statement};

use super::{Answer, Wire, World, password};

pub struct Clients {
    runtime: Runtime,
    clients: HashMap<String, Client>,
    prepared: HashMap<(String, String), Statement>,
}

impl Clients {
    pub fn new() -> Self {
        Self { runtime: Runtime::new().unwrap(), clients: HashMap::new(), prepared: HashMap::new() }
    }
}

fn address(world: &World) -> (&str, u16) {
    let (host, port) = world.postgres.rsplit_once(':').unwrap();
    (host, port.parse().unwrap())
}

fn password_of(world: &World, user: &str) -> String {
    if user == "admin" { world.token(user).to_owned() } else { password(user) }
}

async fn connect(world: &World, user: &str) -> Client {
    let (host, port) = address(world);
    let mut config = Config::new();
    config.host(host).port(port).user(user).password(password_of(world, user)).dbname("tidemill");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Runs a command of psql; `None` where it is not installed, which is printed.
fn psql(world: &World, user: &str, command: &str) -> Option<String> {
    let (host, port) = address(world);
    let mut psql = Command::new("psql");
    psql.args(["-X", "-A", "-t", "-h", host, "-p", &port.to_string(), "-U", user, "-c", command, "tidemill"]);
    match psql.env("PGPASSWORD", password_of(world, user)).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some(String::from_utf8(text).unwrap().trim().replace('\n', " / "))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: psql is not installed");
            None
        }
        Err(e) => panic!("psql: {e}"),
    }
}

fn rows(messages: Vec<SimpleQueryMessage>) -> String {
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => {
            let values = (0..row.len()).map(|at| row.get(at).unwrap_or("∅").replace('\n', "\\n"));
            Some(values.collect::<Vec<_>>().join("|"))
        }
        SimpleQueryMessage::CommandComplete(count) => Some(format!("({count})")),
        _ => None,
    };
    messages.into_iter().filter_map(row).collect::<Vec<_>>().join(" / ")
}

fn failure(error: &Error) -> String {
    let Some(error) = error.as_db_error() else { return format!("ERROR {error}") };
    let more = [("HINT", error.hint()), ("DETAIL", error.detail()), ("CONTEXT", error.where_())];
    let more = more.into_iter().filter_map(|(name, text)| text.map(|text| format!(" {name}: {text}")));
    format!("ERROR {}: {}{}", error.code().code(), error.message(), more.collect::<String>())
}

impl Wire for Clients {
    fn take(&mut self, world: &mut World, user: &str, step: &str) -> Answer {
        if step.starts_with('\\') {
            return psql(world, user, step).unwrap_or_default().into();
        }
        let Self { runtime, clients, prepared } = self;
        let answer = runtime.block_on(async {
            if !clients.contains_key(user) {
                clients.insert(user.to_owned(), connect(world, user).await);
            }
            let client = &clients[user];
            let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
            match word {
                "prepare" => {
                    let (name, text) = rest.split_once(' ').unwrap();
                    let statement = client.prepare(text).await?;
                    let columns: Vec<String> =
                        statement.columns().iter().map(|column| column.name().to_owned()).collect();
                    prepared.insert((user.to_owned(), name.to_owned()), statement);
                    Ok(columns.join("|"))
                }
                "execute" => {
                    let Some(statement) = prepared.get(&(user.to_owned(), rest.to_owned())) else {
                        return Ok(format!("nothing was prepared as `{rest}`"));
                    };
                    Ok(format!("{} rows", client.query(statement, &[]).await?.len()))
                }
                "COPY" if step.contains("FROM STDIN") => {
                    let (text, data) = step.split_once(" << ").unwrap_or((step, ""));
                    // the driver cannot use a connection any more after a refused COPY: it ends the copy that has not begun
                    let client = connect(world, user).await;
                    let data = Bytes::from(data.replace("\\n", "\n").replace("\\t", "\t"));
                    let mut sink = Box::pin(client.copy_in(text).await?);
                    sink.send(data).await?;
                    Ok(format!("{} rows", sink.as_mut().finish().await?))
                }
                "COPY" => {
                    let pieces: Vec<Bytes> = client.copy_out(step).await?.try_collect().await?;
                    Ok(String::from_utf8(pieces.concat()).unwrap().trim().replace('\n', " / "))
                }
                _ => Ok(rows(client.simple_query(step).await?)),
            }
        });
        let text = answer.unwrap_or_else(|error: Error| failure(&error));
        let kept = text.split([' ', '|']).next().map(str::to_owned);
        Answer { text, kept }
    }
}
