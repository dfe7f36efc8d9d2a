//! Regular expressions: those of Go, which InfluxDB has, are nearly those of the crate `regex`.

use regex::{Regex, RegexBuilder};

/// Maximum bytes of a compiled expression.
const COMPILED_BYTES_MAX: usize = 256 << 10;

/// Compiles a pattern.
///
/// Errors: the reason, in one line.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let compiled = RegexBuilder::new(pattern).size_limit(COMPILED_BYTES_MAX).nest_limit(50).build();
    compiled.map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("{last}: `{}`", pattern.chars().take(64).collect::<String>())
    })
}
