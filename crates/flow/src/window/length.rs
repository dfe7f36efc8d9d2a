//! `length(n)`: the last `n` events.

use std::ops::Range;
use std::sync::Arc;

use crate::expr::Failure;
use crate::store::Seq;

use super::{Context, MakeWindow, Parameter, Window};

pub(super) fn build(parameters: &[Parameter]) -> Result<MakeWindow, String> {
    let [n] = parameters else {
        return Err(format!("length(n) has one parameter, here are {}", parameters.len()));
    };
    let n = u64::try_from(n.int("the length")?).map_err(|_| "the length is not to be negative".to_owned())?;
    Ok(Arc::new(move || Box::new(Length { n, held: 0..0 })))
}

struct Length {
    n: u64,
    held: Range<Seq>,
}

impl Window for Length {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        if self.held.is_empty() {
            self.held = rows.start..rows.start;
        }
        for seq in rows {
            let time = context.rows.time(seq);
            if self.n == 0 {
                context.out.current(seq, time);
                context.out.expired(seq, context.now);
                context.out.reset(context.now);
                continue;
            }
            if self.held.end - self.held.start == self.n {
                context.out.expired(self.held.start, context.now);
                self.held.start += 1;
            }
            context.out.current(seq, time);
            self.held.end = seq + 1;
        }
        context.out.end_chunk();
        Ok(())
    }

    fn held(&self) -> Vec<Seq> {
        self.held.clone().collect()
    }

    fn oldest(&self) -> Option<Seq> {
        (!self.held.is_empty()).then_some(self.held.start)
    }

    fn save(&self) -> serde_json::Value {
        serde_json::json!([self.held.start, self.held.end])
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), Failure> {
        let held: [Seq; 2] = serde_json::from_value(state.clone()).map_err(|e| Failure(e.to_string()))?;
        self.held = held[0]..held[1];
        Ok(())
    }
}
