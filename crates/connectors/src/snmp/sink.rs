//! Values that are set at an agent.

use async_trait::async_trait;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType,
};
use tidemill_types::{Error, Result};

use super::agent::{Agent, Setting};
use super::options::{agent, snmp_options};
use super::value::{oid, status_name};

/// Errors after which the same request may succeed: resources, commits, rights that an administrator can give.
const TEMPORARY: [u32; 4] = [13, 14, 15, 16];

const OPTIONS: &[OptionSpec] = snmp_options![];

/// Type of the sink.
pub(super) struct SnmpSinkType;

impl SinkType for SnmpSinkType {
    fn name(&self) -> &'static str {
        "snmp"
    }

    fn summary(&self) -> &'static str {
        "Sets values at an SNMP agent, and waits for its answer."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        if context.mapper.as_deref().is_some_and(|mapper| !mapper.eq_ignore_ascii_case("keyvalue")) {
            return Err(OptionError::connector(
                "the sink `snmp` needs the mapper `keyvalue`, whose keys are object identifiers",
            )
            .expected(["@map(type='keyvalue', @payload('1.3.6.1.2.1.1.6.0' = 'ATTRIBUTE'))"]));
        }
        Ok(Box::new(SnmpSink { agent: agent(options)? }))
    }
}

struct SnmpSink {
    agent: Agent,
}

#[async_trait]
impl SinkConnector for SnmpSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.agent.connect().await?;
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        for message in batch.messages_from(progress).to_vec() {
            match self.send(&message).await? {
                Ok(()) => progress.took(&message),
                Err(reason) => progress.refused(&message, &reason),
            }
        }
        Ok(())
    }
}

impl SnmpSink {
    /// Sets the values of a message. Returns why the agent refuses them for good.
    ///
    /// Errors: `Unavailable` if it may take them later.
    async fn send(&mut self, message: &Payload) -> Result<Result<(), String>> {
        let values = match settings(&message.bytes) {
            Ok(values) => values,
            Err(why) => return Ok(Err(why)),
        };
        let answer = self.agent.set(&values).await?;
        if answer.status == 0 {
            return Ok(Ok(()));
        }
        let at = (answer.index as usize).checked_sub(1).and_then(|at| values.get(at));
        let at = at.map_or(String::new(), |(name, _)| format!(" of {name}"));
        let why =
            format!("{} does not take the value{at}: {}", self.agent.name(), status_name(answer.status));
        match TEMPORARY.contains(&answer.status) {
            true => Err(Error::unavailable(why)),
            false => Ok(Err(why)),
        }
    }
}

/// Returns the values of a message of the mapper `keyvalue`. A number without quotes is an integer, anything else a text.
///
/// Errors: the message has no values, or a key is not an object identifier.
fn settings(bytes: &[u8]) -> Result<Vec<(String, Setting)>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the message is not UTF-8".to_owned())?;
    let mut values = vec![];
    for pair in tidemill_mappers::parse_pairs(text)? {
        let name = oid(&pair.key)?.to_string();
        let value = match (pair.quoted, pair.value.parse::<i32>()) {
            (false, Ok(n)) => Setting::Integer(n.into()),
            (false, Err(_)) if pair.value == "null" => {
                return Err(format!("the value of {name} is null: an agent cannot be told that"));
            }
            _ => Setting::Text(pair.value),
        };
        values.push((name, value));
    }
    match values.is_empty() {
        true => Err("the message has no values".to_owned()),
        false => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_integers_or_texts() {
        let text = |text: &str| Setting::Text(text.into());
        let found = settings(b"1.3.6.1:'5',1.3.6.2:5,1.3.6.3:true,1.3.6.4:'it\\'s'").unwrap();
        let expected = [
            ("1.3.6.1", text("5")),
            ("1.3.6.2", Setting::Integer(5)),
            ("1.3.6.3", text("true")),
            ("1.3.6.4", text("it's")),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)));
        for (wrong, expected) in
            [("", "no values"), ("text:'a'", "`text` is no object"), ("1.3.6.1:null", "is null")]
        {
            let error = settings(wrong.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
