//! Steps over Flight SQL. Rows are separated by ` / `, their values by `|`.
//!
//! | step | calls |
//! | --- | --- |
//! | `query TEXT`, `info TEXT as kept_X`, `get kept_X` | `GetFlightInfo` and `DoGet`; the first only, which keeps the ticket; the second only |
//! | `schema TEXT` | `GetSchema` |
//! | `update TEXT`, `put STREAM` | `DoPut` of a change, of one event |
//! | `tables PATTERN`, `schemas`, `keys TABLE` | the catalogs |
//! | `prepare TEXT as kept_X`, `execute kept_X`, `close kept_X` | prepared statements |
//! | `cancel kept_X` | `CancelFlightInfo` of a ticket |

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables,
    CommandPreparedStatementQuery, CommandStatementIngest, CommandStatementQuery, ProstMessageExt,
    TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{
    Action, CancelFlightInfoRequest, FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaResult,
    Ticket,
};
use arrow_schema::Schema;
use bytes::Bytes;
use futures::{TryStreamExt, stream};
use prost::Message;
use tokio::runtime::Runtime;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use super::{Answer, Wire, World};
use crate::flight::show;

type Client = FlightSqlServiceClient<Channel>;

pub struct Clients {
    runtime: Runtime,
    clients: HashMap<String, Client>,
    /// Tickets and handles that steps have kept.
    kept: HashMap<String, Bytes>,
}

impl Clients {
    pub fn new() -> Self {
        Self { runtime: Runtime::new().unwrap(), clients: HashMap::new(), kept: HashMap::new() }
    }
}

fn request<T>(client: &Client, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let token = format!("Bearer {}", client.token().unwrap());
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    request
}

async fn rows(client: &mut Client, ticket: Bytes) -> Result<String, FlightError> {
    let batches: Vec<RecordBatch> = client.do_get(Ticket { ticket }).await?.try_collect().await?;
    Ok(show(&batches).join(" / "))
}

async fn rows_of(client: &mut Client, info: FlightInfo) -> Result<String, FlightError> {
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    rows(client, ticket.ticket).await
}

