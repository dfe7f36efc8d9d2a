//! Statements that several nodes execute together: the same results as of one node, whatever becomes of the others.

mod cluster;
mod equal;
mod faults;
mod limits;
