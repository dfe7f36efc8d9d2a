//! A sink whose other side is down while events come at full rate: memory, disk, loss, and how fast it catches up.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tidemill_engine::{BodyFormat, Engine, SendOptions};

use crate::clients::{consumer, create_topic, open, plain_event, read, resident_mib};

/// Events of a request.
const BATCH: u64 = 1000;

#[derive(clap::Args)]
pub struct Options {
    /// Brokers, as `scripts/servers.sh env kafka` prints them.
    #[arg(long, env = "SERVERS_KAFKA")]
    brokers: String,
    /// Command that stops the broker.
    #[arg(long, default_value = "scripts/servers.sh kill kafka")]
    stop: String,
    /// Command that starts it again.
    #[arg(long, default_value = "scripts/servers.sh start kafka")]
    start: String,
    /// Seconds for which the broker is down.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Events sent per second; 0 for as many as the engine takes.
    #[arg(long, default_value_t = 20_000)]
    rate: u64,
}

pub fn measure(options: &Options) -> Result<()> {
    let (topic, brokers) = (format!("bench-outage-{}", std::process::id()), &options.brokers);
    create_topic(brokers, &topic)?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("beside.json");
    let attributes = "host string, process string, n long, at long, cpu double, memory long, state string";
    let text = format!(
        "@sink(type='kafka', bootstrap.servers='{brokers}', topic='{topic}', delivery.guarantee='exactly.once',
               @map(type='json'))
         @sink(type='file', file.uri='{}', @map(type='json'))
         @key('host') define stream Readings ({attributes});",
        file.display()
    );
    let engine = open(&dir.path().join("data"), &text)?;
    let mut sent = 0;
    let before = phase(&engine, options, 10, &mut sent)?;
    run(&options.stop)?;
    println!("| phase | events/s taken | waiting | MiB waiting | resident MiB | the other sink, bytes |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    row("before", before, &engine, &file);
    let parts = 4;
    for part in 1..=parts {
        let rate = phase(&engine, options, options.seconds / parts, &mut sent)?;
        row(&format!("down, {} s", options.seconds / parts * part), rate, &engine, &file);
    }
    run(&options.start)?;
    let started = Instant::now();
    let waiting = engine.sinks()[0].waiting;
    while engine.sinks()[0].waiting > 0 {
        if started.elapsed() > Duration::from_secs(600) {
            bail!("the sink does not catch up: {:?}", engine.sinks());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    row("caught up", waiting as f64 / started.elapsed().as_secs_f64(), &engine, &file);
    let mut seen = vec![false; sent as usize];
    let mut twice = 0;
    read(&consumer(brokers, &topic)?, sent, |payload| {
        let event: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
        let n = event.pointer("/event/n").and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX);
        match seen.get_mut(n as usize) {
            Some(seen) => twice += u64::from(std::mem::replace(seen, true)),
            None => twice += 1,
        }
    })?;
    let lost = seen.iter().filter(|seen| !**seen).count();
    println!("\n{sent} events sent, {lost} lost, {twice} doubled");
    engine.stop()?;
    Ok(())
}

/// Sends events for `seconds`. Returns how many per second.
fn phase(engine: &Engine, options: &Options, seconds: u64, sent: &mut u64) -> Result<f64> {
    let started = Instant::now();
    let first = *sent;
    while started.elapsed() < Duration::from_secs(seconds) {
        let body: String = (*sent..*sent + BATCH).map(|n| format!("{}\n", plain_event(n))).collect();
        engine.send_json("Readings", body.as_bytes(), BodyFormat::Ndjson, &SendOptions::default())?;
        *sent += BATCH;
        if options.rate > 0 {
            let due = started + Duration::from_secs_f64((*sent - first) as f64 / options.rate as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
    Ok((*sent - first) as f64 / started.elapsed().as_secs_f64())
}

fn row(phase: &str, rate: f64, engine: &Engine, file: &std::path::Path) {
    let info = engine.sinks().remove(0);
    let bytes = std::fs::metadata(file).map_or(0, |file| file.len());
    println!(
        "| {phase} | {rate:.0} | {} | {} | {} | {bytes} |",
        info.waiting,
        info.waiting_bytes >> 20,
        resident_mib()
    );
}

fn run(command: &str) -> Result<()> {
    let status = std::process::Command::new("sh")
        .args(["-c", command])
        .stdout(std::process::Stdio::null())
        .status()?;
    if !status.success() {
        bail!("`{command}` failed: {status}");
    }
    Ok(())
}
