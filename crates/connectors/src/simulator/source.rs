//! The source.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value as Json};
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::{FieldType, Result, Timestamp, did_you_mean};
use tokio::task::block_in_place;
use tokio::time::Instant;

use super::expression::{SimContext, SimExpr, SimValue, Walks};
use super::parse::SimParser;
use super::random::Random;
use super::schedule::Schedule;

/// Events that are handed over at once.
const BATCH_EVENTS: u64 = 1000;
/// Longest time between two looks at the clock.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Name of the split whose position is the number of the next event.
const SPLIT: &str = "events";
const FIELD_PREFIX: &str = "field.";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("rate", "Events in a second, such as `0.5` or `1000`, or `max`: as many as are taken.")
        .default("1"),
    OptionSpec::integer("count", 1, i64::MAX, "Number of events; by default they do not end."),
    OptionSpec::integer("seed", i64::MIN, i64::MAX, "Number that decides all random values.").default("1"),
    OptionSpec::one_of("shape", Schedule::SHAPES, "How the rate changes.").default("constant"),
    OptionSpec::duration("period", "Length of a ramp, and time after which bursts and waves repeat.")
        .default("1 min"),
    OptionSpec::text("rate.to", "Rate at the end of a ramp, and after it."),
    OptionSpec::text("burst.rate", "Rate of a burst, which each period begins with."),
    OptionSpec::duration("burst.length", "Length of a burst.").default("1 sec"),
    OptionSpec::text("amplitude", "How far a wave goes above and below the rate; by default half of it."),
    OptionSpec::text(
        "start.time",
        "Time of the first event, as in `2024-05-01T12:00:00Z`; the others follow by the rate. By default events have the \
         time at which they come.",
    ),
    OptionSpec::text(
        "field.*",
        "Expression of the attribute of this name, such as `uniform(1, 6)`, `'site-' + n % 10` or `20 + 5 * sin(t)`.",
    ),
];

/// Type of the source.
pub(crate) struct SimulatorType;

impl SourceType for SimulatorType {
    fn name(&self) -> &'static str {
        "simulator"
    }

    fn summary(&self) -> &'static str {
        "Events that are made up, at a rate, with fields by expressions; the same for the same seed."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::ExactlyOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let start_time = options.get("start.time").map(Timestamp::parse).transpose();
        Ok(Box::new(Simulator {
            schedule: Schedule::new(options)?,
            count: options.integer("count").map(|count| count as u64),
            seed: options.integer("seed").unwrap_or(1) as u64,
            start_time: start_time.map_err(|e| OptionError::option("start.time", e.message()))?,
            fields: fields(options, context)?,
            walks: Walks::default(),
        }))
    }
}

/// Attribute with its expression.
struct SimField {
    name: String,
    ty: FieldType,
    expr: SimExpr,
}

/// Returns the expressions of all attributes.
fn fields(options: &Options, context: &ConnectorContext) -> Result<Vec<SimField>, OptionError> {
    let schema = &context.schema.fields;
    let names: Vec<&str> = schema.iter().map(|field| field.name.as_str()).collect();
    for (name, _) in options.with_prefix(FIELD_PREFIX) {
        if !names.contains(&name) {
            let hint = did_you_mean(name, names.iter().copied());
            let message = format!("the stream has no attribute `{name}`{hint}");
            return Err(OptionError::option(&format!("{FIELD_PREFIX}{name}"), message));
        }
    }
    let mut parser = SimParser { names: &names, known: 0, places: 0, operators: 0 };
    let mut fields = vec![];
    for (index, field) in schema.iter().enumerate() {
        parser.known = index;
        let option = format!("{FIELD_PREFIX}{}", field.name);
        let expr = match (options.get(&option), default_expression(field.ty)) {
            (Some(text), _) => parser.parse(text).map_err(|e| OptionError::option(&option, e))?,
            (None, Some(text)) => parser.parse(text).map_err(OptionError::connector)?,
            (None, None) => {
                let message = format!(
                    "the attribute `{}` needs an expression: write the option `{option}`",
                    field.name
                );
                return Err(OptionError::connector(message).expected([format!("{option}='…'")]));
            }
        };
        fields.push(SimField { name: field.name.clone(), ty: field.ty, expr });
    }
    Ok(fields)
}

/// Returns the expression of an attribute for which none is written.
fn default_expression(ty: FieldType) -> Option<&'static str> {
    match ty {
        FieldType::Bool => Some("chance(0.5)"),
        FieldType::Int | FieldType::Long => Some("n"),
        FieldType::Float | FieldType::Double => Some("uniform()"),
        FieldType::String => Some("\"event-\" + n"),
        _ => None,
    }
}

struct Simulator {
    schedule: Schedule,
    count: Option<u64>,
    seed: u64,
    start_time: Option<Timestamp>,
    fields: Vec<SimField>,
    walks: Walks,
}

#[async_trait]
impl SourceConnector for Simulator {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        output.report_connected();
        let split: Arc<str> = Arc::from(SPLIT);
        let mut next = output.position(SPLIT).unwrap_or(0);
        let end = self.count.unwrap_or(u64::MAX);
        // the next event is due now, whatever the time was at which the source stopped
        let began = Instant::now();
        let skipped = self.schedule.time_of(next);
        while next < end {
            let elapsed = skipped.saturating_add(began.elapsed());
            let due = (self.schedule.count(elapsed.as_secs_f64()) as u64).saturating_add(1).min(end);
            if due <= next {
                let wait = self.schedule.time_of(next).saturating_sub(elapsed);
                tokio::time::sleep(wait.clamp(Duration::from_millis(1), WAIT_MAX)).await;
                continue;
            }
            let until = due.min(next.saturating_add(BATCH_EVENTS));
            // the steps of a walk are computed from the beginning
            let messages = block_in_place(|| (next..until).map(|event| self.event(event)).collect());
            output.send_split(&split, messages, until).await?;
            next = until;
        }
        Ok(())
    }
}

impl Simulator {
    fn event(&mut self, event: u64) -> Message {
        let offset = self.schedule.time_of(event);
        let time = self.start_time.map(|start| {
            let offset = i64::try_from(offset.as_micros()).unwrap_or(i64::MAX);
            Timestamp(start.0.saturating_add(offset))
        });
        let mut values: Vec<SimValue> = vec![];
        let mut object = Map::new();
        for field in &self.fields {
            let mut context = SimContext {
                random: Random { seed: self.seed, event },
                seconds: offset.as_secs_f64(),
                time_ms: time.map_or(offset.as_millis() as i64, |time| time.0.div_euclid(1000)),
                fields: &values,
                walks: &mut self.walks,
            };
            let value = field.expr.eval(&mut context);
            object.insert(field.name.clone(), json(&value, field.ty));
            values.push(value);
        }
        Message { time, number: event, ..Message::new(Json::Object(object).to_string()) }
    }
}

/// Returns a value as JSON that fits the type of its attribute, as far as it can.
fn json(value: &SimValue, ty: FieldType) -> Json {
    match (ty, value) {
        (FieldType::String, value) => Json::String(value.text()),
        (FieldType::Bool, value) => Json::Bool(value.number() != 0.0),
        (FieldType::Int | FieldType::Long, SimValue::Float(x)) if x.is_finite() => {
            Json::from(x.round() as i64)
        }
        (_, SimValue::Bool(b)) => Json::Bool(*b),
        (_, SimValue::Int(n)) => Json::from(*n),
        (_, SimValue::Float(x)) => Json::from(*x),
        (_, SimValue::Text(text)) => Json::String(text.clone()),
    }
}
