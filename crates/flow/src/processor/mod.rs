//! Stateful handlers: stream processors, and filters with aggregates.

mod adaptive;
mod aggregate_filter;
mod components;
mod counts;
mod deduplicate;
mod frequent_values;
mod handler;
mod learning;
mod priority;
mod reorder;
mod reorder_buffer;
mod timeseries;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;
use tidemill_types::FieldType;

pub use aggregate_filter::AggregateFilter;

use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, Expr, Frame};
use crate::registry::{ProcessorEvent, Registry, StreamProcessor, StreamProcessorConstructor};
pub use handler::Handler;
pub(crate) use handler::{apply_handlers, row_filters};

/// Registers the built-in stream processors.
pub(crate) fn register(registry: &mut Registry) {
    registry.stream_processor("unique:deduplicate", deduplicate::build);
    registry.stream_processor("reorder:kslack", reorder::build);
    registry.stream_processor("reorder:akslack", adaptive::build);
    registry.stream_processor("priority:time", priority::build);
    frequent_values::register(registry);
    counts::register(registry);
    registry.stream_processor("graph:sizeOfLargestConnectedComponent", components::build);
    timeseries::register(registry);
    learning::register(registry);
}

/// Registers the stream processors that read files, which find them by their paths.
pub(crate) fn set_model_files(registry: &mut Registry, files: &BTreeMap<String, String>) {
    learning::set_model_files(registry, files);
}

/// A compiled stateful handler.
#[derive(Debug, Clone)]
pub enum StatefulHandler {
    /// `[sum(a) < 10]`
    Filter(AggregateFilter),
    /// `#reorder:kslack(…)`
    Processor(ProcessorPlan),
}

/// A compiled call of a stream processor.
#[derive(Clone)]
pub struct ProcessorPlan {
    /// Constructor of the processor's state.
    pub make: StreamProcessorConstructor,
    /// Arguments.
    pub args: Vec<Expr>,
    /// Types of the attributes that the processor adds.
    pub added: Vec<FieldType>,
}

impl fmt::Debug for ProcessorPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorPlan").field("args", &self.args).finish_non_exhaustive()
    }
}

/// The handlers of a query, applied in order, with their states.
pub(crate) struct HandlerChain {
    plan: Vec<Handler>,
    /// State of each handler; `None` for stateless ones.
    states: Vec<Option<HandlerState>>,
    stateful: bool,
}

enum HandlerState {
    Filter(aggregate_filter::AggregateFilterState),
    Processor { processor: Box<dyn StreamProcessor>, types: Vec<FieldType> },
}

impl HandlerChain {
    /// Creates handlers in their initial state. `types` are the columns of the input of the first one.
    pub(crate) fn new(plan: &[Handler], types: &[FieldType]) -> Self {
        let mut types = types.to_vec();
        let states: Vec<Option<HandlerState>> = plan
            .iter()
            .map(|handler| match handler {
                Handler::Filter(_) => None,
                Handler::Function(_, _, added) => {
                    types.extend(added);
                    None
                }
                Handler::Stateful(StatefulHandler::Filter(plan)) => {
                    Some(HandlerState::Filter(plan.initial_state()))
                }
                Handler::Stateful(StatefulHandler::Processor(plan)) => {
                    types.extend(&plan.added);
                    Some(HandlerState::Processor { processor: (plan.make)(), types: types.clone() })
                }
            })
            .collect();
        let stateful = states.iter().any(Option::is_some);
        Self { plan: plan.to_vec(), states, stateful }
    }

    /// Returns whether any handler has a state.
    pub(crate) fn have_state(&self) -> bool {
        self.stateful
    }

    /// Starts the processors; called once when the app starts.
    pub(crate) fn start(&mut self, now: i64) {
        for state in self.states.iter_mut().flatten() {
            if let HandlerState::Processor { processor, .. } = state {
                processor.start(now);
            }
        }
    }

