//! PostgreSQL's protocol over the engine: by a driver, and by psql and pgbench where they are installed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_postgres::error::{DbError, ErrorPosition, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::{Serving, run, sql, tidemill};

const RULES: &str = r#"
event Reading { id: string, device: string, speed: double, lanes: int, at: time } id id key device time at;
entity Device key name;
"#;

/// Rows with a null and a text that formats have to quote.
const ROWS: &str = r#"{"id":"a","device":"d1","speed":1.5,"lanes":2,"at":"2024-05-01T10:00:00Z"}
{"id":"b","device":"d1","speed":-0.25,"at":"2024-05-01T10:01:00.5Z"}
{"id":"c","device":"d, \"2\"\t\\","speed":1e300,"lanes":-7,"at":"2024-05-01T10:02:00Z"}
"#;

pub struct World {
    pub dir: TempDir,
    pub serving: Serving,
    address: String,
    pub runtime: Runtime,
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (data, app) = (dir.path().join("data"), dir.path().join("app.rules"));
        std::fs::write(&app, RULES).unwrap();
        let (data_text, rows) = (data.to_str().unwrap(), dir.path().join("rows.ndjson"));
        std::fs::write(&rows, ROWS).unwrap();
        run(&["run", app.to_str().unwrap(), "--data", data_text, "--until-idle"], 0);
        run(&["load", "Reading", rows.to_str().unwrap(), "--data", data_text], 0);
        let (serving, address) = serve(&data, &[]);
        Self { dir, serving, address, runtime: Runtime::new().unwrap() }
    }

    pub fn data(&self) -> String {
        self.dir.path().join("data").to_str().unwrap().to_owned()
    }

    pub async fn client(&self, user: &str, password: &str) -> Result<Client, tokio_postgres::Error> {
        let (host, port) = self.address.rsplit_once(':').unwrap();
        let mut config = Config::new();
        config.host(host).port(port.parse().unwrap()).user(user).password(password).dbname("tidemill");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    pub fn admin(&self) -> Client {
        self.runtime.block_on(self.client("admin", &self.serving.token)).unwrap()
    }

    /// Runs a program of PostgreSQL; `None` if it is not installed, which is printed.
    pub fn program(&self, name: &str, arguments: &[&str]) -> Option<(String, String, bool)> {
        let (host, port) = self.address.rsplit_once(':').unwrap();
        let mut command = Command::new(name);
        command.args(["-h", host, "-p", port, "-U", "admin"]).args(arguments);
        command
            .env("PGPASSWORD", &self.serving.token)
            .env("PGDATABASE", "tidemill")
            .current_dir(self.dir.path());
        match command.stdin(Stdio::null()).output() {
            Ok(output) => {
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
                Some((text(output.stdout), text(output.stderr), output.status.success()))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("skipped: {name} is not installed");
                None
            }
            Err(e) => panic!("{name}: {e}"),
        }
    }
}

