//! Settings that a topic must have, and the commands that give them to it. Pure.

use tidemill_types::{Error, Result};

use crate::config::KafkaConfig;
use crate::requirements::TopicRequirements;

/// Overhead of a message with its header, above the payload.
pub(crate) const MESSAGE_OVERHEAD_BYTES: usize = 1024;
/// Copies of a new topic where copies are required and no other number is given.
const COPIES: usize = 3;
/// Copies of an acknowledged record that a replicated topic has at least.
const IN_SYNC_MIN: usize = 2;
/// Settings with which brokers keep every record and stamp it themselves. With others they would drop records that no checkpoint has,
/// or leave gaps.
const KEEP_RECORDS: [(&str, &str); 4] = [
    ("cleanup.policy", "delete"),
    ("retention.ms", "-1"),
    ("retention.bytes", "-1"),
    ("message.timestamp.type", "LogAppendTime"),
];
/// Keeps a broker that lacks acknowledged records from becoming the leader.
const CLEAN_ELECTIONS: (&str, &str) = ("unclean.leader.election.enable", "false");
const IN_SYNC: &str = "min.insync.replicas";

/// Returns the number of copies with which a topic is created, `None` for the default of the brokers. It does not depend on the brokers that
/// are there at the moment: a topic must not have fewer copies because one of them starts late.
///
/// Errors: `Invalid` when one copy is asked for and more are required.
pub(crate) fn copies_of_new_topic(config: &KafkaConfig) -> Result<Option<usize>> {
    let asked = config.replication.map(usize::from);
    let copies = match config.requirements {
        TopicRequirements::Any => return Ok(asked),
        TopicRequirements::Replicated => asked.unwrap_or(COPIES),
        TopicRequirements::UnsafeSingleBroker => asked.unwrap_or(1),
    };
    if config.requirements.needs_copies(copies) && copies < IN_SYNC_MIN {
        return Err(too_few_copies(config, "a new topic would have one copy"));
    }
    Ok(Some(copies))
}

/// Returns the settings with which a topic is created.
pub(crate) fn settings_of_new_topic(
    config: &KafkaConfig,
    copies: Option<usize>,
) -> Vec<(&'static str, String)> {
    let message_bytes = (config.message_bytes_max + MESSAGE_OVERHEAD_BYTES).to_string();
    let mut settings: Vec<_> =
        KEEP_RECORDS.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    settings.push(("max.message.bytes", message_bytes));
    if copies.is_some_and(|copies| config.requirements.needs_copies(copies)) {
        settings.push((CLEAN_ELECTIONS.0, CLEAN_ELECTIONS.1.to_owned()));
        settings.push((IN_SYNC, IN_SYNC_MIN.to_string()));
    }
    settings
}

/// Checks a topic. `copies` is the least number of copies that one of its partitions has, `value` gives its settings.
///
/// Errors: `Invalid` with what differs and the command that changes it.
pub(crate) fn check(config: &KafkaConfig, copies: usize, value: impl Fn(&str) -> String) -> Result<()> {
    let needs_copies = config.requirements.needs_copies(copies);
    let elections = needs_copies.then_some(CLEAN_ELECTIONS);
    for (name, expected) in KEEP_RECORDS.into_iter().chain(elections) {
        let found = value(name);
        if found != expected {
            let command = alter(config, name, expected);
            return Err(Error::invalid(format!(
                "{config}: the topic has {name} = `{found}`, and a log needs `{expected}`: {command}"
            )));
        }
    }
    let least = config.message_bytes_max + MESSAGE_OVERHEAD_BYTES;
    let most = value("max.message.bytes");
    if most.parse::<usize>().is_ok_and(|most| most < least) {
        return Err(Error::invalid(format!(
            "{config}: the topic has max.message.bytes = {most}, less than the {least} of message_bytes_max: raise the one or \
             lower the other"
        )));
    }
    if !needs_copies {
        return Ok(());
    }
    if copies < IN_SYNC_MIN {
        return Err(too_few_copies(config, "a partition of the topic has one copy"));
    }
    let in_sync = value(IN_SYNC);
    match in_sync.parse::<usize>() {
        Ok(found) if (IN_SYNC_MIN..=copies).contains(&found) => Ok(()),
        _ => Err(Error::invalid(format!(
            "{config}: the topic has {IN_SYNC} = `{in_sync}`, and {copies} copies need {IN_SYNC_MIN} to {copies}, so that \
             acknowledged records survive the loss of a broker: {}",
            alter(config, IN_SYNC, &IN_SYNC_MIN.to_string())
        ))),
    }
}

