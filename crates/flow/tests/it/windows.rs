//! Single windows: rows and clocks in, output chunks out.
//!
//! A case in `tests/cases/windows*.txt` is `=== name`, a line `window <call> of <columns>`, and steps, each
//! followed by the indented output. With `, all events` after the columns expired events are requested, with
//! `, searched` joins search the window. Lines with `#` are comments. Steps:
//!
//! | step | action |
//! | --- | --- |
//! | `clock 1000` | advances time, stopping at the window's timers |
//! | `event 1000 a 5` | advances time to the event's timestamp, then processes the event |
//! | `chunk 1000 a 5; 1001 b 6` | likewise for events sent as one chunk |
//! | `restart` | saves the state and restores it into a new window |
//! | `held` | lists the rows that joins find |
//!
//! A line of output is a chunk: `a+` is a current and `a-` an expired event, named by its first column, `R` a
//! reset; `@2000` is a timestamp other than the event's. A final `(b = 7)` lists other columns that the
//! window has changed. `UPDATE_CASES=1` rewrites the output.

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

/// Returns the file with the current output.
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
