//! Opens many connections to a server in another process, and tells what they cost and whether others are still answered.
//!
//! ```text
//! ulimit -n 25000
//! cargo run --release -p tidemill-mongo --example connections -- --connections 10000
//! ```
//!
//! 1. Idle connections: memory of the server for each of them, and how long a find of another client takes meanwhile.
//! 2. Clients that ask for large replies and never read them: those that wait stay below `message_memory_max`. Replies that
//!    are being made do not count, so that the largest memory is higher.
//! 3. Cursors that are never read: the server stays below `cursor_memory_max`, and says so.
//!
//! Each connection needs a file handle in both processes, so that `ulimit -n` must be above the number of connections. One address
//! reaches one port by at most 28,000 connections at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::{Document, RawArrayBuf, RawDocumentBuf, rawdoc};
use tidemill_engine::{App, Engine};
use tidemill_mongo::MongoOptions;

/// That of `tidemill`: others keep more of the memory that large replies needed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Limits of the server in this program, which are smaller than the defaults, so that they are reached.
const MEMORY_MAX: usize = 256 << 20;
/// Clients that do not read their replies, of 15 MB each.
const SILENT: usize = 100;
const CURSORS: usize = 1000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--server", connections] => serve(connections.parse()?),
        ["--connections", connections] => check(connections.parse()?),
        [] => check(10_000),
        _ => Err("expected --connections NUMBER".into()),
    }
}

/// The server, which ends with the process that started it.
fn serve(connections: usize) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut app = App::from_rules("docs", "entity Customer key id;");
    app.settings.partitions = 2;
    let engine = Arc::new(Engine::open(dir.path(), Some(app))?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let options = MongoOptions {
        // room for the clients of the other checks
        connections_max: connections + 1000,
        message_memory_max: MEMORY_MAX,
        cursor_memory_max: MEMORY_MAX,
        ..MongoOptions::default()
    };
    let server =
        runtime.block_on(tidemill_mongo::serve(([127, 0, 0, 1], 0).into(), engine.clone(), options))?;
    println!("{}", server.addr().port());
    std::io::stdin().lines().for_each(drop);
    runtime.block_on(server.shutdown(Duration::from_secs(10)));
    Ok(engine.stop()?)
}

struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(connections: usize) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--server", &connections.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = process.stdout.as_mut().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse().map_err(|_| "the server did not start")?;
        Ok(Self { process, port })
    }

    fn connect(&self) -> Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))
            .map_err(|e| format!("{e}: are there enough file handles? Type: ulimit -n 50000"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client { stream })
    }

    /// Returns the memory that the server has now.
    fn memory(&self) -> Result<usize> {
        self.status("VmRSS")
    }

    /// Returns the largest memory that the server has had.
    fn peak_memory(&self) -> Result<usize> {
        self.status("VmHWM")
    }

    fn status(&self, field: &str) -> Result<usize> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find(|line| line.starts_with(field)).ok_or("no such line")?;
        Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse::<usize>()? << 10)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // its input ends, and so does it; if it has ended already there is nothing to do
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

struct Client {
    stream: TcpStream,
}

impl Client {
    fn send(&mut self, command: &RawDocumentBuf) -> Result<()> {
        let body = command.as_bytes();
        let mut message = Vec::with_capacity(body.len() + 21);
        for number in [body.len() as i32 + 21, 1, 0, 2013, 0] {
            message.extend_from_slice(&number.to_le_bytes());
        }
        message.push(0);
        message.extend_from_slice(body);
        Ok(self.stream.write_all(&message)?)
    }

    fn run(&mut self, command: &RawDocumentBuf) -> Result<Document> {
        self.send(command)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut rest = vec![0; i32::from_le_bytes(length) as usize - 4];
        self.stream.read_exact(&mut rest)?;
        Ok(bson::deserialize_from_slice(&rest[17..])?)
    }

    /// Returns the middle and the largest time of finds, in milliseconds.
    fn measure(&mut self) -> Result<(f64, f64)> {
        let find = rawdoc! { "find": "small", "filter": { "a": 5 }, "$db": "docs" };
        let mut times = Vec::new();
        for _ in 0..200 {
            let start = Instant::now();
            self.run(&find)?;
            times.push(start.elapsed().as_secs_f64() * 1000.0);
        }
        times.sort_by(f64::total_cmp);
        Ok((times[100], times[199]))
    }
}

fn check(connections: usize) -> Result<()> {
    let server = Server::start(connections)?;
    let mut client = server.connect()?;
    let small: RawArrayBuf = (0..100).map(|n| rawdoc! { "_id": n, "a": n }).collect();
    client.run(&rawdoc! { "insert": "small", "documents": small, "$db": "docs" })?;
    for n in 0..15 {
        let large = rawdoc! { "_id": n, "x": "y".repeat(1 << 20) };
        client.run(&rawdoc! { "insert": "large", "documents": [large], "$db": "docs" })?;
    }
    let report = |what: &str, client: &mut Client| -> Result<()> {
        let (middle, largest) = client.measure()?;
        println!(
            "{what}: server has {} MB (at most {} MB), find takes {middle:.2} ms, at most {largest:.2} ms",
            server.memory()? >> 20,
            server.peak_memory()? >> 20
        );
        Ok(())
    };
    report("no other connection", &mut client)?;

    let before = server.memory()?;
    let start = Instant::now();
    let hello = rawdoc! { "hello": 1, "$db": "admin" };
    let mut idle = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut one = server.connect()?;
        one.run(&hello)?;
        idle.push(one);
    }
    let each = (server.memory()? - before) / connections.max(1);
    println!(
        "{connections} connections opened in {:.1?}, {each} bytes of the server for each",
        start.elapsed()
    );
    report("idle connections", &mut client)?;

    let silent = silent_clients(&server)?;
    std::thread::sleep(Duration::from_secs(1));
    report(
        &format!("{SILENT} clients that do not read 15 MB each, limit {} MB", MEMORY_MAX >> 20),
        &mut client,
    )?;
    let status = client.run(&rawdoc! { "serverStatus": 1, "$db": "admin" })?;
    let open = status.get_document("connections")?.get("current").cloned();
    println!("connections that are left: {}", open.unwrap_or(bson::Bson::Null));
    drop(silent);

    unread_cursors(&mut client)?;
    report(&format!("cursors that nobody reads, limit {} MB", MEMORY_MAX >> 20), &mut client)?;
    drop(idle);
    Ok(())
}

/// Clients that ask for all large documents and do not read the reply.
fn silent_clients(server: &Server) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for _ in 0..SILENT {
        let mut client = server.connect()?;
        client.send(&rawdoc! { "find": "large", "filter": {}, "$db": "docs" })?;
        clients.push(client);
    }
    Ok(clients)
}

/// Opens cursors on documents that the query makes, 1 MB each, until the server refuses.
fn unread_cursors(client: &mut Client) -> Result<()> {
    let find =
        rawdoc! { "find": "large", "projection": { "z": "$x" }, "limit": 2, "batchSize": 1, "$db": "docs" };
    for opened in 0..CURSORS {
        let reply = client.run(&find)?;
        if reply.get_f64("ok")? != 1.0 {
            println!(
                "{opened} cursors opened, then code {}: {}",
                reply.get_i32("code")?,
                reply.get_str("errmsg")?
            );
            return Ok(());
        }
    }
    println!("{CURSORS} cursors opened");
    Ok(())
}
