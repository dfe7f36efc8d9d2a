//! Orders and options of a store's indexes: `@IndexBy('volume 1 {unique:true}')`, `@Index('volume:1', '{unique:true}')`.

use tidemill_connect::StoreIndex;
use tidemill_lang::siddhi::ast::{Annotation, AnnotationEntry};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::did_you_mean;

use crate::catalog::Attributes;

/// Options that are known.
const KNOWN: [&str; 5] = ["background", "unique", "sparse", "expireAfterSeconds", "name"];

/// A column of an index as it is written.
struct Part<'a> {
    element: &'a AnnotationEntry,
    column: &'a str,
    order: Option<&'a str>,
    options: Option<&'a str>,
}

/// Returns the indexes of an annotation with orders or options; `None` if it has neither. Columns with options of their own have
/// an index each; otherwise all columns are in one.
///
/// Errors: a column, an order or an option that there is not.
pub(super) fn parse(annotation: &Annotation, of: &Attributes) -> Option<Result<Vec<StoreIndex>, Diagnostic>> {
    let parts: Vec<Part<'_>> = annotation.elements().map(part).collect();
    let is_special = parts.iter().any(|part| part.order.is_some() || part.options.is_some());
    is_special.then(|| indexes(&parts, annotation.span, of))
}

fn part(element: &AnnotationEntry) -> Part<'_> {
    let text = element.value.value.trim();
    let (head, options) = match text.find('{') {
        Some(at) => (text[..at].trim(), Some(&text[at..])),
        None => (text, None),
    };
    let (column, order) = match head.split_once([':', ' ']) {
        Some((column, order)) => (column.trim(), Some(order.trim())),
        None => (head, None),
    };
    Part { element, column, order, options }
}

fn indexes(parts: &[Part<'_>], span: Span, of: &Attributes) -> Result<Vec<StoreIndex>, Diagnostic> {
    let is_options = |part: &&Part<'_>| part.column.is_empty();
    let (of_all, columns): (Vec<&Part<'_>>, Vec<&Part<'_>>) = parts.iter().partition(is_options);
    if columns.is_empty() {
        return Err(Diagnostic::error("F0805", span, "an index needs columns").expected(["'COLUMN'"]));
    }
    if let [_, second, ..] = of_all.as_slice() {
        return Err(wrong(second, "the options of the index are written twice"));
    }
    let mut all = vec![];
    match columns.iter().any(|part| part.options.is_some()) {
        false => {
            let mut index = StoreIndex::default();
            for part in columns {
                index.columns.push(column(part, of)?);
            }
            all.push(index);
        }
        true => {
            for part in columns {
                let mut index = StoreIndex { columns: vec![column(part, of)?], ..StoreIndex::default() };
                set_options(part, &mut index)?;
                all.push(index);
            }
        }
    }
    if let Some(options) = of_all.first() {
        all.iter_mut().try_for_each(|index| set_options(options, index))?;
    }
    Ok(all)
}

fn column(part: &Part<'_>, of: &Attributes) -> Result<(usize, bool), Diagnostic> {
    let name = part.column;
    let column = of.iter().position(|(known, _)| known == name).ok_or_else(|| {
        let hint = did_you_mean(name, of.iter().map(|(known, _)| known.as_str()));
        Diagnostic::error("F0803", part.element.span, format!("the table has no column `{name}`{hint}"))
    })?;
    match part.order {
        None | Some("1") => Ok((column, false)),
        Some("-1") => Ok((column, true)),
        Some(other) => {
            let message = format!("`{other}` is no order of an index: expected 1 or -1");
            Err(wrong(part, &message).expected([format!("'{name} 1'")]))
        }
    }
}

/// Reads `{unique:true, expireAfterSeconds:60}`; names may be in quotes.
fn set_options(part: &Part<'_>, index: &mut StoreIndex) -> Result<(), Diagnostic> {
    let Some(text) = part.options else { return Ok(()) };
    let inside = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let inside = inside.ok_or_else(|| wrong(part, "expected `}` at the end of the options"))?;
    let unquoted = |text: &'_ str| text.trim().trim_matches(['\'', '"']).to_owned();
    for option in inside.split(',').filter(|option| !option.trim().is_empty()) {
        let (name, value) = option
            .split_once(':')
            .ok_or_else(|| wrong(part, &format!("expected `name:value`, found `{}`", option.trim())))?;
        let (name, value) = (unquoted(name), unquoted(value));
        let flag = || match value.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(wrong(part, &format!("`{name}`: expected true or false, found `{other}`"))),
        };
        match name.as_str() {
            // what indexes are built in is the store's matter
            "background" => drop(flag()?),
            "unique" => index.unique = flag()?,
            "sparse" => index.sparse = flag()?,
            "name" => index.name = Some(value),
            "expireAfterSeconds" => {
                let seconds = value.parse().map_err(|_| {
                    wrong(part, &format!("`{name}`: expected a number of seconds, found `{value}`"))
                })?;
                index.expire_after_s = Some(seconds);
            }
            other => {
                let hint = did_you_mean(other, KNOWN);
                return Err(wrong(part, &format!("an index has no option `{other}` here{hint}")));
            }
        }
    }
    Ok(())
}

