//! One-line versions of DataFusion's longest messages.

/// Returns a shorter wording of `message`, or `None` if DataFusion's own is short enough.
pub(super) fn shorten(message: &str) -> Option<String> {
    user_defined(message)
        .or_else(|| no_matching_signature(message))
        .or_else(|| wrong_argument(message))
        .or_else(|| not_grouped(message))
        .or_else(|| no_interval(message))
}

/// Returns the message for a text that is not an interval.
pub(super) fn no_interval(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("Invalid input syntax for type interval: \"")?;
    let (text, _) = rest.split_once('"')?;
    Some(format!(
        "`{text}` is no interval: write a number and a unit, for example '5 minutes', '1 hour 30 minutes' or '3 months'"
    ))
}

/// Returns the message of a function of ours that refuses the types of its arguments.
fn user_defined(message: &str) -> Option<String> {
    let (before, why) = message.split_once("user-defined coercion failed with: ")?;
    let (_, name) = before.split_once("Function '")?;
    let (name, _) = name.split_once('\'')?;
    let why = why.strip_prefix("Error during planning: ")?;
    let end = why.find(" No function matches").unwrap_or(why.len());
    Some(format!("`{name}`: {}", why[..end].trim_end_matches(['.', ' '])))
}

/// Signatures of a function that are listed at most.
const SIGNATURES_MAX: usize = 6;

/// Shortens "No function matches the given name and argument types", which lists every signature of the
/// function.
fn no_matching_signature(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("No function matches the given name and argument types '")?;
    let (call, rest) = rest.split_once("'. ")?;
    let (_, candidates) = rest.split_once("Candidate functions:")?;
    let mut forms: Vec<String> = vec![];
    for candidate in candidates.lines().map(|l| outline(l.trim())).filter(|c| !c.is_empty()) {
        if !forms.contains(&candidate) {
            forms.push(candidate);
        }
    }
    let more = forms.len().saturating_sub(SIGNATURES_MAX);
    forms.truncate(SIGNATURES_MAX);
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("there is no function {}: expected {}{tail}", outline(call), forms.join(", ")))
}

/// Removes type parameters: `date_bin(Interval(MonthDayNano), Timestamp(ns, "UTC"))` becomes
/// `date_bin(Interval, Timestamp)`.
fn outline(call: &str) -> String {
    let mut depth = 0_usize;
    let mut out = String::new();
    for c in call.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let hidden = if c == ')' { depth >= 1 } else { depth >= 2 };
        if !hidden {
            out.push(c);
        }
    }
    out
}

/// Shortens "Function 'sum' failed to match any signature", which has an error for every signature.
fn wrong_argument(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("Function '")?;
    let (name, rest) = rest.split_once("' failed to match any signature")?;
    let mut wanted: Vec<&str> = vec![];
    let mut given = "this";
    for part in rest.split(" requires ").skip(1) {
        let (ty, found) = part.split_once(", but received ")?;
        given = found.split_once(" (DataType").map_or(given, |(ty, _)| ty);
        if !wanted.contains(&ty) {
            wanted.push(ty);
        }
    }
    Some(format!("`{name}` does not take {given}: expected {}", wanted.join(", ")))
}

/// Shortens "Column in SELECT must be in GROUP BY or an aggregate function", which lists all other selected
/// columns.
fn not_grouped(message: &str) -> Option<String> {
    if !message.contains("must appear in the GROUP BY clause") {
        return None;
    }
    let (_, rest) = message.split_once("column \"")?;
    let (column, _) = rest.split_once('"')?;
    Some(format!(
        "column `{column}` must be in GROUP BY or inside an aggregate function such as max({column})"
    ))
}

#[cfg(test)]
mod tests {
    use super::outline;

    #[test]
    fn details_of_types_are_left_out() {
        assert_eq!(
            outline(r#"date_bin(Interval(DayTime), Timestamp(ns, "+TZ"))"#),
            "date_bin(Interval, Timestamp)"
        );
        assert_eq!(outline("f()"), "f()");
        assert_eq!(outline("f(List(Int64), Any)"), "f(List, Any)");
    }
}
