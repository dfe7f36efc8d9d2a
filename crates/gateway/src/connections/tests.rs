//! Evictions and requests of connections.

use super::*;

fn connections(most: usize) -> Arc<Connections> {
    Connections::new(most, Arc::default())
}

fn open(connections: &Arc<Connections>) -> OpenConnection {
    let permit = connections.permits.clone().try_acquire_owned().unwrap();
    connections.open(permit, watch::channel(false).1)
}

/// Returns for each connection whether it is being closed.
fn closing(all: &[&OpenConnection]) -> Vec<bool> {
    let state = |open: &&OpenConnection| State::unpack(open.handle.entry.state.load(Ordering::SeqCst));
    all.iter().map(|open| state(open).phase == Phase::Closing).collect()
}

#[test]
fn clients_that_are_not_known_go_first_and_work_never_does() {
    let connections = connections(5);
    let [working, arriving, idle, old, new] = std::array::from_fn(|_| open(&connections));
    let all = [&working, &arriving, &idle, &old, &new];
    for trusted in [&working, &arriving, &idle] {
        trusted.handle.trust();
    }
    let work = working.handle.begin();
    let request = arriving.handle.begin();
    arriving.handle.arriving();
    let mut expected = [false; 5];
    for next in [3, 4, 2, 1] {
        assert!(connections.evict_one());
        expected[next] = true;
        assert_eq!(closing(&all), expected);
    }
    assert!(!connections.evict_one(), "what is worked on stays");
    assert!(!arriving.handle.arrived() && idle.handle.begin().is_none(), "they are being closed");
    assert!(connections.is_full_of_requests());
    drop((work, request));
    assert!(!connections.is_full_of_requests());
    assert!(connections.evict_one());
    assert_eq!(connections.metrics.evicted.load(Ordering::Relaxed), 5);
}

#[test]
fn a_known_client_stays_while_others_are_served() {
    let connections = connections(2);
    let (known, other) = (open(&connections), open(&connections));
    known.handle.trust();
    let request = other.handle.begin();
    assert!(!connections.evict_one(), "the request of the other one ends soon");
    drop(request);
    assert!(connections.evict_one());
    assert_eq!(closing(&[&known, &other]), [false, true]);
    assert_eq!(connections.closing.load(Ordering::SeqCst), 1);
    drop(other);
    assert_eq!(connections.closing.load(Ordering::SeqCst), 0);
    assert!(connections.evict_one());
}

#[test]
fn a_client_that_was_active_last_goes_last() {
    let connections = connections(2);
    let (first, second) = (open(&connections), open(&connections));
    drop(first.handle.begin());
    assert!(connections.evict_one());
    assert_eq!(closing(&[&first, &second]), [false, true]);
}

#[test]
fn a_permit_is_waited_for_until_work_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let connections = connections(1);
        let only = open(&connections);
        let work = only.handle.begin();
        let waiting = tokio::spawn({
            let connections = connections.clone();
            async move { connections.acquire_permit().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(work);
        only.evicted().await;
        assert!(!waiting.is_finished(), "it is open until it is dropped");
        drop(only);
        drop(waiting.await.unwrap());
        assert_eq!(connections.metrics.open.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_connection_with_several_requests_is_idle_when_the_last_one_ends() {
    let connections = connections(1);
    let only = open(&connections);
    only.handle.trust();
    let first = only.handle.begin();
    let second = only.handle.begin();
    // one of several that is still arriving does not make the others evictable
    only.handle.arriving();
    assert!(!connections.evict_one());
    drop(first);
    assert!(!connections.evict_one(), "the second one is in progress");
    assert!(connections.is_full_of_requests());
    only.handle.arriving();
    assert!(!connections.is_full_of_requests(), "the only one is arriving");
    assert!(only.handle.arrived());
    let third = only.handle.begin();
    drop(second);
    assert!(!connections.evict_one());
    drop(third);
    assert!(!connections.is_full_of_requests());
    assert!(connections.evict_one());
    assert_eq!(closing(&[&only]), [true]);
    assert!(only.handle.begin().is_none());
}

#[test]
fn a_connection_has_a_limit_of_requests_that_disturbs_neither_trust_nor_order() {
    let connections = connections(2);
    let (busy, other) = (open(&connections), open(&connections));
    busy.handle.trust();
    other.handle.trust();
    let requests: Vec<ActiveRequest> =
        (0..REQUESTS_MAX).map(|_| busy.handle.begin().expect("there is room")).collect();
    assert!(busy.handle.begin().is_none());
    let state = State::unpack(busy.handle.entry.state.load(Ordering::SeqCst));
    assert_eq!((state.phase, state.is_trusted, state.requests), (Phase::Working, true, REQUESTS_MAX));
    assert_eq!(state, State::unpack(state.pack()));
    drop(requests);
    // it was active last, so the other one goes first
    assert!(connections.evict_one());
    assert_eq!(closing(&[&busy, &other]), [false, true]);
    assert!(busy.handle.begin().is_some());
}

/// Threads that begin and end requests race with evictions: either the request begins or the connection is closed.
#[test]
fn a_request_begins_or_its_connection_is_closed() {
    let connections = connections(64);
    let all: Vec<OpenConnection> = (0..64).map(|_| open(&connections)).collect();
    std::thread::scope(|scope| {
        for open in &all {
            scope.spawn(|| {
                let mut closed = false;
                for _ in 0..1000 {
                    match open.handle.begin() {
                        Some(request) => {
                            assert!(!closed, "one that is closed stays so");
                            assert_eq!(closing(&[open]), [false]);
                            drop(request);
                        }
                        None => closed = true,
                    }
                }
            });
        }
        for _ in 0..32 {
            connections.evict_one();
        }
    });
    let closed = closing(&all.iter().collect::<Vec<_>>()).iter().filter(|closed| **closed).count();
    assert_eq!(closed as u64, connections.metrics.evicted.load(Ordering::Relaxed));
    assert_eq!(connections.open.lock().len(), 64 - closed);
}
