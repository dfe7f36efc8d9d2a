//! Built-in functions, one file per namespace.

#![allow(
    clippy::mutable_key_type,
    reason = "a list used as a key is compared by its text, as Java does by its content"
)]

pub(crate) mod compile_cache;
mod convert;
mod core;
pub(crate) mod dates;
mod geo;
pub(crate) mod java;
mod json;
pub(crate) mod json_path;
pub mod json_text;
pub(crate) mod library;
mod list;
mod map;
mod math;
pub(crate) mod object;
mod regex;
pub(crate) mod script;
pub(crate) mod signature;
mod str;
mod unit_conversion;
pub(crate) mod xml;

use crate::registry::Registry;
use library::NamespaceRegistrar;

/// Registers all built-in functions.
pub fn register(registry: &mut Registry) {
    let mut without = NamespaceRegistrar::new(registry, "");
    core::register(&mut without);
    convert::register(&mut without);
    str::register(&mut NamespaceRegistrar::new(registry, "str"));
    regex::register(&mut NamespaceRegistrar::new(registry, "regex"));
    math::register(&mut NamespaceRegistrar::new(registry, "math"));
    dates::time::register(&mut NamespaceRegistrar::new(registry, "time"));
    map::register(&mut NamespaceRegistrar::new(registry, "map"));
    list::register(&mut NamespaceRegistrar::new(registry, "list"));
    json::register(&mut NamespaceRegistrar::new(registry, "json"));
    geo::register(&mut NamespaceRegistrar::new(registry, "geo"));
    script::register(registry);
    unit_conversion::register(registry);
}
