//! Transactions that append numbers to lists and read lists. As every number is appended once, the lists tell in which order
//! transactions wrote, and each read tells which of them it saw: cycles of these orders are anomalies (the method of
//! Kingsbury and Alvaro's "Elle", VLDB 2020; the condition for snapshot isolation is that of Cerone and Gotsman, JACM 2018).

use std::collections::{BTreeMap, HashMap, HashSet};

use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use mongodb::sync::{Client, ClientSession, Collection};
use petgraph::algo::kosaraju_scc;
use petgraph::graphmap::DiGraphMap;
use rand::Rng;
use rand::rngs::StdRng;

use crate::Result;
use crate::history::{End, Span};
use crate::transactions::in_transaction;

/// The lists.
pub struct Lists {
    keys: i32,
}

/// A transaction that a client has tried.
#[derive(Debug, Clone)]
pub struct ListTransaction {
    pub steps: Vec<Step>,
    pub end: End,
    pub span: Span,
}

/// A statement that was answered.
#[derive(Debug, Clone)]
pub enum Step {
    Append { key: i32, number: i64 },
    Read { key: i32, list: Vec<i64> },
}

impl Lists {
    pub fn new(keys: i32) -> Self {
        Self { keys }
    }

    /// Runs a transaction of up to five statements.
    pub fn transaction(&self, client: &Client, rng: &mut StdRng) -> Result<ListTransaction> {
        let mut steps = Vec::new();
        let (end, span) = in_transaction(client, |session| {
            for _ in 0..rng.random_range(1..6) {
                let key = rng.random_range(0..self.keys);
                steps.push(match rng.random_bool(0.5) {
                    true => {
                        let number = rng.random();
                        append(client, session, key, number)?;
                        Step::Append { key, number }
                    }
                    false => Step::Read { key, list: read(client, session, key)? },
                });
            }
            Ok(true)
        })?;
        Ok(ListTransaction { steps, end, span })
    }

    /// Returns all lists as they are.
    pub fn read_all(&self, client: &Client) -> Result<BTreeMap<i32, Vec<i64>>> {
        let read = |key| -> Result<_> {
            let found = collection(client, key).find_one(doc! { "_id": key }).run()?;
            Ok((key, found.map(|list| numbers(&list)).unwrap_or_default()))
        };
        (0..self.keys).map(read).collect()
    }
}

fn collection(client: &Client, key: i32) -> Collection<Document> {
    client.database("lists").collection(if key % 2 == 0 { "even" } else { "odd" })
}

fn append(
    client: &Client,
    session: &mut ClientSession,
    key: i32,
    number: i64,
) -> std::result::Result<(), Error> {
    let push = doc! { "$push": { "list": number } };
    collection(client, key).update_one(doc! { "_id": key }, push).upsert(true).session(session).run()?;
    Ok(())
}

fn read(client: &Client, session: &mut ClientSession, key: i32) -> std::result::Result<Vec<i64>, Error> {
    let found = collection(client, key).find_one(doc! { "_id": key }).session(session).run()?;
    Ok(found.map(|list| numbers(&list)).unwrap_or_default())
}

fn numbers(document: &Document) -> Vec<i64> {
    let list = document.get_array("list").map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(mongodb::bson::Bson::as_i64).collect()
}

/// Checks that the history is one of snapshot isolation in which a transaction sees all that was committed before it began.
///
/// `lists` are those of the end. Errors say which anomaly there is.
pub fn check(lists: &BTreeMap<i32, Vec<i64>>, history: &[ListTransaction]) -> Result<()> {
    let writers = writers(lists, history)?;
    for transaction in history {
        check_reads(lists, transaction)?;
    }
    check_order(lists, history, &writers)
}

/// Returns the transaction that appended each number.
fn writers(lists: &BTreeMap<i32, Vec<i64>>, history: &[ListTransaction]) -> Result<HashMap<i64, usize>> {
    let mut stored = HashSet::new();
    for number in lists.values().flatten() {
        if !stored.insert(*number) {
            return Err(format!("{number} was appended twice").into());
        }
    }
    let mut writers = HashMap::new();
    for (at, transaction) in history.iter().enumerate() {
        let mut found = Vec::new();
        for step in &transaction.steps {
            if let Step::Append { key, number } = step {
                writers.insert(*number, at);
                found.push(lists.get(key).is_some_and(|list| list.contains(number)));
            }
        }
        let (all, none) = (found.iter().all(|f| *f), !found.contains(&true));
        match transaction.end {
            End::Committed if !all => return Err(format!("a write is lost: {transaction:?}").into()),
            End::Aborted if !none => {
                return Err(format!("a transaction was taken back, and is there: {transaction:?}").into());
            }
            End::Unknown if !all && !none => {
                return Err(format!("a part of a transaction is there: {transaction:?}").into());
            }
            _ => {}
        }
    }
    match stored.iter().find(|number| !writers.contains_key(number)) {
        Some(number) => Err(format!("{number} was appended by nobody").into()),
        None => Ok(writers),
    }
}

