//! EmailProcessor: checks what comes out, then measures. README.md says what each row is.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use tidemill_bench_cep::digest::{Digest, Totals, expected};
use tidemill_bench_cep::email::{self, Watch};
use tidemill_bench_cep::measure::{Rates, shown, timed, timed_by_the_wall};
use tidemill_files::{Codec, EventFileWriter, Format, WriteOptions};
use tidemill_flow::arrow;
use tidemill_flow::batch::Batch;
use tidemill_flow::plan::AppPlan;
use tidemill_flow::runtime::{AppRuntime, StreamBatch};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The texts of a mail that comes out.
const OUT: [&str; 6] = ["fromAddress", "toAdds", "ccAdds", "bccAdds", "updatedSubject", "bodyObfuscated"];

/// EmailProcessor over a file of mails.
#[derive(Parser)]
struct Args {
    /// The mails: the program `mails` writes them.
    file: PathBuf,
    /// Runs of each row of the table.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Mails that are handed in together.
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Only rows whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let plan = Arc::new(email::plan()?);
    let stream = stream(&plan)?;
    let mails: Vec<StreamBatch> =
        email::read(&args.file, args.batch, stream)?.collect::<anyhow::Result<_>>()?;
    let count: u64 = mails.iter().map(|part| part.times.len() as u64).sum();
    let totals = check(&plan, &mails, count)?;
    println!("| source | sink | threads | mails/s, median | slowest | fastest |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    let rows = [
        ("memory", "count", 1, None),
        ("memory", "count", 2, None),
        ("Avro", "Avro", 1, Some(Codec::Null)),
        ("Avro", "Avro", 2, Some(Codec::Null)),
        ("Avro", "Avro, deflate", 1, Some(Codec::Deflate)),
        ("Avro", "Avro, deflate", 2, Some(Codec::Deflate)),
    ];
    for (source, sink, threads, codec) in rows {
        let name = format!("| {source} | {sink} | {threads} |");
        if !name.contains(&args.only) {
            continue;
        }
        let rates = Rates::of(args.runs, count, || {
            let (found, time) = match codec {
                None => in_memory(&plan, &mails, threads)?,
                Some(codec) => in_files(&plan, &args.file, args.batch, threads, codec)?,
            };
            ensure!(found == totals, "{found:?} came out, expected {totals:?}");
            anyhow::Ok(time)
        })?;
        let (slowest, fastest) = rates.spread();
        println!("{name} {} | {} | {} |", shown(rates.median()), shown(slowest), shown(fastest));
    }
    Ok(())
}

fn stream(plan: &AppPlan) -> anyhow::Result<usize> {
    plan.catalog.find("Mail").ok_or_else(|| anyhow!("there is no stream `Mail`"))
}

/// What comes out, compared with what is known to be right.
fn check(plan: &Arc<AppPlan>, mails: &[StreamBatch], count: u64) -> anyhow::Result<Totals> {
    let mut digest = Digest::default();
    let totals = run(plan, mails.iter().cloned().map(Ok), |out| digest.add(out))?;
    let (rows, rowsum, sha256) = digest.finish();
    println!("{count} mails, {rows} out, rowsum {rowsum:016x}, sha256 {sha256}, {:?}\n", totals.metrics);
    if let Some(known) = expected(count) {
        let same = known.totals == totals && known.rowsum == rowsum && known.sha256 == sha256;
        ensure!(same, "expected {known:x?}");
    } else {
        eprintln!("nothing is known of corpora of {count} mails: the digest is not checked");
    }
    Ok(totals)
}

/// Runs the app over mails; `out` gets what comes out.
fn run(
    plan: &Arc<AppPlan>,
    mails: impl Iterator<Item = anyhow::Result<StreamBatch>>,
    out: impl FnMut(&Batch),
) -> anyhow::Result<Totals> {
    let mut app = AppRuntime::new(plan.clone());
    let mut watch = Watch::new(out);
    app.start(0, &mut watch);
    for part in mails {
        app.send_batch(vec![part?], None, &mut watch).map_err(|failure| anyhow!(failure))?;
    }
    match watch.failure {
        None => Ok(watch.totals),
        Some(failure) => Err(anyhow!(failure)),
    }
}

fn in_memory(
    plan: &Arc<AppPlan>,
    mails: &[StreamBatch],
    threads: usize,
) -> anyhow::Result<(Totals, Duration)> {
    // what is sent shares its memory with the copy
    let part = mails.len().div_ceil(threads).max(1);
    let parts: Vec<Vec<StreamBatch>> = mails.chunks(part).map(<[StreamBatch]>::to_vec).collect();
    let work = |mails: Vec<StreamBatch>| {
        run(plan, mails.into_iter().map(Ok), |out| {
            black_box(out.columns.last());
        })
    };
    let (totals, time) = together(parts, work);
    Ok((totals?, time))
}

/// The file is read, and written to nowhere, by each thread; with several each takes every so many batches.
fn in_files(
    plan: &Arc<AppPlan>,
    file: &Path,
    batch: usize,
    threads: usize,
    codec: Codec,
) -> anyhow::Result<(Totals, Duration)> {
    let work = |number: usize| {
        let schema = email::schema("Email", &OUT);
        let attributes = schema.fields.iter().map(|f| (f.name.clone(), f.ty)).collect();
        let null = OpenOptions::new().write(true).open("/dev/null").context("/dev/null")?;
        let writing = WriteOptions { complete: true, ..WriteOptions::default() };
        let mut writer = EventFileWriter::new(null, &Format::Avro(codec), &schema, &writing)?;
        let mut failed = None;
        let mails = email::read(file, batch, stream(plan)?)?.skip(number).step_by(threads);
        let totals = run(plan, mails, |out| {
            let written =
                arrow::record_batch(out.columns.clone(), &attributes).and_then(|b| writer.write(&b));
            failed = failed.take().or(written.err());
        })?;
        writer.finish()?;
        failed.map_or(Ok(totals), |e| Err(e.into()))
    };
    let (totals, time) = together((0..threads).collect(), work);
    Ok((totals?, time))
}

/// Works on each part in a thread of its own, one alone in this one; and how long that took: for one alone the time that
/// it had a core for, else by the clock on the wall.
fn together<P: Send>(
    mut parts: Vec<P>,
    work: impl Fn(P) -> anyhow::Result<Totals> + Sync,
) -> (anyhow::Result<Totals>, Duration) {
    match parts.pop() {
        Some(one) if parts.is_empty() => timed(|| work(one)),
        last => timed_by_the_wall(|| in_threads(parts.into_iter().chain(last), work)),
    }
}

fn in_threads<P: Send>(
    parts: impl Iterator<Item = P>,
    work: impl Fn(P) -> anyhow::Result<Totals> + Sync,
) -> anyhow::Result<Totals> {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        let mut sum = Totals::default();
        for thread in running {
            let totals = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
            sum.rows += totals.rows;
            sum.metrics.iter_mut().zip(totals.metrics).for_each(|(sum, n)| *sum += n);
        }
        Ok(sum)
    })
}
