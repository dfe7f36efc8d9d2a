//! Content negotiation by the `Accept` header.

use axum::http::{HeaderMap, StatusCode, header};
use tidemill_types::ErrorKind;

use crate::error::ApiError;
use tidemill_database::Format;

/// Content types that select each format, the canonical one first.
const MEDIA: [(Format, &[&str]); 6] = [
    (Format::Json, &["application/json"]),
    (Format::Ndjson, &["application/x-ndjson", "application/ndjson", "application/jsonl"]),
    (Format::Csv, &["text/csv"]),
    (Format::Table, &["text/plain"]),
    (Format::Arrow, &["application/vnd.apache.arrow.stream"]),
    (Format::Parquet, &["application/vnd.apache.parquet"]),
];

/// Selects the format of rows: `asked` in the query string, else the best of `Accept`, else JSON.
///
/// Errors: 400 for an unknown name, 406 when the header allows no format of ours.
pub(crate) fn format(asked: Option<&str>, headers: &HeaderMap) -> Result<Format, ApiError> {
    if let Some(word) = asked {
        return Ok(word.parse()?);
    }
    let Some(accept) = headers.get(header::ACCEPT) else {
        return Ok(Format::Json);
    };
    let accept = accept.to_str().unwrap_or_default();
    let ranges = ranges(accept);
    // the client's order decides between equal weights, our order between formats that `*/*` allows
    let mut best: Option<(u16, Format)> = None;
    for (range, weight) in &ranges {
        if *weight == 0 || best.is_some_and(|(w, _)| w >= *weight) {
            continue;
        }
        if let Some((format, _)) =
            MEDIA.iter().find(|(_, names)| names.iter().any(|name| covers(range, name)))
        {
            best = Some((*weight, *format));
        }
    }
    best.map(|(_, format)| format).ok_or_else(|| {
        let known: Vec<&str> = MEDIA.iter().map(|(_, names)| names[0]).collect();
        ApiError::with_status(
            StatusCode::NOT_ACCEPTABLE,
            ErrorKind::Invalid,
            format!(
                "Accept `{accept}`: expected one of {}, or ?format=json|ndjson|csv|table|arrow|parquet",
                known.join(", ")
            ),
        )
    })
}

/// Returns whether the client prefers plain text to JSON.
pub(crate) fn prefers_text(headers: &HeaderMap) -> bool {
    matches!(format(None, headers), Ok(Format::Table))
}

/// Returns whether the client prefers CSV to JSON.
pub(crate) fn is_csv(headers: &HeaderMap) -> bool {
    // the second name is one that only InfluxDB takes
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    matches!(format(None, headers), Ok(Format::Csv)) || accept.trim() == "application/csv"
}

/// Returns whether the client accepts HTML by name, as browsers do.
pub(crate) fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    ranges(accept).iter().any(|(range, weight)| range == "text/html" && *weight > 0)
}

/// Parses media ranges with their weights in thousandths. An invalid weight counts as 0.
fn ranges(accept: &str) -> Vec<(String, u16)> {
    accept
        .split(',')
        .map(|part| {
            let mut pieces = part.split(';');
            let range = pieces.next().unwrap_or_default().trim().to_ascii_lowercase();
            let weight =
                pieces.find_map(|p| p.trim().strip_prefix("q=")).map_or(Some(1.0), |q| q.parse::<f32>().ok());
            let weight = weight.filter(|w| (0.0..=1.0).contains(w)).map_or(0, |w| (w * 1000.0) as u16);
            (range, weight)
        })
        .filter(|(range, _)| !range.is_empty())
        .collect()
}

fn covers(range: &str, media: &str) -> bool {
    range == media
        || range == "*/*"
        || range.strip_suffix("/*").is_some_and(|kind| media.split('/').next() == Some(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(accept: &str) -> Result<Format, StatusCode> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        format(None, &headers).map_err(|_| StatusCode::NOT_ACCEPTABLE)
    }

    #[test]
    fn the_best_weight_wins() {
        assert_eq!(of("*/*"), Ok(Format::Json));
        assert_eq!(of("text/csv"), Ok(Format::Csv));
        assert_eq!(of("text/plain;q=0.4, application/x-ndjson; q=0.9"), Ok(Format::Ndjson));
        assert_eq!(of("text/html, application/json;q=0.8, */*;q=0.1"), Ok(Format::Json));
        assert_eq!(of("text/*"), Ok(Format::Csv));
        assert_eq!(of("application/vnd.apache.arrow.stream, */*;q=0.1"), Ok(Format::Arrow));
        assert_eq!(of("application/vnd.apache.parquet"), Ok(Format::Parquet));
        assert_eq!(of("application/*"), Ok(Format::Json));
        assert_eq!(of("image/png"), Err(StatusCode::NOT_ACCEPTABLE));
        assert_eq!(of("application/json;q=0"), Err(StatusCode::NOT_ACCEPTABLE));
        assert_eq!(format(Some("table"), &HeaderMap::new()).ok(), Some(Format::Table));
        assert!(format(Some("tabel"), &HeaderMap::new()).unwrap_err().detail().message.contains("table"));
    }
}
