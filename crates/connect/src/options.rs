//! Options of connectors and mappers: what there is, and what a user wrote.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tidemill_types::did_you_mean;

/// Declaration of an option. Connectors declare all options that they take; others are refused.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Name as users write it. A name that ends with `.*` stands for all names with that prefix.
    pub name: &'static str,
    /// Another name, which older apps write.
    pub alias: Option<&'static str>,
    /// Values that it takes.
    pub kind: OptionKind,
    /// Value if the user writes none.
    pub default: Option<&'static str>,
    /// True if the user has to write it.
    pub required: bool,
    /// True if the value may contain `{{attribute}}`, which each event replaces. Only for sinks.
    pub dynamic: bool,
    /// True if the value is confidential. It never appears in messages.
    pub secret: bool,
    /// Meaning, in one sentence.
    pub summary: &'static str,
}

/// Values that an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Flag,
    /// An integer of this range.
    Integer {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
    },
    /// A number of milliseconds, or a number with a unit: `500`, `500 ms`, `5 sec`, `1 min`.
    Duration,
    /// One of these words; case does not matter.
    OneOf(&'static [&'static str]),
}

impl OptionSpec {
    const fn of(name: &'static str, kind: OptionKind, summary: &'static str) -> Self {
        Self {
            name,
            alias: None,
            kind,
            default: None,
            required: false,
            dynamic: false,
            secret: false,
            summary,
        }
    }

    /// Declares an option of any text.
    pub const fn text(name: &'static str, summary: &'static str) -> Self {
        Self::of(name, OptionKind::Text, summary)
    }

    /// Declares an option that is `true` or `false`.
    pub const fn flag(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::of(name, OptionKind::Flag, summary).default(default)
    }

    /// Declares an option that is an integer of this range.
    pub const fn integer(name: &'static str, min: i64, max: i64, summary: &'static str) -> Self {
        Self::of(name, OptionKind::Integer { min, max }, summary)
    }

    /// Declares an option that is a duration.
    pub const fn duration(name: &'static str, summary: &'static str) -> Self {
        Self::of(name, OptionKind::Duration, summary)
    }

    /// Declares an option that is one of these words.
    pub const fn one_of(name: &'static str, all: &'static [&'static str], summary: &'static str) -> Self {
        Self::of(name, OptionKind::OneOf(all), summary)
    }

    /// Sets the value if the user writes none.
    pub const fn default(mut self, value: &'static str) -> Self {
        self.default = Some(value);
        self
    }

    /// Sets another name, which older apps write.
    pub const fn alias(mut self, name: &'static str) -> Self {
        self.alias = Some(name);
        self
    }

    /// Demands that the user writes the option.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Allows `{{attribute}}` in the value.
    pub const fn dynamic(mut self) -> Self {
        self.dynamic = true;
        self
    }

    /// Marks the value as confidential.
    pub const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    fn is_called(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(prefix) => name.len() > prefix.len() && name.starts_with(prefix),
            None => self.name == name || self.alias == Some(name),
        }
    }

    /// Checks a value. Errors: what was expected.
    fn check(&self, value: &str) -> Result<(), String> {
        let found = || if self.secret { "another value".to_owned() } else { format!("`{value}`") };
        match self.kind {
            OptionKind::Text => Ok(()),
            _ if self.dynamic && value.contains("{{") => Ok(()),
            OptionKind::Flag => match parse_flag(value) {
                Some(_) => Ok(()),
                None => Err(format!("expected `true` or `false`, found {}", found())),
            },
            OptionKind::Integer { min, max } => match value.trim().parse::<i64>() {
                Ok(n) if (min..=max).contains(&n) => Ok(()),
                _ => Err(format!("expected an integer from {min} to {max}, found {}", found())),
            },
            OptionKind::Duration => match parse_duration(value) {
                Some(_) => Ok(()),
                None => Err(format!(
                    "expected milliseconds or a number with a unit such as `5 sec`, found {}",
                    found()
                )),
            },
            OptionKind::OneOf(all) => match all.iter().any(|word| word.eq_ignore_ascii_case(value.trim())) {
                true => Ok(()),
                false => Err(format!("expected one of {}, found {}", all.join(", "), found())),
            },
        }
    }
}

/// Why options are refused, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionError {
    /// Part of the connector's configuration that is wrong.
    pub place: OptionPlace,
    /// Reason, with the expected and the found value.
    pub message: String,
    /// Texts that the user can type instead.
    pub expected: Vec<String>,
    /// True if the value is one that is often filled in later, such as an address: an app with it can be
    /// checked, but not run.
    pub is_open: bool,
}

