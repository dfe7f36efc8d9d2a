//! Types of connectors and mappers that apps of other SiddhiQL systems use and that there are not here, with what to
//! use instead.

use tidemill_connect::Catalog;

/// Names, and what to use instead.
const UNAVAILABLE: &[(&str, &str)] = &[
    ("twitter", "the interface that it used no longer exists; poll the service with `http-poll`"),
    ("wso2event", "use `tcp` with `@map(type='binary')` between systems, or `http`"),
    ("kafkaMultiDC", "write one `@source(type='kafka')` for each data centre, and `kafka` sinks alike"),
    ("sqs", "let a queue trigger deliver to `@source(type='http')`"),
    ("gcs", "the sink is called `google-cloud-storage`"),
    ("azuredatalake", "every event is kept in the event store, which can live in Azure storage"),
    ("websubhub", "subscribe with `@source(type='http')`"),
    ("hazelcast", "use `redis` or `nats`"),
    (
        "mongodb",
        "keep the rows in a table without `@store`; MongoDB's own drivers can read and write entities of rules here",
    ),
    (
        "elasticsearch",
        "keep the rows in a table without `@store`, or in PostgreSQL, MySQL or SQLite with `rdbms`",
    ),
    ("solr", "keep the rows in a table without `@store`, or in PostgreSQL, MySQL or SQLite with `rdbms`"),
    (
        "cassandra",
        "keep the rows in a table without `@store`, or in PostgreSQL, MySQL or SQLite with `rdbms`",
    ),
    ("hbase", "keep the rows in a table without `@store`, or in PostgreSQL, MySQL or SQLite with `rdbms`"),
    ("googlesheets", "write the events with `http` to the interface of the service"),
];

/// Adds all of them to a catalog.
pub(crate) fn add_all(catalog: &mut Catalog) {
    for (name, instead) in UNAVAILABLE {
        catalog.add_unavailable(name, instead);
    }
}
