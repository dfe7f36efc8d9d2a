//! Differences that are meant.

/// Lines of `tests/compare/accepted.txt`: `SYSTEM | part of the statement | reason`.
pub struct Accepted(Vec<(String, String, String)>);

impl Accepted {
    pub fn read() -> Self {
        let text = include_str!("../../compare/accepted.txt");
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        Self(
            lines
                .map(|line| {
                    let mut parts = line.splitn(3, " | ").map(|part| part.trim().to_owned());
                    let mut next = || parts.next().expect("three parts");
                    (next(), next(), next())
                })
                .collect(),
        )
    }

    /// Returns why `system` may have another result for a statement.
    pub fn reason(&self, system: &str, statement: &str) -> Option<String> {
        let fits =
            |(of, part, _): &&(String, String, String)| of == system && statement.contains(part.as_str());
        self.0.iter().find(fits).map(|(_, _, reason)| reason.clone())
    }
}
