//! Single events on their way through the queries, as rows.

use std::sync::Arc;

use bumpalo::Bump;
use tidemill_types::FieldType;

use super::{AppRuntime, DEPTH_MAX, Emitter, OutputHandler, Subscriber, with_stack_guard};
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::columns::row::{ArrivingRow, Row, RowOutput};
use crate::columns::value_ref::ValueRef;
use crate::eval_error::EvalError;
use crate::plan::AppPlan;
use crate::query::{RowProgram, Target};
use crate::table::Table;

/// Number of levels of queries that rows pass before each level checks that there is enough stack. They need less of it
/// than one level of batches.
const GUARD_DEPTH: usize = 4;

/// Row programs of an app.
pub(super) struct RowPath {
    plan: Arc<AppPlan>,
    /// The program of each query, or the reason why it gets single events as batches.
    programs: Vec<Result<RowProgram, &'static str>>,
    streams: Vec<RowStream>,
    /// False if nothing happens between events, so that the clock need not stop.
    is_clocked: bool,
    /// Memory of the rows that the current event causes.
    arena: Bump,
}

/// A stream as the target of rows.
struct RowStream {
    name: String,
    types: Vec<FieldType>,
    /// True if callers may send events to it.
    is_input: bool,
    /// True if its events are aggregated or published, which needs batches.
    needs_batch: bool,
    /// True if only the output handler gets its events.
    is_leaf: bool,
}

impl RowPath {
    pub(super) fn new(app: &AppRuntime) -> Self {
        let plan = app.plan.clone();
        let catalog = &plan.catalog;
        let programs = plan.queries.iter().map(|query| RowProgram::of(query, catalog)).collect();
        let aggregated = |stream: usize| catalog.aggregations().iter().any(|a| a.stream == stream);
        let published = |stream: usize| plan.sinks.iter().any(|sink| sink.stream == stream);
        let streams = catalog.streams().iter().enumerate().map(|(number, stream)| RowStream {
            name: stream.name.clone(),
            types: stream.attributes.iter().map(|(_, ty)| *ty).collect(),
            is_input: catalog.window(number).is_none() && !catalog.is_inner(number),
            needs_batch: aggregated(number) || published(number),
            is_leaf: !aggregated(number) && !published(number) && app.subscribers[number].is_empty(),
        });
        let streams = streams.collect();
        let is_clocked = !app.triggers.is_empty()
            || !plan.windows.is_empty()
            || !app.time_driven.is_empty()
            || !catalog.aggregations().is_empty()
            || plan.partitions.iter().any(|partition| partition.purge.is_some());
        Self { plan, programs, streams, is_clocked, arena: Bump::new() }
    }
}

