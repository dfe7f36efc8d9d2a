//! Values of an agent at intervals.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Map;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::{Error, Result};

use super::agent::Agent;
use super::options::{agent, snmp_options};
use super::value::{oid, status_name};

/// Values of one request; an answer has to fit into a datagram.
const OIDS_MAX: usize = 256;

const OPTIONS: &[OptionSpec] = snmp_options![
    OptionSpec::text(
        "oids",
        "Object identifiers of the values, with commas: `1.3.6.1.2.1.1.3.0, 1.3.6.1.2.1.1.6.0`."
    )
    .required(),
    OptionSpec::duration("request.interval", "Time from one request to the next.").default("5000"),
];

/// Type of the source.
pub(super) struct SnmpSourceType;

impl SourceType for SnmpSourceType {
    fn name(&self) -> &'static str {
        "snmp"
    }

    fn summary(&self) -> &'static str {
        "Asks an SNMP agent for values at intervals."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtMostOnce
    }

    fn create(
        &self,
        options: &Options,
        _context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let wrong = |why: String| OptionError::option("oids", why);
        let names = options.text("oids").split(',').map(|text| oid(text).map(|oid| oid.to_string()));
        let names = names.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        if names.len() > OIDS_MAX {
            return Err(wrong(format!(
                "expected at most {OIDS_MAX} object identifiers, found {}",
                names.len()
            )));
        }
        let interval = options.duration("request.interval").filter(|interval| !interval.is_zero());
        let interval =
            interval.ok_or_else(|| OptionError::option("request.interval", "it must be longer than 0"))?;
        Ok(Box::new(SnmpSource { agent: agent(options)?, names, interval }))
    }
}

struct SnmpSource {
    agent: Agent,
    names: Vec<String>,
    interval: Duration,
}

#[async_trait]
impl SourceConnector for SnmpSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let payload = self.ask().await?;
            output.report_connected();
            output.send(vec![Message::new(payload)]).await?.wait().await?;
        }
    }
}

impl SnmpSource {
    /// Returns the values as a JSON object, which the mappers `keyvalue` and `json` read.
    async fn ask(&mut self) -> Result<String> {
        let answer = self.agent.get(&self.names).await?;
        if answer.status != 0 {
            let at = (answer.index as usize).checked_sub(1).and_then(|at| self.names.get(at));
            let at = at.map_or(String::new(), |name| format!(" of {name}"));
            let (name, status) = (self.agent.name(), status_name(answer.status));
            return Err(Error::unavailable(format!("{name} does not tell the value{at}: {status}")));
        }
        let values: Map<_, _> = answer.values.into_iter().collect();
        Ok(serde_json::Value::Object(values).to_string())
    }
}
