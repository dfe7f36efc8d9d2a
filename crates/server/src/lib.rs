//! HTTP/JSON server: events in, documents in and out, SQL, rules, health and metrics.
//!
//! [`serve`] starts a [`Server`] on an engine. Every route is declared once, with its description
//! (`/api/v1/openapi.json`); `docs/http.md` is the contract with callers. A request passes, from the outside
//! in: counting, the host check, the token, the right that its route needs, the concurrency limit, and then its handler, which calls
//! the engine on a blocking thread.

mod app;
mod body;
mod connections;
mod context;
mod description;
mod error;
mod extjson;
mod extract;
mod guard;
mod metrics;
mod model;
mod negotiate;
mod options;
mod page;
mod request_log;
mod router;
mod routes;
mod serve;
mod shared_errors;
mod stored_event;

pub use options::{ServerOptions, Token};
pub use serve::{Server, serve};
use tidemill_engine::Engine;