/// Checks that each read saw a list as it once was, and the own writes of its transaction.
fn check_reads(lists: &BTreeMap<i32, Vec<i64>>, transaction: &ListTransaction) -> Result<()> {
    let mut own: HashMap<i32, Vec<i64>> = HashMap::new();
    for step in &transaction.steps {
        match step {
            Step::Append { key, number } => own.entry(*key).or_default().push(*number),
            Step::Read { key, list } => {
                let own = own.get(key).map(Vec::as_slice).unwrap_or_default();
                let Some(before) = list.strip_suffix(own) else {
                    return Err(format!("a transaction does not see its own writes: {transaction:?}").into());
                };
                if !lists.get(key).is_some_and(|all| all.starts_with(before)) {
                    return Err(format!("a read of {key} saw what never was: {transaction:?}").into());
                }
            }
        }
    }
    Ok(())
}

/// Checks that the orders of writes, reads and times have no cycle that snapshot isolation excludes.
///
/// `a` comes before `b` if `b` writes after or reads a write of `a`, or begins when `a` is known to be committed. If `b` then
/// reads a list before `c` appends to it, `a` comes before `c` too.
fn check_order(
    lists: &BTreeMap<i32, Vec<i64>>,
    history: &[ListTransaction],
    writers: &HashMap<i64, usize>,
) -> Result<()> {
    let took_place = |at: usize| match history[at].end {
        End::Committed => true,
        End::Aborted => false,
        End::Unknown => writes(&history[at]).any(|(key, number)| lists[&key].contains(&number)),
    };
    let mut before: DiGraphMap<usize, ()> = DiGraphMap::new();
    let mut reads_before: Vec<(usize, usize)> = Vec::new();
    for list in lists.values() {
        for pair in list.windows(2) {
            add(&mut before, writers[&pair[0]], writers[&pair[1]]);
        }
    }
    for (at, transaction) in history.iter().enumerate().filter(|(at, _)| took_place(*at)) {
        let mut own = HashSet::new();
        for step in &transaction.steps {
            match step {
                Step::Append { number, .. } => {
                    own.insert(*number);
                }
                Step::Read { key, list } => {
                    let seen = list.iter().filter(|number| !own.contains(*number)).count();
                    if let Some(last) = seen.checked_sub(1) {
                        add(&mut before, writers[&list[last]], at);
                    }
                    if let Some(next) = lists[key].get(seen).filter(|_| writers[&lists[key][seen]] != at) {
                        reads_before.push((at, writers[next]));
                    }
                }
            }
        }
    }
    add_times(&mut before, history, took_place);
    let mut all = before.clone();
    for (reader, writer) in reads_before {
        let earlier: Vec<_> = before.neighbors_directed(reader, petgraph::Incoming).collect();
        for earlier in earlier {
            // also if it is the transaction itself: then it is before itself, which is the anomaly
            all.add_edge(earlier, writer, ());
        }
    }
    let cycle =
        kosaraju_scc(&all).into_iter().find(|part| part.len() > 1 || all.contains_edge(part[0], part[0]));
    match cycle {
        None => Ok(()),
        Some(part) => {
            let part: Vec<_> = part.iter().filter_map(|at| history.get(*at)).collect();
            Err(format!("transactions that come before one another: {part:?}").into())
        }
    }
}

/// Adds that a transaction comes before those that began when it was known to be committed. Moments between are nodes of their own,
/// numbered after the transactions, so that there is an edge for each transaction and not for each pair.
fn add_times(
    before: &mut DiGraphMap<usize, ()>,
    history: &[ListTransaction],
    took_place: impl Fn(usize) -> bool,
) {
    let mut ended: Vec<usize> = (0..history.len()).filter(|at| history[*at].end == End::Committed).collect();
    ended.sort_by_key(|at| history[*at].span.ended);
    let moment = |at: usize| history.len() + at;
    for (at, transaction) in ended.iter().enumerate() {
        before.add_edge(*transaction, moment(at), ());
        if at > 0 {
            before.add_edge(moment(at - 1), moment(at), ());
        }
    }
    for at in (0..history.len()).filter(|at| took_place(*at)) {
        let earlier = ended.partition_point(|e| history[*e].span.ended < history[at].span.begun);
        if earlier > 0 {
            before.add_edge(moment(earlier - 1), at, ());
        }
    }
}

