//! Tests of the mappers: cases as text, and events that come back from messages.

mod avro;
mod bounds;
mod cases;
mod fixture;
mod protobuf;
mod round_trips;
