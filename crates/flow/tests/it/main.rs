//! Queries, windows and functions as apps see them.

mod functions;
mod windows;

mod recorded;
