//! Queries, windows and functions as apps see them.
