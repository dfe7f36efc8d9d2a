//! Tests of the control protocol.

mod control;
mod log;
mod model;
mod node;
mod placement;
mod requests;
mod simulation;
