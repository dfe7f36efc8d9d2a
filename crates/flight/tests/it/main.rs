//! Flight SQL by the client of the crate `arrow-flight`, against a front end over a database of fixed batches.

mod catalogs;
mod fixture;
mod hostile;
mod ingest;
mod login;
mod prepared;
mod statements;
