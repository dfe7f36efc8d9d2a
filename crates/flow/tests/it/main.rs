//! Queries, windows and functions as apps see them.

mod functions;
mod patterns;
mod windows;

mod recorded;
