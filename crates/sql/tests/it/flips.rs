//! Bit flips in tablets: a query returns correct rows or an error that names the file.

use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_sql::Sql;
use tidemill_sql::output::Format;
use tidemill_types::ErrorKind;

use crate::cases::print;
use crate::fixture::{self, State, options};

const SEED: u64 = 684;

/// Queries that decode every column, prune row groups and pages by statistics and Bloom filters, and look up
/// page positions in the index.
const QUERIES: [&str; 4] = [
    "select * from events.TakeOffEvent order by _time, flight",
    "select count(*), sum(distance), max(gate), min(actual) from events.TakeOffEvent where carrier = 'AA'",
    "select flight, origin from events.TakeOffEvent where sched > '2013-01-01T09:00:00Z' order by flight",
    "select max(_offset), max(_row), max(meta), max(_extra) from events.TakeOffEvent where flight > 103",
];

async fn answers(sql: &Sql) -> Vec<tidemill_types::Result<String>> {
    let mut answers = vec![];
    for query in QUERIES {
        answers.push(print(sql, query, Format::Ndjson).await);
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn no_flipped_bit_of_a_tablet_gives_other_rows_in_silence() {
    let (fixture, sql) = fixture::sql(State::Tablets, options()).await;
    let good: Vec<String> = answers(&sql).await.into_iter().map(|a| a.unwrap()).collect();
    let tablets = fixture.streams.read()["TakeOffEvent"].snapshot().tablets;
    assert!(tablets.len() >= 3);
    let mut rng = StdRng::seed_from_u64(SEED);
    let (mut flips, mut refused) = (0, 0);
    for tablet in tablets.iter() {
        let path = Path::new("/").join(tablet.path.as_ref());
        let whole = std::fs::read(&path).unwrap();
        let name = tablet.path.filename().unwrap();
        for _ in 0..70 {
            // a new session, because sessions cache footers
            let sql = Sql::new(fixture.clone(), options()).unwrap();
            let bit = rng.random_range(0..whole.len() * 8);
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, damaged).unwrap();
            flips += 1;
            for (answer, good) in answers(&sql).await.into_iter().zip(&good) {
                match answer {
                    Ok(text) => assert_eq!(&text, good, "seed {SEED}: bit {bit} of {name}"),
                    Err(error) => {
                        refused += 1;
                        assert_eq!(
                            error.kind(),
                            ErrorKind::Corrupt,
                            "seed {SEED}: bit {bit} of {name}: {error}"
                        );
                        assert!(
                            error.to_string().contains(name),
                            "seed {SEED}: bit {bit} of {name}: {error}"
                        );
                    }
                }
            }
        }
        std::fs::write(&path, whole).unwrap();
    }
    assert!(flips >= 200 && refused >= flips, "{flips} flips, {refused} refused");
}
