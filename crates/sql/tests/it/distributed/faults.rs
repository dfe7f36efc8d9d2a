//! Nodes that fail: a statement has all of its rows, or an error that names the node.

use tidemill_types::ErrorKind;

use super::cluster::{Fault, TestCluster, options, rows};

const SUMS: &str = "SELECT device, count(*), sum(v) FROM readings GROUP BY device";

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_repeated_at_its_node_when_another_one_is_lost() {
    let cluster = TestCluster::with_readings(&options()).await;
    for fault in [
        Fault::Away,
        Fault::LostAfter(0),
        Fault::LostAfter(1),
        Fault::CutAfter(0),
        Fault::CutAfter(1),
        Fault::OtherVersion,
    ] {
        cluster.nodes.set_fault("n3", fault.clone());
        assert!(cluster.check_equal(SUMS).await, "{fault:?}");
        assert!(
            cluster.check_equal("SELECT at, n FROM readings ORDER BY at, n, device LIMIT 5").await,
            "{fault:?}"
        );
    }
    let analyzed = rows(&cluster.sql, &format!("EXPLAIN ANALYZE {SUMS}")).await.unwrap().join("\n");
    assert!(!analyzed.contains("DistributedExec"), "it shows the repetition: {analyzed}");
}

/// Rows that were sent cannot be taken back.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_has_sent_rows_fails_with_the_name_of_the_lost_node() {
    let cluster = TestCluster::with_readings(&options()).await;
    // the first rows come from here or from n2
    for fault in [Fault::LostAfter(1), Fault::CutAfter(1)] {
        cluster.nodes.set_fault("n3", fault.clone());
        let statement = "SELECT device, n FROM readings WHERE n > -3";
        let expected = rows(&cluster.alone, statement).await.unwrap();
        match rows(&cluster.sql, statement).await {
            // it was lost before the first row
            Ok(found) => assert_eq!(found, expected, "{fault:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.message().contains("node n3 was lost"), "{error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_replies_are_refused() {
    let cluster = TestCluster::with_readings(&options()).await;
    // the kind of the reply; the length of its message
    for at in [0, 4] {
        cluster.nodes.set_fault("n2", Fault::Flipped(at));
        let error = rows(&cluster.sql, SUMS).await.unwrap_err();
        assert!(error.message().contains("node n2: "), "byte {at}: {error}");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
    }
    let other = cluster.nodes.other("n2");
    for bytes in [&b""[..], b"\x0a\x03abc", b"nonsense"] {
        use futures::StreamExt;
        let mut replies = other.run_fragment(&bytes.to_vec().into());
        let error = replies.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_rows_at_another_node_names_it() {
    let cluster = TestCluster::with_readings(&options()).await;
    let statement = "SELECT sum(1000 / (device - 5)) FROM readings";
    let expected = rows(&cluster.alone, statement).await.unwrap_err();
    let error = rows(&cluster.sql, statement).await.unwrap_err();
    assert_eq!((error.kind(), expected.kind()), (ErrorKind::Invalid, ErrorKind::Invalid), "{error}");
    assert!(error.message().ends_with(expected.message()), "{error}");
}
