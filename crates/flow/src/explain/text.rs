//! Formatting of reports as text.

use std::fmt;

use super::{
    FailedConditionReport, HavingReport, JoinSideReport, LastEventReport, NamedValue, OutputRateReport,
    PatternReport, QueryReport, StepReport, WindowReport, format_time,
};

fn count(n: impl TryInto<u64>, thing: &str) -> String {
    match n.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {thing}"),
        n if thing.ends_with("ch") => format!("{n} {thing}es"),
        n => format!("{n} {thing}s"),
    }
}

fn values(values: &[NamedValue]) -> String {
    let all: Vec<String> = values.iter().map(|shown| format!("{} = {}", shown.name, shown.value)).collect();
    all.join(", ")
}

fn in_brackets(shown: &[NamedValue]) -> String {
    if shown.is_empty() { String::new() } else { format!(" ({})", values(shown)) }
}

impl fmt::Display for FailedConditionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}", format_time(self.time))?;
        if let Some(key) = &self.key {
            write!(f, " of key `{key}`")?;
        }
        write!(f, ": {} is not true{}", self.condition, in_brackets(&self.values))
    }
}

impl fmt::Display for QueryReport {
    /// Writes several lines, indented after the first one, without a final newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query `{}` at {}", self.query, format_time(self.clock))?;
        if let Some(keys) = &self.keys {
            match &keys.key {
                Some(key) => write!(f, ", key `{key}`, one of {}", keys.count)?,
                None if keys.count == 0 => write!(f, ": it has no keys yet")?,
                None => {
                    let some: Vec<String> = keys.some.iter().map(|key| format!("`{key}`")).collect();
                    let more = if keys.count > keys.some.len() { " …" } else { "" };
                    write!(f, ", all of its {}: {}{more}", count(keys.count, "key"), some.join(", "))?;
                }
            }
        }
        f.write_str("\n  ")?;
        if let Some(since) = self.since {
            write!(f, "since {}, when its state was restored from a checkpoint: ", format_time(since))?;
        }
        write!(f, "{} arrived", count(self.arrived, "event"))?;
        if let Some(passed) = self.passed {
            write!(f, ", {passed} passed the handlers before it")?;
        }
        write!(f, "; {} emitted", count(self.emitted, "event"))?;
        if let Some(at) = self.emitted_at {
            write!(f, ", the last at {}", format_time(at))?;
        }
        if let Some(refused) = &self.kept_out {
            write!(f, "\n  the last event that did not pass, {refused}")?;
        }
        if let Some(due) = self.processor_due {
            write!(f, "\n  a stream processor runs at {} if no event arrives", format_time(due))?;
        }
        if let Some(window) = &self.window {
            write!(f, "\n  {window}")?;
        }
        if let Some(pattern) = &self.pattern {
            write!(f, "\n  {pattern}")?;
        }
        for side in &self.sides {
            write!(f, "\n  {}", SideWithCondition { side, on: &self.on })?;
        }
        if let Some(having) = &self.having {
            write!(f, "\n  {having}")?;
        }
        if let Some(rate) = &self.rate {
            write!(f, "\n  {rate}")?;
        }
        if self.keys.as_ref().is_some_and(|keys| keys.key.is_none() && keys.count > 0) {
            write!(f, "\n  to see the state of one key, name it: --key {}", self.one_key())?;
        }
        Ok(())
    }
}

impl QueryReport {
    fn one_key(&self) -> &str {
        self.keys.as_ref().and_then(|keys| keys.some.first()).map_or("KEY", String::as_str)
    }
}

impl fmt::Display for WindowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = &self.waits;
        write!(f, "window {}: {}", self.window, waits.held)?;
        match waits.of {
            Some(of) => write!(f, " of {of}")?,
            None => f.write_str(if waits.held == 1 { " event" } else { " events" })?,
        }
        match waits.between {
            Some((oldest, newest)) if oldest == newest => write!(f, ", of {}", format_time(oldest))?,
            Some((oldest, newest)) => write!(f, ", from {} to {}", format_time(oldest), format_time(newest))?,
            None => {}
        }
        if waits.held.saturating_mul(2) > self.rows_max {
            write!(f, "; it may keep {}", self.rows_max)?;
        }
        write!(f, "\n    waits for {}", waits.waits_for)
    }
}

impl fmt::Display for PatternReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.sequence { "sequence" } else { "pattern" })?;
        if let Some(within) = self.within {
            write!(f, ", a match may take {within} ms")?;
        }
        self.steps.iter().try_for_each(|step| write!(f, "\n    {step}"))
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.waiting {
            0 if self.came => write!(f, "{}: its event has come", self.step)?,
            0 => write!(f, "{}: no match waits here; wanted: {}", self.step, self.waits_for)?,
            1 => write!(f, "{}: 1 match waits for {}", self.step, self.waits_for)?,
            n => write!(f, "{}: {n} matches wait for {}", self.step, self.waits_for)?,
        }
        if let Some(newest) = &self.newest
            && let Some(time) = newest.time
        {
            write!(f, "\n      the newest came at {}{}", format_time(time), in_brackets(&newest.values))?;
            if newest.collected > 0 {
                write!(f, " and has {} of this step", count(newest.collected, "event"))?;
            }
        }
        if let Some(refused) = &self.refused {
            write!(f, "\n      the last event, {refused}")?;
        }
        Ok(())
    }
}

/// A side with the condition of its join.
struct SideWithCondition<'a> {
    side: &'a JoinSideReport,
    on: &'a str,
}

impl fmt::Display for SideWithCondition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = self.side;
        write!(f, "side `{}`, a {}", side.side, side.reads)?;
        if matches!(side.reads.as_str(), "stream" | "window") {
            match side.triggers {
                true => write!(f, ": {} arrived", count(side.arrived, "event"))?,
                false => write!(f, ": what arrives is not matched, it waits for the other side")?,
            }
        }
        if let Some(rows) = side.rows {
            write!(f, "; the other side finds {}", count(rows, "row"))?;
        }
        if let Some(window) = &side.window {
            write!(f, "\n    {}", window.to_string().replace('\n', "\n  "))?;
        }
        let Some(LastEventReport { time, values, kept_out, matches }) = &side.last else { return Ok(()) };
        if let Some(refused) = kept_out {
            return write!(f, "\n    the last event, {refused}");
        }
        write!(f, "\n    the last event, at {}{}", format_time(*time), in_brackets(values))?;
        match (matches, self.on) {
            (None, _) => Ok(()),
            (Some(0), "") => write!(f, ", finds nothing on the other side now"),
            (Some(0), on) => write!(f, ", finds no row now with {on}"),
            (Some(n), _) => write!(f, ", finds {} now", count(*n, "row")),
        }
    }
}

impl fmt::Display for HavingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "having {}", self.condition)?;
        match self.groups {
            None => write!(f, ": is checked for each event")?,
            Some(groups) => {
                write!(f, ": not true now for {} of {}", self.failing, count(groups, "group"))?;
            }
        }
        for group in &self.some {
            write!(f, "\n    not true for: {}", values(group))?;
        }
        Ok(())
    }
}

impl fmt::Display for OutputRateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} held back\n    waits for {}", self.rate, count(self.held, "event"), self.waits_for)
    }
}
