//! Decision and regression trees.

use super::field::{DataField, FieldValue};
use super::predicate::Predicate;
use super::xml::Element;
use super::{Prediction, is_classification, predicate, winner};

#[derive(Debug)]
pub(super) struct Tree {
    root: Node,
    classifies: bool,
    missing: MissingValues,
    /// True if a node without a child that holds answers itself; else the tree gives no answer.
    answers_above: bool,
}

/// Strategy for a condition of unknown truth.
#[derive(Debug, Clone, Copy)]
enum MissingValues {
    /// It does not hold.
    IsFalse,
    /// The tree gives no answer.
    NoAnswer,
    /// The node above answers.
    Above,
    /// The node above says which child it is.
    DefaultChild,
}

#[derive(Debug)]
struct Node {
    id: Option<String>,
    score: Option<String>,
    predicate: Predicate,
    default_child: Option<String>,
    children: Vec<Node>,
    shares: Vec<(String, f64)>,
    /// The score of a regression.
    number: Option<f64>,
}

impl Tree {
    pub(super) fn read(element: &Element, fields: &[DataField]) -> Result<Self, String> {
        let classifies = is_classification(element)?;
        let missing = match element.attribute("missingValueStrategy").unwrap_or("none") {
            "none" => MissingValues::IsFalse,
            "nullPrediction" => MissingValues::NoAnswer,
            "lastPrediction" => MissingValues::Above,
            "defaultChild" => MissingValues::DefaultChild,
            other => {
                return Err(element.wrong(&format!(
                    "the strategy `{other}` for missing values; there are none, nullPrediction, lastPrediction and \
                     defaultChild"
                )));
            }
        };
        let answers_above = match element.attribute("noTrueChildStrategy").unwrap_or("returnNullPrediction") {
            "returnNullPrediction" => false,
            "returnLastPrediction" => true,
            other => return Err(element.wrong(&format!("`noTrueChildStrategy` is `{other}`"))),
        };
        let root = element.child("Node").ok_or_else(|| element.wrong("expected <Node>"))?;
        Ok(Self { root: Node::read(root, fields, classifies)?, classifies, missing, answers_above })
    }

    pub(super) fn predict(&self, row: &[FieldValue]) -> Result<Prediction, String> {
        if self.root.predicate.holds(row) != Some(true) {
            return Ok(Prediction::Missing);
        }
        let mut node = &self.root;
        while !node.children.is_empty() {
            match self.step(node, row)? {
                Step::To(child) => node = child,
                Step::Answer => break,
                Step::NoAnswer => return Ok(Prediction::Missing),
            }
        }
        Ok(node.answer(self.classifies))
    }

    fn step<'n>(&self, node: &'n Node, row: &[FieldValue]) -> Result<Step<'n>, String> {
        for child in &node.children {
            match (child.predicate.holds(row), self.missing) {
                (Some(true), _) => return Ok(Step::To(child)),
                (Some(false), _) | (None, MissingValues::IsFalse) => {}
                (None, MissingValues::NoAnswer) => return Ok(Step::NoAnswer),
                (None, MissingValues::Above) => return Ok(Step::Answer),
                (None, MissingValues::DefaultChild) => {
                    let named = node.default_child.as_ref();
                    let default =
                        node.children.iter().find(|child| named.is_some() && child.id.as_ref() == named);
                    return Ok(default.map_or(Step::NoAnswer, Step::To));
                }
            }
        }
        Ok(if self.answers_above { Step::Answer } else { Step::NoAnswer })
    }
}

enum Step<'n> {
    To(&'n Node),
    Answer,
    NoAnswer,
}

impl Node {
    fn read(element: &Element, fields: &[DataField], classifies: bool) -> Result<Self, String> {
        let text = |name: &str| element.attribute(name).map(str::to_owned);
        let (mut children, mut shares) = (vec![], vec![]);
        for child in &element.children {
            match child.name.as_str() {
                "Node" => children.push(Self::read(child, fields, classifies)?),
                "ScoreDistribution" => {
                    let count = child.number("recordCount", Some(0.0))?;
                    let share = child
                        .attribute("probability")
                        .map(|_| child.number("probability", None))
                        .transpose()?;
                    shares.push((child.required("value")?.to_owned(), count, share));
                }
                "Extension" | "Partition" => {}
                name if predicate::NAMES.contains(&name) => {}
                _ => return Err(child.wrong("is not known here")),
            }
        }
        let total: f64 = shares.iter().map(|(_, count, _)| count).sum();
        let share = |(value, count, share): (String, f64, Option<f64>)| {
            (value, share.unwrap_or(if total > 0.0 { count / total } else { 0.0 }))
        };
        let node = Self {
            id: text("id"),
            score: text("score"),
            predicate: Predicate::of(element, fields)?,
            default_child: text("defaultChild"),
            children,
            number: if classifies {
                None
            } else {
                element.attribute("score").map(|_| element.number("score", None)).transpose()?
            },
            shares: shares.into_iter().map(share).collect(),
        };
        match node.children.is_empty() && node.score.is_none() && node.shares.is_empty() {
            true => Err(element.wrong("a leaf needs a `score`")),
            false => Ok(node),
        }
    }

    fn answer(&self, classifies: bool) -> Prediction {
        if !classifies {
            return self.number.map_or(Prediction::Missing, Prediction::Number);
        }
        let category = self.score.as_deref().or_else(|| winner(&self.shares));
        category.map_or(Prediction::Missing, |category| {
            Prediction::Category(category.to_owned(), self.shares.clone())
        })
    }
}
