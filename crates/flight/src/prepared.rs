//! Prepared statements: texts with the values that a client has bound to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_gateway::Clock;
use tidemill_types::{Error, Result, Value};

use crate::ticket::ID_BYTES;

/// Bytes of a statement beside its text and values.
const STATEMENT_BYTES: usize = 512;

/// Values of the parameters, one list for each run of the statement.
pub(crate) type ParameterRows = Vec<Vec<Value<'static>>>;

/// A statement that was prepared.
#[derive(Debug, Clone)]
pub(crate) struct PreparedStatement {
    pub text: Arc<str>,
    /// True for `DELETE`, `UPDATE`, and `INSERT` without `RETURNING`.
    pub is_change: bool,
    /// Types of `$1`, `$2`, …; `None` where their place does not tell.
    pub parameters: Arc<[Option<DataType>]>,
    /// Columns of its rows; none for a change.
    pub columns: SchemaRef,
    /// Number of times that values were bound.
    pub binding: u64,
    pub rows: Arc<ParameterRows>,
}

/// Prepared statements of all callers.
pub(crate) struct PreparedStatements {
    state: Mutex<State>,
    /// Statements, and their bytes, of one caller.
    count_max: usize,
    bytes_max: usize,
    lifetime: Duration,
    clock: Clock,
}

#[derive(Default)]
struct State {
    statements: HashMap<Bytes, Entry>,
    callers: HashMap<String, Usage>,
}

#[derive(Default, Clone, Copy)]
struct Usage {
    count: usize,
    bytes: usize,
}

struct Entry {
    statement: PreparedStatement,
    caller: String,
    bytes: usize,
    used: Instant,
}

impl PreparedStatements {
    pub fn new(count_max: usize, bytes_max: usize, lifetime: Duration, clock: Clock) -> Self {
        Self { state: Mutex::default(), count_max, bytes_max, lifetime, clock }
    }

    /// Keeps a statement and returns its handle.
    ///
    /// Errors: `LimitReached` when the caller has too many.
    pub fn add(&self, caller: &str, statement: PreparedStatement) -> Result<Bytes> {
        let now = (self.clock)();
        let bytes = STATEMENT_BYTES + statement.text.len() + 64 * statement.columns.fields().len();
        let mut state = self.state.lock();
        state.reserve(caller, 1, bytes, self)?;
        let handle = Bytes::from(rand::random::<[u8; ID_BYTES]>().to_vec());
        state
            .statements
            .insert(handle.clone(), Entry { statement, caller: caller.to_owned(), bytes, used: now });
        Ok(handle)
    }

    /// Returns a statement.
    ///
    /// Errors: `NotFound` for a handle that the caller has not, or not any more.
    pub fn get(&self, caller: &str, handle: &[u8]) -> Result<PreparedStatement> {
        let now = (self.clock)();
        let mut state = self.state.lock();
        let entry = state.own(caller, handle)?;
        entry.used = now;
        Ok(entry.statement.clone())
    }

    /// Binds values, in place of those that were bound before.
    ///
    /// Errors: those of [`Self::get`]; `LimitReached` when the values of the caller need too much memory.
    pub fn bind(&self, caller: &str, handle: &[u8], rows: ParameterRows) -> Result<()> {
        let now = (self.clock)();
        let mut state = self.state.lock();
        let entry = state.own(caller, handle)?;
        let (before, after) = (entry.bytes, entry.bytes - bytes_of(&entry.statement.rows) + bytes_of(&rows));
        if after > before {
            state.reserve(caller, 0, after - before, self)?;
        } else if let Some(usage) = state.callers.get_mut(caller) {
            usage.bytes -= before - after;
        }
        let entry = state.own(caller, handle)?;
        entry.bytes = after;
        entry.used = now;
        entry.statement.binding += 1;
        entry.statement.rows = Arc::new(rows);
        Ok(())
    }

    /// Forgets a statement. One that there is not any more is forgotten as well.
    pub fn close(&self, caller: &str, handle: &[u8]) {
        let mut state = self.state.lock();
        if state.own(caller, handle).is_ok() {
            state.remove(handle);
        }
    }

    /// Forgets statements that were not used for long.
    pub fn tick(&self) {
        let now = (self.clock)();
        let mut state = self.state.lock();
        let old = state.statements.iter().filter(|(_, entry)| now >= entry.used + self.lifetime);
        let old: Vec<Bytes> = old.map(|(handle, _)| handle.clone()).collect();
        old.iter().for_each(|handle| state.remove(handle));
    }
}

