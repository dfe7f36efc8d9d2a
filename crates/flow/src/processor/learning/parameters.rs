//! Arguments of the processors: names and numbers that are constants, then features.

use tidemill_types::FieldType;

use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;

/// Features of a model.
pub(super) const FEATURES_MAX: usize = 200;

/// Arguments of one call, read from left to right.
pub(super) struct Parameters<'a> {
    /// The call as it should be written.
    form: &'static str,
    args: &'a [ArgumentType],
    next: usize,
}

impl<'a> Parameters<'a> {
    pub(super) fn new(form: &'static str, args: &'a [ArgumentType]) -> Self {
        Self { form, args, next: 0 }
    }

    /// Returns an error that says how the call is written.
    pub(super) fn wrong(&self, what: &str) -> String {
        format!("expected {}: {what}", self.form)
    }

    /// Returns how many of the arguments behind the ones that were read are constants.
    pub(super) fn constants(&self) -> usize {
        self.args[self.next..].iter().take_while(|arg| arg.constant.is_some()).count()
    }

    /// Returns the index of the next argument.
    pub(super) fn place(&self) -> usize {
        self.next
    }

    fn constant(&mut self) -> Option<&'a Value> {
        let value = self.args.get(self.next)?.constant.as_ref()?;
        self.next += 1;
        Some(value)
    }

    /// Reads the name of a model.
    pub(super) fn name(&mut self) -> Result<String, String> {
        let name = self.constant().and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned);
        name.ok_or_else(|| self.wrong("the name of the model must be a constant text"))
    }

    /// Reads a whole number from `min` to `max`.
    pub(super) fn integer(&mut self, what: &str, min: i64, max: i64) -> Result<i64, String> {
        let number = self.constant().and_then(Value::as_i64).filter(|n| (min..=max).contains(n));
        number.ok_or_else(|| self.wrong(&format!("`{what}` must be a constant from {min} to {max}")))
    }

    /// Reads a number above 0 and up to 1.
    pub(super) fn share(&mut self, what: &str) -> Result<f64, String> {
        let number = self.constant().and_then(Value::as_f64).filter(|x| 0.0 < *x && *x <= 1.0);
        number.ok_or_else(|| self.wrong(&format!("`{what}` must be a constant above 0, up to 1")))
    }

    /// Reads a number from 0 to 1.
    pub(super) fn threshold(&mut self, what: &str) -> Result<f64, String> {
        let number = self.constant().and_then(Value::as_f64).filter(|x| (0.0..=1.0).contains(x));
        number.ok_or_else(|| self.wrong(&format!("`{what}` must be a constant from 0 to 1")))
    }

    /// Reads `true` or `false`.
    pub(super) fn flag(&mut self, what: &str) -> Result<bool, String> {
        match self.constant() {
            Some(Value::Bool(flag)) => Ok(*flag),
            _ => Err(self.wrong(&format!("`{what}` must be true or false"))),
        }
    }

    /// Returns the type of the next argument if that is a constant.
    pub(super) fn next_constant(&self) -> Option<FieldType> {
        self.args.get(self.next).filter(|arg| arg.constant.is_some()).map(|arg| arg.ty)
    }

    /// Returns whether the next argument is a constant with a fraction, such as `0.1`.
    pub(super) fn is_fraction_next(&self) -> bool {
        matches!(self.next_constant(), Some(FieldType::Float | FieldType::Double))
    }

    /// Reads a finite number.
    pub(super) fn number(&mut self, what: &str) -> Result<f64, String> {
        let number = self.constant().and_then(Value::as_f64).filter(|x| x.is_finite());
        number.ok_or_else(|| self.wrong(&format!("`{what}` must be a constant number")))
    }

    /// Reads one of these words, whatever its case.
    pub(super) fn word(&mut self, what: &str, words: &[&str]) -> Result<(), String> {
        let word = self.constant().and_then(Value::as_str);
        match word.is_some_and(|word| words.iter().any(|known| known.eq_ignore_ascii_case(word))) {
            true => Ok(()),
            false => Err(self.wrong(&format!("`{what}` must be one of {}", words.join(", ")))),
        }
    }

    /// Reads an argument that depends on the event, and returns its index and type.
    pub(super) fn attribute(&mut self, what: &str) -> Result<(usize, FieldType), String> {
        let place = self.next;
        let arg = self.args.get(place).filter(|arg| arg.constant.is_none());
        let ty =
            arg.map(|arg| arg.ty).ok_or_else(|| self.wrong(&format!("`{what}` must be an attribute")))?;
        self.next += 1;
        Ok((place, ty))
    }

    /// Returns the types of the remaining arguments. Errors: one is constant.
    pub(super) fn attributes(&self) -> Result<&'a [ArgumentType], String> {
        let rest = &self.args[self.next..];
        match rest.iter().any(|arg| arg.constant.is_some()) {
            true => Err(self.wrong("attributes come last, and all of the constants before them or none")),
            false => Ok(rest),
        }
    }

    /// Checks that arguments are numbers, and returns how many.
    pub(super) fn features(&self, of: &[ArgumentType]) -> Result<usize, String> {
        let is_number = |arg: &ArgumentType| {
            matches!(arg.ty, FieldType::Int | FieldType::Long | FieldType::Float | FieldType::Double)
        };
        if let Some(at) = of.iter().position(|arg| !is_number(arg)) {
            return Err(self.wrong(&format!("feature {} is no number", at + 1)));
        }
        match of.len() {
            0 => Err(self.wrong("there is no feature")),
            count if count > FEATURES_MAX => {
                Err(self.wrong(&format!("{count} features; a model has {FEATURES_MAX} at most")))
            }
            count => Ok(count),
        }
    }
}

/// Returns the features of an event.
///
/// Errors: one is null or no finite number.
pub(super) fn features_of(args: &[Value]) -> Result<Vec<f64>, EvalError> {
    let one = |(at, value): (usize, &Value)| match value.as_f64() {
        Some(x) if x.is_finite() => Ok(x),
        Some(x) => Err(EvalError::argument(format!("feature {} of the model is {x}", at + 1))),
        None => Err(EvalError::null(format!("feature {} of the model", at + 1))),
    };
    args.iter().enumerate().map(one).collect()
}
