//! Queries: what they did, and on-demand queries.

use std::collections::BTreeSet;

use tidemill_flow::Column;
use tidemill_flow::functions::json_text::to_json;
use tidemill_lang::siddhi::ast::{OnDemandQuery, OutputAction};
use tidemill_lang::{FileId, SourceFile, Sources, render_all, siddhi};
use tidemill_types::{Error, Result};

use super::Engine;
use crate::entry::Entry;
use crate::queries::Queries;
use crate::query_info;
use crate::query_info::QueryInfo;

/// The rows that an on-demand query found: the values of each in order.
pub type OnDemandRows = Vec<Vec<serde_json::Value>>;

/// Store that an on-demand query reads or changes, for callers that check rights before they run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDemandTarget {
    /// Table, named window or aggregation.
    pub store: String,
    /// True if the query changes it.
    pub changes: bool,
    /// Tables that its conditions with `in` search.
    pub searches: BTreeSet<String>,
}

impl OnDemandTarget {
    /// Returns what a query reads or changes, be it there or not.
    ///
    /// Errors: `Invalid` when the query cannot be read.
    pub fn parse(text: &str) -> Result<Self> {
        let query = parse_on_demand(text)?;
        Ok(Self {
            store: store_of(&query)?.to_owned(),
            changes: matches!(query, OnDemandQuery::Change(_)),
            searches: query.searched_tables().into_iter().map(str::to_owned).collect(),
        })
    }
}

impl Engine {
    /// Returns all queries in order of files and text.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub fn queries(&self) -> Result<Vec<QueryInfo>> {
        Ok(query_info::queries(&self.node, &query_info::counters(&self.node)?))
    }

    /// Runs an on-demand query over tables, named windows and aggregations. `file`: the app that has them; it can be left
    /// out where only one has. Everything that was acknowledged before is seen, but for events that are still on their way from
    /// other partitions.
    ///
    /// Errors: `Invalid` when the query cannot be read or run, `NotFound` when no file has what it reads, `Unavailable` while
    /// a store that it reads, or that the partition waits for, does not answer.
    pub fn query_on_demand(&self, file: Option<&str>, text: &str) -> Result<OnDemandRows> {
        let query = parse_on_demand(text)?;
        let queries = &self.node.app.deployment.queries;
        let unit = find_unit(queries, file, &query)?;
        let home = queries.home(unit);
        if let OnDemandQuery::Change(_) = query {
            let entry = Entry::OnDemand { file: queries.file_name(unit).to_owned(), text: text.to_owned() };
            self.node.write_and_wait(vec![(home, entry)], None)?;
            return Ok(OnDemandRows::new());
        }
        let partition = self.node.client(home)?;
        self.catch_up_others()?;
        partition.catch_up()?;
        let found = partition.find_in_unit(&queries.unit_name(unit), text)?;
        let row = |i: usize| found.iter().map(|column| to_json(&column.get(i))).collect();
        let rows = found.first().map_or(0, Column::len);
        Ok((0..rows).map(row).collect())
    }
}

fn parse_on_demand(text: &str) -> Result<OnDemandQuery> {
    let file = SourceFile::new(FileId(0), "query", text);
    siddhi::parse_on_demand(&file).map_err(|wrong| {
        let mut sources = Sources::default();
        sources.add("query", text);
        Error::invalid(render_all(&wrong, &sources))
    })
}

/// The unit that has what a query reads or changes.
fn find_unit(queries: &Queries, file: Option<&str>, query: &OnDemandQuery) -> Result<usize> {
    if let Some(file) = file {
        return queries.global_unit(file);
    }
    find_store_unit(queries, store_of(query)?)
}

/// The table, named window or aggregation that a query reads or changes.
fn store_of(query: &OnDemandQuery) -> Result<&str> {
    Ok(match query {
        OnDemandQuery::Find(find) => &find.store.name,
        OnDemandQuery::Change(change) => match &change.output.action {
            OutputAction::Insert { target } => &target.name.name,
            OutputAction::Delete { table, .. }
            | OutputAction::Update { table, .. }
            | OutputAction::UpdateOrInsert { table, .. } => &table.name,
            OutputAction::Return => return Err(Error::invalid("`return` changes nothing")),
        },
    })
}

/// The unit that has a table, named window or aggregation.
pub(super) fn find_store_unit(queries: &Queries, store: &str) -> Result<usize> {
    let has = queries.units.iter().enumerate().filter(|(_, unit)| {
        !unit.partitioned && queries.files[unit.file].stores.iter().any(|name| name == store)
    });
    let has: Vec<usize> = has.map(|(number, _)| number).collect();
    match has.as_slice() {
        [one] => Ok(*one),
        [] => {
            let known = queries.files.iter().flat_map(|f| &f.stores).map(String::as_str);
            let error = Error::not_found(format!("no table, window or aggregation `{store}`"));
            Err(error.with_hint(tidemill_types::did_you_mean(store, known)))
        }
        _ => {
            let files = has.iter().map(|unit| queries.files[queries.units[*unit].file].name.as_str());
            Err(Error::invalid(format!(
                "`{store}` is in several files: name one of {}",
                files.collect::<Vec<_>>().join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_it_reads_or_changes() {
        let cases: [(&str, &str, bool, &[&str]); 8] = [
            ("from Last on price > 10.0 select symbol", "Last", false, &[]),
            ("from Last on symbol in Others select symbol", "Last", false, &["Others"]),
            ("from Last on Others.price > 1000in Others select symbol", "Last", false, &["Others"]),
            ("from Last on not (Others.n > 1.0in Others) select symbol", "Last", false, &["Others"]),
            (
                "from Last select symbol, ifThenElse(A.s == 'in' in A, 1, 2) as n having B.s == symbol in B",
                "Last",
                false,
                &["A", "B"],
            ),
            ("select 'a' as symbol, 1.0 as price insert into Last", "Last", true, &[]),
            ("delete Last on Last.symbol == 'a'", "Last", true, &[]),
            ("delete Last on Others.symbol == 'a' in Others", "Last", true, &["Others"]),
        ];
        for (text, store, changes, searches) in cases {
            let searches = searches.iter().map(|table| (*table).to_owned()).collect();
            let expected = OnDemandTarget { store: store.to_owned(), changes, searches };
            assert_eq!(OnDemandTarget::parse(text).unwrap(), expected, "{text}");
        }
        assert!(OnDemandTarget::parse("from").is_err());
    }
}
