//! Connections that are described in the settings of an app: `@source(ref='x')`, `@store(type='rdbms', datasource='x')`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use tidemill_lang::siddhi::ast::{self, Annotation, AnnotationArg, AnnotationEntry, Definition, Text};
use tidemill_lang::{Diagnostic, Severity};
use tidemill_types::did_you_mean;

use super::Connectors;

/// Options by name.
type NamedOptions = BTreeMap<String, String>;

/// Descriptions of connections that apps name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// Connections by the name in `ref`: type and options of a source, sink or store.
    pub refs: BTreeMap<String, NamedOptions>,
    /// Databases by the name in `datasource`: `url`, `username`, `password` and other options.
    pub datasources: BTreeMap<String, NamedOptions>,
}

/// An app with options in place of names, and warnings about connections that are left out.
type Resolved<'a> = (Cow<'a, ast::App>, Vec<Diagnostic>);

/// Returns the app with the options in place of the names. What the app itself says takes precedence. If `takes_open_values`,
/// connections whose names the settings do not have are left out, and those with variables that have no value.
///
/// Errors: a name that the settings do not have, unless connections are left out.
pub(crate) fn resolve<'a>(
    app: &'a ast::App,
    settings: &ConnectionSettings,
    connectors: &Connectors,
    takes_open_values: bool,
) -> Result<Resolved<'a>, Vec<Diagnostic>> {
    let is_open = |a: &Annotation| takes_open_values && has_variable(a);
    let named = |a: &Annotation| {
        is_connection(a) && (a.element("ref").is_some() || datasource(a).is_some() || is_open(a))
    };
    if !app.definitions.iter().any(|d| d.annotations().iter().any(named)) {
        return Ok((Cow::Borrowed(app), vec![]));
    }
    let mut resolved = app.clone();
    let mut wrong = Vec::new();
    for definition in &mut resolved.definitions {
        let annotations = match definition {
            Definition::Stream(d) => &mut d.annotations,
            Definition::Table(d) => &mut d.annotations,
            Definition::Aggregation(d) => &mut d.annotations,
            Definition::Window(_) | Definition::Trigger(_) | Definition::Function(_) => continue,
        };
        annotations.retain_mut(|annotation| {
            if !is_connection(annotation) {
                return true;
            }
            let result = fill_ref(annotation, settings).and_then(|()| fill_datasource(annotation, settings));
            let is_kept = !takes_open_values || (result.is_ok() && !has_variable(annotation));
            wrong.extend(result.err());
            is_kept
        });
    }
    let are_wrong = !wrong.is_empty() && matches!(connectors, Connectors::Catalog(_));
    match (are_wrong, takes_open_values) {
        (false, _) => Ok((Cow::Owned(resolved), vec![])),
        (true, true) => Ok((Cow::Owned(resolved), wrong.into_iter().map(left_open).collect())),
        (true, false) => Err(wrong),
    }
}

/// Returns a warning in place of an error about a value that is filled in later.
pub(crate) fn left_open(error: Diagnostic) -> Diagnostic {
    let warning = Diagnostic { severity: Severity::Warning, ..error };
    warning.note("`tidemill check` leaves the connection out, `tidemill run` refuses the app")
}

