//! Writes: what they change, applied in order and committed once.

use tidemill_connect::{RefusedRow, RowScope, StoreExpr, StoreUpdate, StoredRow, TypedValue, is_missing};
use tidemill_types::{Error, EventId, Result};

use super::plan::{Places, RowLocation};
use super::session::{Session, StoredWrite};
use super::workspace::Workspace;

/// Attempts to commit while other clients change the same rows.
const ATTEMPTS: usize = 100;

/// Write of a table. Parameters have a row for each event.
pub(super) enum Write<'w> {
    Insert(Vec<StoredRow>),
    Delete { condition: Option<&'w StoreExpr>, parameters: Vec<Vec<TypedValue>> },
    Update { change: &'w StoreUpdate, parameters: Vec<Vec<TypedValue>>, insert: Option<Vec<StoredRow>> },
}

impl Session {
    /// Applies a write, unless it has happened before. Returns the rows that are refused.
    pub(super) async fn write(&mut self, write: &Write<'_>, at: Option<EventId>) -> Result<Vec<RefusedRow>> {
        for _ in 0..ATTEMPTS {
            let known = match at {
                Some(at) => self.last_write(at).await?,
                None => StoredWrite::default(),
            };
            if let Some((at, last)) = at.zip(known.position)
                && at <= last
            {
                self.unwatch().await?;
                let same_record = at.offset == last.offset;
                return Ok(known.refused.get(&at.row).filter(|_| same_record).cloned().unwrap_or_default());
            }
            let mut space = Workspace::default();
            let refused = match write {
                Write::Insert(rows) => self.insert_rows(rows, &mut space).await?,
                Write::Delete { condition, parameters } => {
                    self.delete_rows(*condition, parameters, &mut space).await?;
                    vec![]
                }
                Write::Update { change, parameters, insert } => {
                    self.update_rows(change, parameters, insert.as_deref(), &mut space).await?
                }
            };
            let next = at.map(|at| {
                let is_same_record = known.position.is_some_and(|last| last.offset == at.offset);
                let mut all = if is_same_record { known.refused } else { Default::default() };
                if !refused.is_empty() {
                    all.insert(at.row, refused.clone());
                }
                StoredWrite { position: Some(at), refused: all }
            });
            if self.commit(&space, next.as_ref()).await? {
                return Ok(refused);
            }
        }
        Err(Error::unavailable(format!(
            "table `{}`: other clients of Redis change the same rows all the time",
            self.layout.table
        )))
    }

    async fn insert_rows(&mut self, rows: &[StoredRow], space: &mut Workspace) -> Result<Vec<RefusedRow>> {
        let keys: Vec<Result<String, String>> = rows.iter().map(|row| self.layout.key_of(row)).collect();
        let named: Vec<String> = keys.iter().filter_map(|key| key.clone().ok()).collect();
        // new ids have no rows
        if !self.layout.primary_key.is_empty() {
            self.load_rows(&named, space).await?;
        }
        let mut refused = vec![];
        for (number, (row, key)) in rows.iter().zip(keys).enumerate() {
            let put = key.and_then(|key| self.put_new(space, key, row));
            refused.extend(put.err().map(|reason| RefusedRow { row: number, reason }));
        }
        Ok(refused)
    }

    /// Adds a row. Errors: why it cannot be there.
    fn put_new(&self, space: &mut Workspace, key: String, row: &StoredRow) -> Result<(), String> {
        if let Some(obstacle) = space.obstacle(&key) {
            return Err(obstacle);
        }
        if row.iter().all(is_missing) {
            return Err("no column has a value, and Redis has no hashes without fields".into());
        }
        space.put(&self.layout, &key, Some(row.clone()));
        Ok(())
    }

    async fn delete_rows(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &[Vec<TypedValue>],
        space: &mut Workspace,
    ) -> Result<()> {
        let plan =
            condition.map_or(Ok(RowLocation::All), |condition| RowLocation::of(condition, &self.layout))?;
        if plan == RowLocation::All {
            let holds = |given: &Vec<TypedValue>| {
                let scope = RowScope { types: &self.layout.types, row: &[], parameters: given };
                condition.is_none_or(|condition| scope.holds(condition))
            };
            return match parameters.iter().any(holds) {
                true => self.delete_all().await,
                false => Ok(()),
            };
        }
        let places = self.load(&plan, parameters, space).await?;
        for (places, given) in places.iter().zip(parameters) {
            for key in self.matching(places, condition, given, space) {
                space.put(&self.layout, &key, None);
            }
        }
        Ok(())
    }

    /// Deletes all rows, some at a time. It may be repeated.
    async fn delete_all(&mut self) -> Result<()> {
        let mut cursor = 0;
        loop {
            let (next, keys) = self.scan(cursor).await?;
            let mut page = Workspace::default();
            self.load_rows(&keys, &mut page).await?;
            for key in keys {
                if page.row(&key).is_some_and(|row| self.layout.is_key_of(&key, row)) {
                    page.put(&self.layout, &key, None);
                }
            }
            // rows that another client has just changed are read again
            if self.commit(&page, None).await? {
                cursor = next;
                if cursor == 0 {
                    return Ok(());
                }
            }
        }
    }

    async fn update_rows(
        &mut self,
        change: &StoreUpdate,
        parameters: &[Vec<TypedValue>],
        insert: Option<&[StoredRow]>,
        space: &mut Workspace,
    ) -> Result<Vec<RefusedRow>> {
        let plan = RowLocation::of(&change.condition, &self.layout)?;
        if plan == RowLocation::All {
            return Err(Error::invalid(format!(
                "table `{}`: Redis cannot update all rows at once; compare the primary key or a column with an index by `==`",
                self.layout.table
            )));
        }
        let places = self.load(&plan, parameters, space).await?;
        if let Some(rows) = insert.filter(|_| !self.layout.primary_key.is_empty()) {
            let keys: Vec<String> = rows.iter().filter_map(|row| self.layout.key_of(row).ok()).collect();
            self.load_rows(&keys, space).await?;
        }
        let mut refused = vec![];
        for (number, (places, given)) in places.iter().zip(parameters).enumerate() {
            let keys = self.matching(places, Some(&change.condition), given, space);
            let mut outcome = Ok(());
            if let (true, Some(row)) = (keys.is_empty(), insert.and_then(|rows| rows.get(number))) {
                outcome = self.layout.key_of(row).and_then(|key| self.put_new(space, key, row));
            }
            for key in keys {
                let changed = self.change_row(change, &key, given, space).await?;
                outcome = outcome.and(changed);
            }
            refused.extend(outcome.err().map(|reason| RefusedRow { row: number, reason }));
        }
        Ok(refused)
    }

    /// Changes the row at a key. The inner error says why it stays as it is.
    async fn change_row(
        &mut self,
        change: &StoreUpdate,
        key: &str,
        given: &[TypedValue],
        space: &mut Workspace,
    ) -> Result<Result<(), String>> {
        let Some(old) = space.row(key) else { return Ok(Ok(())) };
        let mut row = old.clone();
        for (column, x) in &change.set {
            let value = RowScope { types: &self.layout.types, row: old, parameters: given }.value(x);
            let fitting = match is_missing(&value.1) {
                true => Some(value.1),
                false => self.layout.as_column(*column, &value),
            };
            match (row.get_mut(*column), fitting) {
                (Some(cell), Some(value)) => *cell = value,
                _ => {
                    let column = self.layout.column(*column);
                    return Ok(Err(format!("the new value does not fit the column `{column}`")));
                }
            }
        }
        if row.iter().all(is_missing) {
            return Ok(Err("no column would have a value, and Redis has no hashes without fields".into()));
        }
        if self.layout.primary_key.is_empty() {
            space.put(&self.layout, key, Some(row));
            return Ok(Ok(()));
        }
        let target = match self.layout.key_of(&row) {
            Ok(target) => target,
            Err(why) => return Ok(Err(why)),
        };
        if target != key {
            self.load_rows(std::slice::from_ref(&target), space).await?;
            if let Some(obstacle) = space.obstacle(&target) {
                return Ok(Err(obstacle));
            }
            space.put(&self.layout, key, None);
        }
        space.put(&self.layout, &target, Some(row));
        Ok(Ok(()))
    }

    /// Reads everything that may satisfy a condition for these parameters, and returns its places for each row of them.
    async fn load(
        &mut self,
        plan: &RowLocation<'_>,
        parameters: &[Vec<TypedValue>],
        space: &mut Workspace,
    ) -> Result<Vec<Places>> {
        let places: Vec<Places> = parameters.iter().map(|given| plan.places(&self.layout, given)).collect();
        let sets: Vec<String> = places.iter().flat_map(|places| places.sets.iter().cloned()).collect();
        self.load_sets(&sets, space).await?;
        let keys: Vec<String> = places.iter().flat_map(|places| places.keys.iter().cloned()).collect();
        self.load_rows(&keys, space).await?;
        Ok(places)
    }

    /// Returns the keys of the rows that satisfy a condition now.
    fn matching(
        &self,
        places: &Places,
        condition: Option<&StoreExpr>,
        given: &[TypedValue],
        space: &Workspace,
    ) -> Vec<String> {
        let members = places.sets.iter().flat_map(|set| space.members(set));
        let mut keys: Vec<&String> = places.keys.iter().chain(members).collect();
        keys.sort_unstable();
        keys.dedup();
        let holds = |key: &&String| {
            space.row(key).is_some_and(|row| {
                let scope = RowScope { types: &self.layout.types, row, parameters: given };
                condition.is_none_or(|condition| scope.holds(condition))
            })
        };
        keys.into_iter().filter(holds).cloned().collect()
    }
}
