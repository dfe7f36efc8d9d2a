//! Ensembles: models whose predictions are one prediction together, such as random forests.

use super::field::{DataField, FieldValue};
use super::predicate::{self, Predicate};
use super::xml::Element;
use super::{Model, Prediction, is_classification, winner};

#[derive(Debug)]
pub(super) struct Ensemble {
    segments: Vec<ModelSegment>,
    method: MultipleModelMethod,
    classifies: bool,
}

#[derive(Debug)]
struct ModelSegment {
    predicate: Predicate,
    weight: f64,
    model: Model,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MultipleModelMethod {
    SelectFirst,
    Sum,
    Average,
    WeightedAverage,
    Median,
    MajorityVote,
    WeightedMajorityVote,
}

impl Ensemble {
    pub(super) fn read(element: &Element, fields: &[DataField]) -> Result<Self, String> {
        let classifies = is_classification(element)?;
        let segmentation = element.child("Segmentation");
        let segmentation = segmentation.ok_or_else(|| element.wrong("expected <Segmentation>"))?;
        let method = match (segmentation.required("multipleModelMethod")?, classifies) {
            ("selectFirst", _) => MultipleModelMethod::SelectFirst,
            ("sum", false) => MultipleModelMethod::Sum,
            ("average", _) => MultipleModelMethod::Average,
            ("weightedAverage", _) => MultipleModelMethod::WeightedAverage,
            ("median", false) => MultipleModelMethod::Median,
            ("majorityVote", true) => MultipleModelMethod::MajorityVote,
            ("weightedMajorityVote", true) => MultipleModelMethod::WeightedMajorityVote,
            (other, _) => {
                let function = if classifies { "classification" } else { "regression" };
                return Err(
                    segmentation.wrong(&format!("the method `{other}` is not known here for a {function}"))
                );
            }
        };
        if let Some(treatment) = segmentation.attribute("missingPredictionTreatment")
            && treatment != "continue"
        {
            return Err(segmentation.wrong(&format!("the treatment `{treatment}` of missing predictions")));
        }
        let mut segments = vec![];
        for child in &segmentation.children {
            match child.name.as_str() {
                "Segment" => segments.push(ModelSegment::read(child, fields, classifies)?),
                "Extension" => {}
                _ => return Err(child.wrong("is not known here")),
            }
        }
        match segments.is_empty() {
            true => Err(segmentation.wrong("expected <Segment>")),
            false => Ok(Self { segments, method, classifies }),
        }
    }

    pub(super) fn predict(&self, fields: &[DataField], row: &[FieldValue]) -> Result<Prediction, String> {
        let mut predictions = vec![];
        for segment in self.segments.iter().filter(|segment| segment.predicate.holds(row) == Some(true)) {
            let prediction = segment.model.predict(fields, row)?;
            if self.method == MultipleModelMethod::SelectFirst {
                return Ok(prediction);
            }
            predictions.push((prediction, segment.weight));
        }
        Ok(match self.classifies {
            true => self.vote(&predictions),
            false => self.number(&predictions),
        })
    }

    fn number(&self, predictions: &[(Prediction, f64)]) -> Prediction {
        let known = predictions.iter().filter_map(|(prediction, weight)| match prediction {
            Prediction::Number(x) => Some((*x, *weight)),
            _ => None,
        });
        let mut known: Vec<(f64, f64)> = known.collect();
        if known.is_empty() {
            return Prediction::Missing;
        }
        let sum = known.iter().map(|(x, _)| x).sum::<f64>();
        Prediction::Number(match self.method {
            MultipleModelMethod::Sum => sum,
            MultipleModelMethod::WeightedAverage => {
                let total: f64 = known.iter().map(|(_, weight)| weight).sum();
                known.iter().map(|(x, weight)| x * weight).sum::<f64>() / total
            }
            MultipleModelMethod::Median => {
                known.sort_by(|(a, _), (b, _)| a.total_cmp(b));
                let (low, high) = (known[(known.len() - 1) / 2].0, known[known.len() / 2].0);
                (low + high) / 2.0
            }
            _ => sum / known.len() as f64,
        })
    }

    /// Counts the categories, or averages their probabilities.
    fn vote(&self, predictions: &[(Prediction, f64)]) -> Prediction {
        let mut shares: Vec<(String, f64)> = vec![];
        let mut total = 0.0;
        for (prediction, weight) in predictions {
            let Prediction::Category(category, own) = prediction else { continue };
            let weight = match self.method {
                MultipleModelMethod::WeightedAverage | MultipleModelMethod::WeightedMajorityVote => *weight,
                _ => 1.0,
            };
            total += weight;
            let mut add = |name: &str, share: f64| match shares.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += share * weight,
                None => shares.push((name.to_owned(), share * weight)),
            };
            match self.method {
                MultipleModelMethod::Average | MultipleModelMethod::WeightedAverage => {
                    own.iter().for_each(|(name, share)| add(name, *share))
                }
                _ => add(category, 1.0),
            }
        }
        shares.iter_mut().for_each(|(_, sum)| *sum /= total);
        match winner(&shares).map(str::to_owned) {
            Some(category) => Prediction::Category(category, shares),
            None => Prediction::Missing,
        }
    }
}

impl ModelSegment {
    fn read(element: &Element, fields: &[DataField], classifies: bool) -> Result<Self, String> {
        let model = element
            .children
            .iter()
            .filter(|child| child.name != "Extension" && !predicate::NAMES.contains(&child.name.as_str()));
        let [model] = model.collect::<Vec<_>>()[..] else {
            return Err(element.wrong("expected a condition and one model"));
        };
        if is_classification(model)? != classifies {
            return Err(model.wrong("its function is another than that of the whole"));
        }
        Ok(Self {
            predicate: Predicate::of(element, fields)?,
            weight: element.number("weight", Some(1.0))?,
            model: Model::read(model, fields)?,
        })
    }
}
