//! Queries read tablets from the object store once.

use serde_json::json;
use tidemill_test_servers::FaultyHttp;

use super::place::Place;

const ROWS: u64 = 50;

/// Returns how many reads of tablets arrived since the last call.
fn reads(proxy: &FaultyHttp) -> usize {
    proxy.take_requests().iter().filter(|r| r.method == "GET" && r.target.contains("/tablets/")).count()
}

#[test]
fn a_second_query_reads_nothing_from_the_store() {
    // Without decoded columns in memory, every query reads files; without merges they stay the same.
    let Some(place) = Place::new(&[]) else { return };
    let proxy = FaultyHttp::start(place.endpoint(), 1);
    let endpoint = format!("tables_store.endpoint = \"{}\"", proxy.url());
    place.app(&[&endpoint, "sql.hot_bytes = 0", "sql.cached_plans = 0", "zones.merge_tablets = 1000"]);
    let query = "SELECT symbol, sum(n) AS n FROM Trades WHERE n >= 0 GROUP BY symbol ORDER BY symbol LIMIT 1";
    let expected = json!([{"symbol": "s0", "n": (0..4 * ROWS).filter(|n| n % 7 == 0).sum::<u64>()}]);
    let mut server = place.run();
    for batch in 0..4 {
        assert_eq!(server.send(batch, ROWS), 200);
    }
    server.check_exact(4 * ROWS);
    assert_eq!(server.sql(query), expected);
    reads(&proxy);
    assert_eq!(server.sql(query), expected);
    assert_eq!(reads(&proxy), 0);
    let cache = server.sql("SELECT memory_hits > 0 AS hits, misses > 0 AS misses, errors FROM system.cache");
    assert_eq!(cache, json!([{"hits": true, "misses": true, "errors": 0}]));
    server.stop();

    let mut server = place.run();
    reads(&proxy);
    assert_eq!(server.sql(query), expected);
    assert_eq!(reads(&proxy), 0, "the disk has them after a restart");
    server.wait_until("SELECT count(*) AS n FROM system.cache WHERE disk_hits > 0", 1);
    server.stop();
}
