//! Exactly once: each transaction has messages and the position behind them.
//!
//! A sink sends its transactions as one producer, whose name at the brokers keeps its predecessor from sending more. Where partitions move
//! between processes it has a producer for each of its partitions, so that a new owner ends the transactions of the former one
//! and of no other partition. These share the client's threads with nothing, which is why a process that owns all has one.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureRecord, Producer};
use tidemill_connect::{
    DeliveredEvents, DeliveryProgress, PartitionEpochs, Payload, RefusedRow, SinkBatch, SinkPositions,
    is_later_owner,
};
use tidemill_types::{Error, PartitionId, Result};

use super::client::blocking;
use super::positions::{EPOCH_HEADER, PositionTopic, position_key};
use super::sink::{Connection, KafkaProducer, Records, TOO_LARGE, Waiting};

/// Timeout for beginning or ending a transaction.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Messages of one transaction.
const TRANSACTION_MESSAGES: usize = 10_000;

/// Transactions of one sink.
pub(super) struct Transactions {
    id: String,
    positions: PositionTopic,
    /// By partition, the producers of a sink whose partitions move, with the epochs in which they are owned.
    owned: BTreeMap<PartitionId, (u64, Connection)>,
}

impl Transactions {
    pub(super) fn new(id: String, topic: String, consumer: ClientConfig) -> Self {
        Self { positions: PositionTopic::new(topic, consumer), id, owned: BTreeMap::new() }
    }

    /// Forgets the producers of partitions.
    pub(super) fn disconnect(&mut self) {
        self.owned.clear();
    }

    /// Begins to send as the owner of these partitions: former owners send no more. Returns the positions when there are new
    /// partitions. `connection` asks the brokers, and `client` are the settings of producers.
    pub(super) async fn own(
        &mut self,
        partitions: &PartitionEpochs,
        connection: &Connection,
        client: &ClientConfig,
    ) -> Result<Option<SinkPositions>> {
        self.owned.retain(|id, (epoch, _)| partitions.get(id) == Some(epoch));
        if partitions.keys().all(|id| self.owned.contains_key(id)) {
            return Ok(None);
        }
        self.positions.create(connection).await?;
        // a former owner that looked afterwards would end the transaction of the present one
        let mut epochs = self.epochs_now(connection).await?;
        let mut newest = None;
        for (id, epoch) in partitions {
            let known = epochs.get(id).copied().unwrap_or_default();
            if self.owned.contains_key(id) || is_later_owner(known, *epoch) {
                continue;
            }
            let mut client = client.clone();
            client.set("transactional.id", format!("{}/p{}", self.id, id.0));
            let context = connection.context.clone();
            let producer: KafkaProducer = client
                .create_with_context(context.clone())
                .map_err(|e| connection.failed("no producer", &e))?;
            let own = Connection { producer, context, brokers: connection.brokers.clone() };
            initialize(&own).await?;
            self.owned.insert(*id, (*epoch, own));
            newest = Some(*id);
        }
        let mut positions = SinkPositions::default();
        if let Some((_, own)) = newest.and_then(|id| self.owned.get(&id)) {
            positions = self.positions_now(own).await?;
        }
        epochs.append(&mut positions.later_owners);
        epochs.retain(|id, epoch| partitions.get(id).is_some_and(|own| is_later_owner(*epoch, *own)));
        Ok(Some(SinkPositions { later_owners: epochs, ..positions }))
    }

    /// Ends what an earlier connection left behind, and returns the position of the last transaction.
    pub(super) async fn begin(&self, connection: &Connection) -> Result<DeliveredEvents> {
        self.positions.create(connection).await?;
        initialize(connection).await?;
        Ok(self.positions_now(connection).await?.delivered)
    }

    /// Reads the positions behind the last transactions.
    async fn positions_now(&self, connection: &Connection) -> Result<SinkPositions> {
        let mark = self.positions.mark(&self.id);
        connection
            .producer
            .begin_transaction()
            .map_err(|e| connection.failed("no transaction can begin", &e))?;
        self.positions.write(connection, &mark.0, &mark.1, 0).await?;
        commit(connection).await?;
        self.positions.read(connection, &self.id, &mark, "read_committed").await
    }

    /// Reads the epochs of all owners so far, also from transactions that have not ended, for which it does not wait.
    async fn epochs_now(&self, connection: &Connection) -> Result<PartitionEpochs> {
        let mark = self.positions.mark(&self.id);
        self.positions.write(connection, &mark.0, &mark.1, 0).await?;
        let read = self.positions.read(connection, &self.id, &mark, "read_uncommitted").await?;
        Ok(read.later_owners)
    }

