//! The unique windows that pass events at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::super::key::Keys;
use super::super::{Context, Look, Needs, Waits, Window};
use crate::expr::Failure;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, Seq};

/// What besides a newer event of its key lets an event go.
#[derive(Clone, Copy)]
pub(super) enum Limit {
    /// Nothing.
    None,
    /// So many keys with newer events; above 0.
    Length(usize),
    /// Its age.
    Age(i64),
}

/// The newest event of each key.
pub(super) struct Latest {
    keys: Keys,
    limit: Limit,
    by_key: HashMap<Arc<str>, Seq>,
    by_age: BTreeMap<Seq, Arc<str>>,
    /// The greatest timestamp so far: only a greater one asks for a timer.
    asked: i64,
}

impl Latest {
    pub(super) fn new(keys: Keys, limit: Limit) -> Self {
        Self { keys, limit, by_key: HashMap::new(), by_age: BTreeMap::new(), asked: i64::MIN }
    }

    fn leave(&mut self, seq: Seq, context: &mut Context<'_>) {
        if let Some(key) = self.by_age.remove(&seq) {
            self.by_key.remove(&key);
        }
        context.out.expired(seq, context.now);
    }

    fn leave_by_age(&mut self, context: &mut Context<'_>) {
        let Limit::Age(span) = self.limit else { return };
        while let Some((oldest, _)) = self.by_age.first_key_value() {
            let oldest = *oldest;
            if context.rows.time(oldest).saturating_add(span) > context.now {
                break;
            }
            self.leave(oldest, context);
        }
    }

    fn enter(&mut self, key: Arc<str>, seq: Seq) {
        self.by_key.insert(Arc::clone(&key), seq);
        self.by_age.insert(seq, key);
    }
}

impl Window for Latest {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        for seq in rows {
            self.leave_by_age(context);
            let key = self.keys.of(seq, context)?;
            let time = context.rows.time(seq);
            let key = match self.by_key.get_key_value(key) {
                Some((known, older)) => {
                    let (known, older) = (Arc::clone(known), *older);
                    self.leave(older, context);
                    known
                }
                None => Arc::from(key),
            };
            if let Limit::Length(n) = self.limit
                && self.by_age.len() >= n
                && let Some((oldest, _)) = self.by_age.first_key_value()
            {
                self.leave(*oldest, context);
            }
            if let Limit::Age(span) = self.limit
                && self.asked < time
            {
                self.asked = time;
                context.timers.ask(time.saturating_add(span));
            }
            context.out.current(seq, time);
            self.enter(key, seq);
        }
        context.out.end_chunk();
        Ok(())
    }

    fn timer(&mut self, _due: i64, context: &mut Context<'_>) -> Result<(), Failure> {
        self.leave_by_age(context);
        context.out.end_chunk();
        Ok(())
    }

    fn held(&self) -> Vec<Seq> {
        self.scattered()
    }

    fn needs(&self) -> Needs {
        Needs::scattered(self.by_age.len())
    }

    fn scattered(&self) -> Vec<Seq> {
        self.by_age.keys().copied().collect()
    }

    fn waits(&self, look: &Look<'_>) -> Waits {
        let held = self.by_age.len() as u64;
        let ends =
            [self.by_age.first_key_value(), self.by_age.last_key_value()].map(|e| e.map(|(seq, _)| *seq));
        let between = look.ends(ends[0], ends[1]);
        match self.limit {
            Limit::None => Waits::new(held, between, "events; one leaves with the next of its key"),
            Limit::Length(n) => Waits::sliding(held, n as u64, "keys", between),
            Limit::Age(span) => {
                let due = between.map(|(oldest, _)| oldest.saturating_add(span));
                Waits::aging(held, between, due, "leaves")
            }
        }
    }

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        let rows: Vec<(Seq, &str)> = self.by_age.iter().map(|(seq, key)| (*seq, &**key)).collect();
        out.state(&(self.asked, rows))
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (asked, rows): (i64, Vec<(Seq, String)>) = from.state()?;
        self.asked = asked;
        self.by_key.clear();
        self.by_age.clear();
        rows.into_iter().for_each(|(seq, key)| self.enter(key.into(), seq));
        Ok(())
    }
}

/// The first event of each key; nothing ever leaves.
pub(super) struct First {
    keys: Keys,
    seen: HashSet<Box<str>>,
    held: Vec<Seq>,
}

impl First {
    pub(super) fn new(keys: Keys) -> Self {
        Self { keys, seen: HashSet::new(), held: vec![] }
    }
}

impl Window for First {
    fn arrive(&mut self, rows: Range<Seq>, context: &mut Context<'_>) -> Result<(), Failure> {
        for seq in rows {
            let key = self.keys.of(seq, context)?;
            if !self.seen.contains(key) {
                self.seen.insert(key.into());
                context.out.current(seq, context.rows.time(seq));
                if context.searched {
                    self.held.push(seq);
                }
            }
        }
        context.out.end_chunk();
        Ok(())
    }

    fn held(&self) -> Vec<Seq> {
        self.held.clone()
    }

    fn needs(&self) -> Needs {
        Needs::scattered(self.held.len())
    }

    fn scattered(&self) -> Vec<Seq> {
        self.held.clone()
    }

    fn waits(&self, look: &Look<'_>) -> Waits {
        let between = look.between(self.held.iter().copied());
        Waits::new(self.seen.len() as u64, between, "events of keys that it has not seen; others are ignored")
    }

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        let mut seen: Vec<&str> = self.seen.iter().map(|key| &**key).collect();
        seen.sort_unstable();
        out.state(&(seen, &self.held))
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (seen, held): (Vec<Box<str>>, Vec<Seq>) = from.state()?;
        (self.seen, self.held) = (seen.into_iter().collect(), held);
        Ok(())
    }
}