async fn act(client: &mut Client, name: &str, body: Vec<u8>) -> Result<Vec<Bytes>, FlightError> {
    let action = Action { r#type: name.to_owned(), body: body.into() };
    let request = request(client, action);
    let results: Vec<arrow_flight::Result> = client.do_action(request).await?.try_collect().await?;
    Ok(results.into_iter().map(|result| result.body).collect())
}

async fn schema(client: &mut Client, text: &str) -> Result<String, FlightError> {
    let command = CommandStatementQuery { query: text.to_owned(), transaction_id: None };
    let request = request(client, FlightDescriptor::new_cmd(command.as_any().encode_to_vec()));
    let SchemaResult { schema } = client.inner_mut().get_schema(request).await?.into_inner();
    let schema = Schema::try_from(IpcMessage(schema))?;
    Ok(schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join("|"))
}

async fn put(client: &mut Client, table: &str) -> Result<String, FlightError> {
    let options = TableDefinitionOptions {
        if_not_exist: TableNotExistOption::Fail as i32,
        if_exists: TableExistsOption::Append as i32,
    };
    let command = CommandStatementIngest {
        table: table.to_owned(),
        table_definition_options: Some(options),
        ..CommandStatementIngest::default()
    };
    let row = RecordBatch::try_from_iter([("id", Arc::new(StringArray::from(vec!["f"])) as ArrayRef)])?;
    Ok(format!("{} accepted", client.execute_ingest(command, stream::iter([Ok(row)])).await?))
}

impl Clients {
    /// Takes a step. Returns its answer, and what it keeps.
    async fn step(
        client: &mut Client,
        kept: &HashMap<String, Bytes>,
        step: &str,
    ) -> Result<(String, Option<Bytes>), FlightError> {
        let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
        let known = || kept.get(rest).cloned().unwrap_or_else(|| panic!("no step has kept `{rest}`"));
        let pattern = || (!rest.is_empty()).then(|| rest.to_owned());
        Ok(match word {
            "query" => {
                let info = client.execute(rest.to_owned(), None).await?;
                (rows_of(client, info).await?, None)
            }
            "info" => {
                let info = client.execute(rest.to_owned(), None).await?;
                let columns = info.clone().try_decode_schema()?;
                let ticket = info.endpoint[0].ticket.clone().unwrap().ticket;
                let columns: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
                (columns.join("|"), Some(ticket))
            }
            "get" => (rows(client, known()).await?, None),
            "schema" => (schema(client, rest).await?, None),
            "update" => (format!("{} changed", client.execute_update(rest.to_owned(), None).await?), None),
            "put" => (put(client, rest).await?, None),
            "tables" => {
                let command = CommandGetTables {
                    table_name_filter_pattern: pattern(),
                    include_schema: true,
                    ..CommandGetTables::default()
                };
                let info = client.get_tables(command).await?;
                let all = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await?;
                let all: Vec<RecordBatch> = all.try_collect().await?;
                // the bytes of the columns have their names
                let columns =
                    all.iter().map(|batch| batch.project(&[1, 2, 4])).collect::<Result<Vec<_>, _>>()?;
                let shown = show(&columns);
                let names = shown
                    .iter()
                    .filter(|row| !row.starts_with("pg_catalog|") && !row.starts_with("information_schema|"));
                let names: Vec<String> = names.map(|row| readable(row)).collect();
                (names.join(" / "), None)
            }
            "schemas" => {
                let info = client.get_db_schemas(CommandGetDbSchemas::default()).await?;
                (rows_of(client, info).await?, None)
            }
            "keys" => {
                let command =
                    CommandGetPrimaryKeys { table: rest.to_owned(), ..CommandGetPrimaryKeys::default() };
                let info = client.get_primary_keys(command).await?;
                (rows_of(client, info).await?, None)
            }
            "prepare" => {
                let request =
                    ActionCreatePreparedStatementRequest { query: rest.to_owned(), transaction_id: None };
                let body = act(client, "CreatePreparedStatement", request.as_any().encode_to_vec()).await?;
                let any = Any::decode(&*body[0])?;
                let result: ActionCreatePreparedStatementResult = any.unpack()?.unwrap();
                ("prepared".to_owned(), Some(result.prepared_statement_handle))
            }
            "execute" => {
                let command = CommandPreparedStatementQuery { prepared_statement_handle: known() };
                let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
                let request = request(client, descriptor);
                let info = client.inner_mut().get_flight_info(request).await?.into_inner();
                (rows_of(client, info).await?, None)
            }
            "close" => {
                let request = ActionClosePreparedStatementRequest { prepared_statement_handle: known() };
                act(client, "ClosePreparedStatement", request.as_any().encode_to_vec()).await?;
                ("closed".to_owned(), None)
            }
            "cancel" => {
                let endpoint = FlightEndpoint::new().with_ticket(Ticket { ticket: known() });
                let info = FlightInfo::new().with_endpoint(endpoint);
                let request = CancelFlightInfoRequest { info: Some(info) };
                let body = act(client, "CancelFlightInfo", request.encode_to_vec()).await?;
                (format!("{:?}", body[0]), None)
            }
            other => panic!("unknown step `{other}`"),
        })
    }
}

/// Writes bytes in hexadecimal form as the names that are in them.
fn readable(row: &str) -> String {
    let (names, bytes) = row.rsplit_once('|').unwrap();
    let byte = |at: usize| bytes.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let text: String = (0..bytes.len()).step_by(2).filter_map(byte).map(char::from).collect();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.len() >= 4);
    format!("{names}|{}", words.collect::<Vec<_>>().join(","))
}

impl Wire for Clients {
    fn take(&mut self, world: &mut World, user: &str, step: &str) -> Answer {
        let Self { runtime, clients, kept } = self;
        // what a step keeps is bytes, and stays here
        let (step, word) =
            step.rsplit_once(" as ").filter(|(_, word)| word.starts_with("kept_")).unwrap_or((step, ""));
        let taken = runtime.block_on(async {
            if !clients.contains_key(user) {
                let endpoint = Endpoint::new(world.serving.base.clone()).unwrap();
                let mut client = FlightSqlServiceClient::new(endpoint.connect().await.unwrap());
                client.set_token(world.token(user).to_owned());
                clients.insert(user.to_owned(), client);
            }
            Self::step(clients.get_mut(user).unwrap(), kept, step).await
        });
        match taken {
            Ok((text, bytes)) => {
                if let Some(bytes) = bytes.filter(|_| !word.is_empty()) {
                    kept.insert(word.to_owned(), bytes);
                }
                text.into()
            }
            Err(FlightError::Tonic(status)) => {
                format!("ERROR {:?}: {}", status.code(), status.message()).into()
            }
            Err(other) => format!("ERROR {other}").into(),
        }
    }
}
