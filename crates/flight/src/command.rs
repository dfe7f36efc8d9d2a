//! Commands, as descriptors, tickets and actions have them.

use arrow_flight::sql::{Any, Command, ProstMessageExt};
use bytes::Bytes;
use prost::Message;
use serde::Deserialize;

use crate::error::{Result, invalid, unsupported};

/// Ticket of the clients of InfluxDB 3: a statement as JSON.
#[derive(Debug, Deserialize)]
struct JsonTicket {
    /// Accepted without effect: there is one set of streams.
    #[serde(default, rename = "database")]
    _database: Option<String>,
    #[serde(alias = "query")]
    sql_query: String,
    #[serde(default)]
    query_type: Option<String>,
    #[serde(default)]
    params: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Reads a command that is packed into `google.protobuf.Any`.
///
/// Errors: the bytes are no such message; the command is not known.
pub(crate) fn command(bytes: &[u8]) -> Result<Command> {
    let any = Any::decode(bytes).map_err(|e| {
        invalid(format!(
            "the command is not a message of Flight SQL ({e}): expected one that is packed into google.protobuf.Any, such as \
             CommandStatementQuery"
        ))
    })?;
    let name = any.type_url.rsplit(['/', '.']).next().unwrap_or_default().to_owned();
    match Command::try_from(any).map_err(|e| invalid(format!("the command {name} is damaged: {e}")))? {
        Command::Unknown(any) => {
            let shown: String = any.type_url.chars().take(200).collect();
            Err(unsupported(format!("the command `{shown}` is not one of Flight SQL that Tidemill knows")))
        }
        command => Ok(command),
    }
}

/// Reads the content of an action that is packed into `google.protobuf.Any`.
///
/// Errors: the bytes are no such message, or another one.
pub(crate) fn unpacked<M: ProstMessageExt>(bytes: &[u8]) -> Result<M> {
    let expected = || M::type_url().rsplit('.').next().unwrap_or_default();
    let any = Any::decode(bytes)
        .map_err(|e| invalid(format!("the body of the action is damaged ({e}): expected {}", expected())))?;
    let message = any.unpack::<M>().map_err(|e| invalid(format!("{} is damaged: {e}", expected())))?;
    message.ok_or_else(|| invalid(format!("the action has `{}`: expected {}", any.type_url, expected())))
}

/// Packs a message into `google.protobuf.Any`.
pub(crate) fn packed(message: &impl ProstMessageExt) -> Bytes {
    message.as_any().encode_to_vec().into()
}

/// Returns the statement of a ticket that is JSON, as the clients of InfluxDB 3 send it; `None` for other tickets.
///
/// Errors: the JSON is not such a ticket, or is in another language than SQL.
pub(crate) fn json_ticket(ticket: &[u8]) -> Result<Option<String>> {
    // a message of Protocol Buffers never begins so: it would be of a group
    if ticket.first() != Some(&b'{') {
        return Ok(None);
    }
    let ticket: JsonTicket = serde_json::from_slice(ticket).map_err(|e| {
        invalid(format!(
            "the ticket is JSON, and not {{\"database\": …, \"sql_query\": …, \"query_type\": \"sql\"}}: {e}"
        ))
    })?;
    match ticket.query_type.as_deref() {
        None | Some("" | "sql") => {}
        Some("influxql") => {
            return Err(unsupported("InfluxQL is not supported: write SQL, and query with language=\"sql\""));
        }
        Some(other) => {
            let shown: String = other.chars().take(50).collect();
            return Err(invalid(format!("query_type is `{shown}`: expected `sql`")));
        }
    }
    if ticket.params.is_some_and(|params| !params.is_empty()) {
        return Err(unsupported(
            "parameters with names are not supported: write the values into the text, or prepare the statement with $1, $2, … by Flight SQL",
        ));
    }
    Ok(Some(ticket.sql_query))
}

/// Refuses transactions, which the server says that it has not.
pub(crate) fn no_transaction(id: Option<&Bytes>) -> Result<()> {
    match id {
        Some(id) if !id.is_empty() => Err(unsupported(
            "there are no transactions: each statement sees one moment, and its effect is there when it is answered. Leave the transaction out \
             (autocommit)",
        )),
        _ => Ok(()),
    }
}

/// Returns whether a statement changes stored events.
pub(crate) fn is_change(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    first.eq_ignore_ascii_case("DELETE") || first.eq_ignore_ascii_case("UPDATE")
}

/// Returns whether a statement ends another one: `KILL QUERY`. It has no plan to be described.
pub(crate) fn is_kill(text: &str) -> bool {
    text.split_whitespace().next().unwrap_or_default().eq_ignore_ascii_case("KILL")
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::{
        ActionClosePreparedStatementRequest, CommandStatementQuery, TicketStatementQuery,
    };
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    #[test]
    fn commands_are_read_or_refused_with_their_names() {
        let query = CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id: None };
        assert_eq!(command(&packed(&query)).unwrap(), Command::CommandStatementQuery(query));
        assert!(command(b"SELECT 1").unwrap_err().message().contains("CommandStatementQuery"));
        let unknown = Any { type_url: "type.googleapis.com/a.b.Nothing".to_owned(), value: Bytes::new() };
        assert_eq!(command(&unknown.encode_to_vec()).unwrap_err().code(), Code::Unimplemented);
        let type_url = "type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery".to_owned();
        let damaged = Any { type_url, value: Bytes::from_static(b"\x0a\xff") };
        assert!(
            command(&damaged.encode_to_vec())
                .unwrap_err()
                .message()
                .contains("CommandStatementQuery is damaged")
        );
        let ticket = TicketStatementQuery { statement_handle: Bytes::new() };
        let wrong = unpacked::<ActionClosePreparedStatementRequest>(&packed(&ticket)).unwrap_err();
        assert!(wrong.message().contains("expected ActionClosePreparedStatementRequest"), "{wrong}");
    }

