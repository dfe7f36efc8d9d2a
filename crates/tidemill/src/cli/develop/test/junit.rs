//! JUnit XML of test results, the format that CI servers read.

use std::fmt::Write as _;

use super::FileResult;

/// Writes a `testsuite` per file. A file that cannot be parsed is an error of its own.
pub(super) fn write(app: &str, results: &[FileResult]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, "<testsuites name=\"{}\">", escaped(app));
    for result in results {
        suite(&mut xml, result);
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn suite(xml: &mut String, result: &FileResult) {
    let file = escaped(&result.file);
    let (errors, tests) = (usize::from(!result.problems.is_empty()), result.tests.len());
    let failures = result.tests.iter().filter(|test| !test.passed()).count();
    let _ = writeln!(
        xml,
        "  <testsuite name=\"{file}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\">",
        tests + errors
    );
    if errors > 0 {
        let text: Vec<String> = result.problems.iter().map(ToString::to_string).collect();
        let _ = writeln!(xml, "    <testcase classname=\"{file}\" name=\"(the file)\">");
        let message = escaped(&text.join("\n"));
        let _ = writeln!(xml, "      <error message=\"the file cannot be read\">{message}</error>");
        xml.push_str("    </testcase>\n");
    }
    for test in &result.tests {
        let head = format!(
            "    <testcase classname=\"{file}\" name=\"{}\" file=\"{file}\" line=\"{}\"",
            escaped(&test.name),
            test.line
        );
        if test.passed() {
            let _ = writeln!(xml, "{head}/>");
            continue;
        }
        let _ = writeln!(xml, "{head}>");
        for failure in &test.failures {
            let message = failure.message.lines().next().unwrap_or_default();
            let (message, text) = (escaped(message), escaped(&failure.to_string()));
            let _ = writeln!(xml, "      <failure message=\"{message}\">{text}</failure>");
        }
        xml.push_str("    </testcase>\n");
    }
    xml.push_str("  </testsuite>\n");
}

/// Escapes text for XML. Characters that XML 1.0 does not allow become `?`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}
