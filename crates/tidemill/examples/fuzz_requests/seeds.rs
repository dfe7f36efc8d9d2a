//! Valid requests of each route.

#[expect(dead_code, reason = "replies are looked at by other tests")]
#[path = "../../../influxql/src/tests/case_file.rs"]
mod case_file;
mod columns;
mod telemetry;

use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, CommandGetCatalogs,
    CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
    CommandGetXdbcTypeInfo, CommandPreparedStatementQuery, CommandPreparedStatementUpdate,
    CommandStatementIngest, CommandStatementQuery, CommandStatementUpdate, ProstMessageExt,
    TableDefinitionOptions, TicketStatementQuery,
};
use arrow_flight::{Action, BasicAuth, Criteria, Empty, FlightDescriptor, HandshakeRequest, Ticket};
use prost::Message;

use crate::requests::{frame, gzip, number};
use crate::server::PREPARED_HANDLE;

const PLAIN: u8 = 0;
const SNAPPY: u8 = 3;
const SAID_TO_BE_GZIP: u8 = 4;
const SAID_TO_BE_ZSTD: u8 = 5;
const SAID_TO_BE_SNAPPY: u8 = 6;
/// Bytes that a small body expands to.
const BOMB_BYTES: usize = 64 << 20;

/// Returns the inputs from which others are made, by families.
pub fn families() -> Vec<Vec<Vec<u8>>> {
    let of = |add: fn(&mut Vec<Vec<u8>>)| {
        let mut seeds = vec![];
        add(&mut seeds);
        seeds
    };
    [texts, tables, influxql, telemetry::add, flight, compressed].map(of).to_vec()
}

/// Returns an input.
fn input(path: &str, content_type: &str, treatment: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    [&[number(path, content_type), treatment], content.as_ref()].concat()
}

