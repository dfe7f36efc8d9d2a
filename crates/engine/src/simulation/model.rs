//! Independent model of the simulated app: what the stored input and the acknowledgements demand of everything else.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use rand::rngs::StdRng;

/// An order as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub id: String,
    pub customer: String,
    pub region: String,
    pub amount: i64,
}

/// Makes a few orders, some of them again. Returns their ids, and them as lines of JSON.
pub fn random_orders(rng: &mut StdRng, sent: &mut BTreeMap<String, Order>) -> (Vec<String>, String) {
    let (mut ids, mut body) = (Vec::new(), String::new());
    for _ in 0..rng.random_range(1..6) {
        let again = rng.random_bool(0.15) && !sent.is_empty();
        let order = if again {
            let at = rng.random_range(0..sent.len());
            sent.values().nth(at).cloned()
        } else {
            Some(Order {
                id: format!("o{}", sent.len()),
                customer: format!("c{}", rng.random_range(0..7)),
                region: format!("r{}", rng.random_range(0..4)),
                amount: rng.random_range(0..100),
            })
        };
        let Some(order) = order else { continue };
        let Order { id, customer, region, amount } = &order;
        let object =
            serde_json::json!({ "id": id, "customer": customer, "region": region, "amount": amount });
        body += &format!("{object}\n");
        ids.push(id.clone());
        sent.insert(id.clone(), order);
    }
    (ids, body)
}

/// Amount from which an order is a big one.
const BIG: i64 = 50;

/// A stored row: partition, offset, row, and its fields as JSON.
#[derive(Debug, Clone)]
pub struct ModelRow {
    pub position: (i64, i64, i64),
    pub fields: serde_json::Map<String, serde_json::Value>,
}

impl ModelRow {
    fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(|v| v.as_str()).unwrap_or_default()
    }

    fn number(&self, field: &str) -> i64 {
        self.fields.get(field).and_then(serde_json::Value::as_i64).unwrap_or(i64::MIN)
    }
}

/// Everything that an engine has made of its input.
#[derive(Debug, Default)]
pub struct Outcome {
    pub orders: Vec<ModelRow>,
    pub bigs: Vec<ModelRow>,
    pub sales: Vec<ModelRow>,
    pub totals: Vec<ModelRow>,
    pub counted: Vec<ModelRow>,
    /// Documents of `Seen`: id and `n`.
    pub seen: Vec<(String, i64)>,
    /// Documents of `Region`: name and `total`.
    pub regions: Vec<(String, i64)>,
}

/// Checks an outcome. `sent`: all orders by id; `acknowledged`: ids that must be stored.
///
/// Errors: the first contradiction.
pub fn check(
    outcome: &Outcome,
    sent: &BTreeMap<String, Order>,
    acknowledged: &BTreeSet<String>,
) -> Result<(), String> {
    let mut stored: BTreeMap<&str, &Order> = BTreeMap::new();
    for row in &outcome.orders {
        let id = row.text("id");
        let Some(order) = sent.get(id) else {
            return Err(format!("order {id} is stored but was never sent"));
        };
        let same = row.text("customer") == order.customer
            && row.text("region") == order.region
            && row.number("amount") == order.amount;
        if !same {
            return Err(format!("order {id} is stored with other fields: {:?}, sent {order:?}", row.fields));
        }
        if stored.insert(id, order).is_some() {
            return Err(format!("order {id} is stored twice"));
        }
    }
    if let Some(lost) = acknowledged.iter().find(|id| !stored.contains_key(id.as_str())) {
        return Err(format!("order {lost} was acknowledged and is lost"));
    }
    let big: BTreeSet<&str> = stored.values().filter(|o| o.amount >= BIG).map(|o| o.id.as_str()).collect();
    each_once("Big", outcome.bigs.iter().map(|r| r.text("id")), &big)?;
    each_once("Sale", outcome.sales.iter().map(|r| r.text("id")), &big)?;
    each_once("Seen", outcome.seen.iter().map(|(id, _)| id.as_str()), &big)?;
    each_once("Counted", outcome.counted.iter().map(|r| r.text("id")), &stored.keys().copied().collect())?;
    if let Some((id, n)) = outcome.seen.iter().find(|(_, n)| *n != 1) {
        return Err(format!("Big {id} was applied {n} times"));
    }
    let mut numbers: Vec<i64> = outcome.counted.iter().map(|r| r.number("n")).collect();
    numbers.sort_unstable();
    if numbers.iter().zip(1..).any(|(n, expected)| *n != expected) {
        return Err(format!("orders were counted as {numbers:?}"));
    }
    check_regions(outcome, &stored)
}

fn each_once<'a>(
    what: &str,
    found: impl Iterator<Item = &'a str>,
    expected: &BTreeSet<&str>,
) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for id in found {
        if !expected.contains(id) {
            return Err(format!("{what} {id} follows from no stored order"));
        }
        if !seen.insert(id) {
            return Err(format!("{what} {id} is there twice"));
        }
    }
    match expected.iter().find(|id| !seen.contains(*id)) {
        Some(missing) => Err(format!("{what} {missing} is missing")),
        None => Ok(()),
    }
}

/// Each sale advances the total of its region by its amount, in the record that stores the sale. Sales of one record may be
/// applied in another order than their rows have: what follows from an event is applied before the next event. Documents have the last
/// total.
fn check_regions(outcome: &Outcome, stored: &BTreeMap<&str, &Order>) -> Result<(), String> {
    let mut expected: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for sale in &outcome.sales {
        let amount = stored.get(sale.text("id")).map_or(0, |order| order.amount);
        expected.entry(sale.text("region")).or_default().push((sale.position.1, amount));
    }
    let mut totals: BTreeMap<&str, Vec<&ModelRow>> = BTreeMap::new();
    for row in &outcome.totals {
        totals.entry(row.text("region")).or_default().push(row);
    }
    let mut last_totals = BTreeMap::new();
    let mut found: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for (region, mut rows) in totals {
        rows.sort_unstable_by_key(|row| row.number("n"));
        let mut last = 0;
        for (row, n) in rows.iter().zip(1..) {
            if row.number("n") != n {
                return Err(format!(
                    "the sales of {region} are counted as {}, expected {n}",
                    row.number("n")
                ));
            }
            found.entry(region).or_default().push((row.position.1, row.number("total") - last));
            last = row.number("total");
        }
        last_totals.insert(region, last);
    }
    expected.values_mut().chain(found.values_mut()).for_each(|changes| changes.sort_unstable());
    if found != expected {
        return Err(format!("Totals advance by (offset, amount) {found:?}, expected {expected:?}"));
    }
    let documents: BTreeMap<&str, i64> = outcome.regions.iter().map(|(n, t)| (n.as_str(), *t)).collect();
    if documents != last_totals || documents.len() != outcome.regions.len() {
        return Err(format!("Region documents are {:?}, expected {last_totals:?}", outcome.regions));
    }
    Ok(())
}
