//! Case files: requests with their expected replies. `UPDATE_CASES=1` rewrites the replies.
//!
//! A case is `=== name`, the request (request line without version, headers, empty line, body), a line `---
//! status`, and the reply (relevant headers, an empty line, the body). `Host`, the token, `Content-Length`
//! and `Connection: close` are added to a request unless it sets them; a header with the value `none` is
//! omitted. `\xHH` represents a byte. Values that differ between runs are replaced by `<oid>` and `<port>`.
//! The cases of a file run in order on one server.
//!
//! A line `streams: NAME, …` in front of the first case declares streams of telemetry. Lines `user NAME: GRANT, …` in front of the first case add a user with a token, and `limited NAME of USER: GRANT, …` adds a
//! token of that user with these limits. A request with the header `As: NAME` has that token.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tidemill_access::Grant;

use crate::harness::{Mill, Reply, TOKEN, options};
use crate::telemetry::declaration;

/// Reply headers that are part of a case.
const HEADERS: [&str; 11] = [
    "tidemill-statement",
    "content-type",
    "allow",
    "www-authenticate",
    "retry-after",
    "accept-encoding",
    "connection",
    "x-influxdb-version",
    "x-prometheus-remote-write-samples-written",
    "x-prometheus-remote-write-histograms-written",
    "x-prometheus-remote-write-exemplars-written",
];

struct Case {
    name: String,
    request: String,
    reply: String,
}

#[test]
fn replies_are_as_in_the_case_files() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let (mut count, mut wrong) = (0, String::new());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let (intro, cases) = parse(&text);
        let mill = Mill::with_rules(options(), &streams(&intro));
        let tokens = tokens(&mill, &intro);
        let mut filled = intro;
        for case in cases {
            count += 1;
            let reply = render(&mill, &run(&mill, &case.request, &tokens));
            if reply.trim_end() != case.reply.trim_end() {
                let name = file.file_name().unwrap().to_string_lossy();
                write!(wrong, "\n{name}: {}\nexpected:\n{}\nfound:\n{reply}\n", case.name, case.reply)
                    .unwrap();
            }
            write!(filled, "=== {}\n{}\n--- {}\n\n", case.name, case.request, reply.trim_end()).unwrap();
        }
        if std::env::var_os("UPDATE_CASES").is_some() {
            std::fs::write(&file, filled.trim_end().to_owned() + "\n").unwrap();
        }
    }
    assert!(count >= 40, "only {count} cases were found");
    if std::env::var_os("UPDATE_CASES").is_none() {
        assert!(wrong.is_empty(), "{wrong}");
    }
}

/// Pages of protocols say what works by naming cases: each case, and no other.
#[test]
fn pages_of_protocols_name_their_cases() {
    for (file, pages) in [
        ("line_protocol.http", &["line-protocol.md"][..]),
        ("telemetry.http", &["opentelemetry.md", "remote-write.md"]),
    ] {
        let text = std::fs::read_to_string(root().join("tests/cases").join(file)).unwrap();
        let cases: BTreeSet<String> = parse(&text).1.into_iter().map(|case| case.name).collect();
        let named: BTreeSet<String> = pages.iter().flat_map(|page| cases_of_page(page)).collect();
        assert_eq!(named, cases);
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the cases that the table of a page names.
fn cases_of_page(page: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("../../docs").join(page)).unwrap();
    let table = page.split("## What works").nth(1).unwrap().split("\n## ").next().unwrap();
    // behind the head of the table
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.filter_map(|line| line.trim_end_matches('|').rsplit('|').next())
        .flat_map(|cell| cell.split(';').map(|name| name.trim().to_owned()))
        .collect()
}

fn parse(text: &str) -> (String, Vec<Case>) {
    let mut parts = text.split("=== ");
    let intro = parts.next().unwrap().to_owned();
    let cases = parts.map(|part| {
        let (name, rest) = part.split_once('\n').unwrap();
        let (request, reply) = rest.split_once("\n--- ").unwrap_or((rest.trim_end(), ""));
        Case { name: name.to_owned(), request: request.to_owned(), reply: reply.to_owned() }
    });
    (intro, cases.collect())
}

/// Returns the declarations of the streams that the text in front of the cases names.
fn streams(intro: &str) -> String {
    let names = intro.lines().find_map(|line| line.strip_prefix("streams: ")).unwrap_or_default();
    names.split(", ").filter(|name| !name.is_empty()).map(declaration).collect()
}

/// Adds the users and tokens of the text in front of the cases. Returns the tokens by their names.
fn tokens(mill: &Mill, intro: &str) -> BTreeMap<String, String> {
    let grants = |text: &str| -> Vec<Grant> {
        text.split(", ").filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()).collect()
    };
    let mut tokens = BTreeMap::new();
    for line in intro.lines() {
        let Some((head, text)) = line.split_once(':') else { continue };
        let words: Vec<&str> = head.split(' ').collect();
        let (name, token) = match words.as_slice() {
            ["user", name] => (name, mill.new_token(name, grants(text.trim()), None)),
            ["limited", name, "of", user] => (name, mill.new_token(user, vec![], Some(grants(text.trim())))),
            _ => continue,
        };
        tokens.insert((*name).to_owned(), token);
    }
    tokens
}