/// Serves a data directory. Returns the address for PostgreSQL clients.
fn serve(data: &Path, arguments: &[&str]) -> (Serving, String) {
    let fixed =
        ["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0", "--postgres", "127.0.0.1:0"];
    let mut child = tidemill(&[&fixed, arguments].concat()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut base = String::new();
    let line = lines.find(|line| {
        if let Some(address) = line.strip_prefix("Listening on ") {
            address.clone_into(&mut base);
        }
        line.starts_with("PostgreSQL clients: ")
    });
    let line = line.unwrap();
    let address = line.split(['@', '/', ' ']).find(|part| part.starts_with("127.0.0.1:")).unwrap().to_owned();
    for line in lines.by_ref() {
        if let Some(address) = line.strip_prefix("Listening on ") {
            address.clone_into(&mut base);
        }
        if line.starts_with("Ready: ") {
            break;
        }
    }
    let token = std::fs::read_to_string(data.join("token")).unwrap().trim().to_owned();
    (Serving { child, base, token }, address)
}

pub fn refused(error: &tokio_postgres::Error) -> &DbError {
    error.as_db_error().unwrap_or_else(|| panic!("{error:?}"))
}

#[test]
fn a_driver_reads_streams_with_parameters_of_inferred_types() {
    let world = World::new();
    let client = world.admin();
    world.runtime.block_on(async {
        let text = "SELECT id, speed, lanes, at, device FROM events.\"Reading\" WHERE speed > $1 AND at >= $2 AND lanes <> $3 ORDER BY id LIMIT $4";
        let statement = client.prepare(text).await.unwrap();
        assert_eq!(statement.params(), [Type::FLOAT8, Type::TIMESTAMPTZ, Type::INT4, Type::INT8]);
        let columns: Vec<(&str, &Type)> = statement.columns().iter().map(|c| (c.name(), c.type_())).collect();
        assert_eq!(
            columns,
            [("id", &Type::TEXT), ("speed", &Type::FLOAT8), ("lanes", &Type::INT4), ("at", &Type::TIMESTAMPTZ), ("device", &Type::TEXT)]
        );
        let epoch = std::time::SystemTime::UNIX_EPOCH;
        let rows = client.query(&statement, &[&-1.0_f64, &epoch, &-7_i32, &10_i64]).await.unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].get::<_, &str>(0), rows[0].get::<_, f64>(1), rows[0].get::<_, i32>(2)), ("a", 1.5, 2));
        let at = rows[0].get::<_, std::time::SystemTime>(3).duration_since(epoch).unwrap();
        assert_eq!(at.as_secs(), 1_714_557_600);
        // the same statement again, with other values: drivers choose formats by the number of executions
        for _ in 0..8 {
            let rows = client.query(&statement, &[&f64::NEG_INFINITY, &epoch, &0_i32, &10_i64]).await.unwrap();
            assert_eq!(rows.iter().map(|row| row.get::<_, &str>(4)).collect::<Vec<_>>(), ["d1", "d, \"2\"\t\\"]);
        }
        let count = client.query_one("SELECT count(*) FROM events.\"Reading\"", &[]).await.unwrap();
        assert_eq!(count.get::<_, i64>(0), 3);
        let none = client.query_one("SELECT $1, $2::bigint + 1, NULL, 7 / 2.0", &[&"x" as &(dyn tokio_postgres::types::ToSql + Sync), &4_i64]).await.unwrap();
        assert_eq!((none.get::<_, &str>(0), none.get::<_, i64>(1), none.get::<_, Option<&str>>(2)), ("x", 5, None));
    });
}

#[test]
fn errors_of_the_database_have_codes_and_places() {
    let world = World::new();
    let client = world.admin();
    world.runtime.block_on(async {
        for (text, code, position) in [
            ("SELECT id FROM events.\"Readings\"", SqlState::UNDEFINED_TABLE, None),
            ("SELECT 1,\n  speeed FROM events.\"Reading\"", SqlState::UNDEFINED_COLUMN, Some(13)),
            ("SELECT 1 +", SqlState::SYNTAX_ERROR, Some(11)),
            ("SELEKT 1", SqlState::SYNTAX_ERROR, Some(1)),
            ("SELECT nothing(1)", SqlState::UNDEFINED_FUNCTION, None),
            ("SELECT 1 / 0", SqlState::DIVISION_BY_ZERO, None),
            ("INSERT INTO events.\"Reading\" VALUES (1)", SqlState::DATATYPE_MISMATCH, Some(38)),
            ("CREATE TABLE a (b int)", SqlState::FEATURE_NOT_SUPPORTED, None),
            ("SELECT id, count(*) FROM events.\"Reading\"", SqlState::GROUPING_ERROR, None),
            (
                "SELECT lanes FROM events.\"Reading\" WHERE at > 'soon'",
                SqlState::INVALID_DATETIME_FORMAT,
                None,
            ),
        ] {
            let error = client.simple_query(text).await.unwrap_err();
            let error = refused(&error);
            assert_eq!(error.code(), &code, "{text}: {error:?}");
            if let Some(position) = position {
                assert_eq!(error.position(), Some(&ErrorPosition::Original(position)), "{text}: {error:?}");
            }
        }
        let error = client.query("SELECT id FROM events.\"Reading\" WHERE lanes = $1", &[&"many"]).await;
        assert!(error.is_err(), "the driver has an int4");
        // the connection is as before
        assert_eq!(client.query("SELECT 1", &[]).await.unwrap().len(), 1);
    });
}

