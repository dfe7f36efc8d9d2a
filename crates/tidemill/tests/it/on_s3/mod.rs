//! The whole program with its tables on a real S3 server.

mod cache;
mod faults;
mod load;
mod place;

use place::{Place, SECRET};
use serde_json::json;

const BATCHES: u64 = 24;
const ROWS: u64 = 50;

#[test]
fn events_are_queried_flushed_merged_and_survive_restarts() {
    let Some(place) = Place::new(&[]) else { return };
    let mut server = place.run();
    for batch in 0..BATCHES {
        assert_eq!(server.send(batch, ROWS), 200);
        assert_eq!(server.count(), (batch + 1) * ROWS, "acknowledged events are in the next query");
    }
    server.wait_until(
        "SELECT count(*) AS n FROM system.zones WHERE stream = 'Trades' AND zone = 'merged' AND rows > 0",
        1,
    );
    server.check_exact(BATCHES * ROWS);
    server.stop();
    assert!(!place.path("data/tables").exists(), "no table is on the local disk");

    let mut server = place.run();
    server.check_exact(BATCHES * ROWS);
    // The same events once more are duplicates, also of events in files.
    assert_eq!(server.send(0, ROWS), 200);
    assert_eq!(server.send(BATCHES, ROWS), 200);
    server.check_exact((BATCHES + 1) * ROWS);
    server.kill();

    let mut server = place.run();
    server.check_exact((BATCHES + 1) * ROWS);
    let sums = server.sql("SELECT symbol, sum(n) AS n FROM Trades GROUP BY symbol ORDER BY symbol LIMIT 1");
    let expected: u64 = (0..(BATCHES + 1) * ROWS).filter(|n| n % 7 == 0).sum();
    assert_eq!(sums, json!([{"symbol": "s0", "n": expected}]));
    server.stop();
    assert!(!place.contains(SECRET), "the secret is in no file of the data directory");
}

#[test]
fn credentials_come_from_a_file_and_are_never_shown() {
    let Some(place) = Place::new(&[]) else { return };
    let file = place.write(
        "credentials.toml",
        &format!("access_key_id = \"tidemill\"\nsecret_access_key = \"{SECRET}\"\n"),
    );
    place.app(&[&format!("tables_store.credentials_file = \"{file}\"")]);
    let mut command = place.command();
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    let mut server = place.start(command);
    assert_eq!(server.send(0, ROWS), 200);
    server.check_exact(ROWS);
    server.stop();

    place.write("credentials.toml", "access_key_id = \"tidemill\"\nsecret_access_key = \"hunter2\"\n");
    let mut command = place.command();
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    let output = command.output().unwrap();
    let told =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("check the credentials") && !told.contains("hunter2"), "{told}");
}

#[test]
fn wrong_settings_are_told_before_anything_starts() {
    let Some(place) = Place::new(&[]) else { return };
    let check = |setting: &str| {
        place.app(&[setting]);
        crate::run(&["check", &place.text("app")], 1).1
    };
    let secret = check("tables_store.secret_access_key = \"hunter2\"");
    assert!(secret.contains("AWS_SECRET_ACCESS_KEY") && !secret.contains("hunter2"), "{secret}");
    let mistyped = check("tables_store.regoin = \"us-east-1\"");
    assert!(mistyped.contains("Did you mean `region`?"), "{mistyped}");
}