fn wrong(part: &Part<'_>, message: &str) -> Diagnostic {
    Diagnostic::error("F0819", part.element.span, message)
}

#[cfg(test)]
mod tests {
    use tidemill_lang::siddhi;
    use tidemill_lang::source::{FileId, SourceFile};
    use tidemill_types::FieldType;

    use super::*;

    fn parsed(annotation: &str) -> Option<Result<Vec<StoreIndex>, String>> {
        let text = format!("{annotation} define table T (a string, b long);");
        let app = siddhi::parse(&SourceFile::new(FileId(0), "app.siddhi", text.as_str())).app;
        let of = vec![("a".to_owned(), FieldType::String), ("b".to_owned(), FieldType::Long)];
        parse(&app.definitions[0].annotations()[0], &of).map(|result| result.map_err(|d| d.message))
    }

    #[test]
    fn orders_and_options_are_read() {
        let index =
            |columns: &[(usize, bool)]| StoreIndex { columns: columns.to_vec(), ..StoreIndex::default() };
        let unique = |of: StoreIndex| StoreIndex { unique: true, ..of };
        for (text, expected) in [
            ("@Index('a', '{background:true}')", vec![index(&[(0, false)])]),
            ("@IndexBy('a {background:true}')", vec![index(&[(0, false)])]),
            (
                "@IndexBy('a 1 {unique : true}', 'b -1')",
                vec![unique(index(&[(0, false)])), index(&[(1, true)])],
            ),
            ("@Index('a:1', 'b:-1', \"{'unique':true}\")", vec![unique(index(&[(0, false), (1, true)]))]),
            (
                "@IndexBy('b {expireAfterSeconds:60, sparse:true, name:\"old\"}')",
                vec![StoreIndex {
                    name: Some("old".into()),
                    sparse: true,
                    expire_after_s: Some(60),
                    ..index(&[(1, false)])
                }],
            ),
        ] {
            assert_eq!(parsed(text), Some(Ok(expected)), "{text}");
        }
        assert_eq!(parsed("@Index('a', 'b')"), None);
    }

    #[test]
    fn what_is_no_order_or_option_is_told() {
        for (text, expected) in [
            ("@Index('c', '{unique:true}')", "the table has no column `c`"),
            ("@Index('{unique:true}')", "an index needs columns"),
            ("@Index('a up')", "`up` is no order of an index: expected 1 or -1"),
            ("@Index('a {unique:yes}')", "`unique`: expected true or false, found `yes`"),
            ("@Index('a {uniqe:true}')", "an index has no option `uniqe` here. Did you mean `unique`?"),
            ("@Index('a {unique:true')", "expected `}` at the end of the options"),
            ("@Index('a', '{unique}')", "expected `name:value`, found `unique`"),
            ("@Index('a', '{unique:true}', '{sparse:true}')", "the options of the index are written twice"),
        ] {
            let found = parsed(text).unwrap().unwrap_err();
            assert!(found.starts_with(expected), "{text}: {found}");
        }
    }
}
