//! The end of a gateway.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lines::{Client, FAREWELL_BYTES, Lines, PATIENCE, local, start, until};

#[tokio::test]
async fn requests_in_progress_finish_and_idle_connections_end() {
    let front_end = Lines::new();
    let (gateway, metrics) = start(&front_end, local(8)).await;
    let address = gateway.addresses()[0];
    let (mut idle, mut working) = (Client::connect(address).await, Client::connect(address).await);
    assert_eq!(idle.ask("ping").await.unwrap(), "pong");
    working.send("work").await;
    front_end.wait_for_work(1).await;
    let stopping = tokio::spawn(gateway.shutdown(PATIENCE));
    assert_eq!(idle.read().await, None);
    assert!(front_end.drained.load(Ordering::SeqCst), "the protocol knows it before its connections do");
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
    assert!(!stopping.is_finished());
    front_end.release.add_permits(1);
    assert_eq!(working.read().await.unwrap(), "done");
    assert_eq!(working.read().await, None);
    assert_eq!(stopping.await.unwrap(), 0);
    assert_eq!((metrics.of("lines").open, metrics.of("lines").cut), (0, 0));
}

#[tokio::test]
async fn requests_that_take_longer_than_the_grace_period_are_cut() {
    let front_end = Lines::new();
    let (gateway, metrics) = start(&front_end, local(8)).await;
    let address = gateway.addresses()[0];
    let mut clients = vec![];
    for _ in 0..3 {
        let mut client = Client::connect(address).await;
        client.send("work").await;
        clients.push(client);
    }
    front_end.wait_for_work(3).await;
    // one of them finishes
    front_end.release.add_permits(1);
    until(|| front_end.release.available_permits() == 0).await;
    assert_eq!(gateway.shutdown(Duration::from_millis(50)).await, 2);
    assert_eq!((metrics.of("lines").open, metrics.of("lines").cut), (0, 2));
    let mut done = 0;
    for client in &mut clients {
        done += usize::from(client.read().await.is_some());
    }
    assert_eq!(done, 1);
}

#[tokio::test]
async fn a_gateway_that_is_dropped_closes_everything_at_once() {
    let front_end = Lines::new();
    let (gateway, metrics) = start(&front_end, local(8)).await;
    let mut client = Client::connect(gateway.addresses()[0]).await;
    client.send("work").await;
    front_end.wait_for_work(1).await;
    drop(gateway);
    assert_eq!(client.read().await, None);
    until(|| metrics.of("lines").open == 0).await;
}

#[tokio::test]
async fn a_client_gets_all_of_its_last_reply_while_it_sends_more() {
    let (gateway, _) = start(&Lines::new(), local(8)).await;
    let mut client = TcpStream::connect(gateway.addresses()[0]).await.unwrap();
    client.write_all(b"farewell\n").await.unwrap();
    client.write_all(&[b'x'; 64 << 10]).await.unwrap();
    let mut reply = vec![];
    client.read_to_end(&mut reply).await.unwrap();
    assert_eq!(reply.len(), FAREWELL_BYTES);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_close_its_side_holds_nobody_up() {
    let (gateway, metrics) = start(&Lines::new(), local(8)).await;
    let mut client = TcpStream::connect(gateway.addresses()[0]).await.unwrap();
    client.write_all(b"farewell\n").await.unwrap();
    let mut reply = vec![];
    client.read_to_end(&mut reply).await.unwrap();
    assert_eq!(gateway.shutdown(PATIENCE).await, 0);
    assert_eq!((reply.len(), metrics.of("lines").open), (FAREWELL_BYTES, 0));
}
