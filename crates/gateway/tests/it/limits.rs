//! Limits of connections, and the choice of those that are closed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_gateway::{Gateway, Listener, Metrics};

use crate::lines::{Client, Lines, local, start, until};

#[tokio::test]
async fn the_client_that_was_idle_for_longest_makes_room() {
    let front_end = Lines::new();
    let (gateway, metrics) = start(&front_end, local(2)).await;
    let address = gateway.addresses()[0];
    let mut first = Client::connect(address).await;
    let mut second = Client::connect(address).await;
    assert_eq!(second.ask("ping").await.unwrap(), "pong");
    assert_eq!(first.ask("ping").await.unwrap(), "pong");
    let mut third = Client::connect(address).await;
    assert_eq!(third.ask("ping").await.unwrap(), "pong");
    assert_eq!(second.read().await, None, "it was idle for longest");
    assert_eq!(first.ask("ping").await.unwrap(), "pong");
    let counts = metrics.of("lines");
    assert_eq!((counts.open, counts.accepted, counts.evicted, counts.refused), (2, 3, 1, 0));
    assert_eq!(metrics.of("others"), Default::default());
    gateway.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn clients_that_are_known_stay_in_a_flood_of_others() {
    let front_end = Lines::new();
    let (gateway, metrics) = start(&front_end, local(4)).await;
    let address = gateway.addresses()[0];
    let mut known = Client::connect(address).await;
    assert_eq!(known.ask("login").await.unwrap(), "welcome");
    let mut flood = vec![];
    for number in 0..100 {
        let mut client = Client::connect(address).await;
        // some ask something, the others send the beginning of a request and never its end
        match number % 2 {
            0 => assert_eq!(client.ask("ping").await.unwrap(), "pong"),
            _ => client.write("pi").await,
        }
        flood.push(client);
    }
    until(|| metrics.of("lines").accepted == 101).await;
    assert_eq!(known.ask("ping").await.unwrap(), "pong");
    assert!(metrics.of("lines").evicted >= 97);
    gateway.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn new_clients_wait_while_all_others_have_requests() {
    let front_end = Lines::new();
    let (gateway, metrics) = start(&front_end, local(2)).await;
    let address = gateway.addresses()[0];
    let (mut first, mut second) = (Client::connect(address).await, Client::connect(address).await);
    first.send("work").await;
    second.send("work").await;
    front_end.wait_for_work(2).await;
    let mut third = Client::connect(address).await;
    third.send("ping").await;
    // a second of the listener goes by: it neither accepts the third client nor closes another one
    let ticks = front_end.ticks.load(Ordering::SeqCst);
    until(|| front_end.ticks.load(Ordering::SeqCst) > ticks).await;
    assert_eq!((metrics.of("lines").accepted, metrics.of("lines").evicted), (2, 0));
    front_end.release.add_permits(1);
    assert_eq!(third.read().await.unwrap(), "pong");
    front_end.release.add_permits(1);
    let answers = [first.read().await, second.read().await];
    assert!(answers.iter().flatten().all(|answer| answer == "done"), "{answers:?}");
    gateway.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn clients_of_one_listener_do_not_close_those_of_another_one() {
    let (front_end, other) = (Lines::named("lines"), Lines::named("other"));
    let mut listeners = vec![];
    for (front_end, most) in [(&front_end, 1), (&front_end, 3), (&other, 1)] {
        listeners.push(Listener::bind(front_end.clone(), local(most)).await.unwrap());
    }
    let metrics = Arc::new(Metrics::default());
    let gateway = Gateway::start(listeners, metrics.clone());
    let [small, large, other_address] = gateway.addresses().try_into().unwrap();
    let mut clients = vec![Client::connect(large).await, Client::connect(other_address).await];
    for _ in 0..10 {
        let mut client = Client::connect(small).await;
        assert_eq!(client.ask("ping").await.unwrap(), "pong");
        clients.push(client);
    }
    for client in &mut clients[..2] {
        assert_eq!(client.ask("ping").await.unwrap(), "pong");
    }
    assert_eq!((metrics.of("lines").evicted, metrics.of("other").evicted), (9, 0));
    assert_eq!(metrics.all().iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["lines", "other"]);
    gateway.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_defect_ends_one_connection() {
    let front_end = Lines::new();
    let (gateway, metrics) = start(&front_end, local(1)).await;
    let address = gateway.addresses()[0];
    for _ in 0..3 {
        assert_eq!(Client::connect(address).await.ask("panic").await, None);
    }
    assert_eq!(Client::connect(address).await.ask("ping").await.unwrap(), "pong");
    until(|| metrics.of("lines").open == 0).await;
    gateway.shutdown(Duration::ZERO).await;
}