impl AppRuntime {
    /// Sends one event. The output is that of [`Self::send`] with the event as the only one, but the event is not
    /// copied into columns, and nothing is allocated for it unless state grows or a query needs batches.
    ///
    /// `values` are the stream's attributes in order, in their types. Errors: they are not, or the stream cannot be
    /// written from outside.
    pub fn send_row(
        &mut self,
        stream: usize,
        values: &[ValueRef<'_>],
        time: i64,
        sink: &mut dyn OutputHandler,
    ) -> Result<(), EvalError> {
        let Some(mut path) = self.row_path.take() else {
            let mut columns = self.columns_for(stream)?;
            if values.len() == columns.len()
                && columns.iter().zip(values).all(|(c, value)| value.fits(c.ty()))
            {
                columns.iter_mut().zip(values).for_each(|(column, value)| column.push_ref(value));
            }
            return self.send(stream, columns, vec![time], sink);
        };
        let done = self.check_row(&path, stream, values);
        if done.is_ok() {
            self.send_along(&path, stream, Row { values, time }, None, sink);
            path.arena.reset();
        }
        self.row_path = Some(path);
        done
    }

    /// Sends an event that is a batch of one row, as a row; `None` if rows are not used.
    pub(super) fn send_single(
        &mut self,
        stream: usize,
        batch: &mut Batch,
        sink: &mut dyn OutputHandler,
    ) -> Option<()> {
        let mut path = self.row_path.take()?;
        let time = batch.times[0];
        self.advance_to(&path, time, sink);
        batch.end_chunk(self.now);
        {
            let values = path.arena.alloc_slice_fill_iter(batch.columns.iter().map(|c| c.value_ref(0)));
            self.deliver_row(&path, stream, Row { values, time }, Some(batch), 0, sink);
        }
        path.arena.reset();
        self.row_path = Some(path);
        Some(())
    }

    /// Returns why query `query`, counted in the order of [`Self::plan`], gets single events as batches; `None` if it
    /// has a row program.
    pub fn batch_reason(&self, query: usize) -> Option<&str> {
        match self.row_path.as_ref()?.programs.get(query)? {
            Ok(_) => None,
            Err(reason) => Some(reason),
        }
    }

    /// Sets whether single events are processed by row programs, as they are by default; otherwise all of them are
    /// batches of one row, with the same output. For comparisons.
    pub fn use_row_programs(&mut self, used: bool) {
        self.row_path = used.then(|| Box::new(RowPath::new(self)));
    }

    fn columns_for(&self, stream: usize) -> Result<Vec<Column>, EvalError> {
        let defined = self.plan.catalog.streams().get(stream);
        let defined = defined.ok_or_else(|| EvalError::request(format!("there is no stream {stream}")))?;
        Ok(defined.attributes.iter().map(|(_, ty)| Column::new(*ty)).collect())
    }

    /// Checks that these values can be an event of the stream.
    #[inline]
    fn check_row(&self, path: &RowPath, stream: usize, values: &[ValueRef<'_>]) -> Result<(), EvalError> {
        if let Some(known) = path.streams.get(stream)
            && known.is_input
            && known.types.len() == values.len()
            && known.types.iter().zip(values).all(|(ty, value)| value.fits(*ty))
        {
            return Ok(());
        }
        // names the mistake: there are no rows to send if the values fit
        let columns = self.columns_for(stream)?;
        self.check(stream, &columns, 0)?;
        let name = &self.plan.catalog.streams()[stream].name;
        Err(EvalError::request(format!("the values do not match the attributes of `{name}`")))
    }

    #[inline]
    fn advance_to(&mut self, path: &RowPath, time: i64, sink: &mut dyn OutputHandler) {
        self.stores.rng.next_input();
        match path.is_clocked {
            true => self.advance(time, sink),
            false => self.now = self.now.max(time),
        }
    }

    #[inline]
    fn send_along<'a>(
        &mut self,
        path: &'a RowPath,
        stream: usize,
        row: Row<'a>,
        batch: Option<&Batch>,
        sink: &mut dyn OutputHandler,
    ) {
        self.advance_to(path, row.time, sink);
        self.deliver_row(path, stream, row, batch, 0, sink);
    }

    /// Delivers a row depth first, as [`Self::deliver`] does a batch; `batch` is the row as a batch, if there is one.
    fn deliver_row<'a>(
        &mut self,
        path: &'a RowPath,
        stream: usize,
        row: Row<'a>,
        batch: Option<&Batch>,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) {
        if path.streams[stream].needs_batch || depth > DEPTH_MAX {
            return self.with_batch(path, stream, row, batch, |app, batch| {
                app.deliver(stream, batch, depth, sink);
            });
        }
        match depth < GUARD_DEPTH {
            true => self.deliver_row_to_subscribers(path, stream, row, batch, depth, sink),
            false => {
                with_stack_guard(|| self.deliver_row_to_subscribers(path, stream, row, batch, depth, sink));
            }
        }
    }

