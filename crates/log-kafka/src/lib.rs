//! The log on Kafka: one topic, a Kafka partition per partition, a message per record.
//!
//! `docs/rfcs/0007-log-contract.md` gives the contract and how Kafka keeps it. Several processes may append to one topic;
//! each partition must have one owner, which this crate does not see to.

mod base;
mod config;
mod consumer;
mod error;
mod fetcher;
mod header;
mod log;
mod position;
mod producer;
mod requirements;
mod topic;
mod topic_settings;

pub use config::KafkaConfig;
pub use log::KafkaLog;
pub use requirements::TopicRequirements;
