//! Prometheus' text format, read.

/// One sample of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// Part of the metric: `bucket`, `sum`, `count`, or empty for the metric itself.
    pub(super) part: &'static str,
    pub(super) labels: Vec<(String, String)>,
    pub(super) value: f64,
}

/// Content of a scrape about one metric.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Scrape {
    pub(super) help: String,
    /// Type as it is declared; empty without a declaration.
    pub(super) kind: String,
    pub(super) samples: Vec<Sample>,
    /// Lines that cannot be read, with the reason of the first one.
    pub(super) wrong: Option<(usize, String)>,
}

/// Reads what a text says about the metric `name`.
pub(super) fn parse(text: &str, name: &str) -> Scrape {
    let mut scrape = Scrape::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            let mut words = comment.trim_start().splitn(3, [' ', '\t']);
            if let (Some(keyword), Some(of)) = (words.next(), words.next())
                && of == name
            {
                let rest = words.next().unwrap_or_default().trim();
                match keyword {
                    "HELP" => scrape.help = unescape(rest),
                    "TYPE" => scrape.kind = rest.to_ascii_lowercase(),
                    _ => {}
                }
            }
            continue;
        }
        let Some(rest) = line.strip_prefix(name) else { continue };
        let found = ["_bucket", "_sum", "_count", ""].into_iter().find_map(|part| {
            let rest = rest.strip_prefix(part)?;
            rest.starts_with(['{', ' ', '\t']).then(|| (part.trim_start_matches('_'), rest))
        });
        let Some((part, rest)) = found else { continue };
        match sample(rest.trim_start()) {
            Ok((labels, value)) => scrape.samples.push(Sample { part: part_name(part), labels, value }),
            Err(reason) => {
                let (count, first) =
                    scrape.wrong.take().unwrap_or_else(|| (0, format!("line {}: {reason}", index + 1)));
                scrape.wrong = Some((count + 1, first));
            }
        }
    }
    scrape
}

fn part_name(part: &str) -> &'static str {
    match part {
        "bucket" => "bucket",
        "sum" => "sum",
        "count" => "count",
        _ => "",
    }
}

/// Label names with their values.
type Labels = Vec<(String, String)>;

/// Parses `{label="value",…} value [timestamp]`.
fn sample(text: &str) -> Result<(Labels, f64), String> {
    let mut labels = vec![];
    let mut rest = text;
    if let Some(inside) = text.strip_prefix('{') {
        rest = inside.trim_start();
        loop {
            if let Some(behind) = rest.strip_prefix('}') {
                rest = behind;
                break;
            }
            let (label, behind) = rest.split_once('=').ok_or("expected a label and `=`")?;
            let behind = behind.trim_start().strip_prefix('"').ok_or("expected `\"` behind `=`")?;
            let end = end_of_quoted(behind).ok_or("the value of a label has no end")?;
            labels.push((label.trim().to_owned(), unescape(&behind[..end])));
            rest = behind[end + 1..].trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
    }
    let value = rest.split_whitespace().next().ok_or("expected a value")?;
    // Rust reads `NaN`, `Inf`, `+Inf` and `-Inf` too
    let value = value.parse().map_err(|_| format!("expected a number, found `{value}`"))?;
    Ok((labels, value))
}

fn end_of_quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read() {
        let text = "# HELP m first\\nsecond\n# TYPE m histogram\nm_bucket{le=\"+Inf\", a=\"x,\\\"}\\\\\"} 3 1700\nm_sum{} +Inf\n\
                    m_count 4\nother 1\nm_other 2\n# HELP n x\nm{a=1} 2\nm{a=\"1} 2\nm x\nm -1.5e3";
        let scrape = parse(text, "m");
        assert_eq!((scrape.help.as_str(), scrape.kind.as_str()), ("first\nsecond", "histogram"));
        let labels = vec![("le".to_owned(), "+Inf".to_owned()), ("a".to_owned(), "x,\"}\\".to_owned())];
        let expected = [
            Sample { part: "bucket", labels, value: 3.0 },
            Sample { part: "sum", labels: vec![], value: f64::INFINITY },
            Sample { part: "count", labels: vec![], value: 4.0 },
            Sample { part: "", labels: vec![], value: -1500.0 },
        ];
        assert_eq!(scrape.samples, expected);
        assert_eq!(scrape.wrong, Some((3, "line 9: expected `\"` behind `=`".into())));
    }
}