fn too_few_copies(config: &KafkaConfig, what: &str) -> Error {
    Error::invalid(format!(
        "{config}: {what}, and what is acknowledged would be lost with its broker: use a topic with replication=3 \
         (kafka-reassign-partitions.sh adds copies to this one), or accept the loss with requirements={}",
        TopicRequirements::UnsafeSingleBroker
    ))
}

/// Returns the command that changes a setting of the topic.
fn alter(config: &KafkaConfig, name: &str, value: &str) -> String {
    format!(
        "kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {} --add-config {name}={value}",
        config.brokers, config.topic
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(requirements: &str) -> KafkaConfig {
        format!("kafka://a:1/t?message_bytes_max=1048576&requirements={requirements}")
            .parse()
            .expect("a valid URL")
    }

    /// Returns the error for a topic with the settings that it is created with, except for those given.
    fn refusal(requirements: &str, copies: usize, changed: &[(&str, &str)]) -> Option<String> {
        let config = config(requirements);
        let created = settings_of_new_topic(&config, Some(copies));
        let value = |name: &str| {
            let defaults = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
            let changed = changed.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
            let created = || created.iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone());
            let default = || defaults.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
            changed.or_else(created).or_else(default).unwrap_or_default()
        };
        check(&config, copies, value).err().map(|e| e.message().to_owned())
    }

    #[test]
    fn what_a_log_creates_it_accepts() {
        for requirements in ["any", "unsafe_single_broker"] {
            assert_eq!(refusal(requirements, 1, &[]), None);
        }
        for copies in 2..5 {
            for requirements in ["any", "replicated", "unsafe_single_broker"] {
                assert_eq!(refusal(requirements, copies, &[]), None, "{copies} copies, {requirements}");
            }
        }
    }

    #[test]
    fn refusals_have_the_command_that_helps() {
        let changes = [("cleanup.policy", "compact", "delete"), ("retention.ms", "86400000", "-1")];
        for (name, found, expected) in changes {
            for requirements in ["any", "replicated", "unsafe_single_broker"] {
                let refusal = refusal(requirements, 3, &[(name, found)]).expect("a refusal");
                let command = format!("--entity-name t --add-config {name}={expected}");
                assert!(
                    refusal.contains(&command) && refusal.contains("--bootstrap-server a:1"),
                    "{refusal}"
                );
            }
        }
        let of_copies = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
        for change in of_copies {
            assert_eq!(refusal("any", 3, &[change]), None, "one node takes the topic as it is");
            for requirements in ["replicated", "unsafe_single_broker"] {
                for copies in [2, 3] {
                    let refusal = refusal(requirements, copies, &[change]).expect("a refusal");
                    assert!(refusal.contains(&format!("--add-config {}=", change.0)), "{refusal}");
                }
            }
        }
        assert!(
            refusal("replicated", 2, &[("min.insync.replicas", "3")]).expect("a refusal").contains("2 to 2")
        );
    }

    #[test]
    fn one_copy_is_refused_with_the_way_out() {
        let refusal = refusal("replicated", 1, &[]).expect("a refusal");
        assert!(refusal.contains("requirements=unsafe_single_broker"), "{refusal}");
        let refusal = copies_of_new_topic(&config("replicated&replication=1")).expect_err("a refusal");
        assert!(refusal.message().contains("requirements=unsafe_single_broker"), "{refusal}");
        assert_eq!(copies_of_new_topic(&config("replicated&replication=2")).expect("copies"), Some(2));
        assert_eq!(copies_of_new_topic(&config("replicated")).expect("copies"), Some(3));
        assert_eq!(copies_of_new_topic(&config("unsafe_single_broker")).expect("copies"), Some(1));
        assert_eq!(copies_of_new_topic(&config("any")).expect("copies"), None);
    }

    #[test]
    fn unknown_requirement_is_refused() {
        let error = "kafka://a:1/t?requirements=replicate".parse::<KafkaConfig>().err().expect("a refusal");
        assert!(error.message().contains("Did you mean `replicated`?"), "{error}");
    }
}
