//! Integration tests of the front end.

mod bounds;
mod cases;
mod reference;
mod roundtrip;
mod siddhi;
