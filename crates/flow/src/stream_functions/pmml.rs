//! `#pmml:predict('model.pmml' [, attribute, …])`: predictions by a model that another program has trained.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use regex::Regex;
use tidemill_types::FieldType;

use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::pmml::{Answer, Document, Input, Kind};
use crate::registry::{BoundStreamFunction, CallSite, EventRef, Registry, StreamFunction};

const NAME: &str = "pmml:predict";
const FORM: &str = "pmml:predict('model.pmml' [, attribute, …])";

/// Calls with the paths of their files: the first argument of `pmml:predict`, the one text of `markov:markovChain`.
static CALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let text = r#"(?:'([^'\n]*)'|"([^"\n]*)")"#;
    Regex::new(&format!(r#"(?:pmml\s*:\s*predict\s*\(\s*|markov\s*:\s*markovChain\s*\([^'"()]*,\s*){text}"#))
        .ok()
});

/// Returns the paths that calls in a text name, as they are written there.
pub fn model_paths(text: &str) -> Vec<&str> {
    let Some(call) = CALL.as_ref() else { return vec![] };
    let paths = call.captures_iter(text).filter_map(|found| found.get(1).or(found.get(2)));
    paths.map(|path| path.as_str()).filter(|path| !path.is_empty()).collect()
}

/// A file, and what it has once somebody asked.
struct ModelFile {
    text: String,
    document: OnceLock<Result<Arc<Document>, String>>,
}

/// Registers the function, which finds these files by their paths.
pub(crate) fn register(registry: &mut Registry, files: BTreeMap<String, String>) {
    let file = |(path, text)| (path, ModelFile { text, document: OnceLock::new() });
    let files: BTreeMap<String, ModelFile> = files.into_iter().map(file).collect();
    registry.call_site_function(NAME, move |site| build(site, &files));
}

fn build(site: &CallSite<'_>, files: &BTreeMap<String, ModelFile>) -> Result<BoundStreamFunction, String> {
    let path = site.args.first().and_then(|arg| arg.constant.as_ref()).and_then(Value::as_str);
    let path = path.ok_or_else(|| format!("expected {FORM}: the path must be a constant text"))?;
    let file = files.get(path).ok_or_else(|| {
        format!("{NAME}: there is no file `{path}`; paths count from the directory of the app, and are written as they are")
    })?;
    let document = file.document.get_or_init(|| Document::read(&file.text).map(Arc::new)).clone();
    let document = document.map_err(|why| format!("{NAME}: {path}: {why}"))?;
    let given: Vec<(&str, FieldType, Place)> = match &site.names[1..] {
        [] => {
            let all = site.attributes.iter().enumerate();
            all.map(|(at, (name, ty))| (name.as_str(), *ty, Place::Column(at))).collect()
        }
        names => {
            let named = names.iter().zip(&site.args[1..]).enumerate();
            let named = named.map(|(at, (name, arg))| {
                let name =
                    name.ok_or_else(|| format!("expected {FORM}: argument {} is no attribute", at + 2))?;
                Ok((name, arg.ty, Place::Argument(at + 1)))
            });
            named.collect::<Result<_, String>>()?
        }
    };
    let mut inputs = vec![];
    for (field, kind) in document.inputs() {
        let attribute = attribute_name(field);
        let Some((_, ty, place)) = given.iter().find(|(name, ..)| *name == field || *name == attribute)
        else {
            return Err(format!(
                "{NAME}: {path}: the model reads `{field}`, and there is no attribute `{attribute}`"
            ));
        };
        let fits = match ty {
            FieldType::Object => false,
            FieldType::Bool => !matches!(kind, Kind::Integer | Kind::Float | Kind::Double),
            _ => true,
        };
        if !fits {
            return Err(format!("{NAME}: {path}: `{field}` is a {kind}, and the attribute a {ty}"));
        }
        inputs.push(*place);
    }
    let added: Vec<(String, FieldType)> =
        document.outputs().map(|(name, kind)| (attribute_name(name), kind.field_type())).collect();
    let types = added.iter().map(|(_, ty)| *ty).collect();
    Ok((Arc::new(Predict { document, inputs, types }), added))
}

/// Returns a field's name as that of an attribute: what cannot be in one becomes `_`.
fn attribute_name(field: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    field.chars().map(allowed).collect()
}

impl Kind {
    fn field_type(self) -> FieldType {
        match self {
            Self::Text => FieldType::String,
            Self::Integer => FieldType::Int,
            Self::Float => FieldType::Float,
            Self::Double => FieldType::Double,
            Self::Bool => FieldType::Bool,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Column(usize),
    Argument(usize),
}

#[derive(Debug)]
struct Predict {
    document: Arc<Document>,
    /// Sources of the values of the model's fields.
    inputs: Vec<Place>,
    types: Vec<FieldType>,
}

impl StreamFunction for Predict {
    fn call(&self, _: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        Err(EvalError::internal("a model needs an event"))
    }

    fn call_on(&self, args: &[Value], event: &EventRef<'_>) -> Result<Vec<Vec<Value>>, EvalError> {
        let value = |place: &Place| match place {
            Place::Column(at) => event.columns.get(*at).map_or(Value::Null, |column| column.get(event.row)),
            Place::Argument(at) => args.get(*at).cloned().unwrap_or_default(),
        };
        let values: Vec<Value> = self.inputs.iter().map(value).collect();
        let input = |value: &'_ Value| match value {
            Value::Null => None,
            Value::Bool(b) => Some(Input::Bool(*b)),
            _ => None,
        };
        let inputs: Vec<Option<Input<'_>>> = values
            .iter()
            .map(|value| match (value.as_str(), value.as_f64()) {
                (Some(text), _) => Some(Input::Text(text)),
                (None, Some(x)) => Some(Input::Number(x)),
                (None, None) => input(value),
            })
            .collect();
        let wrong = |why: String| EvalError::argument(format!("{NAME}: {why}"));
        let answers = self.document.predict(&inputs).map_err(wrong)?;
        let output = |(answer, ty): (Option<Answer>, &FieldType)| match answer {
            None => Ok(Value::Null),
            Some(answer) => output(answer, *ty).map_err(wrong),
        };
        Ok(vec![answers.into_iter().zip(&self.types).map(output).collect::<Result<_, _>>()?])
    }
}

/// Returns the value of an output. Errors: it does not have this type.
fn output(answer: Answer, ty: FieldType) -> Result<Value, String> {
    Ok(match (answer, ty) {
        (Answer::Text(text), FieldType::Bool) => match text.as_str() {
            "true" | "1" => Value::Bool(true),
            "false" | "0" => Value::Bool(false),
            _ => return Err(format!("the prediction `{text}` is no bool")),
        },
        (Answer::Text(text), _) => Value::text(&text),
        (Answer::Number(x), FieldType::Int) if x.fract() == 0.0 && x.abs() <= f64::from(i32::MAX) => {
            Value::Int(x as i32)
        }
        (Answer::Number(x), FieldType::Int) => return Err(format!("the prediction {x} is no int")),
        (Answer::Number(x), FieldType::Float) => Value::Float(x as f32),
        (Answer::Number(x), FieldType::String) => Value::text(&Value::Double(x).to_string()),
        (Answer::Number(x), FieldType::Bool) => return Err(format!("the prediction {x} is no bool")),
        (Answer::Number(x), _) => Value::Double(x),
    })
}
