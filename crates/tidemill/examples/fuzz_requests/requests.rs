//! Routes, and what is done to a body before it is sent.

use std::io::Write;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;

/// A route and the type of its content.
pub struct Route {
    pub path: &'static str,
    pub content_type: &'static str,
}

const fn route(path: &'static str, content_type: &'static str) -> Route {
    Route { path, content_type }
}

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
const GRPC: &str = "application/grpc";

/// Routes by their numbers, which are the first bytes of inputs.
pub const ROUTES: [Route; 34] = [
    route("/api/v1/streams/Flight?durability=memory&wait=true", JSON),
    route("/api/v1/streams/Flight?durability=memory", "application/x-ndjson"),
    route("/api/v1/streams/Flight?durability=memory", "text/csv"),
    route("/api/v1/streams/Flight?durability=memory", "application/vnd.apache.arrow.stream"),
    route("/api/v1/streams/Flight?durability=memory", "application/vnd.apache.parquet"),
    route("/write?db=any", TEXT),
    route("/api/v2/write?precision=ms", TEXT),
    route("/api/v3/write_lp?db=any&accept_partial=false", TEXT),
    route("/query?epoch=u", "application/vnd.influxql"),
    route("/query", "application/x-www-form-urlencoded"),
    route("/v1/logs", PROTOBUF),
    route("/v1/metrics", PROTOBUF),
    route("/v1/traces", PROTOBUF),
    route("/v1/logs", JSON),
    route("/v1/metrics", JSON),
    route("/v1/traces", JSON),
    route("/opentelemetry.proto.collector.logs.v1.LogsService/Export", GRPC),
    route("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", GRPC),
    route("/opentelemetry.proto.collector.trace.v1.TraceService/Export", GRPC),
    route("/api/v1/write", PROTOBUF),
    route("/api/v1/write", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
    route("/arrow.flight.protocol.FlightService/Handshake", GRPC),
    route("/arrow.flight.protocol.FlightService/ListFlights", GRPC),
    route("/arrow.flight.protocol.FlightService/GetFlightInfo", GRPC),
    route("/arrow.flight.protocol.FlightService/PollFlightInfo", GRPC),
    route("/arrow.flight.protocol.FlightService/GetSchema", GRPC),
    route("/arrow.flight.protocol.FlightService/DoGet", GRPC),
    route("/arrow.flight.protocol.FlightService/DoPut", GRPC),
    route("/arrow.flight.protocol.FlightService/DoExchange", GRPC),
    route("/arrow.flight.protocol.FlightService/DoAction", GRPC),
    route("/arrow.flight.protocol.FlightService/ListActions", GRPC),
    route("/api/v1/collections/Gate/documents", JSON),
    route("/api/v1/collections/Gate/find", JSON),
    route("/api/v1/sql?format=json", TEXT),
];

/// Returns the number of the route with these. Panics if there is none, as seeds name those of [`ROUTES`].
pub fn number(path: &str, content_type: &str) -> u8 {
    let is_it = |route: &Route| route.path.starts_with(path) && route.content_type.starts_with(content_type);
    let at = ROUTES.iter().position(is_it);
    at.unwrap_or_else(|| panic!("no route {path} {content_type}")) as u8
}

/// What is done to the content of an input; its number is the second byte.
#[derive(Clone, Copy)]
pub enum Treatment {
    /// Sent as it is; calls of gRPC get one message of it.
    Plain,
    Gzip,
    Zstd,
    Snappy,
    /// Sent as it is, and said to be compressed; of calls of gRPC, the content is frames.
    SaidToBeGzip,
    SaidToBeZstd,
    SaidToBeSnappy,
}

impl Treatment {
    fn of(number: u8) -> Self {
        use Treatment::{Gzip, Plain, SaidToBeGzip, SaidToBeSnappy, SaidToBeZstd, Snappy, Zstd};
        [Plain, Gzip, Zstd, Snappy, SaidToBeGzip, SaidToBeZstd, SaidToBeSnappy][usize::from(number) % 7]
    }

    fn encoding(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Gzip | Self::SaidToBeGzip => Some("gzip"),
            Self::Zstd | Self::SaidToBeZstd => Some("zstd"),
            Self::Snappy | Self::SaidToBeSnappy => Some("snappy"),
        }
    }

    fn body(self, content: &[u8]) -> Vec<u8> {
        match self {
            Self::Gzip => gzip(content),
            Self::Zstd => zstd::encode_all(content, 1).expect("bytes in memory"),
            Self::Snappy => snap::raw::Encoder::new().compress_vec(content).expect("few bytes"),
            _ => content.to_vec(),
        }
    }

    fn frames(self, content: &[u8]) -> Vec<u8> {
        match self {
            Self::Plain => frame(0, content),
            Self::Gzip => frame(1, &gzip(content)),
            _ => content.to_vec(),
        }
    }
}

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).expect("bytes in memory");
    encoder.finish().expect("bytes in memory")
}

/// Returns a message of gRPC.
pub fn frame(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag], (message.len() as u32).to_be_bytes().as_slice(), message].concat()
}

/// Returns the request of an input.
pub fn request(route: u8, treatment: u8, content: &[u8], token: &str) -> Request<Full<Bytes>> {
    let Route { path, content_type } = &ROUTES[usize::from(route) % ROUTES.len()];
    let treatment = Treatment::of(treatment);
    let is_grpc = *content_type == GRPC;
    let mut request = Request::post(format!("http://localhost{path}"))
        .header("content-type", *content_type)
        .header("authorization", format!("Bearer {token}"));
    if is_grpc {
        request = request.header("te", "trailers").header("grpc-encoding", "gzip");
    } else if let Some(encoding) = treatment.encoding() {
        request = request.header("content-encoding", encoding);
    }
    let body = if is_grpc { treatment.frames(content) } else { treatment.body(content) };
    request.body(Full::from(body)).expect("a request of known headers")
}
