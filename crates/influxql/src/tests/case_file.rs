//! Case files: statements with the replies of InfluxDB 1.6 over the points of `points.lp`.
//!
//! A case is `=== name`, lines `? parameter=value`, the statements, a line `---`, and the reply, which is the one of InfluxDB and ours.
//! Where they differ, a line `? differs=reason` says why, the line is `--- here`, and the reply of InfluxDB follows a line
//! `--- InfluxDB`.

use std::path::{Path, PathBuf};

/// A case.
pub struct Case {
    pub name: String,
    pub parameters: Vec<(String, String)>,
    pub statements: String,
    pub here: String,
    pub influxdb: Option<String>,
}

/// Returns the text in front of the cases, and the cases.
pub fn read(text: &str) -> (String, Vec<Case>) {
    let mut parts = text.split("=== ");
    let intro = parts.next().unwrap().to_owned();
    let cases = parts.map(|part| {
        let (name, rest) = part.split_once('\n').unwrap();
        let (statements, replies) = rest.split_once("\n---").unwrap_or((rest.trim_end(), ""));
        let (here, influxdb) = match replies.split_once("\n--- InfluxDB\n") {
            Some((here, influxdb)) => {
                (here.trim_start_matches(" here\n"), Some(influxdb.trim_end().to_owned()))
            }
            None => (replies, None),
        };
        let is_parameter = |line: &&str| line.starts_with("? ");
        let parameters = statements.lines().filter(is_parameter).map(|line| {
            let (name, value) = line[2..].split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        });
        let lines: Vec<&str> = statements.lines().filter(|line| !is_parameter(line)).collect();
        Case {
            name: name.trim().to_owned(),
            parameters: parameters.collect(),
            statements: lines.join("\n"),
            here: here.trim().to_owned(),
            influxdb,
        }
    });
    (intro, cases.collect())
}

impl Case {
    /// Returns the value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Returns whether two replies are equal, numbers but for their last digits.
pub fn are_equal(a: &str, b: &str) -> bool {
    fn same(a: &serde_json::Value, b: &serde_json::Value) -> bool {
        use serde_json::Value as Json;
        match (a, b) {
            (Json::Number(a), Json::Number(b)) if a.is_f64() || b.is_f64() => {
                let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
                (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
            }
            (Json::Array(a), Json::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
            }
            (Json::Object(a), Json::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
            }
            (a, b) => a == b,
        }
    }
    let lines = |text: &str| -> Option<Vec<serde_json::Value>> {
        let values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
        values.collect::<Result<Vec<_>, _>>().ok()
    };
    a == b
        || matches!((lines(a), lines(b)), (Some(a), Some(b)) if a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| same(a, b)))
}

/// Returns the paths of the case files of a directory.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    files.sort();
    files
}
