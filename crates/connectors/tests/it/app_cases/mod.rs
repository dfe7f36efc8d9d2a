//! Apps as users write them, in the engine, with real servers at their ends.
//!
//! `tests/apps/NAME.siddhi` is the app, `tests/apps/NAME.case` what happens and what is then on the other side. The steps:
//!
//! - `create kafka TOPIC`, `create rabbitmq QUEUE`, `sql postgres STATEMENT`, `sql mariadb STATEMENT`: what must be there first.
//! - `start engine`, `stop engine`, `restart engine` (it crashes, and recovers), `retry undelivered`.
//! - `stop SERVER`, `start SERVER`.
//! - `send http PATH`, and `kafka TOPIC`, `mqtt TOPIC`, `rabbitmq QUEUE`, `nats SUBJECT`, `redis STREAM`, `tcp CHANNEL`: a
//!   message for each line. `append file NAME` appends the lines.
//! - `request http PATH`: a request for each line, followed by `=> STATUS BODY`.
//! - `expect kafka TOPIC`, and `rabbitmq QUEUE`, `redis STREAM`, `http PATH`, `mail USER`, `file NAME`, `postgres QUERY`, `mariadb QUERY`,
//!   `sqlite QUERY`, `table STREAM`, `query ON-DEMAND`, `undelivered`: what is there.
//!
//! What is expected must be there soon, and at the end of the case, when the engine is idle, still be all that is there: so
//! an event that arrives twice is seen. `UPDATE_CASES=1` writes what is there into the case. `${KAFKA}` and the like in apps and
//! cases are the addresses of the servers.

mod brokers;
mod case;
mod databases;
mod driver;
mod ends;
mod files;
mod kafka;
mod mail;
mod redis;
mod tcp;
mod web;

use driver::run;

#[test]
fn http_to_kafka() {
    run("http_to_kafka");
}

#[test]
fn kafka_to_rdbms() {
    run("kafka_to_rdbms");
}

#[test]
fn mqtt_to_email() {
    run("mqtt_to_email");
}

#[test]
fn file_to_http() {
    run("file_to_http");
}

#[test]
fn cdc_to_aggregation() {
    run("cdc_to_aggregation");
}

#[test]
fn aggregation_to_sqlite() {
    run("aggregation_to_sqlite");
}

#[test]
fn enrichment_by_table() {
    run("enrichment_by_table");
}

#[test]
fn error_store() {
    run("error_store");
}

#[test]
fn request_and_response() {
    run("request_and_response");
}

#[test]
fn rabbitmq_pattern() {
    run("rabbitmq_pattern");
}

#[test]
fn nats_to_table() {
    run("nats_to_table");
}

#[test]
fn redis_partition() {
    run("redis_partition");
}

#[test]
fn tcp_fault_stream() {
    run("tcp_fault_stream");
}