#[test]
fn statements_are_listed_cancelled_and_change_events() {
    let world = World::new();
    let (client, other) = (world.admin(), world.admin());
    world.runtime.block_on(async {
        let slow = "SELECT count(*) FROM generate_series(1, 100000000000) AS s(n) WHERE n % 7 = 3";
        let token = client.cancel_token();
        let cancel = async {
            loop {
                let listed = "SELECT origin, caller FROM system.statements WHERE phase = 'running' AND statement LIKE '%100000000000%' AND statement NOT LIKE '%system%'";
                let rows = other.query(listed, &[]).await.unwrap();
                if let Some(row) = rows.first() {
                    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("postgres", "admin"));
                    token.cancel_query(NoTls).await.unwrap();
                    std::future::pending::<()>().await;
                }
            }
        };
        let error = tokio::select! { failed = client.query(slow, &[]) => failed.unwrap_err(), () = cancel => unreachable!() };
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
        client.simple_query("SET statement_timeout = '50ms'").await.unwrap();
        let error = client.query(slow, &[]).await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
        client.simple_query("RESET statement_timeout").await.unwrap();
        let deleted = client.simple_query("DELETE FROM events.\"Reading\" WHERE id = 'a'").await.unwrap();
        assert!(matches!(deleted.as_slice(), [SimpleQueryMessage::CommandComplete(1)]), "{deleted:?}");
        let left = client.query_one("SELECT count(*) FROM events.\"Reading\"", &[]).await.unwrap();
        assert_eq!(left.get::<_, i64>(0), 2);
    });
}