impl State {
    fn own(&mut self, caller: &str, handle: &[u8]) -> Result<&mut Entry> {
        let entry = self.statements.get_mut(handle).filter(|entry| entry.caller == caller);
        entry.ok_or_else(|| {
            Error::not_found(
                "there is no such prepared statement of yours: it was closed, not used for long, or made before the server was started. \
                 Prepare it again",
            )
        })
    }

    fn reserve(
        &mut self,
        caller: &str,
        count: usize,
        bytes: usize,
        limits: &PreparedStatements,
    ) -> Result<()> {
        let usage = self.callers.get(caller).copied().unwrap_or_default();
        if usage.count + count > limits.count_max {
            return Err(Error::limit(format!(
                "you have {} prepared statements, which is the limit: close those that you do not need",
                usage.count
            )));
        }
        if usage.bytes.saturating_add(bytes) > limits.bytes_max {
            return Err(Error::limit(format!(
                "the texts and values of your prepared statements would take more than {} bytes: close those that you do not need, or bind \
                 fewer values at once",
                limits.bytes_max
            )));
        }
        let usage = Usage { count: usage.count + count, bytes: usage.bytes + bytes };
        self.callers.insert(caller.to_owned(), usage);
        Ok(())
    }

    fn remove(&mut self, handle: &[u8]) {
        let Some(entry) = self.statements.remove(handle) else { return };
        let Some(usage) = self.callers.get_mut(&entry.caller) else { return };
        usage.count -= 1;
        usage.bytes -= entry.bytes;
        if usage.count == 0 {
            self.callers.remove(&entry.caller);
        }
    }
}

fn bytes_of(rows: &[Vec<Value<'static>>]) -> usize {
    let texts = rows.iter().flatten().map(|value| match value {
        Value::Str(text) => text.len(),
        _ => 0,
    });
    texts.sum::<usize>()
        + rows.iter().map(|row| size_of::<Vec<Value>>() + size_of_val(row.as_slice())).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use arrow_schema::Schema;
    use tidemill_types::ErrorKind;

    use super::*;

    fn statement(text: &str) -> PreparedStatement {
        PreparedStatement {
            text: text.into(),
            is_change: false,
            parameters: Arc::new([None]),
            columns: Arc::new(Schema::empty()),
            binding: 0,
            rows: Arc::default(),
        }
    }

    #[test]
    fn a_statement_is_of_its_caller_until_it_is_closed_or_old() {
        let (start, passed) = (Instant::now(), Arc::new(Mutex::new(0)));
        let clock = {
            let passed = passed.clone();
            Arc::new(move || start + Duration::from_secs(*passed.lock()))
        };
        let all = PreparedStatements::new(10, 1 << 20, Duration::from_secs(10), clock);
        let handle = all.add("ana", statement("SELECT $1")).unwrap();
        all.bind("ana", &handle, vec![vec![Value::Int(1)]]).unwrap();
        assert_eq!(all.get("ana", &handle).unwrap().binding, 1);
        assert_eq!(all.get("eva", &handle).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(all.bind("eva", &handle, vec![]).is_err());
        all.close("eva", &handle);
        *passed.lock() = 9;
        all.get("ana", &handle).unwrap();
        *passed.lock() = 18;
        all.tick();
        all.get("ana", &handle).unwrap();
        *passed.lock() = 28;
        all.tick();
        assert_eq!(all.get("ana", &handle).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(all.state.lock().callers.is_empty());
    }

    #[test]
    fn a_caller_has_a_number_of_statements_and_bytes() {
        let all = PreparedStatements::new(2, 4_096, Duration::from_secs(10), Arc::new(Instant::now));
        let handle = all.add("ana", statement("a")).unwrap();
        all.add("ana", statement("b")).unwrap();
        assert_eq!(all.add("ana", statement("c")).unwrap_err().kind(), ErrorKind::LimitReached);
        all.add("eva", statement("c")).unwrap();
        let text = |bytes: usize| vec![vec![Value::Str("x".repeat(bytes).into())]];
        assert!(
            all.bind("ana", &handle, text(4_000)).unwrap_err().to_string().contains("more than 4096 bytes")
        );
        // former values make room for the next ones
        for _ in 0..3 {
            all.bind("ana", &handle, text(2_500)).unwrap();
        }
        all.bind("ana", &handle, text(1)).unwrap();
        all.close("ana", &handle);
        let usage = all.state.lock().callers["ana"];
        assert_eq!((usage.count, usage.bytes), (1, STATEMENT_BYTES + 1));
    }
}
