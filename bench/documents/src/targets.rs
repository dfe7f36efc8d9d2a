//! Ways to the documents.

use std::collections::VecDeque;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{cstr, rawdoc};
use clap::ValueEnum;
use mongodb::sync::{Client, Collection};
use tidemill_docs::{Direction, DocumentCommand, FindOptions, SortOrder};
use tidemill_engine::{BodyFormat, DocumentWrite, Engine, SendOptions};
use tidemill_types::Value;

use crate::workload::{Operation, Target};

pub const COLLECTION: &str = "Usertable";
const OP_MSG: i32 = 2013;

/// A way to the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// MongoDB's protocol, by a client that does nothing else.
    Wire,
    /// MongoDB's protocol, by its driver for Rust.
    Driver,
    /// Function calls.
    Embedded,
    /// Function calls; each thread has up to 256 updates on their way. The time of a write is that of a call.
    Submit,
    /// Function calls; an update is an event with which a rule changes the document.
    Rules,
}

/// Looks at all fields of a document, as an application would.
fn walk(document: &RawDocument) -> Result<usize> {
    let mut bytes = 0;
    for field in document {
        bytes += field?.1.as_str().map_or(0, str::len);
    }
    ensure!(bytes >= 1000, "a document without its fields");
    Ok(bytes)
}

fn set(field: String, value: String) -> Result<RawDocumentBuf> {
    let mut fields = RawDocumentBuf::new();
    fields.append(bson::raw::CString::try_from(field)?, value);
    let mut update = RawDocumentBuf::new();
    update.append(cstr!("$set"), fields);
    Ok(update)
}

/// Function calls.
pub struct Embedded {
    engine: Arc<Engine>,
}

impl Embedded {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    fn read(&self, key: &str) -> Result<()> {
        let found = self.engine.collection(COLLECTION).find_one(&Value::str(key))?;
        walk(RawDocument::from_bytes(&found.context("no such document")?)?).map(|_| ())
    }

    fn update(&self, key: String, field: String, value: String) -> Result<()> {
        let filter = rawdoc! { "_id": key }.into_bytes().into();
        let update = set(field, value)?.into_bytes().into();
        let outcome = self.engine.collection(COLLECTION).update_one(filter, update, None)?;
        ensure!(outcome.matched == 1, "no such document");
        Ok(())
    }
}

impl Target for Embedded {
    fn load(&mut self, records: Vec<RawDocumentBuf>) -> Result<()> {
        let docs = records.into_iter().map(|record| record.into_bytes().into()).collect();
        self.engine.collection(COLLECTION).insert(docs, None)?;
        Ok(())
    }

    fn run(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::Read(key) => self.read(&key),
            Operation::Update(key, field, value) => self.update(key, field, value),
            Operation::Insert(record) => self.load(vec![record]),
            Operation::Scan(key, count) => {
                let options = FindOptions {
                    sort: SortOrder::default().then("_id", Direction::Ascending),
                    limit: Some(count as u64),
                    ..FindOptions::default()
                };
                let filter = rawdoc! { "_id": { "$gte": key } };
                for found in self.engine.collection(COLLECTION).find(&filter, &options)? {
                    walk(RawDocument::from_bytes(&found)?)?;
                }
                Ok(())
            }
            Operation::ReadModifyWrite(key, field, value) => {
                self.read(&key)?;
                self.update(key, field, value)
            }
        }
    }
}

/// Updates of a thread that may be on their way.
const IN_FLIGHT_MAX: usize = 256;

/// Function calls that do not wait for each update.
pub struct Submit {
    documents: Embedded,
    in_flight: VecDeque<DocumentWrite>,
}

impl Submit {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { documents: Embedded::new(engine), in_flight: VecDeque::new() }
    }

    fn update(&mut self, key: String, field: String, value: String) -> Result<()> {
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            self.wait_oldest()?;
        }
        let command = DocumentCommand::Update {
            collection: COLLECTION.to_owned(),
            filter: rawdoc! { "_id": key }.into_bytes().into(),
            update: set(field, value)?.into_bytes().into(),
            multi: false,
            upsert: false,
            upsert_id: None,
        };
        self.in_flight.push_back(self.documents.engine.submit_documents(command, None)?);
        Ok(())
    }

    fn wait_oldest(&mut self) -> Result<()> {
        let Some(oldest) = self.in_flight.pop_front() else { return Ok(()) };
        ensure!(oldest.wait()?.matched == 1, "no such document");
        Ok(())
    }
}

impl Target for Submit {
    fn load(&mut self, records: Vec<RawDocumentBuf>) -> Result<()> {
        self.documents.load(records)
    }

    fn run(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::Update(key, field, value) => self.update(key, field, value),
            Operation::ReadModifyWrite(key, field, value) => {
                self.documents.read(&key)?;
                self.update(key, field, value)
            }
            other => self.documents.run(other),
        }
    }

    fn finish(&mut self) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.wait_oldest()?;
        }
        Ok(())
    }
}

/// Function calls, and events that a rule turns into updates.
pub struct Rules {
    documents: Embedded,
}

impl Rules {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { documents: Embedded::new(engine) }
    }

    fn touch(&self, key: &str, value: &str) -> Result<()> {
        let event = serde_json::json!({ "key": key, "value": value }).to_string();
        let waiting = SendOptions { wait: true, ..SendOptions::default() };
        let engine = &self.documents.engine;
        let reply = engine.send_json("Touch", event.as_bytes(), BodyFormat::Json, &waiting)?;
        ensure!(reply.accepted == 1, "the event was refused");
        Ok(())
    }
}

