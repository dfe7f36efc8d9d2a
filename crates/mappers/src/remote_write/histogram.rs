//! Native histograms as values of columns.

use super::messages::{BucketSpan, Histogram};
use crate::telemetry::{JsonText, Row, RowCell};

const RESET_HINTS: [&str; 4] = ["unknown", "yes", "no", "gauge"];

/// Adds the values of a histogram.
///
/// Errors: buckets and their counts do not fit together.
pub(super) fn add(histogram: &Histogram, row: &mut Row<'_, '_>) -> Result<(), String> {
    let count = histogram.count_float.or(histogram.count_int.map(|n| n as f64));
    let zero_count = histogram.zero_count_float.or(histogram.zero_count_int.map(|n| n as f64));
    let positive = buckets(
        "positive",
        &histogram.positive_spans,
        &histogram.positive_deltas,
        &histogram.positive_counts,
    )?;
    let negative = buckets(
        "negative",
        &histogram.negative_spans,
        &histogram.negative_deltas,
        &histogram.negative_counts,
    )?;
    row.float("histogram_count", count);
    row.float("histogram_sum", Some(histogram.sum));
    row.push("histogram_schema", RowCell::Int(histogram.schema.into()));
    row.float("histogram_zero_threshold", Some(histogram.zero_threshold));
    row.float("histogram_zero_count", zero_count);
    row.json("histogram_positive", positive);
    row.json("histogram_negative", negative);
    if !histogram.custom_values.is_empty() {
        let mut text = JsonText::new();
        text.array(&histogram.custom_values, |text, x| text.float(*x));
        row.json("histogram_custom_values", Some(text.finish()));
    }
    let hint = usize::try_from(histogram.reset_hint).ok().and_then(|n| RESET_HINTS.get(n));
    row.text(
        "histogram_reset_hint",
        hint.map_or_else(|| histogram.reset_hint.to_string(), ToString::to_string),
    );
    Ok(())
}

/// Returns buckets as an array of their indexes and counts; `None` if there are none.
///
/// Errors: there are not as many counts as buckets; a count is negative or too large.
fn buckets(
    side: &str,
    spans: &[BucketSpan],
    deltas: &[i64],
    counts: &[f64],
) -> Result<Option<String>, String> {
    if !deltas.is_empty() && !counts.is_empty() {
        return Err(format!("the {side} buckets have both deltas and counts"));
    }
    let expected: u64 = spans.iter().map(|span| u64::from(span.length)).sum();
    let found = deltas.len().max(counts.len());
    if expected != found as u64 {
        return Err(format!("the {side} buckets are {expected} by their spans, and {found} by their counts"));
    }
    if found == 0 {
        return Ok(None);
    }
    let mut indexes = indexes(spans);
    let (mut text, mut count) = (JsonText::new(), 0_i64);
    text.raw("[");
    for n in 0..found {
        text.raw(if n == 0 { "{\"index\":" } else { ",{\"index\":" });
        text.integer(indexes.next().unwrap_or_default());
        text.raw(",\"count\":");
        match deltas.get(n) {
            Some(delta) => {
                let next = count.checked_add(*delta).filter(|count| *count >= 0);
                count =
                    next.ok_or_else(|| format!("a count of the {side} buckets is negative or too large"))?;
                text.integer(count);
            }
            None => text.float(counts.get(n).copied().unwrap_or_default()),
        }
        text.raw("}");
    }
    text.raw("]");
    Ok(Some(text.finish()))
}

/// Returns the indexes of the buckets: each span begins with its distance from the end of the one before.
fn indexes(spans: &[BucketSpan]) -> impl Iterator<Item = i64> {
    let mut next = 0_i64;
    spans.iter().flat_map(move |span| {
        let begin = next + i64::from(span.offset);
        next = begin + i64::from(span.length);
        begin..next
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_become_counts_at_their_indexes() {
        let spans = [BucketSpan { offset: -2, length: 2 }, BucketSpan { offset: 3, length: 1 }];
        let json = buckets("positive", &spans, &[5, -2, 1], &[]).unwrap().unwrap();
        assert_eq!(json, r#"[{"index":-2,"count":5},{"index":-1,"count":3},{"index":3,"count":4}]"#);
        let json = buckets("positive", &spans, &[], &[0.5, f64::NAN, 2.0]).unwrap().unwrap();
        assert_eq!(json, r#"[{"index":-2,"count":0.5},{"index":-1,"count":"NaN"},{"index":3,"count":2.0}]"#);
        for (spans, deltas) in [
            (&spans[..], &[1, 2][..]),
            (&[BucketSpan { offset: 0, length: u32::MAX }][..], &[1][..]),
            (&spans[..], &[1, -2, 5][..]),
            (&spans[..], &[i64::MAX, 1, 0][..]),
        ] {
            assert!(buckets("positive", spans, deltas, &[]).is_err());
        }
        assert_eq!(buckets("negative", &[], &[], &[]), Ok(None));
    }
}