fn run(mill: &Mill, request: &str, tokens: &BTreeMap<String, String>) -> Reply {
    let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
    let body = unescape(body);
    let mut lines = head.lines();
    let mut text = format!("{} HTTP/1.1\r\n", lines.next().unwrap());
    let mut given = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap();
        if name == "As" {
            let token = tokens.get(value.trim()).unwrap_or_else(|| panic!("there is no token of {value}"));
            given.push("authorization".to_owned());
            text += &format!("authorization: Bearer {token}\r\n");
            continue;
        }
        given.push(name.to_lowercase());
        if value.trim() != "none" {
            text += &format!("{name}: {}\r\n", value.trim());
        }
    }
    for (name, value) in [
        ("host", mill.address.to_string()),
        ("authorization", format!("Bearer {TOKEN}")),
        ("content-length", body.len().to_string()),
        ("connection", "close".to_owned()),
    ] {
        if !given.iter().any(|g| g == name) {
            text += &format!("{name}: {value}\r\n");
        }
    }
    let mut bytes = unescape(&(text + "\r\n"));
    bytes.extend(body);
    mill.connect(&bytes).read_all()
}

/// Replaces `\xHH` by the byte.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        bytes.extend(&rest.as_bytes()[..at]);
        bytes.push(u8::from_str_radix(&rest[at + 2..at + 4], 16).unwrap());
        rest = &rest[at + 4..];
    }
    bytes.extend(rest.as_bytes());
    bytes
}

fn render(mill: &Mill, reply: &Reply) -> String {
    let mut text = format!("{}\n", reply.status);
    for name in HEADERS {
        // headers with the usual value are omitted
        let usual = matches!(
            (name, reply.header(name)),
            ("content-type", Some("application/json")) | ("connection", Some("close"))
        );
        if let Some(value) = reply.header(name).filter(|_| !usual) {
            text += &format!("{name}: {value}\n");
        }
    }
    let body = reply.text().replace(&mill.address.port().to_string(), "<port>");
    text + "\n" + &without_object_ids(&without_token_ids(&body))
}

/// Replaces the 12 hexadecimal digits in "token `…`", which differ between runs.
fn without_token_ids(text: &str) -> String {
    match text.split_once("token `") {
        Some((before, after)) if after.find('`') == Some(12) => {
            format!("{before}token `<id>{}", &after[12..])
        }
        _ => text.to_owned(),
    }
}

/// Replaces the 24 hexadecimal digits after `"$oid":"`, which differ between runs.
fn without_object_ids(text: &str) -> String {
    let mut parts = text.split("\"$oid\":\"");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        out += "\"$oid\":\"<oid>";
        out += &part[24..];
    }
    out
}
