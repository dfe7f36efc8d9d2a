//! What a prediction consists of for the query: the fields of `<Output>`, or the target.

use super::field::{DataField, Kind, MiningSchema};
use super::regression::default_kind;
use super::xml::Element;
use super::{Answer, Prediction, is_classification};

/// An attribute of a prediction.
#[derive(Debug)]
pub(super) struct PredictionField {
    pub name: String,
    pub kind: Kind,
    feature: Feature,
}

#[derive(Debug)]
enum Feature {
    Value,
    /// The probability of a category; without one that of the predicted category.
    Probability(Option<String>),
}

impl PredictionField {
    pub(super) fn read_all(
        model: &Element,
        schema: &MiningSchema,
        fields: &[DataField],
    ) -> Result<Vec<Self>, String> {
        let classifies = is_classification(model)?;
        let target = schema.target.map(|target| &fields[target]);
        // a regression of whole numbers has a fraction
        let kind = match target.map(|target| target.kind) {
            Some(kind) if classifies || kind != Kind::Integer => kind,
            _ => default_kind(classifies),
        };
        let declared = model.all("Output").flat_map(|output| output.all("OutputField"));
        let declared = declared.map(|field| Self::read(field, kind)).collect::<Result<Vec<_>, _>>()?;
        if !declared.is_empty() {
            return Ok(declared);
        }
        let name = target.map_or("prediction", |target| target.name.as_str()).to_owned();
        Ok(vec![Self { name, kind, feature: Feature::Value }])
    }

    fn read(field: &Element, target: Kind) -> Result<Self, String> {
        let (feature, default) = match field.attribute("feature").unwrap_or("predictedValue") {
            "predictedValue" => (Feature::Value, target),
            "probability" => {
                (Feature::Probability(field.attribute("value").map(str::to_owned)), Kind::Double)
            }
            other => {
                return Err(field.wrong(&format!(
                    "the feature `{other}` is not known here; there are predictedValue and probability"
                )));
            }
        };
        if let Some(inner) = field.children.iter().find(|child| child.name != "Extension") {
            return Err(inner.wrong("is not known here"));
        }
        let kind = field.attribute("dataType").map(|name| Kind::read(field, name)).transpose()?;
        Ok(Self { name: field.required("name")?.to_owned(), kind: kind.unwrap_or(default), feature })
    }

    /// Returns the value for a prediction. Errors: it does not have the type of the output.
    pub(super) fn of(&self, prediction: &Prediction) -> Result<Option<Answer>, String> {
        let answer = match (&self.feature, prediction) {
            (_, Prediction::Missing) | (Feature::Probability(_), Prediction::Number(_)) => return Ok(None),
            (Feature::Value, Prediction::Number(x)) => Answer::Number(*x),
            (Feature::Value, Prediction::Category(category, _)) => Answer::Text(category.clone()),
            (Feature::Probability(of), Prediction::Category(category, shares)) => {
                let of = of.as_ref().unwrap_or(category);
                let share = shares.iter().find(|(name, _)| name == of).map_or(0.0, |(_, share)| *share);
                // a model without probabilities has none for any category
                return Ok((!shares.is_empty()).then_some(Answer::Number(share)));
            }
        };
        let wrong =
            |shown: &str| format!("the prediction `{shown}` does not have the type of `{}`", self.name);
        Ok(Some(match (answer, self.kind.is_number()) {
            (Answer::Text(text), true) => Answer::Number(text.trim().parse().map_err(|_| wrong(&text))?),
            (answer, _) => answer,
        }))
    }
}
