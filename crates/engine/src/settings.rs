//! Engine settings: plain data with units in their text form.

use serde::{Deserialize, Deserializer};
use tidemill_log::Durability;
use tidemill_types::{Duration, Error, Result};

/// What an operator may set, under `[settings]` in `app.toml` or `TIDEMILL_…` in the environment.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Log partitions. Fixed when the data directory is made.
    pub partitions: u32,
    /// Durability of writes that do not ask for another.
    #[serde(deserialize_with = "durability")]
    pub durability: Durability,
    /// How often tails become Parquet tablets.
    #[serde(deserialize_with = "duration")]
    pub flush_interval: Duration,
    /// A table's tail is flushed early when it holds this many bytes.
    #[serde(deserialize_with = "bytes")]
    pub flush_bytes: u64,
    /// Applying waits while a table holds this many bytes that are in no tablet yet (the object store is away or slow).
    #[serde(deserialize_with = "bytes")]
    pub tail_bytes: u64,
    /// How often document and rule state is checkpointed, which bounds what a restart replays.
    #[serde(deserialize_with = "duration")]
    pub checkpoint_interval: Duration,
    /// Senders wait while this many bytes are not applied yet, per partition.
    #[serde(deserialize_with = "bytes")]
    pub inbox_bytes: u64,
    /// How long a sender waits for room before it is told to slow down.
    #[serde(deserialize_with = "duration")]
    pub send_timeout: Duration,
    /// Ids remembered per stream and partition to recognise duplicates.
    pub dedupe_ids: usize,
    /// Events per partition that `why` can explain; 0 turns it off.
    pub why_events: usize,
    /// Memory for documents, per partition.
    #[serde(deserialize_with = "bytes")]
    pub documents_bytes: u64,
    /// Size of a log segment file.
    #[serde(deserialize_with = "bytes")]
    pub segment_bytes: u64,
    /// Where tables live: a directory or an object store URL. Default: `tables` in the data directory.
    pub tables: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            partitions: 4,
            durability: Durability::Fsync,
            flush_interval: Duration::seconds(5),
            flush_bytes: 64 << 20,
            tail_bytes: 512 << 20,
            checkpoint_interval: Duration::seconds(30),
            inbox_bytes: 64 << 20,
            send_timeout: Duration::seconds(10),
            dedupe_ids: 1_000_000,
            why_events: 10_000,
            documents_bytes: 4 << 30,
            segment_bytes: 64 << 20,
            tables: None,
        }
    }
}

impl Settings {
    /// Most partitions a data directory may have: each is a thread and a set of files.
    pub const PARTITIONS_MAX: u32 = 256;

    /// Refuses what cannot work.
    ///
    /// Errors: `Invalid` naming the setting and its bounds.
    pub fn check(&self) -> Result<()> {
        if self.partitions == 0 || self.partitions > Self::PARTITIONS_MAX {
            return Err(Error::invalid(format!(
                "setting partitions = {}: expected 1 to {}",
                self.partitions,
                Self::PARTITIONS_MAX
            )));
        }
        for (name, value) in [
            ("flush_interval", self.flush_interval),
            ("checkpoint_interval", self.checkpoint_interval),
            ("send_timeout", self.send_timeout),
        ] {
            if value.0 < 1_000 {
                return Err(Error::invalid(format!("setting {name} = \"{value}\": expected at least 1ms")));
            }
        }
        for (name, value) in [("segment_bytes", self.segment_bytes), ("inbox_bytes", self.inbox_bytes)] {
            if value < 64 << 10 {
                return Err(Error::invalid(format!("setting {name} = {value}: expected at least 64KiB")));
            }
        }
        Ok(())
    }
}

fn duration<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(d)?;
    Duration::parse(&text).map_err(serde::de::Error::custom)
}

fn durability<'de, D: Deserializer<'de>>(d: D) -> Result<Durability, D::Error> {
    let text = String::deserialize(d)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// `67108864` or `"64MiB"`.
fn bytes<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Number(u64),
        Text(String),
    }
    match Size::deserialize(d)? {
        Size::Number(n) => Ok(n),
        Size::Text(text) => parse_bytes(&text).map_err(serde::de::Error::custom),
    }
}

/// Reads `64MiB`, `1 GiB`, `500kB`, `4096`.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let t = text.trim();
    let split = t.find(|c: char| !c.is_ascii_digit()).unwrap_or(t.len());
    let unit = match t[split..].trim() {
        "" | "B" => Some(1),
        "kB" => Some(1_000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    t[..split].parse::<u64>().ok().zip(unit).and_then(|(n, u)| n.checked_mul(u)).ok_or_else(|| {
        Error::invalid(format!(
            "`{text}` is not a size: expected a whole number and a unit, for example 64MiB"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_units_and_name_what_is_wrong() {
        let s: Settings =
            toml::from_str("flush_interval = \"250ms\"\nsegment_bytes = \"1MiB\"\ndurability = \"os\"")
                .unwrap();
        assert_eq!(
            (s.flush_interval, s.segment_bytes, s.durability),
            (Duration(250_000), 1 << 20, Durability::Os)
        );
        let error = toml::from_str::<Settings>("flush_intervall = \"1s\"").unwrap_err().to_string();
        assert!(error.contains("flush_intervall") && error.contains("flush_interval"), "{error}");
        assert!(parse_bytes("64 MiBs").unwrap_err().to_string().contains("64MiB"));
        assert!(Settings { partitions: 0, ..Settings::default() }.check().is_err());
    }
}