/// Part of a connector's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionPlace {
    /// The connector as a whole.
    Connector,
    /// An option of the connector.
    Option(String),
    /// The mapper as a whole.
    Mapper,
    /// An option of the mapper.
    MapperOption(String),
    /// The entry with this index of `@attributes`.
    Attribute(usize),
    /// The payload template.
    Payload,
}

impl OptionError {
    /// Creates an error about the connector as a whole.
    pub fn connector(message: impl Into<String>) -> Self {
        Self { place: OptionPlace::Connector, message: message.into(), expected: vec![], is_open: false }
    }

    /// Creates an error about an option of the connector.
    pub fn option(name: &str, message: impl Into<String>) -> Self {
        Self {
            place: OptionPlace::Option(name.to_owned()),
            message: message.into(),
            expected: vec![],
            is_open: false,
        }
    }

    /// Moves an error about options of a connector to those of its mapper.
    #[must_use]
    pub fn of_mapper(mut self) -> Self {
        self.place = match self.place {
            OptionPlace::Connector => OptionPlace::Mapper,
            OptionPlace::Option(name) => OptionPlace::MapperOption(name),
            place => place,
        };
        self
    }

    /// Marks the value as one that is often filled in later.
    #[must_use]
    pub fn open(self) -> Self {
        Self { is_open: true, ..self }
    }

    /// Adds what the user can type.
    #[must_use]
    pub fn expected<S: Into<String>>(mut self, all: impl IntoIterator<Item = S>) -> Self {
        self.expected.extend(all.into_iter().map(Into::into));
        self
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            OptionPlace::Connector => {}
            OptionPlace::Option(name) => write!(f, "option `{name}`: ")?,
            OptionPlace::Mapper => f.write_str("mapper: ")?,
            OptionPlace::MapperOption(name) => write!(f, "option `{name}` of the mapper: ")?,
            OptionPlace::Attribute(index) => write!(f, "attribute {} of the mapper: ", index + 1)?,
            OptionPlace::Payload => f.write_str("payload: ")?,
        }
        f.write_str(&self.message)?;
        match self.expected.is_empty() {
            true => Ok(()),
            false => write!(f, "; expected {}", self.expected.join(", ")),
        }
    }
}

/// Checked options of one connector or mapper.
#[derive(Clone, Default)]
pub struct Options {
    values: BTreeMap<String, String>,
    specs: &'static [OptionSpec],
}

impl Options {
    /// Checks the options that a user wrote against those of `what`, such as ``the sink `kafka` ``.
    ///
    /// Errors: an unknown option, one that is written twice, a wrong value, a missing one.
    pub fn check(
        specs: &'static [OptionSpec],
        given: &[(String, String)],
        what: &str,
    ) -> Result<Self, OptionError> {
        let mut values = BTreeMap::new();
        for (name, value) in given {
            let Some(spec) = specs.iter().find(|spec| spec.is_called(name)) else {
                let known = specs.iter().map(|spec| spec.name);
                let hint = did_you_mean(name, known);
                return Err(OptionError::option(name, format!("{what} has no such option{hint}")));
            };
            if !spec.dynamic && spec.kind == OptionKind::Text && is_template(value) {
                return Err(OptionError::option(
                    name,
                    "the value cannot depend on the event; write it without `{{…}}`",
                ));
            }
            spec.check(value).map_err(|message| OptionError::option(name, message))?;
            let name = if spec.alias == Some(name.as_str()) { spec.name } else { name };
            if values.insert(name.to_owned(), value.clone()).is_some() {
                return Err(OptionError::option(name, "the option is written twice"));
            }
        }
        if let Some(missing) = specs.iter().find(|spec| spec.required && !values.contains_key(spec.name)) {
            return Err(OptionError::connector(format!("{what} needs the option `{}`", missing.name))
                .expected([format!("{}='…'", missing.name)]));
        }
        Ok(Self { values, specs })
    }

    /// Returns the value of an option, or its default; `None` if it has neither.
    pub fn get(&self, name: &str) -> Option<&str> {
        let written = self.values.get(name).map(String::as_str);
        written.or_else(|| self.specs.iter().find(|spec| spec.name == name)?.default)
    }

