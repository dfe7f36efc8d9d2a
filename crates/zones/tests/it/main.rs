//! Integration tests of the event store.

mod cache;
mod consolidation;
mod damage;
mod encryption;
mod evolution;
mod exactness;
mod faults;
mod fencing;
mod history;
mod interop;
mod lifecycle;
mod on_s3;
mod removal;
mod support;
