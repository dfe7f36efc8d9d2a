//! Model Context Protocol: what programs with a language model ask, answered with the rights of their caller.
//!
//! ```text
//! POST /mcp {"method": "tools/call", "params": {"name": "sql", "arguments": {"query": "SELECT …"}}}
//!   ─▶ server: host, token, limits ─▶ McpService ─▶ a tool ─▶ Database, McpEngine ─▶ text
//! ```
//!
//! Every request stands alone: there are no sessions, and nothing is kept between two of them. The tools read, and nothing else: the
//! statements of a caller run as those of [`tidemill_access::Principal::reading_only`].

mod arguments;
mod engine;
mod errors;
mod handler;
mod options;
mod service;
mod tools;

pub use engine::{ChangedFile, McpEngine, NamedObject, PreparedBacktest};
pub use options::McpOptions;
pub use service::{McpService, PATH};
