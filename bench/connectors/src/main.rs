//! Measures connectors end to end: from Kafka through a query to Kafka, from the log to a relational database, a sink that is
//! down, a stream that is followed.

mod clients;
mod kafka;
mod outage;
mod persist;
mod tap;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures connectors end to end.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    measure: Measure,
}

#[derive(Subcommand)]
enum Measure {
    /// Events from Kafka through a query to Kafka, beside a bare loop of librdkafka's consumer and producer.
    Kafka(kafka::Options),
    /// A sink whose broker is down while events come at full rate, beside another sink.
    Outage(outage::Options),
    /// Events from the durable log to committed rows of relational databases.
    Persist(persist::Options),
    /// A stream that is followed while events come.
    Tap(tap::Options),
}

fn main() -> Result<()> {
    match Arguments::parse().measure {
        Measure::Kafka(options) => kafka::measure(&options),
        Measure::Outage(options) => outage::measure(&options),
        Measure::Persist(options) => persist::measure(&options),
        Measure::Tap(options) => tap::measure(&options),
    }
}
