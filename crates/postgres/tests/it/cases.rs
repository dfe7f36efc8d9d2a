//! Messages and the replies to them, as text: `tests/cases/*.txt`.
//!
//! A case begins with `== title` and has a session of its own. A line that begins with a word is a message; the lines with `<` after it
//! are the replies up to `ReadyForQuery`, after those messages that have one (`Query`, `Sync`). `UPDATE_CASES=1` writes the replies
//! anew.
//!
//! ```text
//! Query SELECT 1; SELECT 2      its text
//! Parse name [oids] text        `-` is the unnamed statement or portal
//! Bind portal statement [formats of values] [values] [formats of columns]
//! Describe S|P name, Execute portal rows, Close S|P name, Sync, Flush
//! CopyData text, with \\n \\t \\\\ for their characters; or 0x and bytes in hexadecimal
//! CopyDone, CopyFail reason; CopyEnd and SyncAhead are CopyDone and Sync without waiting for `ReadyForQuery`
//! Raw letter bytes in hexadecimal
//! ```

use std::path::Path;

use tidemill_postgres::PostgresOptions;

use crate::fixture::Server;
use crate::raw::{Raw, message, show};

#[tokio::test(flavor = "multi_thread")]
async fn messages_get_the_replies_of_the_case_files() {
    let server =
        Server::start(PostgresOptions { portals_max: 4, statements_max: 4, ..PostgresOptions::default() })
            .await;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let mut wrong = vec![];
    for file in files {
        let expected = std::fs::read_to_string(&file).unwrap();
        let found = replay(&server, &expected).await;
        if found == expected {
            continue;
        }
        if std::env::var_os("UPDATE_CASES").is_some() {
            std::fs::write(&file, found).unwrap();
            continue;
        }
        let lines = expected.lines().zip(found.lines()).enumerate().find(|(_, (a, b))| a != b);
        wrong.push(format!("{}: {lines:?}", file.display()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns a case file with the replies that the server has given.
async fn replay(server: &Server, text: &str) -> String {
    let mut out = String::new();
    let mut session: Option<Raw> = None;
    for line in text.lines().filter(|line| !line.starts_with('<')) {
        out += line;
        out.push('\n');
        if line.starts_with("==") {
            session = Some(Raw::session(server.address).await);
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let Some(bytes) = encode(word, rest) else { continue };
        let raw = session.as_mut().expect("a case begins with a title");
        raw.send(&bytes).await;
        if matches!(word, "Query" | "Sync" | "Raw" | "CopyDone" | "CopyFail") {
            let last: &[char] = if rest.contains("FROM STDIN") { &['G', 'Z'] } else { &['Z'] };
            for reply in raw.until(last).await {
                out += &format!("< {}\n", show(&reply));
            }
        }
    }
    out
}

fn name(word: &str) -> String {
    format!("{}\0", if word == "-" { "" } else { word })
}

/// Returns the items in the first brackets of a text, and what follows them.
fn list(text: &str) -> (Vec<String>, &str) {
    let (inner, rest) = text
        .trim_start()
        .strip_prefix('[')
        .and_then(|text| text.split_once(']'))
        .expect("a list in brackets");
    (inner.split('|').filter(|item| !item.is_empty()).map(str::to_owned).collect(), rest.trim_start())
}

fn numbers<const N: usize>(items: &[String], encode: fn(i64) -> [u8; N]) -> Vec<u8> {
    let count = (items.len() as u16).to_be_bytes();
    count.into_iter().chain(items.iter().flat_map(|item| encode(item.parse().unwrap()))).collect()
}

fn hexadecimal(text: &str) -> Vec<u8> {
    let text: String = text.split_whitespace().collect();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn unescaped(text: &str) -> Vec<u8> {
    let marked = text.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r");
    marked.replace('\0', "\\").into_bytes()
}

fn encode(word: &str, rest: &str) -> Option<Vec<u8>> {
    let (first, after) = rest.split_once(' ').unwrap_or((rest, ""));
    let short = |n: i64| (n as i16).to_be_bytes();
    Some(match word {
        "Query" => message('Q', format!("{}\0", rest.replace("\\n", "\n")).as_bytes()),
        "Parse" => {
            let (oids, text) = list(after);
            let head = format!("{}{text}\0", name(first));
            message('P', &[head.as_bytes(), &numbers(&oids, |n| (n as u32).to_be_bytes())].concat())
        }
        "Bind" => {
            let (statement, after) = after.split_once(' ').unwrap();
            let (formats, after) = list(after);
            let (values, after) = list(after);
            let (columns, _) = list(after);
            let mut content = format!("{}{}", name(first), name(statement)).into_bytes();
            content.extend(numbers(&formats, short));
            content.extend((values.len() as u16).to_be_bytes());
            for value in values {
                if value == "NULL" {
                    content.extend((-1_i32).to_be_bytes());
                    continue;
                }
                let bytes = value.strip_prefix("0x").map_or_else(|| value.clone().into_bytes(), hexadecimal);
                content.extend((bytes.len() as u32).to_be_bytes());
                content.extend(bytes);
            }
            content.extend(numbers(&columns, short));
            message('B', &content)
        }
        "Describe" => message('D', format!("{first}{}", name(after)).as_bytes()),
        "Execute" => {
            message('E', &[name(first).as_bytes(), &after.parse::<i32>().unwrap().to_be_bytes()].concat())
        }
        "Close" => message('C', format!("{first}{}", name(after)).as_bytes()),
        "Sync" | "SyncAhead" => message('S', b""),
        "Flush" => message('H', b""),
        "CopyData" => message('d', &rest.strip_prefix("0x").map_or_else(|| unescaped(rest), hexadecimal)),
        "CopyDone" | "CopyEnd" => message('c', b""),
        "CopyFail" => message('f', format!("{rest}\0").as_bytes()),
        "Raw" => message(first.chars().next().unwrap(), &hexadecimal(after)),
        _ => return None,
    })
}
