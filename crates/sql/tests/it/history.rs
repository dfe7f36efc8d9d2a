//! Older versions of a stream's table.

use crate::fixture::{self, State};
use crate::hot::tables::{answer, sorted};

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_a_table_like_any_other() {
    let (_fixture, sql) = fixture::sql(State::Tablets, fixture::options()).await;
    // 4 rows of a stream without `gate`, the new column, 4 rows, 4 rows
    let versions = "select version, operation, files_added from versions('TakeOffEvent')";
    assert_eq!(
        sorted(&answer(&sql, versions).await),
        ["0|CREATE TABLE|0", "1|WRITE|1", "2|ADD COLUMN|0", "3|WRITE|1", "4|WRITE|1"]
    );
    for (version, rows) in [(0, 0), (1, 4), (2, 4), (3, 8), (4, 12)] {
        let count = format!("select count(*), count(gate) from as_of('events.takeoffevent', {version})");
        let gates = rows.max(4) - 4;
        // twice, because the second statement may use what the first left behind
        for _ in 0..2 {
            assert_eq!(sorted(&answer(&sql, &count).await), [format!("{rows}|{gates}")], "{version}");
        }
    }
    for now in ["now()", "now() + interval '1 day'", "'2999-01-01T00:00:00Z'", "'2999-01-01'"] {
        let count = format!("select count(*) from as_of('TakeOffEvent', {now})");
        assert_eq!(sorted(&answer(&sql, &count).await), ["12"], "{now}");
    }
    let new = "select count(*) from TakeOffEvent t left join as_of('TakeOffEvent', 3) old \
               on old._partition = t._partition and old._offset = t._offset and old._row = t._row where old._time is null";
    assert_eq!(sorted(&answer(&sql, new).await), ["4"]);
    let some = "select flight from as_of('TakeOffEvent', 3) where carrier = 'UA' and distance > 0 order by flight limit 1";
    assert_eq!(sorted(&answer(&sql, some).await).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_do_not_exist_are_refused() {
    let (_fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    for (at, message) in [
        ("1000", "table `TakeOffEvent` has no version 1000 yet: its newest is 3"),
        ("timestamp '1999-12-31 23:59:59'", "cannot be read as of 1999-12-31T23:59:59Z: its oldest version"),
    ] {
        let error = sql.query(&format!("select * from as_of('TakeOffEvent', {at})")).await.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}
