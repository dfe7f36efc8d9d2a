//! Changes from the log of the database.

use std::future::Future;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tidemill_connect::{SourceConnector, SourceOutput};
use tidemill_relational::{ChangeLog, ChangeOperation, ChangeSettings, ChangeStart, LogItem};
use tidemill_types::{Error, Result, Timestamp};

use super::progress::{Splits, send, store};
use super::snapshot::{self, LaterLooks};
use super::transaction::CdcTransaction;
use crate::receipts::Receipts;

/// Transactions that may wait to be durable before the source stops reading.
const WAITING_MAX: usize = 4096;
/// Interval at which the position of the source is reported to the server.
const CONFIRM_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which a position is stored that no event brought with it.
const IDLE_STORE_INTERVAL: Duration = Duration::from_secs(60);
/// Interval at which a source that cannot take more sends a keep-alive to the server.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Source that reads the log.
pub(super) struct Listening {
    settings: ChangeSettings,
    snapshot: bool,
    slot_is_own: bool,
    splits: Splits,
}

impl Listening {
    pub(super) fn new(settings: ChangeSettings, snapshot: bool, slot_is_own: bool) -> Self {
        let snapshot = snapshot && settings.wants(ChangeOperation::Insert);
        Self { settings, snapshot, slot_is_own, splits: Splits::default() }
    }

    /// Begins to read the log where the source was, or with the rows of the table. Returns the position.
    async fn begin(&self, log: &mut ChangeLog, output: &SourceOutput) -> Result<u64> {
        if let Some(position) = output.position(&self.splits.log) {
            // all that was handed over before is durable then, so that the server may forget it
            store(output, &self.splits.log, position).await?;
            return Ok(log.begin(ChangeStart::At(position)).await?);
        }
        let position = match self.snapshot {
            true => snapshot::run(log, output, &self.splits, self.slot_is_own).await?,
            false => log.begin(ChangeStart::Now { replace: false, snapshot: false }).await?,
        };
        store(output, &self.splits.log, position).await?;
        Ok(position)
    }
}

#[async_trait]
impl SourceConnector for Listening {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let read = async {
            let mut log = ChangeLog::connect(&self.settings).await?;
            let position = self.begin(&mut log, output).await?;
            log.listen().await?;
            output.report_connected();
            Reader::new(log, output, self.splits.clone(), position).read().await
        };
        let at = format!("{}, table `{}`", self.settings.url, self.settings.table);
        read.await.map_err(|e: Error| Error::new(e.kind(), format!("{at}: {}", e.message())))
    }
}

/// One connection.
struct Reader<'o> {
    log: ChangeLog,
    output: &'o SourceOutput,
    splits: Splits,
    looks: LaterLooks,
    transaction: Option<CdcTransaction>,
    receipts: Receipts<u64>,
    /// Position behind all that was handed over.
    read: u64,
    /// Position behind all that is durable, and the one that the server knows.
    durable: u64,
    confirmed: u64,
    /// Position that is stored, and when a change without events was stored last.
    stored: u64,
    stored_at: Instant,
    /// Time of the last transaction; time does not run backwards.
    time: Timestamp,
}

impl<'o> Reader<'o> {
    fn new(log: ChangeLog, output: &'o SourceOutput, splits: Splits, position: u64) -> Self {
        Self {
            log,
            output,
            splits,
            looks: LaterLooks::stored(output),
            transaction: None,
            receipts: Receipts::new(),
            read: position,
            durable: position,
            confirmed: position,
            stored: position,
            stored_at: Instant::now(),
            time: Timestamp(i64::MIN),
        }
    }

    async fn read(mut self) -> Result<()> {
        let mut confirm = tokio::time::interval(CONFIRM_INTERVAL);
        loop {
            tokio::select! {
                item = self.log.next(), if self.receipts.len() < WAITING_MAX => self.take(item?).await?,
                durable = self.receipts.next() => self.durable = self.durable.max(durable?),
                _ = confirm.tick() => self.confirm().await?,
            }
        }
    }

    async fn take(&mut self, item: LogItem) -> Result<()> {
        match item {
            LogItem::Begin { id, time } => {
                self.time = self.time.max(time);
                self.transaction = Some(CdcTransaction::begin(id, self.time, self.output, &self.splits));
                if self.looks.are_over(id) {
                    self.looks = LaterLooks::default();
                }
            }
            LogItem::Row(row) => {
                if let Some(transaction) = &mut self.transaction
                    && !self.looks.have_seen(&row, transaction.id())
                {
                    let push = transaction.push(row, self.output, &self.splits);
                    while_alive(&mut self.log, push).await?;
                }
            }
            LogItem::Commit(position) => self.commit(position).await?,
            LogItem::Progress(position) => self.read = self.read.max(position),
        }
        Ok(())
    }

    async fn commit(&mut self, position: u64) -> Result<()> {
        let Some(transaction) = self.transaction.take() else { return Ok(()) };
        // a server may send again what was not confirmed
        if transaction.has_rows() && position > self.stored {
            let (output, splits) = (self.output, self.splits.clone());
            let end = async {
                let messages = transaction.end(output, &splits).await?;
                send(output, &splits.log, messages, position).await
            };
            let receipt = while_alive(&mut self.log, end).await?;
            self.receipts.push(receipt, position);
            (self.stored, self.stored_at) = (position, Instant::now());
        }
        self.read = self.read.max(position);
        Ok(())
    }

    /// Tells the server how far it may forget, and stores positions of a table that does not change.
    async fn confirm(&mut self) -> Result<()> {
        if self.receipts.len() == 0 && self.transaction.is_none() {
            self.durable = self.durable.max(self.read);
            if self.durable > self.stored && self.stored_at.elapsed() >= IDLE_STORE_INTERVAL {
                send(self.output, &self.splits.log, vec![], self.durable).await?;
                (self.stored, self.stored_at) = (self.durable, Instant::now());
            }
        }
        if self.durable > self.confirmed {
            self.log.confirm(self.durable).await?;
            self.confirmed = self.durable;
        }
        Ok(())
    }
}

/// Waits for `work`, which may take long when the engine takes nothing, without losing the connection.
async fn while_alive<T>(log: &mut ChangeLog, work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(KEEP_ALIVE_INTERVAL, &mut work).await {
            Ok(done) => return done,
            Err(_) => log.keep_alive().await?,
        }
    }
}