    /// Returns whether the user wrote the option.
    pub fn is_written(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns the value of an option that is required or has a default, otherwise an empty text.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Returns whether an option is `true`.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(parse_flag).unwrap_or_default()
    }

    /// Returns the value of an integer option.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.get(name)?.trim().parse().ok()
    }

    /// Returns the value of a duration option.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        parse_duration(self.get(name)?)
    }

    /// Returns the options whose names begin with `prefix`, without it.
    pub fn with_prefix<'o>(&'o self, prefix: &'o str) -> impl Iterator<Item = (&'o str, &'o str)> {
        self.values.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }
}

impl fmt::Debug for Options {
    /// Leaves confidential values out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_secret = |name: &str| self.specs.iter().any(|spec| spec.secret && spec.is_called(name));
        let shown =
            self.values.iter().map(|(name, value)| (name, if is_secret(name) { "***" } else { value }));
        f.debug_map().entries(shown).finish()
    }
}

/// Returns whether a text contains a placeholder `{{attribute}}`.
pub fn is_template(text: &str) -> bool {
    text.split_once("{{").is_some_and(|(_, behind)| behind.contains("}}"))
}

fn parse_flag(text: &str) -> Option<bool> {
    match text.trim() {
        t if t.eq_ignore_ascii_case("true") => Some(true),
        t if t.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// Parses milliseconds, or a number with a unit. Returns `None` for anything else, and above a million days.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let ms = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" | "ms" | "millisec" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "second" | "seconds" => 1000,
        "m" | "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        _ => return None,
    };
    let ms = number.checked_mul(ms).filter(|ms| *ms <= 86_400_000 * 1_000_000)?;
    Some(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec::text("topic", "Topic.").required().dynamic(),
        OptionSpec::text("password", "Password.").secret(),
        OptionSpec::integer("port", 1, 65535, "Port.").default("9892"),
        OptionSpec::flag("sync", "false", "Whether to wait."),
        OptionSpec::one_of("mode", &["fast", "safe"], "Mode."),
        OptionSpec::duration("wait", "Wait.").default("5 sec"),
        OptionSpec::text("header.*", "Headers."),
        OptionSpec::text("topic.list", "Topics.").alias("topics"),
    ];

    fn check(given: &[(&str, &str)]) -> Result<Options, String> {
        let given: Vec<_> = given.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Options::check(SPECS, &given, "the sink `x`").map_err(|e| e.to_string())
    }

    #[test]
    fn options_have_defaults() {
        let options = check(&[("topic", "a/{{b}}"), ("sync", "TRUE"), ("header.X-Y", "z")]).unwrap();
        assert_eq!((options.integer("port"), options.flag("sync")), (Some(9892), true));
        assert_eq!(options.duration("wait"), Some(Duration::from_secs(5)));
        assert_eq!(options.with_prefix("header.").collect::<Vec<_>>(), [("X-Y", "z")]);
        let options = check(&[("topic", "a"), ("topics", "b,c")]).unwrap();
        assert_eq!(options.get("topic.list"), Some("b,c"));
    }

    #[test]
    fn wrong_options_are_refused_without_secrets() {
        for (given, message) in [
            (&[][..], "the sink `x` needs the option `topic`; expected topic='…'"),
            (
                &[("topic", "a"), ("prt", "1")],
                "option `prt`: the sink `x` has no such option; did you mean `port`?",
            ),
            (
                &[("topic", "a"), ("port", "0")],
                "option `port`: expected an integer from 1 to 65535, found `0`",
            ),
            (&[("topic", "a"), ("mode", "slow")], "option `mode`: expected one of fast, safe, found `slow`"),
            (
                &[("topic", "a"), ("topics", "b"), ("topic.list", "c")],
                "option `topic.list`: the option is written twice",
            ),
            (&[("topic", "a"), ("topic", "b")], "option `topic`: the option is written twice"),
            (
                &[("topic", "a"), ("password", "{{x}}")],
                "option `password`: the value cannot depend on the event; write it without `{{…}}`",
            ),
            (
                &[("topic", "a"), ("wait", "5 parsecs")],
                "option `wait`: expected milliseconds or a number with a unit such as `5 sec`, found `5 parsecs`",
            ),
        ] {
            let found = check(given).err().unwrap_or_default();
            assert!(found.starts_with(message.split("; did").next().unwrap_or_default()), "{found}");
        }
        let options = check(&[("topic", "a"), ("password", "hunter2")]).unwrap();
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
