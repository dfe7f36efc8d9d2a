//! Clients that do not follow the protocol, or take what they can get.

use std::time::Duration;

use tidemill_postgres::PostgresOptions;
use tokio::io::AsyncWriteExt;

use crate::fixture::Server;
use crate::raw::{Raw, message, show, startup};

async fn is_served(server: &Server) {
    let mut raw = Raw::session(server.address).await;
    let replies = raw.query("SELECT rows 1").await;
    assert_eq!(show(replies.last().unwrap()), "ReadyForQuery I");
}

#[tokio::test(flavor = "multi_thread")]
async fn first_messages_that_cannot_be_end_the_connection() {
    let server = Server::start(PostgresOptions::default()).await;
    for bytes in [
        &[0x7f, 0xff, 0xff, 0xff][..],
        &[0, 0, 0, 7, 0, 3, 0],
        &[0, 0, 0x27, 0x11],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0, 0, 0, 8, 0, 2, 0, 0],
        &[0, 0, 0, 9, 0, 3, 0, 0, b'x'],
        &[0, 0, 0, 9, 0, 3, 0, 0, 0],
        &[0, 0, 0, 9, 0x04, 0xd2, 0x16, 0x2f, 0],
    ] {
        let mut raw = Raw::open(server.address).await;
        raw.send(bytes).await;
        let replies: Vec<String> = raw.until_ready().await.iter().map(show).collect();
        assert!(replies.len() == 1 && replies[0].starts_with("Error FATAL"), "{bytes:?}: {replies:?}");
    }
    // twice the same request
    let mut raw = Raw::open(server.address).await;
    raw.send(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f, 0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).await;
    let mut rest = vec![];
    tokio::io::AsyncReadExt::read_to_end(&mut raw.stream, &mut rest).await.unwrap();
    assert_eq!(rest, b"N");
    is_served(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_cannot_be_end_the_connection() {
    let options = PostgresOptions { message_bytes_max: 100_000, ..PostgresOptions::default() };
    let server = Server::start(options).await;
    for bytes in [
        &[b'Q', 0, 0, 0, 3][..],
        &[b'Q', 0x7f, 0xff, 0xff, 0xff],
        &[b'Q', 0xff, 0xff, 0xff, 0xff],
        &[b'Q', 0, 1, 0x86, 0xa1],
        &[b'~', 0, 0, 0, 4],
        &message('B', b"\0\0\xff\xff"),
        &message('p', b"secret\0"),
        &message('c', b"more"),
        &message('f', b"\xff\0"),
    ] {
        let mut raw = Raw::session(server.address).await;
        raw.send(bytes).await;
        let replies: Vec<String> = raw.until_ready().await.iter().map(show).collect();
        assert!(replies.len() == 1 && replies[0].starts_with("Error FATAL"), "{bytes:?}: {replies:?}");
    }
    is_served(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_given_up_stores_nothing() {
    let options = PostgresOptions {
        idle_transaction_timeout: Duration::from_millis(100),
        ..PostgresOptions::default()
    };
    let server = Server::start(options).await;
    let start = message('Q', b"COPY plain FROM STDIN\0");
    let rows = message('d', b"1\ta\n2\tb\n");
    // another message, silence, and a client that goes away
    for (bytes, code) in [
        (message('Q', b"SELECT rows 1\0"), Some("08P01")),
        (message('X', b""), Some("08P01")),
        (message('d', b"3\t")[..6].to_vec(), None),
        (vec![], Some("08P01")),
    ] {
        let mut raw = Raw::session(server.address).await;
        raw.send(&start).await;
        assert_eq!(raw.until(&['G', 'Z']).await.last().unwrap().letter, 'G');
        raw.send(&[&rows[..], &bytes].concat()).await;
        let Some(code) = code else { continue };
        let replies: Vec<String> = raw.until_ready().await.iter().map(show).collect();
        let is_closed = replies.len() == 1 && replies[0].starts_with(&format!("Error FATAL {code}"));
        assert!(is_closed, "{bytes:?}: {replies:?}");
    }
    let mut raw = Raw::session(server.address).await;
    let stored: Vec<String> = raw.query("SELECT stored").await.iter().map(show).collect();
    assert_eq!(stored[1], "CommandComplete SELECT 0");
    is_served(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_holds_a_part_of_the_memory() {
    let options = PostgresOptions {
        transaction_bytes_max: 200_000,
        transactions_memory_max: 300_000,
        ..PostgresOptions::default()
    };
    let server = Server::start(options).await;
    let row = message('d', format!("1\t{}\n", "x".repeat(10_000)).as_bytes());
    let copy = async |raw: &mut Raw, rows: usize| -> Vec<String> {
        raw.send(&message('Q', b"COPY plain FROM STDIN\0")).await;
        raw.until(&['G', 'Z']).await;
        raw.send(&row.repeat(rows)).await;
        raw.send(&message('c', b"")).await;
        raw.until_ready().await.iter().map(show).collect()
    };
    let mut first = Raw::session(server.address).await;
    first.query("BEGIN").await;
    assert_eq!(copy(&mut first, 15).await[0], "CommandComplete COPY 15");
    let refused = copy(&mut first, 15).await;
    assert!(refused[0].starts_with("Error ERROR 53400") && refused[0].contains("copy_atomic"), "{refused:?}");
    // events of a failed transaction are held until it ends
    let mut second = Raw::session(server.address).await;
    let refused = copy(&mut second, 15).await;
    assert!(refused[0].starts_with("Error ERROR 53200"), "{refused:?}");
    first.query("ROLLBACK").await;
    assert_eq!(copy(&mut second, 15).await[0], "CommandComplete COPY 15");
    second.query("SET tidemill.copy_atomic = off").await;
    drop(first);
    assert_eq!(copy(&mut second, 15).await[0], "CommandComplete COPY 15");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_messages_end_with_their_time() {
    let options = PostgresOptions {
        login_timeout: Duration::from_millis(100),
        transfer_timeout: Duration::from_millis(100),
        ..PostgresOptions::default()
    };
    let server = Server::start(options).await;
    let mut silent = Raw::open(server.address).await;
    let mut slow_login = Raw::open(server.address).await;
    slow_login.send(&[0, 0, 0, 50, 0, 3]).await;
    let mut slow = Raw::session(server.address).await;
    slow.send(&[b'Q', 0, 0, 0, 50, b'S']).await;
    assert_eq!(silent.reply().await, None);
    assert_eq!(slow_login.reply().await, None);
    let replies: Vec<String> = slow.until_ready().await.iter().map(show).collect();
    assert!(replies.len() == 1 && replies[0].contains("did not arrive in time"), "{replies:?}");
    // one that takes none of its rows
    let mut deaf = Raw::session(server.address).await;
    deaf.send(&message('Q', b"SELECT wide 1000000\0")).await;
    server.all_ended().await;
    is_served(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_logins_make_room_for_others() {
    let options = PostgresOptions { password: Some("secret".to_owned()), ..PostgresOptions::default() };
    let server = Server::start_with(options, None, 20).await;
    let mut half_open = vec![];
    for number in 0..200 {
        let mut raw = Raw::open(server.address).await;
        if number % 2 == 0 {
            // may be closed by the next ones at once
            let _ = raw.stream.write_all(&startup(0, &[("user", "admin")])).await;
        }
        half_open.push(raw);
    }
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(server.address.port()).user("admin").password("secret").dbname("tidemill");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    // one that has logged in stays
    for _ in 0..50 {
        half_open.push(Raw::open(server.address).await);
    }
    assert_eq!(client.query("SELECT rows 3", &[]).await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_share_their_memory() {
    let options = PostgresOptions { message_memory_max: 1 << 20, ..PostgresOptions::default() };
    let server = Server::start(options).await;
    let text = format!("SELECT rows 1 /*{}*/\0", "x".repeat(800_000));
    let whole = message('Q', text.as_bytes());
    let mut first = Raw::session(server.address).await;
    first.send(&whole[..700_000]).await;
    let mut second = Raw::session(server.address).await;
    // the one that rests gives way to the other, at any of these writes
    let mut outcomes = vec![];
    second.stream.write_all(&whole).await.ok();
    for (raw, rest) in [(&mut second, &[][..]), (&mut first, &whole[700_000..])] {
        raw.stream.write_all(rest).await.ok();
        let replies: Vec<String> = raw.until_ready().await.iter().map(show).collect();
        let is_served = replies.last().is_some_and(|last| last == "ReadyForQuery I");
        let is_closed = replies.last().is_none_or(|last| last.contains("message_memory_max"));
        assert!(is_served || is_closed, "{replies:?}");
        outcomes.push(is_served);
    }
    assert!(outcomes.contains(&true));
    is_served(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_that_are_not_asked_for_do_not_pile_up() {
    let options =
        PostgresOptions { transfer_timeout: Duration::from_millis(200), ..PostgresOptions::default() };
    let server = Server::start(options).await;
    let mut raw = Raw::session(server.address).await;
    raw.send(&message('P', b"s\0SELECT types\0\0\0")).await;
    // far more than the buffers of the system, without `Sync`, and without a look at the replies
    let describes = message('D', b"Ss\0").repeat(1_000);
    let sent = async {
        for _ in 0..1_000 {
            if raw.stream.write_all(&describes).await.is_err() {
                return false;
            }
        }
        true
    };
    assert!(!sent.await, "the server has taken all messages, and holds their replies");
    is_served(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_ends_its_pipeline_is_closed() {
    let options =
        PostgresOptions { idle_transaction_timeout: Duration::from_millis(50), ..PostgresOptions::default() };
    let server = Server::start(options).await;
    let mut raw = Raw::session(server.address).await;
    raw.send(&message('P', b"\0SELECT rows 1\0\0\0")).await;
    let replies: Vec<String> = raw.until_ready().await.iter().map(show).collect();
    assert!(replies.len() == 2 && replies[1].starts_with("Error FATAL 25P03"), "{replies:?}");
}
