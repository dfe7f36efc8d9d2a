//! Linear and logistic regression.

use super::field::{DataField, FieldValue, Kind, field_of};
use super::xml::Element;
use super::{Prediction, is_classification, winner};

#[derive(Debug)]
pub(super) struct Regression {
    tables: Vec<CoefficientTable>,
    classifies: bool,
    normalization: Normalization,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Normalization {
    None,
    SimpleMax,
    SoftMax,
    Logit,
    Exp,
    Cauchit,
    CLogLog,
    LogLog,
}

#[derive(Debug)]
struct CoefficientTable {
    category: Option<String>,
    intercept: f64,
    terms: Vec<Term>,
}

#[derive(Debug)]
enum Term {
    Power { field: usize, exponent: f64, coefficient: f64 },
    Category { field: usize, value: String, coefficient: f64 },
    Product { fields: Vec<usize>, coefficient: f64 },
}

impl Regression {
    pub(super) fn read(element: &Element, fields: &[DataField]) -> Result<Self, String> {
        let classifies = is_classification(element)?;
        let normalization = match element.attribute("normalizationMethod").unwrap_or("none") {
            "none" => Normalization::None,
            "simplemax" => Normalization::SimpleMax,
            "softmax" => Normalization::SoftMax,
            "logit" => Normalization::Logit,
            "exp" => Normalization::Exp,
            "cauchit" => Normalization::Cauchit,
            "cloglog" => Normalization::CLogLog,
            "loglog" => Normalization::LogLog,
            other => return Err(element.wrong(&format!("the normalization `{other}` is not known here"))),
        };
        let tables = element.all("RegressionTable").map(|table| CoefficientTable::read(table, fields));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        let by_two =
            !matches!(normalization, Normalization::None | Normalization::SimpleMax | Normalization::SoftMax);
        match (classifies, tables.len()) {
            (false, 1) if normalization != Normalization::SimpleMax => {}
            (false, count) => {
                return Err(
                    element.wrong(&format!("a regression with {count} tables and this normalization"))
                );
            }
            (true, 0 | 1) => return Err(element.wrong("a classification needs a table for each category")),
            (true, 2) => {}
            (true, _) if by_two => {
                return Err(element.wrong("this normalization is only known here for two categories"));
            }
            (true, _) => {}
        }
        if classifies && tables.iter().any(|table| table.category.is_none()) {
            return Err(element.wrong("each table of a classification needs its `targetCategory`"));
        }
        Ok(Self { tables, classifies, normalization })
    }

    pub(super) fn predict(&self, row: &[FieldValue]) -> Prediction {
        let values: Option<Vec<f64>> = self.tables.iter().map(|table| table.value(row)).collect();
        let Some(values) = values else { return Prediction::Missing };
        if !self.classifies {
            return match values.first() {
                Some(y) => Prediction::Number(self.normalization.of(*y)),
                None => Prediction::Missing,
            };
        }
        let shares = match self.normalization {
            Normalization::None => values,
            Normalization::SimpleMax => shared(values),
            Normalization::SoftMax => {
                let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                shared(values.into_iter().map(|y| (y - most).exp()).collect())
            }
            of_two => {
                let first = of_two.of(values[0]);
                vec![first, 1.0 - first]
            }
        };
        let names = self.tables.iter().filter_map(|table| table.category.clone());
        let shares: Vec<(String, f64)> = names.zip(shares).collect();
        match winner(&shares).map(str::to_owned) {
            Some(category) => Prediction::Category(category, shares),
            None => Prediction::Missing,
        }
    }
}

/// Divides by the sum.
fn shared(values: Vec<f64>) -> Vec<f64> {
    let total: f64 = values.iter().sum();
    values.into_iter().map(|value| value / total).collect()
}

impl Normalization {
    fn of(self, y: f64) -> f64 {
        match self {
            Self::None | Self::SimpleMax => y,
            // of a single number these are the same
            Self::SoftMax | Self::Logit => 1.0 / (1.0 + (-y).exp()),
            Self::Exp => y.exp(),
            Self::Cauchit => 0.5 + y.atan() / std::f64::consts::PI,
            Self::CLogLog => 1.0 - (-y.exp()).exp(),
            Self::LogLog => (-(-y).exp()).exp(),
        }
    }
}

impl CoefficientTable {
    fn read(element: &Element, fields: &[DataField]) -> Result<Self, String> {
        let mut terms = vec![];
        for child in &element.children {
            let field = |name: &str| field_of(child, name, fields);
            let number = |name: &str| -> Result<usize, String> {
                let field = field(name)?;
                match fields[field].kind.is_number() {
                    true => Ok(field),
                    false => Err(child.wrong(&format!("`{name}` is no number"))),
                }
            };
            let coefficient = || child.number("coefficient", None);
            terms.push(match child.name.as_str() {
                "Extension" => continue,
                "NumericPredictor" => Term::Power {
                    field: number(child.required("name")?)?,
                    exponent: child.number("exponent", Some(1.0))?,
                    coefficient: coefficient()?,
                },
                "CategoricalPredictor" => Term::Category {
                    field: field(child.required("name")?)?,
                    value: child.required("value")?.to_owned(),
                    coefficient: coefficient()?,
                },
                "PredictorTerm" => {
                    let factors = child.all("FieldRef").map(|factor| number(factor.required("field")?));
                    Term::Product { fields: factors.collect::<Result<_, _>>()?, coefficient: coefficient()? }
                }
                _ => return Err(child.wrong("is not known here")),
            });
            if let Some(Term::Category { field, value, .. }) = terms.last() {
                // so that a number is compared as one
                fields[*field].kind.constant(child, value)?;
            }
        }
        Ok(Self {
            category: element.attribute("targetCategory").map(str::to_owned),
            intercept: element.number("intercept", None)?,
            terms,
        })
    }

    /// Returns the sum of the terms; `None` if a number is missing.
    fn value(&self, row: &[FieldValue]) -> Option<f64> {
        let number = |field: &usize| match &row[*field] {
            FieldValue::Number(x) => Some(*x),
            _ => None,
        };
        self.terms.iter().try_fold(self.intercept, |sum, term| {
            Some(
                sum + match term {
                    Term::Power { field, exponent, coefficient } => {
                        let x = number(field)?;
                        coefficient * if *exponent == 1.0 { x } else { x.powf(*exponent) }
                    }
                    Term::Category { field, value, coefficient } => match &row[*field] {
                        FieldValue::Text(text) if text == value => *coefficient,
                        cell @ FieldValue::Number(_) if *cell == as_number(value) => *coefficient,
                        // a category that is missing adds nothing
                        _ => 0.0,
                    },
                    Term::Product { fields, coefficient } => fields
                        .iter()
                        .try_fold(*coefficient, |product, field| Some(product * number(field)?))?,
                },
            )
        })
    }
}

fn as_number(text: &str) -> FieldValue {
    text.trim().parse().map_or(FieldValue::Missing, FieldValue::Number)
}

/// Returns the kind of a prediction whose output says nothing about it.
pub(super) fn default_kind(classifies: bool) -> Kind {
    if classifies { Kind::Text } else { Kind::Double }
}