    #[test]
    fn tickets_of_influxdb_are_statements_of_sql() {
        let sql = |text: &str| json_ticket(text.as_bytes());
        let ticket = r#"{"database": "d", "sql_query": "SELECT 1", "query_type": "sql"}"#;
        assert_eq!(sql(ticket).unwrap().as_deref(), Some("SELECT 1"));
        assert_eq!(sql(r#"{"sql_query": "SELECT 1", "params": {}}"#).unwrap().as_deref(), Some("SELECT 1"));
        assert_eq!(sql("\n\u{5}abc").unwrap(), None);
        for (text, code, part) in [
            (r#"{"sql_query": "x", "query_type": "influxql"}"#, Code::Unimplemented, "InfluxQL"),
            (r#"{"sql_query": "x", "query_type": "flux"}"#, Code::InvalidArgument, "`flux`"),
            (r#"{"sql_query": "x", "params": {"a": 1}}"#, Code::Unimplemented, "$1"),
            (r#"{"database": "d"}"#, Code::InvalidArgument, "sql_query"),
            ("{", Code::InvalidArgument, "JSON"),
        ] {
            let refused = sql(text).unwrap_err();
            assert!(refused.code() == code && refused.message().contains(part), "{refused}");
        }
    }

    #[test]
    fn changes_are_known_by_their_verb() {
        assert!(is_change(" \n delete from events.a where b = 1") && is_change("UPDATE x"));
        assert!(!is_change("SELECT 1") && !is_change("") && !is_change("DELETED"));
        assert!(is_kill(" kill query 7") && !is_kill("SELECT 1"));
    }

    proptest! {
        #[test]
        fn random_bytes_are_no_commands(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = (command(&bytes), json_ticket(&bytes), unpacked::<CommandStatementQuery>(&bytes));
        }
    }
}
