//! Latency of one `POST` with `wait=true` on a live server: append, fsync, rules, reply.
//!
//! `cargo bench -p tidemill --bench post [-- REQUESTS [RUNS]]`: 2,000 requests by default, one after the other over one
//! connection, in 5 runs; prints p50, p99 and the worst of each run, and for comparison the time of a bare fsync.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tidemill::server::{ServerOptions, Token, serve};
use tidemill::{App, Tidemill};

const RULES: &str = "
    event TakeOffEvent { flight_id: string, sched: time, actual: time } key flight_id time actual;
    event FlightDelayEvent { flight_id: string, delay_min: double } key flight_id;
    entity Flight key id;
    relation flight(): Flight by flight_id;
    rule LateTakeOff {
      when { toe: TakeOffEvent(sched + 20 min < now); flight: toe.flight(); }
      then {
        update flight.on_time = false;
        emit new FlightDelayEvent(toe.flight_id, (toe.actual - toe.sched) / 1 min);
      }
    }
";

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let requests = numbers.first().copied().unwrap_or(2000);
    let runs = numbers.get(1).copied().unwrap_or(5);
    let dir = tempfile::tempdir_in(".")?;
    let tidemill = Tidemill::open_with(dir.path().join("data"), App::from_rules("post", RULES))?;
    for i in 0..100 {
        tidemill.collection("Flight").insert(&bson::doc! {"id": format!("F{i}"), "on_time": true})?;
    }
    let token = "0123456789abcdef0123456789abcdef";
    let runtime = tokio::runtime::Runtime::new()?;
    let options = ServerOptions { token: Some(Token::new(token)?), ..ServerOptions::default() };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let database = tidemill.database();
    let server = runtime.block_on(serve(address, tidemill.engine().clone(), database, options))?;
    let url = format!("http://{}/api/v1/streams/TakeOffEvent?wait=true", server.addr());
    let agent = ureq::Agent::new_with_defaults();
    println!("{requests} POSTs with wait=true and fsync, one connection; microseconds");
    println!("{:>4} {:>8} {:>8} {:>8} | bare fsync p50 {:>8} p99", "run", "p50", "p99", "max", "");
    for run in 0..=runs {
        let mut times = Vec::with_capacity(requests);
        for i in 0..requests {
            let body = format!(
                r#"{{"flight_id":"F{}","sched":"2013-01-01T10:00:00Z","actual":"2013-01-01T10:{}:00Z"}}"#,
                i % 100,
                10 + i % 40
            );
            let start = Instant::now();
            let mut reply = agent
                .post(&url)
                .header("authorization", format!("Bearer {token}"))
                .header("content-type", "application/json")
                .send(&body)?;
            let text = reply.body_mut().read_to_string()?;
            times.push(start.elapsed());
            assert_eq!(text.contains("FlightDelayEvent"), i % 40 > 10, "{text}");
        }
        let bare = fsyncs(dir.path(), 200)?;
        if run > 0 {
            let at = |times: &mut Vec<Duration>, q: f64| {
                times.sort_unstable();
                times[((times.len() - 1) as f64 * q) as usize].as_micros()
            };
            println!(
                "{run:>4} {:>8} {:>8} {:>8} | {:>23} {:>8}",
                at(&mut times, 0.5),
                at(&mut times, 0.99),
                at(&mut times, 1.0),
                at(&mut bare.clone(), 0.5),
                at(&mut bare.clone(), 0.99),
            );
        }
    }
    runtime.block_on(server.shutdown(Duration::from_secs(5)));
    tidemill.close()?;
    Ok(())
}

/// Measures `n` times how long it takes to write 512 bytes and make them durable.
fn fsyncs(dir: &std::path::Path, n: usize) -> std::io::Result<Vec<Duration>> {
    let mut file = std::fs::File::create(dir.join("bare"))?;
    (0..n)
        .map(|_| {
            let start = Instant::now();
            file.write_all(&[0x5a; 512])?;
            file.sync_data()?;
            Ok(start.elapsed())
        })
        .collect()
}
