//! The object store answers late, with errors, or not at all.

use std::time::{Duration, Instant};

use tidemill_test_servers::{FaultyHttp, Outage};

use super::place::{Place, Server};

const ROWS: u64 = 50;

/// Settings of an app whose requests pass through the proxy.
fn through(proxy: &FaultyHttp) -> String {
    format!("tables_store.endpoint = \"{}\"", proxy.url())
}

#[test]
fn counts_are_exact_when_requests_fail_with_and_without_effect() {
    let Some(place) = Place::new(&[]) else { return };
    let proxy = FaultyHttp::start(place.endpoint(), 7);
    place.app(&[&through(&proxy)]);
    proxy.set_latency(Duration::from_millis(50));
    proxy.set_fault_share(0.05);
    let mut sent = 0;
    for _ in 0..3 {
        let mut server = place.run();
        // Many commits, at least one of which is answered wrongly after it was performed.
        let (counted, deadline) =
            (proxy.counts().after_conditional, Instant::now() + Duration::from_secs(60));
        while (sent % 30 != 0 || proxy.counts().after_conditional == counted) && Instant::now() < deadline {
            assert_eq!(server.send(sent, ROWS), 200);
            sent += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        sent += u64::from(server.send(sent, ROWS) == 200);
        server.kill();
    }
    let mut server = place.run();
    server.check_exact(sent * ROWS);
    server.stop();
    let counts = proxy.counts();
    println!("{counts:?}");
    assert!(counts.before > 0 && counts.after_conditional > 0, "{counts:?}");
}

/// Sends until senders are told to wait, and returns how many batches were accepted, and the message.
fn fill(server: &Server, from: u64) -> (u64, String) {
    for batch in from.. {
        let (status, reply) = server.try_send(batch, ROWS, "");
        match status {
            200 => assert!(batch < from + 10_000, "there is no bound"),
            429 => return (batch, reply),
            _ => panic!("{status}: {reply}"),
        }
    }
    unreachable!("batches have no end")
}

fn an_outage(outage: Outage) {
    let limits = [
        "tail_bytes = \"64KiB\"",
        "inbox_bytes = \"64KiB\"",
        "send_timeout = \"300ms\"",
        "tables_store.timeout = \"2s\"",
        "zones.retry_attempts = 2",
    ];
    let Some(place) = Place::new(&[]) else { return };
    let proxy = FaultyHttp::start(place.endpoint(), 1);
    let endpoint = through(&proxy);
    let settings: Vec<&str> = limits.iter().copied().chain([endpoint.as_str()]).collect();
    place.app(&settings);
    let mut server = place.run();
    assert_eq!(server.send(0, ROWS), 200);
    server.check_exact(ROWS);

    proxy.set_outage(Some(outage));
    let (next, _) = fill(&server, 1);
    assert!(next > 10, "events are accepted while the store is away: {next} batches");
    server.wait_for_problem("cannot be written");
    let (same, message) = fill(&server, next);
    assert_eq!(same, next, "none is accepted beyond the bound");
    for part in ["tail_bytes = 65536", "Trades", "cannot be written", "Send it again later"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let (status, reply) = server.try_sql("SELECT count(*) FROM Trades");
    assert!(status == 503 && reply.to_string().contains("tail_bytes"), "{status}: {reply}");

    proxy.set_outage(None);
    let mut next = next;
    let deadline = Instant::now() + Duration::from_secs(120);
    while next < same + 20 {
        assert!(Instant::now() < deadline, "senders go on when the store is back");
        next += u64::from(server.try_send(next, ROWS, "").0 == 200);
    }
    server.wait_until("SELECT count(*) AS n FROM Trades", next * ROWS);
    server.check_exact(next * ROWS);
    server.wait_until("SELECT count(*) AS n FROM system.problems", 0);
    server.stop();
}

#[test]
fn an_outage_ends_in_429_and_loses_nothing() {
    an_outage(Outage::Closed);
}

#[test]
fn an_outage_in_which_the_store_is_silent_ends_in_429_and_loses_nothing() {
    an_outage(Outage::Silent);
}

#[test]
fn a_program_stops_and_is_killed_in_an_outage_and_goes_on_after_it() {
    let Some(place) = Place::new(&[]) else { return };
    let proxy = FaultyHttp::start(place.endpoint(), 1);
    let settings =
        [through(&proxy), "tables_store.timeout = \"2s\"".to_owned(), "zones.retry_attempts = 2".to_owned()];
    place.app(&settings.iter().map(String::as_str).collect::<Vec<_>>());
    let mut server = place.run();
    assert_eq!(server.send(0, ROWS), 200);
    proxy.set_outage(Some(Outage::Silent));
    assert_eq!(server.send(1, ROWS), 200);
    assert_eq!(server.count(), 2 * ROWS, "events in memory are queried");
    let start = Instant::now();
    server.interrupt_and_wait();
    assert!(start.elapsed() < Duration::from_secs(180), "{:?}", start.elapsed());

    let output = place.command().output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("s3://tidemill"), "{told}");

    proxy.set_outage(None);
    let mut server = place.run();
    assert_eq!(server.send(2, ROWS), 200);
    server.check_exact(3 * ROWS);
    server.stop();
}
