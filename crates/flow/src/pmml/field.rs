//! Fields of a model: their types, and what becomes of missing and invalid values.

use std::fmt;

use super::Input;
use super::xml::Element;

/// Type of a field or an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Integer,
    Float,
    Double,
    Bool,
}

impl Kind {
    pub(super) fn read(element: &Element, name: &str) -> Result<Self, String> {
        Ok(match name {
            "string" => Self::Text,
            "integer" => Self::Integer,
            "float" => Self::Float,
            "double" => Self::Double,
            "boolean" => Self::Bool,
            other => {
                return Err(element.wrong(&format!(
                    "the type `{other}`; there are string, integer, float, double and boolean"
                )));
            }
        })
    }

    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Integer | Self::Float | Self::Double)
    }

    /// Returns the name in the document.
    fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bool => "boolean",
        }
    }

    /// Parses a constant of the document.
    pub(super) fn constant(self, element: &Element, text: &str) -> Result<FieldValue, String> {
        match self.is_number() {
            false => Ok(FieldValue::Text(text.to_owned())),
            true => text
                .trim()
                .parse()
                .map(FieldValue::Number)
                .map_err(|_| element.wrong(&format!("`{text}` is no number, and the field is one"))),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value while a model is evaluated.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FieldValue {
    Missing,
    Number(f64),
    /// A string; of a bool `true` or `false`.
    Text(String),
}

/// A field of the data dictionary.
#[derive(Debug)]
pub(super) struct DataField {
    pub name: String,
    pub kind: Kind,
    /// Valid values; none if all are.
    valid: Vec<FieldValue>,
    /// Values that stand for a missing one.
    missing: Vec<FieldValue>,
    /// Intervals of valid numbers: bounds, and whether they belong to it.
    intervals: Vec<[(f64, bool); 2]>,
}

impl DataField {
    pub(super) fn read_all(dictionary: &Element) -> Result<Vec<Self>, String> {
        dictionary.all("DataField").map(Self::read).collect()
    }

    fn read(element: &Element) -> Result<Self, String> {
        let name = element.required("name")?.to_owned();
        let kind = Kind::read(element, element.required("dataType")?)?;
        let (mut valid, mut missing, mut intervals) = (vec![], vec![], vec![]);
        for child in &element.children {
            match child.name.as_str() {
                "Extension" => {}
                "Value" => {
                    let value = kind.constant(child, child.required("value")?)?;
                    match child.attribute("property").unwrap_or("valid") {
                        "valid" => valid.push(value),
                        "missing" => missing.push(value),
                        other => {
                            return Err(child.wrong(&format!("the property `{other}` is not known here")));
                        }
                    }
                }
                "Interval" => {
                    let (left, right) = match child.required("closure")? {
                        "openOpen" => (false, false),
                        "openClosed" => (false, true),
                        "closedOpen" => (true, false),
                        "closedClosed" => (true, true),
                        other => return Err(child.wrong(&format!("the closure `{other}`"))),
                    };
                    let low = child.number("leftMargin", Some(f64::NEG_INFINITY))?;
                    intervals.push([(low, left), (child.number("rightMargin", Some(f64::INFINITY))?, right)]);
                }
                _ => return Err(child.wrong("is not known here")),
            }
        }
        Ok(Self { name, kind, valid, missing, intervals })
    }

    /// Returns the value of an event. Errors: it does not have the type of the field.
    pub(super) fn cell(&self, input: Option<Input<'_>>) -> Result<FieldValue, String> {
        let Some(input) = input else { return Ok(FieldValue::Missing) };
        let text = match input {
            Input::Number(x) if self.kind.is_number() => {
                let whole = self.kind != Kind::Integer || x.fract() == 0.0;
                return match x.is_finite() && whole {
                    true => Ok(FieldValue::Number(x)),
                    false => Err(format!("`{}` is {x}, which its type has not", self.name)),
                };
            }
            Input::Number(x) => x.to_string(),
            Input::Text(text) => text.to_owned(),
            Input::Bool(b) => b.to_string(),
        };
        match self.kind.is_number() {
            false => Ok(FieldValue::Text(text)),
            true => match text.trim().parse::<f64>() {
                Ok(x) => self.cell(Some(Input::Number(x))),
                Err(_) => Err(format!("`{}` is `{text}`, which is no number", self.name)),
            },
        }
    }

    fn is_valid(&self, cell: &FieldValue) -> bool {
        let inside = |x: f64| {
            self.intervals.iter().any(|[(low, closed_low), (high, closed_high)]| {
                (x > *low || *closed_low && x == *low) && (x < *high || *closed_high && x == *high)
            })
        };
        let in_interval = match cell {
            FieldValue::Number(x) => self.intervals.is_empty() || inside(*x),
            _ => self.intervals.is_empty(),
        };
        match (self.valid.is_empty(), self.intervals.is_empty()) {
            (true, _) => in_interval,
            (false, true) => self.valid.contains(cell),
            (false, false) => in_interval || self.valid.contains(cell),
        }
    }
}

/// Returns the index of a field. Errors: the name is unknown.
pub(super) fn field_of(element: &Element, name: &str, fields: &[DataField]) -> Result<usize, String> {
    let known = fields.iter().position(|field| field.name == name);
    known.ok_or_else(|| element.wrong(&format!("the data dictionary has no field `{name}`")))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Refuse,
    AsIs,
    AsMissing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outliers {
    Kept,
    Missing,
    Extremes,
}

/// A field that a model reads.
#[derive(Debug)]
struct ActiveField {
    field: usize,
    replacement: Option<FieldValue>,
    invalid: Invalid,
    outliers: Outliers,
    low: f64,
    high: f64,
}

/// The fields that a model reads, and its target.
#[derive(Debug)]
pub(super) struct MiningSchema {
    fields: Vec<ActiveField>,
    pub target: Option<usize>,
}

impl MiningSchema {
    pub(super) fn read(element: &Element, fields: &[DataField]) -> Result<Self, String> {
        let mut schema = Self { fields: vec![], target: None };
        for child in &element.children {
            match child.name.as_str() {
                "Extension" => continue,
                "MiningField" => {}
                _ => return Err(child.wrong("is not known here")),
            }
            let field = field_of(child, child.required("name")?, fields)?;
            match child.attribute("usageType").unwrap_or("active") {
                "active" => schema.fields.push(ActiveField::read(child, field, fields[field].kind)?),
                "target" | "predicted" => schema.target = Some(field),
                _ => {}
            }
        }
        Ok(schema)
    }

    /// Returns the indexes of the fields that the model reads.
    pub(super) fn active(&self) -> impl Iterator<Item = usize> {
        self.fields.iter().map(|active| active.field)
    }

    /// Returns the values as the model reads them. Errors: a value is not valid.
    pub(super) fn prepare(
        &self,
        fields: &[DataField],
        row: &[FieldValue],
    ) -> Result<Vec<FieldValue>, String> {
        let mut prepared = row.to_vec();
        for active in &self.fields {
            let field = &fields[active.field];
            let cell = &mut prepared[active.field];
            if field.missing.contains(cell) {
                *cell = FieldValue::Missing;
            }
            if let FieldValue::Number(x) = cell
                && (*x < active.low || *x > active.high)
            {
                *cell = match active.outliers {
                    Outliers::Kept => FieldValue::Number(*x),
                    Outliers::Missing => FieldValue::Missing,
                    Outliers::Extremes => FieldValue::Number(x.clamp(active.low, active.high)),
                };
            }
            if *cell != FieldValue::Missing && !field.is_valid(cell) {
                match active.invalid {
                    Invalid::AsIs => {}
                    Invalid::AsMissing => *cell = FieldValue::Missing,
                    Invalid::Refuse => {
                        let shown = match cell {
                            FieldValue::Number(x) => x.to_string(),
                            FieldValue::Text(text) => text.clone(),
                            FieldValue::Missing => String::new(),
                        };
                        return Err(format!("`{shown}` is not a valid value of `{}`", field.name));
                    }
                }
            }
            if let (FieldValue::Missing, Some(replacement)) = (&*cell, &active.replacement) {
                *cell = replacement.clone();
            }
        }
        Ok(prepared)
    }
}

impl ActiveField {
    fn read(element: &Element, field: usize, kind: Kind) -> Result<Self, String> {
        let replacement = element.attribute("missingValueReplacement");
        let replacement = replacement.map(|text| kind.constant(element, text)).transpose()?;
        if element.attribute("missingValueTreatment") == Some("returnInvalid") {
            return Err(element.wrong("the treatment `returnInvalid` of missing values is not known here"));
        }
        let invalid = match element.attribute("invalidValueTreatment").unwrap_or("returnInvalid") {
            "returnInvalid" => Invalid::Refuse,
            "asIs" => Invalid::AsIs,
            "asMissing" => Invalid::AsMissing,
            other => return Err(element.wrong(&format!("the treatment `{other}` of invalid values"))),
        };
        let outliers = match element.attribute("outliers").unwrap_or("asIs") {
            "asIs" => Outliers::Kept,
            "asMissingValues" => Outliers::Missing,
            "asExtremeValues" => Outliers::Extremes,
            other => return Err(element.wrong(&format!("the treatment `{other}` of outliers"))),
        };
        let (low, high) = (
            element.number("lowValue", Some(f64::NEG_INFINITY))?,
            element.number("highValue", Some(f64::INFINITY))?,
        );
        if low.is_nan() || high.is_nan() || low > high {
            return Err(element.wrong("`lowValue` is above `highValue`"));
        }
        Ok(Self { field, replacement, invalid, outliers, low, high })
    }
}
