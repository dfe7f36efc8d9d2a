//! Tests of the public API: programs, events and documents in; events, documents, messages and explanations
//! out.

mod aggregate;
mod cases;
mod limits;
mod property;
mod world;
