//! Causes of errors of the HTTP client.

/// Returns an error of the HTTP client with its causes, which its own text leaves out.
pub(crate) fn cause(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
