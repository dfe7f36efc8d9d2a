//! Measures calls of 1 KB over loopback: latency and rate by threads that wait, with a shared secret and with certificates.
//!
//! ```sh
//! cargo run --release -p tidemill-rpc --example measure_calls -- 5 2 2
//! ```
//!
//! The arguments are the number of runs, the seconds of each measurement, and the threads of the runtime of each node. Both nodes are
//! in this process. Each reply is compared with what was sent. The rows `sockets` are the least that the machine can do: threads
//! that send the payload through a socket of their own and wait for it, without a frame, a deadline or a runtime.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tidemill_gateway::{Gateway, Metrics};
use tidemill_rpc::{
    CallHandler, CallLimits, CallRequest, CertificateFiles, IncomingCall, NodeIdentity, NodeSettings,
    PeerClient, Reply, RpcFrontEnd, Secret, Security,
};
use tidemill_types::{PartitionId, Result};
use tokio::runtime::Runtime;

const PAYLOAD_BYTES: usize = 1024;
const THREADS: [usize; 3] = [1, 8, 64];
const WARM_UP: Duration = Duration::from_millis(300);

/// Replies with the payload.
struct Echo;

impl CallHandler for Echo {
    fn call(&self, call: IncomingCall) -> BoxFuture<'static, Result<Reply>> {
        async { Ok(Reply::Payload(call.payload)) }.boxed()
    }

    fn stream(&self, call: IncomingCall) -> BoxStream<'static, Result<Reply>> {
        futures::stream::repeat_with(move || Ok(Reply::Payload(call.payload.clone()))).boxed()
    }
}

/// One measurement.
struct Measured {
    p50: Duration,
    p99: Duration,
    calls_per_s: f64,
}

fn main() {
    let mut arguments =
        std::env::args().skip(1).map(|text| text.parse::<u32>().expect("expected: RUNS SECONDS THREADS"));
    let runs = arguments.next().unwrap_or(3).max(1);
    let duration = Duration::from_secs(arguments.next().unwrap_or(2).into());
    let workers = arguments.next().unwrap_or(2).max(1) as usize;
    let dir = tempfile::tempdir().expect("a directory for certificates");
    let certificates = certificates(dir.path());
    let mut measured: Vec<Vec<Measured>> = rows().map(|_| vec![]).collect();
    for _ in 0..runs {
        // the rows of a run alternate, so that they see the same disturbance
        for (row, (way, threads)) in rows().enumerate() {
            measured[row].push(match way {
                Way::Sockets => measure_sockets(threads, duration),
                Way::Secret => {
                    let security = |_: &str| Security::Secret(Secret::new([7; 32]).expect("it is long"));
                    measure_calls(security, workers, threads, duration)
                }
                Way::Certificates => {
                    let security = |node: &str| Security::Certificates(certificates(node));
                    measure_calls(security, workers, threads, duration)
                }
            });
        }
    }
    println!("{runs} runs of {} s, {workers} threads a node; median (min to max)\n", duration.as_secs());
    println!("| way | threads | p50, µs | p99, µs | calls/s |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for ((way, threads), runs) in rows().zip(measured) {
        let micros =
            |of: fn(&Measured) -> Duration| spread(runs.iter().map(|run| of(run).as_secs_f64() * 1e6));
        println!(
            "| {way:?} | {threads} | {} | {} | {} |",
            micros(|run| run.p50),
            micros(|run| run.p99),
            spread(runs.iter().map(|run| run.calls_per_s))
        );
    }
}

/// Way from thread to thread.
#[derive(Debug, Clone, Copy)]
enum Way {
    Sockets,
    Secret,
    Certificates,
}

fn rows() -> impl Iterator<Item = (Way, usize)> {
    [Way::Sockets, Way::Secret, Way::Certificates]
        .into_iter()
        .flat_map(|way| THREADS.map(|threads| (way, threads)))
}

/// Returns the median with the smallest and the largest value.
fn spread(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let [first, middle, last] = [0, values.len() / 2, values.len() - 1].map(|at| values[at]);
    format!("{middle:.0} ({first:.0} to {last:.0})")
}