fn add(graph: &mut DiGraphMap<usize, ()>, from: usize, to: usize) {
    if from != to {
        graph.add_edge(from, to, ());
    }
}

fn writes(transaction: &ListTransaction) -> impl Iterator<Item = (i32, i64)> {
    transaction.steps.iter().filter_map(|step| match step {
        Step::Append { key, number } => Some((*key, *number)),
        Step::Read { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Returns a history of committed transactions. Each has its begin and its end as numbers, and its statements: `+key number`
    /// appends and `key: numbers` reads.
    fn history(transactions: &[(u64, u64, &[Step])]) -> Vec<ListTransaction> {
        let start = Instant::now();
        let at = |n: u64| start + Duration::from_secs(n);
        let transaction = |(begun, ended, steps): &(u64, u64, &[Step])| ListTransaction {
            steps: steps.to_vec(),
            end: End::Committed,
            span: Span { begun: at(*begun), ended: at(*ended) },
        };
        transactions.iter().map(transaction).collect()
    }

    fn append(key: i32, number: i64) -> Step {
        Step::Append { key, number }
    }

    fn read(key: i32, list: &[i64]) -> Step {
        Step::Read { key, list: list.to_vec() }
    }

    fn found(lists: &[(i32, &[i64])], transactions: &[(u64, u64, &[Step])]) -> String {
        let lists = lists.iter().map(|(key, list)| (*key, list.to_vec())).collect();
        check(&lists, &history(transactions)).map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn histories_of_snapshot_isolation_are_fine() {
        let one_after_the_other: &[(u64, u64, &[Step])] =
            &[(0, 1, &[append(1, 10)]), (2, 3, &[read(1, &[10]), append(1, 11), read(1, &[10, 11])])];
        assert_eq!(found(&[(1, &[10, 11])], one_after_the_other), "fine");
        // write skew is no anomaly of snapshot isolation
        let skew: &[(u64, u64, &[Step])] =
            &[(0, 9, &[read(1, &[]), append(2, 20)]), (0, 9, &[read(2, &[]), append(1, 10)])];
        assert_eq!(found(&[(1, &[10]), (2, &[20])], skew), "fine");
    }

    #[test]
    fn anomalies_are_found() {
        let lost = found(&[(1, &[10])], &[(0, 1, &[append(1, 10)]), (0, 1, &[append(1, 11)])]);
        assert!(lost.starts_with("a write is lost"), "{lost}");
        let both_saw_nothing = found(
            &[(1, &[10, 11])],
            &[(0, 9, &[read(1, &[]), append(1, 10)]), (0, 9, &[read(1, &[]), append(1, 11)])],
        );
        assert!(both_saw_nothing.starts_with("transactions that come before"), "{both_saw_nothing}");
        let half = found(
            &[(1, &[10]), (2, &[20])],
            &[(0, 9, &[append(1, 10), append(2, 20)]), (0, 9, &[read(1, &[10]), read(2, &[])])],
        );
        assert!(half.starts_with("transactions that come before"), "{half}");
        let long_fork = found(
            &[(1, &[10]), (2, &[20])],
            &[
                (0, 9, &[append(1, 10)]),
                (0, 9, &[append(2, 20)]),
                (0, 9, &[read(1, &[10]), read(2, &[])]),
                (0, 9, &[read(1, &[]), read(2, &[20])]),
            ],
        );
        assert!(long_fork.starts_with("transactions that come before"), "{long_fork}");
        let stale = found(&[(1, &[10])], &[(0, 1, &[append(1, 10)]), (2, 3, &[read(1, &[])])]);
        assert!(stale.starts_with("transactions that come before"), "{stale}");
        let not_own = found(&[(1, &[10])], &[(0, 1, &[append(1, 10), read(1, &[])])]);
        assert!(not_own.starts_with("a transaction does not see"), "{not_own}");
        let never_was = found(&[(1, &[10])], &[(0, 1, &[append(1, 10)]), (0, 1, &[read(1, &[12])])]);
        assert!(never_was.starts_with("a read of 1 saw"), "{never_was}");
    }
}
