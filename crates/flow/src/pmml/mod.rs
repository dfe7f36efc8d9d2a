//! Models in PMML 4: trees, regressions and ensembles of them, as other programs write them.
//!
//! What a model has and this does not know is refused when it is read, so that no part of it is left out in silence.

mod field;
mod mining;
mod outputs;
mod predicate;
mod regression;
mod tree;
mod xml;

pub(crate) use field::Kind;
use field::{DataField, FieldValue, MiningSchema};
use mining::Ensemble;
use outputs::PredictionField;
use regression::Regression;
use tree::Tree;
use xml::Element;

/// Elements that say nothing about predictions.
const WITHOUT_EFFECT: [&str; 6] =
    ["Extension", "ModelStats", "ModelExplanation", "ModelVerification", "MiningSchema", "Output"];

/// A document: its fields, and a model.
#[derive(Debug)]
pub(crate) struct Document {
    fields: Vec<DataField>,
    model: Model,
    /// Attributes that a prediction consists of.
    outputs: Vec<PredictionField>,
}

/// A model with the fields that it reads.
#[derive(Debug)]
struct Model {
    schema: MiningSchema,
    method: Method,
}

#[derive(Debug)]
enum Method {
    Tree(Tree),
    Regression(Regression),
    Ensemble(Ensemble),
}

/// Prediction of a model.
#[derive(Debug, Clone, PartialEq)]
enum Prediction {
    /// The model has no answer, as a value is missing.
    Missing,
    Number(f64),
    /// A category, and the probabilities of those that have one.
    Category(String, Vec<(String, f64)>),
}

impl Document {
    /// Reads a document. Errors: with line, element and reason.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let root = xml::parse(text)?;
        if root.name != "PMML" {
            return Err(root.wrong("expected <PMML>"));
        }
        let version = root.attribute("version").unwrap_or_default();
        if !version.starts_with("4.") && version != "3.2" {
            return Err(root.wrong(&format!("the version is `{version}`; expected 4.0 to 4.4")));
        }
        let dictionary =
            root.child("DataDictionary").ok_or_else(|| root.wrong("expected <DataDictionary>"))?;
        let fields = DataField::read_all(dictionary)?;
        let mut model = None;
        for child in &root.children {
            match child.name.as_str() {
                "Header" | "MiningBuildTask" | "DataDictionary" | "Extension" => {}
                "TransformationDictionary" if child.children.is_empty() => {}
                "TreeModel" | "RegressionModel" | "MiningModel" if model.is_none() => model = Some(child),
                "TreeModel" | "RegressionModel" | "MiningModel" => {
                    return Err(child.wrong("a second model; one file has one model"));
                }
                _ => {
                    return Err(child
                        .wrong("is not known here; there are TreeModel, RegressionModel and MiningModel"));
                }
            }
        }
        let element =
            model.ok_or_else(|| root.wrong("expected <TreeModel>, <RegressionModel> or <MiningModel>"))?;
        let model = Model::read(element, &fields)?;
        let outputs = PredictionField::read_all(element, &model.schema, &fields)?;
        Ok(Self { fields, model, outputs })
    }

    /// Returns the names of the fields that the model reads.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (&str, Kind)> {
        self.model.schema.active().map(|at| (self.fields[at].name.as_str(), self.fields[at].kind))
    }

    /// Returns name and kind of each output.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (&str, Kind)> {
        self.outputs.iter().map(|output| (output.name.as_str(), output.kind))
    }

    /// Predicts from the values of [`Self::inputs`], in their order. Returns the values of the outputs as texts; `None` where
    /// the model has no answer.
    ///
    /// Errors: a value is not valid.
    pub(crate) fn predict(&self, inputs: &[Option<Input<'_>>]) -> Result<Vec<Option<Answer>>, String> {
        let mut row = vec![FieldValue::Missing; self.fields.len()];
        for (at, input) in self.model.schema.active().zip(inputs) {
            row[at] = self.fields[at].cell(*input)?;
        }
        let prediction = self.model.predict(&self.fields, &row)?;
        self.outputs.iter().map(|output| output.of(&prediction)).collect()
    }
}

/// Value of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Input<'a> {
    Number(f64),
    Text(&'a str),
    Bool(bool),
}

/// Value of an output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Number(f64),
    Text(String),
}

impl Model {
    fn read(element: &Element, fields: &[DataField]) -> Result<Self, String> {
        let schema = element.child("MiningSchema").ok_or_else(|| element.wrong("expected <MiningSchema>"))?;
        let schema = MiningSchema::read(schema, fields)?;
        if let Some(transformed) = element.child("LocalTransformations").and_then(|l| l.children.first()) {
            return Err(transformed.wrong("derived fields are not known here: compute them in the query"));
        }
        if let Some(target) = element.all("Targets").flat_map(|targets| &targets.children).next() {
            return Err(target.wrong("targets are not known here: rescale the prediction in the query"));
        }
        let known =
            |name: &str| WITHOUT_EFFECT.contains(&name) || matches!(name, "LocalTransformations" | "Targets");
        let own: &[&str] = match element.name.as_str() {
            "TreeModel" => &["Node"],
            "RegressionModel" => &["RegressionTable"],
            _ => &["Segmentation"],
        };
        let other = element.children.iter().find(|c| !known(&c.name) && !own.contains(&c.name.as_str()));
        if let Some(other) = other {
            return Err(other.wrong("is not known here"));
        }
        let method = match element.name.as_str() {
            "TreeModel" => Method::Tree(Tree::read(element, fields)?),
            "RegressionModel" => Method::Regression(Regression::read(element, fields)?),
            "MiningModel" => Method::Ensemble(Ensemble::read(element, fields)?),
            _ => return Err(element.wrong("is not known here")),
        };
        Ok(Self { schema, method })
    }

    fn predict(&self, fields: &[DataField], row: &[FieldValue]) -> Result<Prediction, String> {
        let row = self.schema.prepare(fields, row)?;
        match &self.method {
            Method::Tree(tree) => tree.predict(&row),
            Method::Regression(regression) => Ok(regression.predict(&row)),
            Method::Ensemble(ensemble) => ensemble.predict(fields, &row),
        }
    }
}

/// Returns true if a model predicts categories.
fn is_classification(element: &Element) -> Result<bool, String> {
    match element.required("functionName")? {
        "classification" => Ok(true),
        "regression" => Ok(false),
        other => {
            Err(element.wrong(&format!("the function `{other}`; expected classification or regression")))
        }
    }
}

/// Returns the first category with the greatest number.
fn winner(shares: &[(String, f64)]) -> Option<&str> {
    let mut best: Option<&(String, f64)> = None;
    for one in shares {
        if best.is_none_or(|best| one.1 > best.1) {
            best = Some(one);
        }
    }
    best.map(|(name, _)| name.as_str())
}
