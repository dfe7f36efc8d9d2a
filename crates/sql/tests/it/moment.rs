//! A query takes one moment of all its tables.

use crate::fixture::{self, State};

#[tokio::test]
async fn all_tables_of_a_query_are_of_one_moment() {
    let (fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let joined = "select count(*) from events.TakeOffEvent e
         left join latest('events.Landing') l on l.flight = e.flight
         left join (select carrier from flights where carrier in (select _id from docs.ids)) f using (carrier)";
    let explained = format!("explain {joined}");
    for query in [joined, joined, explained.as_str()] {
        sql.query(query).await.unwrap().collect().await.unwrap();
        let taken = std::mem::take(&mut *fixture.taken.lock());
        let [tables] = taken.as_slice() else { panic!("{query}: {taken:?}") };
        let mut tables = tables.clone();
        tables.sort_unstable();
        assert_eq!(tables, ["Landing", "TakeOffEvent", "flights", "ids"], "{query}");
    }
    // a kept plan takes its moment anew, and the session takes none for a plan that it cannot use
    let prepared = sql.prepare("select count(carrier) from events.TakeOffEvent").await.unwrap();
    fixture.taken.lock().clear();
    for _ in 0..3 {
        prepared.query().await.unwrap();
    }
    assert!(fixture.taken.lock().iter().all(|tables| *tables == ["TakeOffEvent"]));
}
