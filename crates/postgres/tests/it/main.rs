//! PostgreSQL's protocol over a socket, with a database of fixed batches.

mod cases;
mod clients;
mod encryption;
mod fixture;
mod hostile;
mod login;
mod raw;
mod sessions;
