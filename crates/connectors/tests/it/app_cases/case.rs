//! Case files: what happens to an app, and what is then on the other side.
//!
//! A step is a line at the margin; the lines below it that are indented by two spaces are its text. Lines with `#` are
//! comments.

use std::fs;
use std::path::{Path, PathBuf};

/// Steps of a case in order.
pub struct Case {
    path: PathBuf,
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Default)]
pub struct Step {
    /// Comments and empty lines before the step.
    before: String,
    /// Action of the step, such as `send kafka orders`.
    pub head: String,
    /// Lines of text, without their indentation.
    pub body: Vec<String>,
}

impl Step {
    /// Splits the head into `count` words; the last one is the rest of the line, and words that are missing are empty.
    pub fn words<const COUNT: usize>(&self) -> [&str; COUNT] {
        let mut words = self.head.splitn(COUNT, ' ');
        std::array::from_fn(|_| words.next().unwrap_or_default())
    }
}

impl Case {
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (mut steps, mut before) = (Vec::<Step>::new(), String::new());
        for line in text.lines() {
            match (line.strip_prefix("  "), steps.last_mut()) {
                (Some(text), Some(step)) if before.is_empty() => step.body.push(text.into()),
                (None, _) if !line.is_empty() && !line.starts_with('#') => {
                    let before = std::mem::take(&mut before);
                    steps.push(Step { before, head: line.into(), body: vec![] });
                }
                _ => {
                    before += line;
                    before.push('\n');
                }
            }
        }
        Self { path: path.into(), steps }
    }

    /// Writes the case with its present texts.
    pub fn write(&self) {
        let mut text = String::new();
        for step in &self.steps {
            text += &format!("{}{}\n", step.before, step.head);
            step.body.iter().for_each(|line| text += &format!("  {line}\n"));
        }
        fs::write(&self.path, text).unwrap();
    }

    /// Returns whether a step stops or starts this server.
    pub fn stops(&self, server: &str) -> bool {
        self.steps.iter().any(|step| step.words() == ["stop", server])
    }
}
