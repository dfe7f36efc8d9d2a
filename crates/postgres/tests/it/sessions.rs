//! What a session does beside its replies: cancelling, limits of time, pipelines, drains.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_postgres::PostgresOptions;

use crate::fixture::Server;
use crate::raw::{Raw, Reply, message, show, startup};

fn shown(replies: &[Reply]) -> Vec<String> {
    replies.iter().map(show).collect()
}

fn cancel_request(process: u32, key: &[u8]) -> Vec<u8> {
    let code = (1234_u32 << 16) | 5678;
    let content = [&code.to_be_bytes()[..], &process.to_be_bytes(), key].concat();
    [&(content.len() as u32 + 4).to_be_bytes()[..], &content].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_cancel_ends_what_runs_and_nothing_later() {
    let server = Server::start(PostgresOptions::default()).await;
    let mut session = Raw::session(server.address).await;
    let (process, key) = session.key.clone();
    let cancel = async |key: &[u8]| {
        let mut other = Raw::open(server.address).await;
        other.send(&cancel_request(process, key)).await;
        assert_eq!(other.reply().await, None, "no answer");
    };
    // nothing runs
    cancel(&key).await;
    assert!(shown(&session.query("SELECT rows 1").await)[2].starts_with("CommandComplete"));
    session.send(&message('Q', b"SELECT wait\0")).await;
    while server.running.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // with a wrong key, too
    cancel(&[0; 4]).await;
    assert_eq!(server.running.load(Ordering::SeqCst), 1);
    // until it has begun to wait for rows, it does not hear
    let replies = tokio::select! {
        replies = session.until_ready() => replies,
        () = async { loop { cancel(&key).await; tokio::time::sleep(Duration::from_millis(20)).await; } } => unreachable!(),
    };
    let replies = shown(&replies);
    assert_eq!(replies.last().unwrap(), "ReadyForQuery I");
    assert!(
        replies.iter().any(|reply| reply == "Error ERROR 57014 \"canceling statement due to user request\""),
        "{replies:?}"
    );
    server.all_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_that_is_resumed_is_cancelled_as_well() {
    let server = Server::start(PostgresOptions::default()).await;
    let mut session = Raw::session(server.address).await;
    let (process, key) = session.key.clone();
    session.query("BEGIN; DECLARE c CURSOR FOR SELECT wait").await;
    session.send(&message('Q', b"FETCH 1 FROM c\0")).await;
    let cancel = async {
        loop {
            let mut other = Raw::open(server.address).await;
            other.send(&cancel_request(process, &key)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let replies =
        tokio::select! { replies = session.until_ready() => replies, () = cancel => unreachable!() };
    assert_eq!(shown(&replies).last().unwrap(), "ReadyForQuery E");
    server.all_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_end_when_their_time_is_over_or_their_client_has_gone() {
    let server = Server::start(PostgresOptions::default()).await;
    let mut session = Raw::session(server.address).await;
    session.query("SET statement_timeout = '10ms'").await;
    let replies = shown(&session.query("SELECT wait").await);
    assert!(
        replies.iter().any(|reply| reply.contains("57014") && reply.contains("statement timeout")),
        "{replies:?}"
    );
    session.query("SET statement_timeout = 0").await;
    session.send(&message('Q', b"SELECT wait\0")).await;
    while server.running.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(session);
    server.all_ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_left_open_ends_its_connection() {
    let options =
        PostgresOptions { idle_transaction_timeout: Duration::from_millis(50), ..PostgresOptions::default() };
    let server = Server::start(options).await;
    let mut idle = Raw::session(server.address).await;
    let mut session = Raw::session(server.address).await;
    session.query("BEGIN").await;
    let replies = shown(&session.until_ready().await);
    assert!(replies.len() == 1 && replies[0].starts_with("Error FATAL 25P03"), "{replies:?}");
    assert!(shown(&idle.query("SELECT rows 1").await).len() == 4, "one outside of a transaction stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_waits_for_statements_and_tells_idle_sessions() {
    let server = Server::start(PostgresOptions::default()).await;
    let mut idle = Raw::session(server.address).await;
    let mut busy = Raw::session(server.address).await;
    busy.send(&message('Q', b"SELECT wide 1000000\0")).await;
    let first = busy.reply().await.unwrap();
    let shutdown = tokio::spawn(server.shutdown(Duration::from_secs(60)));
    let told = shown(&idle.until_ready().await);
    assert_eq!(told, ["Error FATAL 57P01 \"terminating connection due to administrator command\""]);
    let rest = busy.until_ready().await;
    assert_eq!((first.letter, rest.iter().filter(|reply| reply.letter == 'D').count()), ('T', 100));
    assert_eq!(shown(&rest).last().unwrap(), "ReadyForQuery I");
    assert_eq!(shutdown.await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_and_options_are_negotiated() {
    let server = Server::start(PostgresOptions::default()).await;
    let mut newer = Raw::open(server.address).await;
    newer.send(&startup(9999, &[("user", "ana"), ("_pq_.new", "1")])).await;
    let replies = newer.until_ready().await;
    assert_eq!(show(&replies[0]), "NegotiateProtocolVersion 3.2 _pq_.new");
    let key = replies.iter().find(|reply| reply.letter == 'K').unwrap();
    assert_eq!(key.content.len(), 4 + 32, "keys are longer from 3.2 on");
    let mut older = Raw::open(server.address).await;
    older
        .send(&startup(0, &[("user", "ana"), ("application_name", "x"), ("options", "-c TimeZone=+2")]))
        .await;
    let replies = shown(&older.until_ready().await);
    assert_eq!(replies[0], "Authentication 0");
    assert!(replies.contains(&"ParameterStatus application_name = x".to_owned()), "{replies:?}");
    assert!(replies.contains(&"ParameterStatus TimeZone = <+02>-02".to_owned()), "{replies:?}");
    let mut gss = Raw::open(server.address).await;
    gss.send(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30]).await;
    let mut answer = [0];
    tokio::io::AsyncReadExt::read_exact(&mut gss.stream, &mut answer).await.unwrap();
    assert_eq!(&answer, b"N");
    gss.send(&startup(0, &[("user", "ana")])).await;
    assert_eq!(shown(&gss.until_ready().await).last().unwrap(), "ReadyForQuery I");
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_come_with_flush_and_errors_at_once() {
    let server = Server::start(PostgresOptions::default()).await;
    let mut session = Raw::session(server.address).await;
    session.send(&message('P', b"\0SELECT rows 1\0\0\0")).await;
    session.send(&message('H', b"")).await;
    assert_eq!(show(&session.reply().await.unwrap()), "ParseComplete");
    // asyncpg waits for the error before it sends `Sync`
    session.send(&message('P', b"\0SELECT missing\0\0\0")).await;
    session.send(&message('H', b"")).await;
    let error =
        tokio::time::timeout(Duration::from_secs(60), session.reply()).await.expect("no error without Sync");
    assert!(show(&error.unwrap()).starts_with("Error ERROR 42P01"));
    session.send(&message('S', b"")).await;
    assert_eq!(shown(&session.until_ready().await), ["ReadyForQuery I"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_cancelled_before_it_begins_or_is_finished() {
    let server = Server::start(PostgresOptions::default()).await;
    let mut session = Raw::session(server.address).await;
    let (process, key) = session.key.clone();
    let cancel = async || {
        let mut other = Raw::open(server.address).await;
        other.send(&cancel_request(process, &key)).await;
        assert_eq!(other.reply().await, None, "the request was taken");
    };
    session.send(&message('Q', b"DELETE slow\0")).await;
    // until it waits, it does not hear
    let replies = tokio::select! {
        replies = session.until_ready() => shown(&replies),
        () = async { loop { cancel().await; tokio::time::sleep(Duration::from_millis(5)).await; } } => unreachable!(),
    };
    assert!(replies[0].starts_with("Error ERROR 57014"), "{replies:?}");
    assert_eq!(server.changes.begun.load(Ordering::SeqCst), 0, "nothing was changed");
    server.changes.begin.add_permits(1);
    session.send(&message('Q', b"DELETE slow\0")).await;
    while server.changes.begun.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    cancel().await;
    server.changes.done.add_permits(1);
    assert_eq!(shown(&session.until_ready().await), ["CommandComplete DELETE 0", "ReadyForQuery I"]);
    server.all_ended().await;
}
