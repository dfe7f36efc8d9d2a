//! Fields of a schedule.

use super::YEAR_MAX;

/// Accepted values of a numeric field.
pub(super) struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    /// Names of the values, starting with that of `min`.
    names: &'static [&'static str],
}

pub(super) const SECONDS: Field = Field { name: "seconds", min: 0, max: 59, names: &[] };
pub(super) const MINUTES: Field = Field { name: "minutes", min: 0, max: 59, names: &[] };
pub(super) const HOURS: Field = Field { name: "hours", min: 0, max: 23, names: &[] };
pub(super) const DAY_OF_MONTH: Field = Field { name: "day of month", min: 1, max: 31, names: &[] };
pub(super) const MONTHS: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
};
pub(super) const DAY_OF_WEEK: Field =
    Field { name: "day of week", min: 1, max: 7, names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"] };
const YEARS: Field = Field { name: "year", min: 1970, max: YEAR_MAX as u32, names: &[] };

/// First value, last value and step.
type Steps = (u32, u32, u32);

impl Field {
    /// Parses a whole field; returns its values as a bitmap.
    pub(super) fn set(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |set, item| Ok(set | self.item(item)?))
    }

    /// Parses an item of a list; returns its values as a bitmap.
    pub(super) fn item(&self, item: &str) -> Result<u64, String> {
        let (from, to, step) = self.steps(item)?;
        let values = self.max - self.min + 1;
        // a range that ends before it starts wraps around
        let to = if to < from { to + values } else { to };
        let steps = (from..=to).step_by(step as usize);
        Ok(steps.fold(0, |set, n| set | 1 << ((n - self.min) % values + self.min)))
    }

    fn steps(&self, item: &str) -> Result<Steps, String> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(item, step)?)),
            None => (item, None),
        };
        let (from, to) = match range.split_once('-') {
            Some((from, to)) => (self.value(from)?, self.value(to)?),
            None if range == "*" || range.is_empty() && step.is_some() => (self.min, self.max),
            None => {
                let value = self.value(range)?;
                // a step of 0 selects only the start, as in Quartz
                (value, if step.is_none_or(|step| step == 0) { value } else { self.max })
            }
        };
        Ok((from, to, step.unwrap_or(1).max(1)))
    }

    fn step(&self, item: &str, step: &str) -> Result<u32, String> {
        number(step).filter(|step| *step <= self.max).ok_or_else(|| self.wrong(item))
    }

    /// Parses a number or a name.
    pub(super) fn value(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| *name == text).map(|place| self.min + place as u32);
        named
            .or_else(|| number(text).filter(|n| (self.min..=self.max).contains(n)))
            .ok_or_else(|| self.wrong(text))
    }

    /// Builds the error for an item that cannot be parsed.
    pub(super) fn wrong(&self, item: &str) -> String {
        format!(
            "`{item}` is not valid in the field `{}` of a schedule: expected {} to {}",
            self.name, self.min, self.max
        )
    }
}

/// Parses digits without a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Years; they do not fit into a bitmap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Years(Vec<Steps>);

impl Years {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let steps = text.split(',').map(|item| match YEARS.steps(item)? {
            (from, to, _) if to < from => Err(YEARS.wrong(item)),
            steps => Ok(steps),
        });
        steps.collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn contains(&self, year: i16) -> bool {
        let Ok(year) = u32::try_from(year) else { return false };
        self.0.iter().any(|(from, to, step)| (*from..=*to).contains(&year) && (year - from) % step == 0)
    }
}