    /// Applies the handlers to the events. Errors: the events cannot be processed.
    pub(crate) fn push<'b>(
        &mut self,
        input: &'b Batch,
        host: &dyn EvalContext,
    ) -> Result<Cow<'b, Batch>, EvalError> {
        if !self.stateful {
            return apply_handlers(&self.plan, input, host);
        }
        self.process_from(0, Cow::Borrowed(input), host)
    }

    fn process_from<'b>(
        &mut self,
        first: usize,
        input: Cow<'b, Batch>,
        host: &dyn EvalContext,
    ) -> Result<Cow<'b, Batch>, EvalError> {
        let mut now = input;
        for (handler, state) in self.plan.iter().zip(&mut self.states).skip(first) {
            now = Cow::Owned(match (handler, state) {
                (Handler::Stateful(StatefulHandler::Filter(plan)), Some(HandlerState::Filter(running))) => {
                    running.filter(plan, &now, host)?
                }
                (
                    Handler::Stateful(StatefulHandler::Processor(plan)),
                    Some(HandlerState::Processor { processor, types }),
                ) => process(processor.as_mut(), types, &plan.args, &now, host)?,
                _ => apply_handlers(std::slice::from_ref(handler), &now, host)?.into_owned(),
            });
        }
        Ok(now)
    }

    /// Returns the first due time of any handler.
    pub(crate) fn due(&self) -> Option<i64> {
        self.states.iter().flatten().filter_map(HandlerState::due).min()
    }

    /// Fires the next timer that is due at `now`. Returns the output; `None` if no timer is due.
    pub(crate) fn fire_timer(
        &mut self,
        now: i64,
        host: &dyn EvalContext,
    ) -> Option<Result<Batch, EvalError>> {
        let is_due =
            |s: &Option<HandlerState>| s.as_ref().and_then(HandlerState::due).is_some_and(|due| due <= now);
        let place = self.states.iter().position(is_due)?;
        let HandlerState::Processor { processor, types } = self.states[place].as_mut()? else { return None };
        let mut rows = Vec::new();
        processor.on_timer(now, &mut rows);
        let mut out = Batch::new(types.iter().copied());
        rows.into_iter().for_each(|row| push(&mut out, row));
        out.end_chunk(now);
        Some(self.process_from(place + 1, Cow::Owned(out), host).map(Cow::into_owned))
    }

    /// Returns the states of the stateful handlers, in order.
    pub(crate) fn save(&self) -> Json {
        let states = self.states.iter().flatten().map(|state| match state {
            HandlerState::Filter(running) => running.save(),
            HandlerState::Processor { processor, .. } => processor.save(),
        });
        Json::Array(states.collect())
    }

    /// Restores saved states. Errors: the states belong to other handlers.
    pub(crate) fn restore(&mut self, saved: &Json) -> Result<(), EvalError> {
        let states: Vec<&mut HandlerState> = self.states.iter_mut().flatten().collect();
        let saved = saved.as_array().filter(|saved| saved.len() == states.len());
        let saved = saved.ok_or_else(|| EvalError::state("the saved state does not match these handlers"))?;
        for (state, saved) in states.into_iter().zip(saved) {
            match state {
                HandlerState::Filter(running) => running.restore(saved)?,
                HandlerState::Processor { processor, .. } => processor.restore(saved)?,
            }
        }
        Ok(())
    }
}

impl HandlerState {
    fn due(&self) -> Option<i64> {
        match self {
            Self::Filter(_) => None,
            Self::Processor { processor, .. } => processor.due(),
        }
    }
}

fn process(
    processor: &mut dyn StreamProcessor,
    types: &[FieldType],
    args: &[Expr],
    input: &Batch,
    host: &dyn EvalContext,
) -> Result<Batch, EvalError> {
    let mut out = Batch::new(types.iter().copied());
    for (rows, clock) in input.chunks() {
        let mut made = Vec::new();
        for row in rows {
            let kind = input.kinds[row];
            let values = input.columns.iter().map(|c| c.get(row)).collect();
            let event = ProcessorEvent { time: input.times[row], kind, values };
            if kind == EventKind::Reset {
                made.push(event);
                continue;
            }
            let source = [Some((input.columns.as_slice(), row))];
            let frame = Frame { rows: &source, time: event.time, now: clock, host };
            let args = args.iter().map(|a| a.eval(&frame)).collect::<Result<Vec<_>, _>>()?;
            processor.process_with_models(event, &args, clock, host.models(), &mut made)?;
        }
        made.into_iter().for_each(|row| push(&mut out, row));
        out.end_chunk(clock);
    }
    Ok(out)
}

/// Appends a row; columns without a value are null.
fn push(out: &mut Batch, row: ProcessorEvent) {
    let mut values = row.values.into_iter();
    let add = |column: &mut Column| column.push(values.next().unwrap_or_default());
    out.columns.iter_mut().for_each(add);
    out.times.push(row.time);
    out.kinds.push(row.kind);
}
