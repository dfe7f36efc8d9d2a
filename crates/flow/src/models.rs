//! Models that the queries of an app share by name: one query trains them, others predict by them.

use std::any::Any;
use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::eval_error::EvalError;

/// Models of an app.
pub const MODELS_MAX: usize = 1000;

/// Models by kind and name.
#[derive(Default)]
pub struct Models(Mutex<BTreeMap<(String, String), Model>>);

enum Model {
    Live(Box<dyn LiveModel>),
    /// Restored state that was not requested yet.
    Saved(Json),
}

trait LiveModel: Send {
    fn save(&self) -> Json;
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<T: Serialize + Send + 'static> LiveModel for T {
    fn save(&self) -> Json {
        // models are plain data, for which this does not fail
        serde_json::to_value(self).unwrap_or_default()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Models {
    /// Calls `work` with the model of this kind and name, or `None` if it does not exist, and keeps the model
    /// that `work` leaves.
    ///
    /// Errors: those of `work`; there are too many models; the saved model is of another kind.
    pub fn with<T, R>(
        &self,
        kind: &'static str,
        name: &str,
        work: impl FnOnce(&mut Option<T>) -> Result<R, EvalError>,
    ) -> Result<R, EvalError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let mut all = self.0.lock();
        let key = (kind.to_owned(), name.to_owned());
        if let Some(Model::Live(live)) = all.get_mut(&key)
            && let Some(model) = live.as_any().downcast_mut::<Option<T>>()
        {
            return work(model);
        }
        let mut model: Option<T> = match all.get(&key) {
            Some(Model::Saved(state)) => {
                let read = Option::deserialize(state);
                read.map_err(|_| {
                    EvalError::state(format!("the saved model `{name}` is not of the kind {kind}"))
                })?
            }
            _ if all.len() >= MODELS_MAX => {
                return Err(EvalError::limit("the models of the app", MODELS_MAX, "models"));
            }
            _ => None,
        };
        let done = work(&mut model);
        if model.is_some() {
            all.insert(key, Model::Live(Box::new(model)));
        }
        done
    }

    /// Returns true if it has no models.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Returns the states of all models, by kind and name.
    pub fn save(&self) -> Json {
        let all = self.0.lock();
        let state = |model: &Model| match model {
            Model::Live(live) => live.save(),
            Model::Saved(state) => state.clone(),
        };
        Json::Array(
            all.iter().map(|((kind, name), model)| serde_json::json!([kind, name, state(model)])).collect(),
        )
    }

    /// Restores saved models.
    ///
    /// Errors: the state is not one of models.
    pub fn restore(&mut self, state: Json) -> Result<(), EvalError> {
        let saved: Vec<(String, String, Json)> = serde_json::from_value(state)
            .map_err(|_| EvalError::state("the saved state is not one of models"))?;
        *self.0.get_mut() =
            saved.into_iter().map(|(kind, name, state)| ((kind, name), Model::Saved(state))).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_shared_and_restored() {
        let models = Models::default();
        let add = |models: &Models, n: i64| {
            models.with("sum", "a", |sum: &mut Option<i64>| {
                let sum = sum.get_or_insert(0);
                *sum += n;
                Ok(*sum)
            })
        };
        assert!(models.is_empty());
        assert_eq!((add(&models, 1), add(&models, 2)), (Ok(1), Ok(3)));
        let mut restored = Models::default();
        restored.restore(models.save()).unwrap();
        // a restored model that was not requested is saved as well
        assert_eq!(restored.save(), models.save());
        assert_eq!(add(&restored, 1), Ok(4));
        let other = models.with("sum", "b", |sum: &mut Option<i64>| Ok(*sum));
        assert_eq!(other, Ok(None));
        assert!(restored.restore(Json::Null).is_err());
        restored.restore(serde_json::json!([["sum", "a", "x"]])).unwrap();
        assert!(add(&restored, 1).is_err());
    }
}