    /// Sends the messages of `batch`, which are of one partition, as its owner.
    pub(super) async fn deliver_owned(
        &mut self,
        records: &mut Records,
        batch: &SinkBatch,
        progress: &mut DeliveryProgress,
    ) -> Result<()> {
        let Some(first) = batch.ids.first() else { return Ok(()) };
        let Some((epoch, connection)) = self.owned.remove(&first.partition) else {
            return Err(Error::unavailable(format!("the sink does not own partition {}", first.partition)));
        };
        self.deliver(&connection, epoch, records, batch, progress).await?;
        self.owned.insert(first.partition, (epoch, connection));
        Ok(())
    }

    /// Sends the messages of `batch` with the position behind them, all or none of a transaction.
    pub(super) async fn deliver(
        &self,
        connection: &Connection,
        epoch: u64,
        records: &mut Records,
        batch: &SinkBatch,
        progress: &mut DeliveryProgress,
    ) -> Result<()> {
        let mut refused: Vec<RefusedRow> = vec![];
        // whether each message is sent alone, to find the one that is too large
        let mut one_by_one = false;
        while progress.delivered < batch.rows.num_rows() {
            let from = progress.delivered;
            let messages: Vec<_> = batch
                .messages_from(progress)
                .iter()
                .filter(|message| !refused.iter().any(|r| r.row == message.row))
                .take(TRANSACTION_MESSAGES)
                .cloned()
                .collect();
            let is_all = messages.len() < TRANSACTION_MESSAGES;
            let end = match messages.last() {
                Some(last) if !is_all => last.row + last.rows,
                _ => batch.rows.num_rows(),
            };
            connection
                .producer
                .begin_transaction()
                .map_err(|e| connection.failed("no transaction can begin", &e))?;
            let mut outcome = DeliveryProgress { delivered: from, refused: vec![] };
            let sent = async {
                let mut waiting = Waiting::new();
                let mut too_large = vec![];
                for message in messages {
                    let sent = records.send(connection, batch, &message).await?;
                    waiting.push(message, sent);
                    if one_by_one {
                        waiting.count_next(connection, &mut outcome, &mut too_large).await?;
                    }
                    if one_by_one && !too_large.is_empty() {
                        break;
                    }
                }
                while waiting.len() > 0 {
                    waiting.count_next(connection, &mut outcome, &mut too_large).await?;
                }
                Ok(too_large)
            };
            let sent: Result<Vec<Payload>> = sent.await;
            if !matches!(&sent, Ok(too_large) if too_large.is_empty()) || !outcome.refused.is_empty() {
                // a refused message makes the whole transaction fail: it begins again without the message
                call(connection, "a transaction cannot be aborted", |c| {
                    c.abort_transaction(TRANSACTION_TIMEOUT)
                })
                .await?;
                match sent?.as_slice() {
                    [only] if one_by_one => outcome.refused(&only.clone(), TOO_LARGE),
                    too_large => one_by_one |= !too_large.is_empty(),
                }
                refused.append(&mut outcome.refused);
                continue;
            }
            let mut last = BTreeMap::new();
            last.extend(batch.ids[from..end].iter().map(|id| (id.partition, *id)));
            for (partition, id) in last {
                let key = position_key(&self.id, partition);
                self.positions.write(connection, &key, &id.to_string(), epoch).await?;
            }
            commit(connection).await?;
            let (before, rest) = refused.into_iter().partition(|r| r.row < end);
            let before: Vec<RefusedRow> = before;
            refused = rest;
            progress.refused.extend(before);
            progress.delivered = end;
        }
        Ok(())
    }
}

async fn initialize(connection: &Connection) -> Result<()> {
    call(connection, "transactions cannot be initialized", |c| c.init_transactions(TRANSACTION_TIMEOUT)).await
}

async fn commit(connection: &Connection) -> Result<()> {
    call(connection, "a transaction is not known to be committed", |c| {
        c.commit_transaction(TRANSACTION_TIMEOUT)
    })
    .await
}

/// Runs a call of the producer that blocks.
async fn call(
    connection: &Connection,
    what: &str,
    call: impl FnOnce(&super::sink::KafkaProducer) -> Result<(), KafkaError> + Send + 'static,
) -> Result<()> {
    let producer = connection.producer.clone();
    blocking(move || call(&producer)).await?.map_err(|e| connection.failed(what, &e))
}

impl PositionTopic {
    /// Adds a record to the current transaction.
    async fn write(&self, connection: &Connection, key: &str, value: &str, epoch: u64) -> Result<()> {
        let mut record = FutureRecord::<str, str>::to(self.name()).key(key).payload(value).partition(0);
        if epoch > 0 {
            let epoch = epoch.to_string();
            record =
                record.headers(OwnedHeaders::new().insert(Header { key: EPOCH_HEADER, value: Some(&epoch) }));
        }
        let sent = connection.producer.send_result(record);
        let failed = |e: &KafkaError| connection.failed("the position cannot be written", e);
        match sent.map_err(|(e, _)| failed(&e))?.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err((e, _))) => Err(failed(&e)),
            Err(_) => Err(failed(&KafkaError::Canceled)),
        }
    }
}