fn texts(seeds: &mut Vec<Vec<u8>>) {
    let event = r#"{"id": "f1", "origin": "Köln", "seats": 3, "hits": 9007199254740993, "ratio": 0.5, "delay": -1.5e3, "late": true, "at": "2026-01-05T09:00:00.5+01:00", "more": {"a": [1, null]}, "other": 7}"#;
    for (path, content_type, text) in [
        ("/api/v1/streams", "application/json", event.to_owned()),
        ("/api/v1/streams", "application/json", format!("[{event}, {{\"id\": 1}}, {{}}]")),
        ("/api/v1/streams", "application/x-ndjson", format!("{event}\n{{\"at\": 1767603600}}\r\n\n{event}")),
        ("/api/v1/streams", "text/csv", "id,origin,seats,late,at,more\na,\"x \"\"y\"\"\",1,yes,2026-01-05T09:00:00Z,\"{\"\"a\"\": 1}\"\n,,,,,\n".to_owned()),
        ("/write", "text/plain", "cpu,host=a,region=eu\\ west usage=0.5,busy=3i,up=true,note=\"said \\\"no\\\"\" 1767603600000000000\n# comment\nmem used=1u,free=1e300\n".to_owned()),
        ("/api/v2", "text/plain", "requests,app=x total=-9223372036854775808i,rate=NaN 1767603600000\nnosuch,a=b c=1 1\n".to_owned()),
        ("/api/v3", "text/plain", "disk_io,path=/dev/sda reads=1i,other=\"\n\" 1767603600\ndisk_io reads=t\n".to_owned()),
        ("/query", "application/x-www-form", "q=SELECT+mean(usage)+FROM+cpu+WHERE+host%3D%24h+AND+time%3E%3D%242026&params=%7B%22h%22%3A%22a%22%2C%22r%22%3A%7B%22regex%22%3A%22%5Ea%22%7D%2C%22d%22%3A%7B%22duration%22%3A%225m%22%7D%7D&epoch=ms&chunked=true&chunk_size=2&pretty=true".to_owned()),
        ("/api/v1/collections/Gate/documents", "application/json", r#"[{"name": "A1", "terminal": {"$numberLong": "7"}, "at": {"$date": "2026-01-05T09:00:00Z"}}, {"_id": {"$oid": "000000000000000000000001"}}]"#.to_owned()),
        ("/api/v1/collections/Gate/find", "application/json", r#"{"filter": {"terminal": {"$in": [1, null, {"$regularExpression": {"pattern": "^a", "options": "i"}}]}}, "sort": {"name": -1}, "limit": 5}"#.to_owned()),
        ("/api/v1/sql", "text/plain", "SELECT origin, count(*) FROM events.\"Flight\" WHERE delay > 1.5 GROUP BY origin".to_owned()),
    ] {
        seeds.push(input(path, content_type, PLAIN, text));
    }
}

fn tables(seeds: &mut Vec<Vec<u8>>) {
    let table = columns::batch();
    seeds.push(input("/api/v1/streams", "application/vnd.apache.arrow", PLAIN, columns::stream(&table)));
    seeds.push(input("/api/v1/streams", "application/vnd.apache.parquet", PLAIN, columns::parquet(&table)));
}

fn influxql(seeds: &mut Vec<Vec<u8>>) {
    for text in [
        include_str!("../../../influxql/tests/cases/select.txt"),
        include_str!("../../../influxql/tests/cases/show.txt"),
        include_str!("../../../influxql/tests/cases/grafana.txt"),
        include_str!("../../../influxql/tests/cases/errors.txt"),
    ] {
        for case in case_file::read(text).1 {
            seeds.push(input("/query", "application/vnd.influxql", PLAIN, case.statements));
        }
    }
    let points = include_str!("../../../influxql/tests/cases/points.lp");
    seeds.push(input("/write", "text/plain", PLAIN, points));
}

fn flight(seeds: &mut Vec<Vec<u8>>) {
    const SERVICE: &str = "/arrow.flight.protocol.FlightService/";
    let mut add = |call: &str, treatment: u8, content: Vec<u8>| {
        seeds.push(input(&format!("{SERVICE}{call}"), "application/grpc", treatment, content));
    };
    let text = || "SELECT id, delay FROM events.\"Flight\" LIMIT 3".to_owned();
    let (pattern, handle) = (|| Some("%".to_owned()), || PREPARED_HANDLE.to_vec().into());
    let prepared = CommandPreparedStatementQuery { prepared_statement_handle: handle() };
    for command in [
        CommandStatementQuery { query: text(), transaction_id: None }.as_any(),
        prepared.as_any(),
        CommandGetCatalogs {}.as_any(),
        CommandGetDbSchemas { catalog: Some("tidemill".to_owned()), db_schema_filter_pattern: pattern() }
            .as_any(),
        CommandGetTables {
            catalog: None,
            db_schema_filter_pattern: pattern(),
            table_name_filter_pattern: pattern(),
            table_types: vec!["TABLE".to_owned()],
            include_schema: true,
        }
        .as_any(),
        CommandGetTableTypes {}.as_any(),
        CommandGetSqlInfo { info: vec![0, 1, 500] }.as_any(),
        CommandGetXdbcTypeInfo { data_type: Some(12) }.as_any(),
        CommandGetPrimaryKeys { catalog: None, db_schema: None, table: "Flight".to_owned() }.as_any(),
    ] {
        let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
        add("GetFlightInfo", PLAIN, descriptor.encode_to_vec());
        add("GetSchema", PLAIN, descriptor.encode_to_vec());
        add("DoGet", PLAIN, Ticket::new(command.encode_to_vec()).encode_to_vec());
    }
    let descriptor = FlightDescriptor::new_path(vec!["Flight".to_owned()]);
    add("PollFlightInfo", PLAIN, descriptor.encode_to_vec());
    let ticket = TicketStatementQuery { statement_handle: b"\x0a\x10".to_vec().into() }.as_any();
    let json = br#"{"database": "any", "sql_query": "SELECT 1", "query_type": "sql", "params": {}}"#.to_vec();
    add("DoGet", PLAIN, Ticket::new(ticket.encode_to_vec()).encode_to_vec());
    add("DoGet", PLAIN, Ticket::new(json).encode_to_vec());
    let basic = BasicAuth { username: "admin".to_owned(), password: "x".to_owned() };
    let payload = basic.encode_to_vec().into();
    add("Handshake", PLAIN, HandshakeRequest { protocol_version: 0, payload }.encode_to_vec());
    add("ListFlights", PLAIN, Criteria { expression: b"x".to_vec().into() }.encode_to_vec());
    add("ListActions", PLAIN, Empty {}.encode_to_vec());
    let option = [0x0a, 7, b'c', b'a', b't', b'a', b'l', b'o', b'g', 0x12, 4, 0x0a, 2, b'x', b'y'];
    let create = ActionCreatePreparedStatementRequest { query: text(), transaction_id: None };
    let close = ActionClosePreparedStatementRequest {
        prepared_statement_handle: b"0123456789abcdef".to_vec().into(),
    };
    for (kind, body) in [
        ("CreatePreparedStatement", create.as_any().encode_to_vec()),
        ("ClosePreparedStatement", close.as_any().encode_to_vec()),
        ("CancelFlightInfo", b"\x0a\x04\x1a\x02\x0a\x00".to_vec()),
        ("CancelQuery", b"\x0a\x00".to_vec()),
        ("SetSessionOptions", [&[0x0a, option.len() as u8], option.as_slice()].concat()),
        ("GetSessionOptions", vec![]),
        ("BeginTransaction", vec![]),
    ] {
        add("DoAction", PLAIN, Action::new(kind, body).encode_to_vec());
    }
    let definition = TableDefinitionOptions { if_not_exist: 2, if_exists: 2 };
    let ingest = CommandStatementIngest {
        table_definition_options: Some(definition),
        table: "Flight".to_owned(),
        ..CommandStatementIngest::default()
    };
    let insert = "INSERT INTO events.\"Flight\" (id, delay) VALUES ('i', 1)".to_owned();
    let update = CommandStatementUpdate { query: insert, transaction_id: None };
    let bound = CommandPreparedStatementUpdate { prepared_statement_handle: handle() };
    for (descriptor, batch) in [
        (descriptor, columns::batch()),
        (FlightDescriptor::new_cmd(ingest.as_any().encode_to_vec()), columns::batch()),
        (FlightDescriptor::new_cmd(update.as_any().encode_to_vec()), columns::parameters()),
        (FlightDescriptor::new_cmd(prepared.as_any().encode_to_vec()), columns::parameters()),
        (FlightDescriptor::new_cmd(bound.as_any().encode_to_vec()), columns::parameters()),
    ] {
        let frames = columns::flight_data(&batch, descriptor).into_iter();
        let frames: Vec<u8> = frames.flat_map(|data| frame(0, &data.encode_to_vec())).collect();
        // the content is frames
        add("DoPut", SAID_TO_BE_GZIP, frames.clone());
        add("DoExchange", SAID_TO_BE_GZIP, frames);
    }
}

/// Bodies that expand to more than is allowed, and such that say so.
fn compressed(seeds: &mut Vec<Vec<u8>>) {
    let zeros = vec![0; BOMB_BYTES];
    let line = b"cpu,host=a usage=1 1767603600000000000\n";
    // larger windows than a server may take
    let mut wide = zstd::Encoder::new(vec![], 1).expect("an encoder");
    wide.window_log(27).expect("a window");
    std::io::Write::write_all(&mut wide, &zeros).expect("bytes in memory");
    let wide = wide.finish().expect("bytes in memory");
    for (treatment, content) in [
        (SAID_TO_BE_GZIP, gzip(&zeros[..4 << 20])),
        (SAID_TO_BE_GZIP, gzip(line)),
        (SAID_TO_BE_GZIP, [gzip(line), gzip(line)].concat()),
        (SAID_TO_BE_ZSTD, zstd::encode_all(zeros.as_slice(), 1).expect("bytes in memory")),
        (SAID_TO_BE_ZSTD, zstd::encode_all(line.as_slice(), 1).expect("bytes in memory")),
        (SAID_TO_BE_ZSTD, wide),
    ] {
        seeds.push(input("/write", "text/plain", treatment, &content));
        seeds.push(input("/v1/logs", "application/x-protobuf", treatment, &content));
        seeds.push(input("/api/v1/write", "application/x-protobuf", treatment, &content));
        seeds.push(input("/api/v1/streams", "application/vnd.apache.arrow", treatment, &content));
    }
    // 4 GiB in few bytes
    seeds.push(input(
        "/api/v1/write",
        "application/x-protobuf",
        SAID_TO_BE_SNAPPY,
        b"\xff\xff\xff\xff\x0f\0",
    ));
    seeds.push(input(
        "/api/v1/write",
        "application/x-protobuf",
        SAID_TO_BE_SNAPPY,
        b"\x80\x80\x40\xfe\x01\0\xfe\x01\0",
    ));
    // frames of gRPC
    let bomb = frame(1, &gzip(&zeros[..4 << 20]));
    let two = [frame(0, b""), frame(0, b"")].concat();
    for frames in [bomb, two, b"\0\xff\xff\xff\xff".to_vec(), b"\x02\0\0\0\0".to_vec(), b"\0\0\0".to_vec()] {
        seeds.push(input(
            "/opentelemetry.proto.collector.logs",
            "application/grpc",
            SAID_TO_BE_GZIP,
            &frames,
        ));
        seeds.push(input(
            "/arrow.flight.protocol.FlightService/GetFlightInfo",
            "application/grpc",
            SAID_TO_BE_GZIP,
            &frames,
        ));
        seeds.push(input(
            "/arrow.flight.protocol.FlightService/DoPut",
            "application/grpc",
            SAID_TO_BE_GZIP,
            &frames,
        ));
    }
}
