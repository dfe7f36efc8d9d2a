//! A change stream whose reader is killed again and again: it must tell every change once, those of a document in their order.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use clap::Args;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::change_stream::event::{ChangeStreamEvent, ResumeToken};
use mongodb::sync::Collection;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::Result;
use crate::server::{Server, client};

/// Documents that change.
const KEYS: i32 = 500;
/// Changes between two looks at what is to be killed.
const BATCH: u64 = 1000;
/// Threads that write.
const WRITERS: usize = 8;

#[derive(Args)]
pub struct Options {
    /// Changes.
    #[arg(long, default_value_t = 1_000_000)]
    changes: u64,
    /// How often the reader is killed.
    #[arg(long, default_value_t = 100)]
    resumes: u64,
    /// How often the server is killed.
    #[arg(long, default_value_t = 3)]
    server_kills: u64,
    /// Partitions of the data directory.
    #[arg(long, default_value_t = 4)]
    partitions: u32,
    /// Seed of the order of changes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn check(options: &Options) -> Result<()> {
    println!("seed {}", options.seed);
    let begun = Instant::now();
    let mut server = Server::start(options.partitions)?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("changes");
    // the first reader makes the server keep changes
    let mut reader = Reader::start(server.port(), &file)?;
    until("the first reader", || Ok(file.exists()))?;
    let client = client(server.port())?;
    let writers: Vec<_> = (0..WRITERS).map(|_| client.database("check").collection("changing")).collect();
    let mut rng = StdRng::seed_from_u64(options.seed);
    let mut sent: HashMap<i32, i64> = HashMap::new();
    let (mut done, mut resumes, mut kills) = (0, 0, 0);
    while done < options.changes {
        let batch = BATCH.min(options.changes - done);
        write(&writers, batch, &mut rng, &mut sent)?;
        done += batch;
        if resumes < options.resumes * done / options.changes {
            reader.kill()?;
            resumes += 1;
            if kills < options.server_kills * done / options.changes {
                server.kill_and_start()?;
                kills += 1;
            }
            reader = Reader::start(server.port(), &file)?;
        }
    }
    let written = begun.elapsed();
    let mut told = 0;
    until("the last change", || {
        told = lines(&file)?.len() as u64;
        Ok(told >= options.changes)
    })
    .map_err(|error| format!("{error}: {told} of {} changes were told", options.changes))?;
    reader.kill()?;
    compare(&lines(&file)?, &sent)?;
    println!(
        "{done} changes written in {written:.0?} and told in {:.0?}, {resumes} kills of the reader, {kills} of the server: each once, in order",
        begun.elapsed()
    );
    Ok(())
}

/// Changes documents: the `n` of each counts its changes. Each of the writers has documents of its own, as it waits for every
/// answer.
fn write(
    writers: &[Collection<Document>],
    count: u64,
    rng: &mut StdRng,
    sent: &mut HashMap<i32, i64>,
) -> Result<()> {
    let mut updates: Vec<Vec<(i32, i64)>> = vec![Vec::new(); writers.len()];
    for _ in 0..count {
        let key = rng.random_range(0..KEYS);
        let n = sent.entry(key).or_default();
        *n += 1;
        updates[key as usize % writers.len()].push((key, *n));
    }
    std::thread::scope(|scope| {
        let write = |(documents, updates): (&Collection<Document>, Vec<(i32, i64)>)| {
            let documents = documents.clone();
            scope.spawn(move || -> Result<()> {
                for (key, n) in updates {
                    let change = doc! { "$set": { "n": n } };
                    documents.update_one(doc! { "_id": key }, change).upsert(true).run()?;
                }
                Ok(())
            })
        };
        let threads: Vec<_> = writers.iter().zip(updates).map(write).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a writer panicked")?)
    })
}

fn compare(lines: &[Told], sent: &HashMap<i32, i64>) -> Result<()> {
    let mut seen: HashMap<i32, i64> = HashMap::new();
    for told in lines {
        let last = seen.entry(told.key).or_default();
        if told.n != *last + 1 {
            return Err(
                format!("document {}: change {} was told after change {last}", told.key, told.n).into()
            );
        }
        *last = told.n;
    }
    match seen == *sent {
        true => Ok(()),
        false => Err("some changes were not told".into()),
    }
}

/// A change as the reader has written it down.
struct Told {
    key: i32,
    n: i64,
    token: String,
}

/// Returns the whole lines of the reader's file.
fn lines(file: &Path) -> Result<Vec<Told>> {
    let mut told = Vec::new();
    let mut reader = BufReader::new(File::open(file)?);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 && line.ends_with('\n') {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [key, n, token] = words[..] else { return Err(format!("line {line:?}").into()) };
        told.push(Told { key: key.parse()?, n: n.parse()?, token: token.to_owned() });
        line.clear();
    }
    Ok(told)
}

/// A process that reads the change stream.
struct Reader(Child);

impl Reader {
    fn start(port: u16, file: &Path) -> Result<Self> {
        let program = std::env::current_exe()?;
        Ok(Self(Command::new(program).args(["follow", &port.to_string()]).arg(file).spawn()?))
    }

    fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Writes each change into a line of the file, with its token. Goes on after the last whole line.
pub fn follow(port: u16, file: &Path) -> Result<()> {
    let told = if file.exists() { lines(file)? } else { Vec::new() };
    let documents: Collection<Document> = client(port)?.database("check").collection("changing");
    let mut watch = documents.watch();
    if let Some(last) = told.last() {
        let token: ResumeToken = serde_json::from_str(&last.token)?;
        watch = watch.resume_after(token);
    }
    let changes = watch.run()?.with_type::<ChangeStreamEvent<RawDocumentBuf>>();
    let whole: usize = told.iter().map(Told::bytes).sum();
    let mut file = File::options().create(true).append(true).open(file)?;
    file.set_len(whole as u64)?;
    for change in changes {
        let change = change?;
        let key = change.document_key.as_ref().and_then(|key| key.get_i32("_id").ok()).ok_or("no key")?;
        let new = change.full_document.as_ref().and_then(|document| document.get_i64("n").ok());
        let updated = change.update_description.as_ref();
        let n = new.or(updated.and_then(|update| update.updated_fields.get_i64("n").ok())).ok_or("no n")?;
        let told = Told { key, n, token: serde_json::to_string(&change.id)? };
        // one call for one line: a kill leaves at most a part of the last one
        file.write_all(told.line().as_bytes())?;
    }
    Ok(())
}

impl Told {
    fn line(&self) -> String {
        format!("{} {} {}\n", self.key, self.n, self.token)
    }

    fn bytes(&self) -> usize {
        self.line().len()
    }
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds()? {
        if Instant::now() > deadline {
            return Err(format!("{what} does not come").into());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}
