//! Rows page by page: tokens, whose they are, and how long they are in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemill_server::ServerOptions;

use crate::harness::{Mill, Reply, options};

const NEXT_PAGE: &str = "tidemill-next-page";

/// Starts a server whose clock stands still until seconds are added to the number.
fn start() -> (Mill, Arc<AtomicU64>) {
    let (start, passed) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let clock = {
        let passed = passed.clone();
        Arc::new(move || start + Duration::from_secs(passed.load(Ordering::Relaxed)))
    };
    (Mill::with(ServerOptions { clock, ..options() }), passed)
}

fn first_as(mill: &Mill, token: Option<&str>, query: &str, page_rows: usize, format: &str) -> Reply {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut headers = vec![("Content-Type", "text/plain")];
    headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    let path = format!("/api/v1/sql?page_rows={page_rows}&format={format}");
    mill.send("POST", &path, &headers, query.as_bytes())
}

fn first(mill: &Mill, query: &str, page_rows: usize) -> Reply {
    first_as(mill, None, query, page_rows, "ndjson")
}

fn next(mill: &Mill, token: &str) -> Reply {
    mill.send("POST", &format!("/api/v1/sql?page={token}"), &[], b"")
}

fn token(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header(NEXT_PAGE).unwrap().to_owned()
}

#[test]
fn the_pages_have_the_rows_of_the_whole() {
    let mill = Mill::start();
    for format in ["json", "ndjson", "csv", "table", "arrow", "parquet"] {
        let whole = mill.post_json(&format!("/api/v1/sql?format={format}"), r#"{"query":"rows 5"}"#);
        let mut reply = first_as(&mill, None, "rows 5", 2, format);
        let (mut text, mut count) = (String::new(), 0);
        loop {
            count += 1;
            for header in ["content-type", "tidemill-columns"] {
                assert_eq!(reply.header(header), whole.header(header), "{format}");
            }
            assert_eq!(reply.header("tidemill-statement"), Some("7"));
            text += &reply.text();
            let Some(token) = reply.header(NEXT_PAGE) else { break };
            reply = next(&mill, token);
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
        assert_eq!((text, count), (whole.text(), 3), "{format}");
    }
    // one page is all, and pages that end with the rows have none behind them
    for rows in [0, 4] {
        assert_eq!(first(&mill, &format!("rows {rows}"), 4).header(NEXT_PAGE), None);
    }
}

#[test]
fn a_token_is_used_once_by_its_caller_and_in_its_time() {
    let (mill, passed) = start();
    let used = token(&first(&mill, "rows 9", 2));
    let second = token(&next(&mill, &used));
    let message = next(&mill, &used).refusal(410, "not_found");
    assert!(message.contains("was taken"), "{message}");

    let ana = mill.new_token("ana", vec!["read stream:Flight".parse().unwrap()], None);
    let as_ana = |token: &str| {
        let bearer = format!("Bearer {ana}");
        mill.send("POST", &format!("/api/v1/sql?page={token}"), &[("Authorization", &bearer)], b"")
    };
    // neither a token in force nor one that was used tells another user anything
    for of_admin in [&second, &used] {
        let message = as_ana(of_admin).refusal(404, "not_found");
        assert!(
            message.contains("no page has this token for `ana`") && message.contains("page_rows"),
            "{message}"
        );
    }
    for wrong in [
        "",
        "x",
        "AAAAAAAAAAAAAAAAAAAAAA",
        "%00",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    ] {
        next(&mill, wrong).refusal(404, "not_found");
    }
    // the time begins anew with each page
    passed.fetch_add(599, Ordering::Relaxed);
    let third = token(&next(&mill, &second));
    passed.fetch_add(599, Ordering::Relaxed);
    let fourth = token(&next(&mill, &third));
    passed.fetch_add(600, Ordering::Relaxed);
    let message = next(&mill, &fourth).refusal(410, "not_found");
    assert!(message.contains("within 10 minutes") && message.contains("page_rows"), "{message}");
    // and what became of it is forgotten in the end
    passed.fetch_add(600, Ordering::Relaxed);
    next(&mill, &fourth).refusal(404, "not_found");
}

#[test]
fn a_page_of_other_rights_is_not_sent() {
    let (mill, _) = start();
    let ana = mill.new_token("ana", vec!["read stream:Flight".parse().unwrap()], None);
    let page = token(&first_as(&mill, Some(&ana), "rows 9", 2, "csv"));
    mill.grant("ana", "read stream:Late");
    let bearer = format!("Bearer {ana}");
    let reply = mill.send("POST", &format!("/api/v1/sql?page={page}"), &[("Authorization", &bearer)], b"");
    let message = reply.refusal(410, "not_found");
    assert!(message.contains("rights of `ana` have changed"), "{message}");
}

#[test]
fn a_statement_that_was_cancelled_says_so_and_is_not_counted() {
    let (mill, _) = start();
    let tokens: Vec<String> = (0..20).map(|_| token(&first(&mill, "cancelled 9", 2))).collect();
    for token in [&tokens[0], &tokens[0], &tokens[19]] {
        let message = next(&mill, token).refusal(409, "conflict");
        assert_eq!(message, "statement 7 was cancelled by KILL QUERY 7 (http)");
    }
}

#[test]
fn statements_with_pages_are_limited() {
    let (mill, passed) = start();
    let kept: Vec<String> = (0..8).map(|_| token(&first(&mill, "rows 9", 2))).collect();
    let message = first(&mill, "rows 9", 2).refusal(429, "limit_reached");
    assert!(
        message.contains("8 statements of `admin`")
            && message.contains("KILL QUERY")
            && message.contains("10 minutes"),
        "{message}"
    );
    // others have their own, and all together a limit of their own
    let users: Vec<String> = (0..8).map(|user| mill.new_token(&format!("u{user}"), vec![], None)).collect();
    for user in &users[..7] {
        for _ in 0..8 {
            token(&first_as(&mill, Some(user), "rows 9", 2, "csv"));
        }
    }
    let message = first_as(&mill, Some(&users[7]), "rows 9", 2, "csv").refusal(429, "limit_reached");
    assert!(message.contains("64 statements of all users"), "{message}");
    // a statement whose last page is taken is free, and so is one whose page is an error
    let mut last = next(&mill, &kept[0]);
    while let Some(token) = last.header(NEXT_PAGE) {
        last = next(&mill, token);
    }
    token(&first_as(&mill, Some(&users[7]), "rows 9", 2, "csv"));
    passed.fetch_add(600, Ordering::Relaxed);
    first(&mill, "fail 1", 2).refusal(429, "limit_reached");
    for _ in 0..8 {
        assert_eq!(first(&mill, "rows 1", 2).header(NEXT_PAGE), None);
    }
    for _ in 0..8 {
        token(&first(&mill, "rows 9", 2));
    }
}

#[test]
fn a_page_that_takes_too_long_ends_its_statement() {
    let mill = Mill::with(ServerOptions { query_timeout: Duration::from_millis(100), ..options() });
    let page = token(&first(&mill, "stuck 2", 1));
    let message = next(&mill, &page).refusal(503, "unavailable");
    assert!(message.contains("query_timeout"), "{message}");
    next(&mill, &page).refusal(410, "not_found");
}
