//! Compilation of what a query reads: handlers before and after the window, and the window.

mod handlers;
mod window;

pub(crate) use handlers::{compile as handlers, stateless as stateless_handlers};
pub(crate) use window::make_window;
