//! Offsets at which the partitions of a log begin.
//!
//! A directory's log has 4,711 records in partition 0 and continues in a topic. Kafka gives the next record the offset 0, and the log
//! 4,711: the base of the partition. Ids of events, checkpoints and change streams have the log's offsets and stay right.
//!
//! The bases are in the first record of a topic of their own, `TOPIC-base`, which is written before the log's topic is created. A record of
//! the log's topic cannot have them: it takes an offset, truncation deletes it, and of two processes that create the log at once both
//! would write it; here the first record counts, and the second process finds out. Settings of topics cannot have them, because brokers
//! know their names. So that a lost topic of bases does no harm unnoticed, each record of the log has its base in its header, too.
//! Without bases there is no such topic.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset as KafkaOffset, TopicPartitionList};
use tidemill_types::{Error, PartitionId, Result};

use crate::config::{KafkaConfig, TOPIC_BYTES_MAX};
use crate::error::failed;
use crate::topic::Topic;

const SUFFIX: &str = "-base";
/// First line of the record; the second one has the bases.
const FORMAT: &str = "tidemill-base-offsets 1";
const P: PartitionId = PartitionId(0);
const POLL: Duration = Duration::from_millis(100);

/// Returns the base of each partition. Stores those that are asked for if the log does not exist.
///
/// Errors: `Invalid` when others are asked for than the log has, `Corrupt` for a record that has no bases, `Unavailable` when no broker
/// answers.
pub(crate) fn resolve(topic: &Topic, partitions: u32) -> Result<Vec<u64>> {
    let config = &topic.config;
    let asked = config.base_offsets.as_deref();
    if let Some(asked) = asked.filter(|asked| asked.len() != partitions as usize) {
        return Err(Error::invalid(format!(
            "{config}: option base_offsets has {} numbers, and the log has {partitions} partitions: expected one for each",
            asked.len()
        )));
    }
    let of_bases = topic.other(format!("{}{SUFFIX}", config.topic));
    if of_bases.shape()?.is_none() {
        let Some(asked) = asked.filter(|asked| asked.iter().any(|base| *base > 0)) else {
            return Ok(vec![0; partitions as usize]);
        };
        check_new(topic, partitions, asked)?;
    }
    of_bases.ensure(1)?;
    let found = match (first_record(&of_bases)?, asked) {
        (Some(found), _) => found,
        (None, Some(asked)) => {
            append(&of_bases, &encode(asked))?;
            first_record(&of_bases)?.ok_or_else(|| {
                Error::unavailable(format!(
                    "{}: the record that was appended is not there yet",
                    of_bases.config
                ))
            })?
        }
        (None, None) => {
            return Err(Error::invalid(format!(
                "{}: the topic has no record, because creating the log was interrupted: create it again, with the option \
                 base_offsets",
                of_bases.config
            )));
        }
    };
    let found = decode(&found).ok_or_else(|| {
        Error::corrupt(format!(
            "{}: the record at offset 0 has no base offsets: another program wrote there; use another topic",
            of_bases.config
        ))
    })?;
    if found.len() != partitions as usize || asked.is_some_and(|asked| asked != found) {
        return Err(Error::invalid(format!(
            "{config}: the partitions begin at offsets {}, and {} are asked for ({partitions} partitions): open the log without \
             base_offsets, or use another topic",
            join(&found),
            asked.map_or("those of the topic".to_owned(), join)
        )));
    }
    Ok(found)
}

/// Refuses bases for a log that has none and exists, and for a name that leaves no room for the topic of bases.
fn check_new(topic: &Topic, partitions: u32, asked: &[u64]) -> Result<()> {
    let config = &topic.config;
    if config.topic.len() + SUFFIX.len() > TOPIC_BYTES_MAX {
        return Err(Error::invalid(format!(
            "{config}: a topic with base offsets has a name of at most {} bytes",
            TOPIC_BYTES_MAX - SUFFIX.len()
        )));
    }
    let Some(shape) = topic.shape()? else { return Ok(()) };
    for partition in (0..shape.partitions.min(partitions)).map(PartitionId) {
        let (_, end) = topic.watermarks(partition)?;
        if end > 0 {
            return Err(Error::invalid(format!(
                "{config}: partition {partition} begins at offset 0 and has had {end} records, so the partitions cannot begin at {}: \
                 use another topic",
                join(asked)
            )));
        }
    }
    Ok(())
}

/// Returns the payload at offset 0, or `None` while the topic is empty.
fn first_record(topic: &Topic) -> Result<Option<Vec<u8>>> {
    let config = &topic.config;
    match topic.watermarks(P)? {
        (_, 0) => return Ok(None),
        (0, _) => {}
        (start, _) => {
            return Err(Error::corrupt(format!(
                "{config}: the first record was deleted, the topic starts at {start}: restore it"
            )));
        }
    }
    let consumer = &topic.clients.consumer;
    let mut list = TopicPartitionList::new();
    let deadline = Instant::now() + config.request_timeout;
    let read = || {
        list.add_partition_offset(&config.topic, P.0 as i32, KafkaOffset::Offset(0))?;
        consumer.assign(&list)?;
        while Instant::now() < deadline {
            match consumer.poll(POLL) {
                Some(Ok(message)) => return Ok(message.payload().map(<[u8]>::to_vec)),
                // the client tries again
                Some(Err(error)) => tracing::debug!(log = %config, %error, "no base offsets yet"),
                None => {}
            }
        }
        Ok(None)
    };
    let mut read = read;
    let payload = read().map_err(|e| failed(config, "cannot read the base offsets", e))?;
    consumer.unassign().map_err(|e| failed(config, "cannot end reading the base offsets", e))?;
    match payload {
        Some(payload) => Ok(Some(payload)),
        None => Err(Error::unavailable(format!(
            "{config}: the base offsets cannot be read within {} ms",
            config.request_timeout.as_millis()
        ))),
    }
}

fn append(topic: &Topic, payload: &str) -> Result<()> {
    let config: &KafkaConfig = &topic.config;
    let failed = |e| failed(config, "cannot store the base offsets", e);
    let mut client = config.client_config();
    client.set("enable.idempotence", "true").set("acks", "all");
    let producer: BaseProducer = client.create().map_err(failed)?;
    let record = BaseRecord::<(), str>::to(&config.topic).partition(P.0 as i32).payload(payload);
    producer.send(record).map_err(|(e, _)| failed(e))?;
    producer.flush(config.request_timeout).map_err(failed)
}

fn join(bases: &[u64]) -> String {
    bases.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

fn encode(bases: &[u64]) -> String {
    format!("{FORMAT}\n{}\n", join(bases))
}

fn decode(payload: &[u8]) -> Option<Vec<u64>> {
    let bases =
        std::str::from_utf8(payload).ok()?.strip_prefix(FORMAT)?.strip_prefix('\n')?.strip_suffix('\n')?;
    bases.split(',').map(|base| base.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_bases_are_decoded_and_other_records_are_not() {
        assert_eq!(encode(&[4711, 0]), "tidemill-base-offsets 1\n4711,0\n");
        assert_eq!(decode(encode(&[4711, 0, u64::MAX]).as_bytes()), Some(vec![4711, 0, u64::MAX]));
        for other in [
            "",
            "{}",
            "tidemill-base-offsets 2\n1\n",
            "tidemill-base-offsets 1\n1,x\n",
            "tidemill-base-offsets 1\n\n",
        ] {
            assert_eq!(decode(other.as_bytes()), None, "{other}");
        }
    }
}
