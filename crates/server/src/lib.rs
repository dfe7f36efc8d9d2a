//! HTTP/JSON server: events in, documents in and out, SQL, rules, health and metrics.
//!
//! [`HttpFrontEnd`] is the protocol, and [`serve`] starts a [`Server`] with one listener on an engine. Every route is declared once, with its description
//! (`/api/v1/openapi.json`); `docs/http.md` is the contract with callers. Connections speak HTTP/1.1 or HTTP/2; over the latter, a [`GrpcService`] is served beside the routes. A request passes, from the outside
//! in: counting, the host check, the token, the right that its route needs, the concurrency limit, and then its handler, which calls
//! the engine on a blocking thread.

mod app;
mod body;
mod connection;
mod context;
mod error;
mod extjson;
mod extract;
mod grpc;
mod guard;
mod metrics;
mod model;
mod mounted;
mod negotiate;
mod openapi;
mod options;
mod page;
mod paths;
mod reply_body;
mod request_log;
mod result_pages;
mod router;
mod routes;
mod serve;
mod stored_event;

pub use grpc::GrpcService;
pub use mounted::MountedService;
pub use options::{ServerOptions, Token};
pub use serve::{HttpFrontEnd, Server, serve};
use tidemill_engine::Engine;
