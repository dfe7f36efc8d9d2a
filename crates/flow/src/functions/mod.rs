//! The functions that come built in, a file for each namespace.

#![allow(
    clippy::mutable_key_type,
    reason = "a list used as a key is compared by its text, as Java does by its content"
)]

pub(crate) mod compiled;
mod convert;
mod core;
mod json;
pub(crate) mod json_path;
pub mod json_text;
pub(crate) mod library;
mod list;
mod literal;
mod map;
mod math;
mod number;
pub(crate) mod object;
pub(crate) mod pattern;
mod pattern_class;
mod pattern_syntax;
mod regex;
pub(crate) mod signature;
mod str;
mod time;
mod time_format;
mod time_parse;
mod time_week;
mod time_zone;
mod xml;

use crate::registry::Registry;
use library::Library;

/// Registers all of them.
pub fn register(registry: &mut Registry) {
    let mut without = Library::new(registry, "");
    core::register(&mut without);
    convert::register(&mut without);
    str::register(&mut Library::new(registry, "str"));
    regex::register(&mut Library::new(registry, "regex"));
    math::register(&mut Library::new(registry, "math"));
    time::register(&mut Library::new(registry, "time"));
    map::register(&mut Library::new(registry, "map"));
    list::register(&mut Library::new(registry, "list"));
    json::register(&mut Library::new(registry, "json"));
}
