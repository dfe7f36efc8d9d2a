//! Messages to users about wrong options, servers that cannot be reached, and wrong logins:
//! `tests/cases/bad_options.txt`.
//!
//! A case is `=== name`, an annotation of the stream `S (text string, n int)` or, if it begins with `@store`, of a table,
//! `---`, and what is said when the app is compiled or, if it can be, when its connector connects. `${SERVERS_NATS}` stands
//! for host and port of a server of `scripts/servers.sh`; what such a case says is not checked where the server cannot be
//! had. `UPDATE_CASES=1` rewrites what is said; review the difference.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{env, fs, thread};

use crate::apps::problem;
use crate::servers;

/// Values of options that must never be shown.
const SECRETS: [&str; 2] = ["hunter2", "sesame"];
/// Cases that run at the same time; many wait for the network.
const THREADS: usize = 8;
/// Servers by the beginning of their variables.
const SERVERS: [(&str, &str); 6] = [
    ("SERVERS_ARTEMIS", "artemis"),
    ("SERVERS_MOSQUITTO", "mosquitto"),
    ("SERVERS_NATS", "nats"),
    ("SERVERS_RABBITMQ", "rabbitmq"),
    ("SERVERS_REDIS", "redis"),
    ("SERVERS_SMTP", "smtp"),
];

struct Case<'t> {
    name: &'t str,
    annotation: &'t str,
    expected: &'t str,
}

fn cases(text: &str) -> impl Iterator<Item = Case<'_>> {
    text.split("=== ").skip(1).map(|case| {
        let (name, rest) = case.split_once('\n').expect("a name and a line end");
        let (annotation, expected) = rest.split_once("---\n").unwrap_or((rest, ""));
        Case { name, annotation: annotation.trim_end(), expected: expected.trim_end() }
    })
}

#[test]
fn wrong_options_are_told() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/bad_options.txt");
    let text = fs::read_to_string(&path).unwrap();
    let cases: Vec<Case<'_>> = cases(&text).collect();
    let found: Vec<Mutex<String>> = cases.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((case, found)) = cases.get(next.load(Ordering::Relaxed)).and_then(|_| {
            let index = next.fetch_add(1, Ordering::Relaxed);
            Some((cases.get(index)?, found.get(index)?))
        }) {
            *found.lock().unwrap_or_else(PoisonError::into_inner) = run(case);
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));

    let (mut filled, mut wrong) = (String::new(), vec![]);
    for (case, found) in cases.iter().zip(&found) {
        let found = found.lock().unwrap_or_else(PoisonError::into_inner);
        for secret in SECRETS {
            assert!(!found.contains(secret), "{}: a secret is shown: {found}", case.name);
        }
        if *found != case.expected {
            wrong.push(format!("=== {}\nexpected:\n{}\nfound:\n{found}", case.name, case.expected));
        }
        filled += &format!("=== {}\n{}\n---\n{found}\n\n", case.name, case.annotation);
    }
    if env::var_os("UPDATE_CASES").is_some() {
        fs::write(&path, filled.trim_end().to_owned() + "\n").unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{}\nUPDATE_CASES=1 writes what was found into the file", wrong.join("\n\n"));
    assert!(cases.len() >= 60, "{} cases", cases.len());
}

/// Returns what is said about an annotation.
fn run(case: &Case<'_>) -> String {
    let mut annotation = case.annotation.to_owned();
    let mut replaced = vec![];
    let mut guards = vec![];
    while let Some((_, rest)) = annotation.split_once("${")
        && let Some((variable, _)) = rest.split_once('}')
    {
        let variable = variable.to_owned();
        let server = SERVERS.iter().find(|(prefix, _)| variable.starts_with(prefix));
        let (_, name) = server.unwrap_or_else(|| panic!("{}: unknown variable {variable}", case.name));
        let Some(server) = servers::shared(name) else { return case.expected.to_owned() };
        let address = server.address(&variable);
        let address = address.split_once("://").map_or(address, |(_, rest)| rest);
        let address = address.rsplit_once('@').map_or(address, |(_, rest)| rest);
        let address = address.trim_end_matches('/').to_owned();
        annotation = annotation.replace(&format!("${{{variable}}}"), &address);
        replaced.push((address, variable));
        guards.push(server);
    }
    let definition = if annotation.starts_with("@store") { "table" } else { "stream" };
    let app = format!(
        "{annotation}\ndefine {definition} S (text string, n int);\n\
         define stream In (text string, n int);\nfrom In select text, n insert into Out;\n"
    );
    let dir = tempfile::tempdir().unwrap();
    let mut found = problem(&app, dir.path());
    for (address, variable) in replaced {
        found = found.replace(&address, &variable);
    }
    let found = found.replace(&dir.path().display().to_string(), "DIR");
    found.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
