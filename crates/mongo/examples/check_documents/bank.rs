//! Transfers between accounts of two collections. Each leaves a record of itself, so that a lost or doubled one shows.

use std::collections::HashMap;

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::sync::{Client, ClientSession, Collection};
use rand::Rng;
use rand::rngs::StdRng;

use crate::Result;
use crate::history::End;
use crate::transactions::in_transaction;

const START: i64 = 100;
const COLLECTIONS: [&str; 2] = ["current", "savings"];

/// The accounts.
pub struct Bank {
    accounts: i32,
}

/// A transfer that a client has tried.
pub struct Transfer {
    id: i64,
    from: Account,
    to: Account,
    amount: i64,
    pub end: End,
    /// Sums of all accounts that transactions of the client have seen.
    sums: Vec<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Account {
    collection: usize,
    id: i32,
}

impl Account {
    fn of(self, client: &Client) -> Collection<Document> {
        collection(client, COLLECTIONS[self.collection])
    }
}

fn collection(client: &Client, name: &str) -> Collection<Document> {
    client.database("bank").collection(name)
}

impl Bank {
    /// Creates the accounts, each with [`START`].
    pub fn open(client: &Client, accounts: i32) -> Result<Self> {
        for name in COLLECTIONS {
            let documents = (0..accounts).map(|id| doc! { "_id": id, "balance": START });
            collection(client, name).insert_many(documents).run()?;
        }
        Ok(Self { accounts })
    }

    fn total(&self) -> i64 {
        i64::from(self.accounts) * START * COLLECTIONS.len() as i64
    }

    /// Moves money between two accounts, and reads the sum of all before.
    pub fn transfer(&self, client: &Client, rng: &mut StdRng) -> Result<Transfer> {
        let mut account =
            || Account { collection: rng.random_range(0..2), id: rng.random_range(0..self.accounts) };
        let (from, to) = (account(), account());
        let mut transfer = Transfer {
            id: rng.random(),
            from,
            to,
            amount: rng.random_range(1..30),
            end: End::Aborted,
            sums: Vec::new(),
        };
        let reads = rng.random_bool(0.3);
        let (end, _) =
            in_transaction(client, |session| self.statements(client, session, &mut transfer, reads))?;
        transfer.end = end;
        Ok(transfer)
    }

    fn statements(
        &self,
        client: &Client,
        session: &mut ClientSession,
        transfer: &mut Transfer,
        reads: bool,
    ) -> std::result::Result<bool, Error> {
        if reads {
            transfer.sums.push(sum(client, session)?);
        }
        let by_id = |account: Account| doc! { "_id": account.id };
        let found = transfer.from.of(client).find_one(by_id(transfer.from)).session(&mut *session).run()?;
        let balance = found.and_then(|account| account.get_i64("balance").ok()).unwrap_or(0);
        if balance < transfer.amount || transfer.from == transfer.to {
            return Ok(false);
        }
        for (account, amount) in [(transfer.from, -transfer.amount), (transfer.to, transfer.amount)] {
            let change = doc! { "$inc": { "balance": amount } };
            account.of(client).update_one(by_id(account), change).session(&mut *session).run()?;
        }
        let record = doc! { "_id": transfer.id, "amount": transfer.amount };
        collection(client, "transfers").insert_one(record).session(&mut *session).run()?;
        if reads {
            transfer.sums.push(sum(client, session)?);
        }
        Ok(true)
    }
}

fn sum(client: &Client, session: &mut ClientSession) -> std::result::Result<i64, Error> {
    let total = [doc! { "$group": { "_id": Bson::Null, "sum": { "$sum": "$balance" } } }];
    let mut sum = 0;
    for name in COLLECTIONS {
        let mut found = collection(client, name).aggregate(total.clone()).session(&mut *session).run()?;
        let group = found.next(&mut *session).transpose()?;
        sum += group.and_then(|group| group.get_i64("sum").ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// Checks the accounts against what clients were told.
pub fn check(bank: &Bank, client: &Client, transfers: &[Transfer]) -> Result<()> {
    if let Some(seen) = transfers.iter().flat_map(|t| &t.sums).find(|sum| **sum != bank.total()) {
        return Err(format!("a transaction saw a sum of {seen}, not {}", bank.total()).into());
    }
    let mut stored = HashMap::new();
    for record in collection(client, "transfers").find(doc! {}).run()? {
        let record = record?;
        stored.insert(record.get_i64("_id")?, record.get_i64("amount")?);
    }
    let mut expected: HashMap<Account, i64> = HashMap::new();
    for transfer in transfers {
        let is_stored = stored.remove(&transfer.id).is_some();
        match (transfer.end, is_stored) {
            (End::Committed, false) => return Err(format!("transfer {} is lost", transfer.id).into()),
            (End::Aborted, true) => {
                return Err(format!("transfer {} was taken back, and is there", transfer.id).into());
            }
            (_, true) => {
                *expected.entry(transfer.from).or_default() -= transfer.amount;
                *expected.entry(transfer.to).or_default() += transfer.amount;
            }
            (_, false) => {}
        }
    }
    if !stored.is_empty() {
        return Err(format!("transfers that nobody made: {stored:?}").into());
    }
    for (at, name) in COLLECTIONS.iter().enumerate() {
        let mut accounts = 0;
        for account in collection(client, name).find(doc! {}).run()? {
            let account = account?;
            let id = account.get_i32("_id")?;
            let moved = expected.get(&Account { collection: at, id }).copied().unwrap_or(0);
            let balance = account.get_i64("balance")?;
            if balance != START + moved {
                return Err(format!(
                    "account {id} of {name} has {balance}, its transfers make {}",
                    START + moved
                )
                .into());
            }
            accounts += 1;
        }
        if accounts != bank.accounts {
            return Err(format!("{accounts} accounts in {name}, not {}", bank.accounts).into());
        }
    }
    Ok(())
}
