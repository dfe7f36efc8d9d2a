//! Connections to files.

use std::sync::Barrier;

use tidemill_relational::{DatabaseConnection, DatabaseUrl, DbError};
use tokio::runtime::Builder;

/// SQLite refuses a change of the journal at once while another connection makes it, and a connection waits for that.
#[test]
fn connections_that_open_a_new_file_together_wait_for_each_other() {
    const TOGETHER: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let path = dir.path().join(format!("{round}.db"));
        let url = DatabaseUrl::parse(&format!("jdbc:sqlite:{}", path.display())).unwrap();
        let barrier = Barrier::new(TOGETHER);
        std::thread::scope(|scope| {
            let open = || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                barrier.wait();
                runtime.block_on(async {
                    let mut database = DatabaseConnection::connect(&url, None, None).await?;
                    database.run("CREATE TABLE IF NOT EXISTS t (n INTEGER)").await?;
                    database.close().await;
                    Ok::<(), DbError>(())
                })
            };
            let threads: Vec<_> = (0..TOGETHER).map(|_| scope.spawn(open)).collect();
            for thread in threads {
                thread.join().unwrap().unwrap_or_else(|e| panic!("round {round}: {e}"));
            }
        });
    }
}