#[test]
fn users_see_what_they_may_read_until_their_password_changes() {
    let world = World::new();
    let data = world.data();
    let user = |arguments: &[&str]| {
        let output = tidemill(&[arguments, &["--data", &data]].concat())
            .env("TIDEMILL_PASSWORD", "of ana 123")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    user(&["users", "add", "ana", "--grant", "read collection:docs.Device"]);
    world.runtime.block_on(async {
        // the server looks at the file of users once a second
        let ana = loop {
            match world.client("ana", "of ana 123").await {
                Ok(ana) => break ana,
                Err(error) => assert_eq!(error.code(), Some(&SqlState::INVALID_PASSWORD)),
            }
        };
        let error = ana.query("SELECT * FROM events.\"Reading\"", &[]).await.unwrap_err();
        let error = refused(&error);
        assert_eq!(error.code(), &SqlState::UNDEFINED_TABLE, "{error:?}");
        assert!(!format!("{error:?}").contains("Did you mean"), "{error:?}");
        let wrong = world.client("ana", "of eva 123").await.err().unwrap();
        assert_eq!(wrong.code(), Some(&SqlState::INVALID_PASSWORD));
        user(&["users", "remove", "ana"]);
        while !ana.is_closed() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn psql_and_pgbench_run() {
    let world = World::new();
    let psql =
        |arguments: &[&str]| world.program("psql", &[&["-X", "-v", "VERBOSITY=verbose"], arguments].concat());
    let Some((out, err, _)) =
        psql(&["-At", "-c", "SELECT id, lanes, at FROM events.\"Reading\" ORDER BY id"])
    else {
        return;
    };
    assert_eq!(
        (out.as_str(), err.as_str()),
        ("a|2|2024-05-01 10:00:00+00\nb||2024-05-01 10:01:00.5+00\nc|-7|2024-05-01 10:02:00+00\n", "")
    );
    let (out, _, _) = psql(&[
        "-At",
        "-c",
        "BEGIN",
        "-c",
        "DECLARE c CURSOR FOR SELECT id FROM events.\"Reading\" ORDER BY 1",
        "-c",
        "FETCH 2 FROM c",
        "-c",
        "COMMIT",
    ])
    .unwrap();
    assert_eq!(out, "BEGIN\nDECLARE CURSOR\na\nb\nCOMMIT\n");
    let (_, err, is_done) = psql(&["-c", "SELECT speeed FROM events.\"Reading\""]).unwrap();
    assert!(
        !is_done
            && err.contains("ERROR:  42703")
            && err.contains("LINE 1: SELECT speeed")
            && err.contains("       ^"),
        "{err}"
    );
    let (out, err, _) = psql(&[
        "-c",
        "\\copy (SELECT device, lanes FROM events.\"Reading\" ORDER BY id) TO 'out.csv' CSV HEADER",
    ])
    .unwrap();
    assert_eq!(out, "COPY 3\n", "{err}");
    let copied = std::fs::read_to_string(world.dir.path().join("out.csv")).unwrap();
    assert_eq!(copied, "device,lanes\nd1,2\nd1,\n\"d, \"\"2\"\"\t\\\",-7\n");
    // rows by a cursor of psql
    let (out, _, _) =
        psql(&["-At", "-v", "FETCH_COUNT=1000", "-c", "SELECT n FROM generate_series(1, 5000) AS s(n)"])
            .unwrap();
    assert_eq!((out.lines().count(), out.lines().last()), (5_000, Some("5000")));
    std::fs::write(
        world.dir.path().join("bench.sql"),
        "\\set n random(1, 3)\nSELECT count(*) FROM events.\"Reading\" WHERE lanes < :n;\n",
    )
    .unwrap();
    for mode in ["simple", "extended", "prepared"] {
        let arguments = ["-n", "-f", "bench.sql", "-M", mode, "-c", "2", "-t", "20", "tidemill"];
        let Some((out, err, is_done)) = world.program("pgbench", &arguments) else { return };
        assert!(
            is_done && out.contains("number of transactions actually processed: 40/40"),
            "{mode}: {out}{err}"
        );
    }
}

#[test]
fn a_taken_default_port_is_reported_and_an_address_without_login_is_local() {
    let dir = tempfile::tempdir().unwrap();
    let (data, app) = (dir.path().join("data"), dir.path().join("app.rules"));
    std::fs::write(&app, RULES).unwrap();
    let data = data.to_str().unwrap();
    run(&["run", app.to_str().unwrap(), "--data", data, "--until-idle"], 0);
    let start = |postgres: &str, more: &[&str]| {
        tidemill(
            &[&["serve", "--data", data, "--listen", "127.0.0.1:0", "--postgres", postgres], more].concat(),
        )
    };
    let refused = start("0.0.0.0:0", &["--postgres-without-login"]).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success()
            && error.contains("postgres at 0.0.0.0:0: other machines can reach this address"),
        "{error}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = start(&taken.local_addr().unwrap().to_string(), &[]).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success()
            && error.contains("--postgres 127.0.0.1:PORT")
            && error.contains("is taken"),
        "{error}"
    );
    // whoever has the default port now, the start says so or has it
    let held = std::net::TcpListener::bind("127.0.0.1:4701");
    let mut command = tidemill(&["serve", "--data", data, "--listen", "127.0.0.1:0"]);
    let mut child = command
        .env_remove("TIDEMILL_POSTGRES")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.into_iter().any(|line| line.starts_with("Ready: ")));
    crate::interrupt(child.id());
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let expected = "PostgreSQL clients cannot connect: port 4701 of 127.0.0.1 is taken by another process";
    assert!(output.status.success() && error.contains(expected), "{error}");
    drop(held);
    assert_eq!(sql(data, "SELECT 1 AS n").len(), 1);
}
