//! Unmodified clients write line protocol and columns, read the catalogs of PostgreSQL and speak Flight SQL, by
//! `scripts/clients.sh`.

use std::process::{Command, Stdio};

use crate::root;

#[test]
fn unmodified_clients_write_and_read() {
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    if !python.is_ok_and(|status| status.success()) {
        println!("skipped: no python3: no client is checked");
        return;
    }
    let script = root().join("scripts/clients.sh");
    let output = Command::new(script).arg(env!("CARGO_BIN_EXE_tidemill")).output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{lines}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{lines}\n{errors}");
    // a client that ends early says nothing about its last check
    for (client, last) in [
        ("influxdb-client", "batches and a wrong token"),
        ("influxdb", "points by version 1"),
        ("influxdb3-python", "points by version 3"),
        ("influxdb3-python", "queries by version 3"),
        ("pyarrow", "columns in and out"),
        ("psql", "schemas databases roles"),
        ("sqlalchemy", "tables that are reflected"),
        ("asyncpg", "a pool and codecs"),
        ("pgjdbc", "metadata of the database"),
        ("pyarrow", "flight with a session"),
        ("adbc-driver-flightsql", "a statement is cancelled"),
        ("mcp", "tools over http"),
        ("flight-sql-jdbc", "a token and a wrong one"),
    ] {
        let is_skipped = lines.contains(&format!("skipped: {client} cannot be installed"));
        assert!(is_skipped || lines.contains(&format!("{client}: {last}: ok")), "{lines}\n{errors}");
    }
}
