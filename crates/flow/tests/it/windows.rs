//! Windows by themselves: rows and clocks in, signals out.
//!
//! A case in `tests/cases/windows*.txt` is `=== name`, a line `window <call> of <columns>`, and steps, each followed by
//! what came out, indented. With `, all events` behind the columns somebody wants expired events, with `, searched`
//! joins look at the window. Lines with `#` are comments. Steps:
//!
//! | step | what is done |
//! | --- | --- |
//! | `clock 1000` | the clock moves, stopping at instants of the window's schedule |
//! | `event 1000 a 5` | the clock moves to the event's timestamp, then it arrives |
//! | `chunk 1000 a 5; 1001 b 6` | the same for events sent together |
//! | `restart` | the state is saved and given to a new window |
//! | `held` | what joins find |
//!
//! A line of output is a chunk: `a+` arrived, `a-` left, each called by the first column, `R` a reset; `@2000` tells
//! a timestamp that is not the event's own. A last `(b = 7)` tells other columns that the window has changed.
//! `UPDATE_CASES=1` writes the output anew.

mod aggregates;
mod driver;
mod property;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use driver::{Driver, Step};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let is_ours = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("windows");
    let mut files: Vec<PathBuf> = files.filter(is_ours).collect();
    files.sort();
    files
}

/// The file with the output that the windows give now.
fn filled(text: &str) -> String {
    let mut out = String::new();
    let mut driver = None;
    for line in text.lines().filter(|line| !line.starts_with("  ")) {
        let _ = writeln!(out, "{line}");
        let output = if line.starts_with("=== ") {
            driver = None;
            vec![]
        } else if let Some(header) = line.strip_prefix("window ") {
            match Driver::new(header) {
                Ok(made) => {
                    driver = Some(made);
                    vec![]
                }
                Err(why) => vec![format!("refused: {why}")],
            }
        } else if line.is_empty() || line.starts_with('#') {
            vec![]
        } else {
            let driver = driver.as_mut().unwrap_or_else(|| panic!("no window for `{line}`"));
            driver.run(&Step::parse(line, driver.types()))
        };
        for line in output {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

#[test]
fn cases_give_what_is_written() {
    for path in cases() {
        let text = fs::read_to_string(&path).unwrap();
        let filled = filled(&text);
        if env::var_os("UPDATE_CASES").is_some() {
            fs::write(&path, filled).unwrap();
            continue;
        }
        let mut case = "";
        for (number, (is, wanted)) in filled.lines().zip(text.lines()).enumerate() {
            case = wanted.strip_prefix("=== ").unwrap_or(case);
            assert_eq!(is, wanted, "{}:{}, case `{case}`", path.display(), number + 1);
        }
        assert_eq!(filled, text, "{}", path.display());
    }
}