/// Returns whether an annotation has a variable `${NAME}`, which has no value.
fn has_variable(annotation: &Annotation) -> bool {
    let is_variable = |text: &str| {
        text.split("${").skip(1).any(|rest| {
            let name = rest.split('}').next().unwrap_or_default();
            name.len() < rest.len()
                && !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    annotation.elements().any(|element| is_variable(&element.value.value))
        || annotation.nested().any(has_variable)
}

fn is_connection(annotation: &Annotation) -> bool {
    ["source", "sink", "store"].iter().any(|name| annotation.is(name))
}

fn datasource(annotation: &Annotation) -> Option<&AnnotationEntry> {
    annotation.element("datasource").or_else(|| annotation.element("datasource.name"))
}

fn fill_ref(annotation: &mut Annotation, settings: &ConnectionSettings) -> Result<(), Diagnostic> {
    let Some(named) = annotation.element("ref").cloned() else { return Ok(()) };
    let name = &named.value.value;
    let Some(options) = settings.refs.get(name) else {
        return Err(unknown(&named, "settings", "refs", &settings.refs, "type, and its options"));
    };
    replace(annotation, &named, options.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    Ok(())
}

fn fill_datasource(annotation: &mut Annotation, settings: &ConnectionSettings) -> Result<(), Diagnostic> {
    let Some(named) = datasource(annotation).cloned() else { return Ok(()) };
    let Some(options) = settings.datasources.get(&named.value.value) else {
        let keys = "url, username, password";
        return Err(unknown(&named, "datasource", "datasources", &settings.datasources, keys));
    };
    // sources and most sinks call it `url`
    let is_rdbms = annotation.element("type").is_some_and(|t| t.value.value.eq_ignore_ascii_case("rdbms"));
    let named_for_type =
        |name: &str| if name == "url" && is_rdbms { "jdbc.url".to_owned() } else { name.to_owned() };
    let options: Vec<_> = options.iter().map(|(name, value)| (named_for_type(name), value)).collect();
    replace(annotation, &named, options.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    Ok(())
}

fn unknown(
    named: &AnnotationEntry,
    what: &str,
    section: &str,
    known: &BTreeMap<String, NamedOptions>,
    keys: &str,
) -> Diagnostic {
    let name = &named.value.value;
    let hint = did_you_mean(name, known.keys().map(String::as_str));
    let hint = if known.is_empty() { String::new() } else { hint };
    Diagnostic::error("F0607", named.span, format!("app.toml has no {what} `{name}`{hint}"))
        .help(format!("write `[{section}.{name}]` with {keys} in app.toml, or the options here"))
}

/// Replaces the element `named` by the options that the annotation does not have.
fn replace<'o>(
    annotation: &mut Annotation,
    named: &AnnotationEntry,
    options: impl Iterator<Item = (&'o str, &'o str)>,
) {
    let text = |value: &str| Text { value: value.to_owned(), span: named.span };
    let missing: Vec<_> = options.filter(|(name, _)| annotation.element(name).is_none()).collect();
    annotation.args.retain(|arg| !matches!(arg, AnnotationArg::Element(e) if e == named));
    annotation.args.extend(missing.into_iter().map(|(name, value)| {
        AnnotationArg::Element(AnnotationEntry {
            key: Some(text(name)),
            value: text(value),
            span: named.span,
        })
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidemill_connect::Catalog;
    use tidemill_lang::siddhi::parse;
    use tidemill_lang::source::{FileId, SourceFile};

    use super::*;

    fn settings() -> ConnectionSettings {
        let options =
            |all: &[(&str, &str)]| all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        ConnectionSettings {
            refs: [(
                "orders".to_owned(),
                options(&[("type", "http"), ("receiver.url", "http://localhost:8006/x")]),
            )]
            .into(),
            datasources: [(
                "PRODUCTION".to_owned(),
                options(&[("url", "jdbc:mysql://db/p"), ("username", "u")]),
            )]
            .into(),
        }
    }

    fn resolved(text: &str, connectors: &Connectors) -> Result<String, Vec<String>> {
        let file = SourceFile::new(FileId(0), "app.siddhi", text);
        let parsed = parse(&file);
        let app = resolve(&parsed.app, &settings(), connectors, false).map(|(app, _)| app);
        let app =
            app.map_err(|all| all.iter().map(|d| format!("{} {:?}", d.message, d.help)).collect::<Vec<_>>())?;
        Ok(app.definitions.iter().flat_map(Definition::annotations).map(shown).collect::<Vec<_>>().join(" "))
    }

    fn shown(annotation: &Annotation) -> String {
        let elements = annotation
            .elements()
            .map(|e| format!("{}={}", e.key.as_ref().map_or("", |key| key.value.as_str()), e.value.value));
        format!("@{}({})", annotation.name.name, elements.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn names_are_replaced_by_options_that_the_app_does_not_have() {
        let all = Connectors::Catalog(Arc::new(Catalog::default()));
        for (text, expected) in [
            (
                "@source(ref='orders', basic.auth.enabled='false', @map(type='json')) define stream S (k string);",
                "@source(basic.auth.enabled=false, receiver.url=http://localhost:8006/x, type=http)",
            ),
            (
                "@source(ref='orders', receiver.url='http://here') define stream S (k string);",
                "@source(receiver.url=http://here, type=http)",
            ),
            (
                "@store(type='rdbms', datasource='PRODUCTION') define table T (k string);",
                "@store(type=rdbms, jdbc.url=jdbc:mysql://db/p, username=u)",
            ),
            (
                "@source(type='cdc', datasource.name='PRODUCTION') define stream S (k string);",
                "@source(type=cdc, url=jdbc:mysql://db/p, username=u)",
            ),
        ] {
            assert_eq!(resolved(text, &all).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn unknown_names_are_told_unless_connections_are_left_out() {
        let text = "@source(ref='order') define stream S (k string);
            @store(type='rdbms', datasource='OTHER') define table T (k string);";
        let wrong = resolved(text, &Connectors::Catalog(Arc::new(Catalog::default()))).unwrap_err();
        assert!(
            wrong[0].starts_with("app.toml has no settings `order`. Did you mean `orders`?"),
            "{}",
            wrong[0]
        );
        assert!(wrong[1].contains("[datasources.OTHER]"), "{}", wrong[1]);
        let left_out = Connectors::Ignored(Arc::new(Catalog::default()));
        assert_eq!(
            resolved(text, &left_out).as_deref(),
            Ok("@source(ref=order) @store(type=rdbms, datasource=OTHER)")
        );
    }
}
