//! Medians, percentiles, and the file that collects figures.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// Times of several runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// The value in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of `values`; zeros when there are none.
    pub fn of(values: &[f64]) -> Self {
        Self { median: percentile(values, 0.5), min: percentile(values, 0.0), max: percentile(values, 1.0) }
    }
}

/// Returns the value below which a share of `values` is; 0 when there are none.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1) as f64;
    sorted.get((last * share).round() as usize).copied().unwrap_or_default()
}

/// Appends a figure to a file of JSON lines, if there is one.
pub fn record(file: Option<&Path>, figure: &impl Serialize) -> Result<()> {
    let Some(path) = file else { return Ok(()) };
    let mut out = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| path.display().to_string())?;
    writeln!(out, "{}", serde_json::to_string(figure)?)?;
    Ok(())
}