impl Target for Rules {
    fn load(&mut self, records: Vec<RawDocumentBuf>) -> Result<()> {
        self.documents.load(records)
    }

    fn run(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::Update(key, _, value) => self.touch(&key, &value),
            Operation::ReadModifyWrite(key, _, value) => {
                self.documents.read(&key)?;
                self.touch(&key, &value)
            }
            other => self.documents.run(other),
        }
    }
}

/// MongoDB's protocol.
pub struct Wire {
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Wire {
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, reply: Vec::new() })
    }

    /// Sends a command and returns its reply.
    fn command(&mut self, command: &RawDocument) -> Result<&RawDocument> {
        let length = 21 + command.as_bytes().len();
        let mut message = Vec::with_capacity(length);
        for number in [length as i32, 1, 0, OP_MSG, 0] {
            message.extend(number.to_le_bytes());
        }
        message.push(0);
        message.extend(command.as_bytes());
        self.stream.write_all(&message)?;
        let mut head = [0; 21];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, d, ..] = head;
        let length = i32::from_le_bytes([a, b, c, d]) as usize - head.len();
        self.reply.resize(length, 0);
        self.stream.read_exact(&mut self.reply)?;
        let reply = RawDocument::from_bytes(&self.reply)?;
        if reply.get_f64("ok").ok() != Some(1.0) {
            bail!("{reply:?}");
        }
        Ok(reply)
    }

    fn find(&mut self, command: &RawDocument) -> Result<usize> {
        let mut found = 0;
        for document in self.command(command)?.get_document("cursor")?.get_array("firstBatch")? {
            walk(document?.as_document().context("a document")?)?;
            found += 1;
        }
        Ok(found)
    }

    fn read(&mut self, key: &str) -> Result<()> {
        let command = rawdoc! { "find": COLLECTION, "filter": { "_id": key }, "limit": 1, "singleBatch": true, "$db": "docs" };
        ensure!(self.find(&command)? == 1, "no such document");
        Ok(())
    }

    fn update(&mut self, key: String, field: String, value: String) -> Result<()> {
        let update = set(field, value)?;
        let command = rawdoc! { "update": COLLECTION, "updates": [{ "q": { "_id": key }, "u": update }], "$db": "docs" };
        ensure!(self.command(&command)?.get_i32("n").ok() == Some(1), "no such document");
        Ok(())
    }
}

impl Target for Wire {
    fn load(&mut self, records: Vec<RawDocumentBuf>) -> Result<()> {
        let mut documents = bson::RawArrayBuf::new();
        let count = records.len() as i32;
        records.into_iter().for_each(|record| documents.push(record));
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("insert"), COLLECTION);
        command.append(cstr!("documents"), documents);
        command.append(cstr!("$db"), "docs");
        ensure!(self.command(&command)?.get_i32("n").ok() == Some(count), "not all were inserted");
        Ok(())
    }

    fn run(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::Read(key) => self.read(&key),
            Operation::Update(key, field, value) => self.update(key, field, value),
            Operation::Insert(record) => self.load(vec![record]),
            Operation::Scan(key, count) => {
                let command = rawdoc! {
                    "find": COLLECTION, "filter": { "_id": { "$gte": key } }, "sort": { "_id": 1 },
                    "limit": count as i32, "singleBatch": true, "batchSize": count as i32, "$db": "docs",
                };
                self.find(&command).map(|_| ())
            }
            Operation::ReadModifyWrite(key, field, value) => {
                self.read(&key)?;
                self.update(key, field, value)
            }
        }
    }
}

/// MongoDB's protocol by its driver for Rust.
pub struct Driver {
    collection: Collection<RawDocumentBuf>,
}

impl Driver {
    pub fn connect(port: u16) -> Result<Self> {
        let client = Client::with_uri_str(format!("mongodb://127.0.0.1:{port}/"))?;
        Ok(Self { collection: client.database("docs").collection(COLLECTION) })
    }

    fn read(&self, key: &str) -> Result<()> {
        let found = self.collection.find_one(bson::doc! { "_id": key }).run()?;
        walk(&found.context("no such document")?).map(|_| ())
    }

    fn update(&self, key: String, field: String, value: String) -> Result<()> {
        let update = bson::doc! { "$set": { field: value } };
        let outcome = self.collection.update_one(bson::doc! { "_id": key }, update).run()?;
        ensure!(outcome.matched_count == 1, "no such document");
        Ok(())
    }
}

impl Target for Driver {
    fn load(&mut self, records: Vec<RawDocumentBuf>) -> Result<()> {
        self.collection.insert_many(records).run()?;
        Ok(())
    }

    fn run(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::Read(key) => self.read(&key),
            Operation::Update(key, field, value) => self.update(key, field, value),
            Operation::Insert(record) => self.load(vec![record]),
            Operation::Scan(key, count) => {
                let found = self.collection.find(bson::doc! { "_id": { "$gte": key } });
                for found in found.sort(bson::doc! { "_id": 1 }).limit(count as i64).run()? {
                    walk(&found?)?;
                }
                Ok(())
            }
            Operation::ReadModifyWrite(key, field, value) => {
                self.read(&key)?;
                self.update(key, field, value)
            }
        }
    }
}