fn measure_calls(
    security: impl Fn(&str) -> Security,
    workers: usize,
    threads: usize,
    duration: Duration,
) -> Measured {
    let settings = |node: &str| {
        Arc::new(NodeSettings {
            identity: NodeIdentity { cluster_id: "bench".into(), node: node.into(), incarnation: 1 },
            protocols: 1..=1,
            security: security(node),
            limits: CallLimits::default(),
        })
    };
    let (server, client) = (runtime(workers), runtime(workers));
    let (gateway, address) = server.block_on(async {
        let front_end = RpcFrontEnd::new(settings("b"), Arc::new(Echo)).expect("settings");
        let listener = front_end.listen(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let address = listener.address().to_string();
        (Gateway::start(vec![listener], Arc::new(Metrics::default())), address)
    });
    let peer = PeerClient::new(settings("a"), "b", &address, client.handle().clone()).expect("settings");
    let measured = measure(threads, duration, || {
        let (peer, payload) = (&peer, Bytes::from(vec![42; PAYLOAD_BYTES]));
        move || {
            let request = CallRequest {
                kind: 1,
                partition: PartitionId(0),
                epoch: 1,
                timeout: Duration::from_secs(10),
                payload: payload.clone(),
            };
            let reply = peer.call_blocking(request).expect("a reply");
            assert_eq!(reply, Reply::Payload(payload.clone()));
        }
    });
    server.block_on(gateway.shutdown(Duration::from_secs(1)));
    measured
}

fn measure_sockets(threads: usize, duration: Duration) -> Measured {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        // one for the warm-up and one for the measurement of each thread
        for stream in listener.incoming().take(2 * threads) {
            std::thread::spawn(move || {
                let (mut stream, mut payload) = (stream.expect("a client"), [0; PAYLOAD_BYTES]);
                stream.set_nodelay(true).expect("an option");
                while stream.read_exact(&mut payload).is_ok() {
                    stream.write_all(&payload).expect("a client that waits");
                }
            });
        }
    });
    measure(threads, duration, || {
        let mut stream = TcpStream::connect(address).expect("a server");
        stream.set_nodelay(true).expect("an option");
        move || {
            let (sent, mut reply) = ([42; PAYLOAD_BYTES], [0; PAYLOAD_BYTES]);
            stream.write_all(&sent).expect("a server");
            stream.read_exact(&mut reply).expect("a reply");
            assert_eq!(sent, reply);
        }
    })
}

/// Measures what the functions that `caller` returns do, each in a thread of its own.
fn measure<F: FnMut() + Send>(threads: usize, duration: Duration, caller: impl Fn() -> F) -> Measured {
    let run = |duration: Duration| -> (Vec<Duration>, Duration) {
        let begun = Instant::now();
        let latencies = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..threads)
                .map(|_| {
                    let call = caller();
                    scope.spawn(move || repeat(call, begun + duration))
                })
                .collect();
            callers.into_iter().flat_map(|caller| caller.join().expect("a caller")).collect()
        });
        (latencies, begun.elapsed())
    };
    run(WARM_UP);
    let (mut latencies, elapsed) = run(duration);
    latencies.sort_unstable();
    let quantile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    Measured {
        p50: quantile(0.5),
        p99: quantile(0.99),
        calls_per_s: latencies.len() as f64 / elapsed.as_secs_f64(),
    }
}

/// Calls until the end. Returns the latency of each call.
fn repeat(mut call: impl FnMut(), end: Instant) -> Vec<Duration> {
    let mut latencies = vec![];
    while Instant::now() < end {
        let begun = Instant::now();
        call();
        latencies.push(begun.elapsed());
    }
    latencies
}

fn runtime(workers: usize) -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().expect("threads")
}

/// Returns a function that writes a certificate of one authority for the node of a name.
fn certificates(dir: &Path) -> impl Fn(&str) -> CertificateFiles {
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authorities = dir.join("authorities.pem");
    std::fs::write(&authorities, params.self_signed(&key).expect("a certificate").pem()).expect("a file");
    let (issuer, dir) = (Issuer::new(params, key), dir.to_owned());
    move |node| {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![node.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        let file = dir.join(format!("{node}.pem"));
        std::fs::write(&file, certificate.pem() + &key.serialize_pem()).expect("a file");
        CertificateFiles::new(&file, &file, &authorities)
    }
}
