//! "Did you mean": suggestions for mistyped names.

/// Returns the candidate closest to `name` by edit distance, if it is close enough to be a likely typo.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // One typo per three characters; names of one or two characters have no near candidates.
    let limit = name.chars().count() / 3;
    let lower = name.to_lowercase();
    candidates
        .into_iter()
        .map(|c| (distance(&lower, &c.to_lowercase()), c))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Returns `. Did you mean …?` with the nearest candidate, else a list of up to 12 candidates, or an empty
/// string without candidates.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(best) = nearest(name, candidates.clone()) {
        return format!(". Did you mean `{best}`?");
    }
    let mut all: Vec<&str> = candidates.into_iter().collect();
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return String::new();
    }
    let more = all.len().saturating_sub(12);
    all.truncate(12);
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(". Known: {}{tail}", all.join(", "))
}

/// Returns the Levenshtein distance in characters, with transpositions counted as one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            row[j] = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_near_names_only() {
        let known = ["TakeOffEvent", "LandingEvent"];
        assert_eq!(nearest("TakeofEvent", known), Some("TakeOffEvent"));
        assert_eq!(nearest("Whatever", known), None);
        assert_eq!(did_you_mean("x", known), ". Known: LandingEvent, TakeOffEvent");
        assert_eq!(did_you_mean("LandingEvnet", known), ". Did you mean `LandingEvent`?");
    }
}