    fn deliver_row_to_subscribers<'a>(
        &mut self,
        path: &'a RowPath,
        stream: usize,
        row: Row<'a>,
        batch: Option<&Batch>,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) {
        for i in 0..self.subscribers[stream].len() {
            let subscriber = self.subscribers[stream][i];
            let failure = match subscriber {
                Subscriber::Query(query, port) if let Ok(program) = &path.programs[query] => {
                    if let Some((table, column)) = program.written_key
                        && let Some(table) = self.stores.tables[table].memory()
                    {
                        // in a large table the key is not in the cache
                        table.prefetch_key(&row.values[column]);
                    }
                    let event = ArrivingRow { port, row, clock: self.now };
                    let out = self.queries[query].push_row(program, event, &self.stores, &path.arena);
                    match out {
                        Ok(RowOutput::Rows { rows: [], .. }) => None,
                        out => self.emit_rows(path, query, out, depth, sink),
                    }
                }
                Subscriber::Query(query, port) => self.with_batch(path, stream, row, batch, |app, batch| {
                    let out = app.queries[query].push(port, batch, &app.stores);
                    app.emit(Emitter::Query(query), out, depth, sink)
                }),
                Subscriber::Partition(partition) => {
                    self.with_batch(path, stream, row, batch, |app, batch| {
                        app.route_to_partition(partition, stream, batch, depth, sink)
                    })
                }
            };
            if let Some(failure) = failure {
                return self.with_batch(path, stream, row, batch, |app, batch| {
                    app.send_to_fault_stream(stream, batch, &failure, depth, sink);
                });
            }
        }
        let name = &path.streams[stream].name;
        match batch {
            Some(batch) if depth == 0 => sink.sent(name, batch),
            Some(batch) => sink.events(name, batch),
            None if sink.wants_rows() && depth == 0 => sink.sent_row(name, row),
            None if sink.wants_rows() => sink.event_rows(name, &[row]),
            None => self.with_batch(path, stream, row, None, |_, batch| match depth {
                0 => sink.sent(name, batch),
                _ => sink.events(name, batch),
            }),
        }
    }

    /// Passes the output of a query to its target, as [`Self::emit`] does. Returns the failure, if there was one.
    fn emit_rows<'a>(
        &mut self,
        path: &'a RowPath,
        query: usize,
        out: Result<RowOutput<'a>, EvalError>,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) -> Option<EvalError> {
        let from = Emitter::Query(query);
        let (rows, is_chunk) = match out {
            Ok(RowOutput::Rows { rows, is_chunk }) => (rows, is_chunk),
            Ok(RowOutput::Batch(batch)) => return self.emit(from, Ok(*batch), depth, sink),
            Err(failure) => return self.emit(from, Err(failure), depth, sink),
        };
        let plan = &path.plan.queries[query];
        let takes_rows = match &plan.target {
            Target::Stream(to) => rows.len() == 1 || path.streams[*to].is_leaf,
            Target::Table(table, _) => {
                path.programs[query].as_ref().is_ok_and(|program| program.keyed_write.is_some())
                    && matches!(self.stores.tables[*table], Table::Memory(_))
            }
            Target::Inner(_) | Target::Window(_) => false,
        };
        if !takes_rows || depth >= DEPTH_MAX || !sink.wants_rows() {
            return self.emit_as_batch(path, query, rows, is_chunk, depth, sink);
        }
        sink.emission_rows(&plan.name, rows);
        self.queries[query].stats.record_rows(rows.len(), self.now);
        match (&plan.target, rows) {
            (Target::Stream(to), rows) if path.streams[*to].is_leaf => {
                sink.event_rows(&path.streams[*to].name, rows);
                None
            }
            (Target::Stream(to), [row]) => {
                self.deliver_row(path, *to, *row, None, depth + 1, sink);
                None
            }
            (Target::Table(table, _), rows) => {
                let (Ok(program), Table::Memory(table)) =
                    (&path.programs[query], &mut self.stores.tables[*table])
                else {
                    return None;
                };
                let keyed = program.keyed_write.as_ref()?;
                let failure = rows.iter().find_map(|row| table.write_row(keyed, *row).err())?;
                sink.failure(&plan.name, &failure);
                Some(failure)
            }
            (Target::Stream(_) | Target::Inner(_) | Target::Window(_), _) => None,
        }
    }

    /// Passes rows to the target of a query as [`Self::emit_rows`] does, where it or the handler needs a batch.
    #[inline(never)]
    fn emit_as_batch<'a>(
        &mut self,
        path: &'a RowPath,
        query: usize,
        rows: &'a [Row<'a>],
        is_chunk: bool,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) -> Option<EvalError> {
        let plan = &path.plan.queries[query];
        let clock = self.now;
        let mut batch = self.queries[query].selector.empty();
        for row in rows {
            push_row(&mut batch, *row);
            if !is_chunk {
                batch.end_chunk(clock);
            }
        }
        batch.end_chunk(clock);
        match (&plan.target, rows) {
            (Target::Stream(to), [row]) => {
                sink.emission(&plan.name, &batch);
                self.queries[query].stats.record_output(&batch);
                self.deliver_row(path, *to, *row, Some(&batch), depth + 1, sink);
                self.queries[query].reuse(batch);
                None
            }
            _ => self.emit(Emitter::Query(query), Ok(batch), depth, sink),
        }
    }

    /// Calls `with` with a row as a batch: `batch` if there is one, otherwise a new one.
    #[inline(never)]
    fn with_batch<R>(
        &mut self,
        path: &RowPath,
        stream: usize,
        row: Row<'_>,
        batch: Option<&Batch>,
        with: impl FnOnce(&mut Self, &Batch) -> R,
    ) -> R {
        if let Some(batch) = batch {
            return with(self, batch);
        }
        let spare = self.row_batches.get_mut(stream).and_then(Option::take);
        let mut batch = spare.unwrap_or_else(|| Batch::new(path.streams[stream].types.iter().copied()));
        push_row(&mut batch, row);
        batch.end_chunk(self.now);
        let done = with(self, &batch);
        batch.clear();
        if self.row_batches.len() <= stream {
            self.row_batches.resize_with(stream + 1, || None);
        }
        self.row_batches[stream] = Some(batch);
        done
    }
}

fn push_row(batch: &mut Batch, row: Row<'_>) {
    batch.columns.iter_mut().zip(row.values).for_each(|(column, value)| column.push_ref(value));
    batch.times.push(row.time);
    batch.kinds.push(EventKind::Current);
}
