//! Statements run: rows go to the client as it takes them.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use futures::StreamExt;
use tokio::time::{Instant, sleep_until};

use super::Connection;
use super::prepare::show_columns;
use crate::command::{Command, CopyOut, Count, UNLOCK_ALL};
use crate::copy::CopyWriter;
use crate::error::{PgError, Result, code};
use crate::lexer;
use crate::messages::input::Format;
use crate::messages::output;
use crate::messages::wire::OUTPUT_BYTES;
use crate::portal::{OpenRows, Portal, PortalRows};
use crate::session::outside;
use crate::settings::STATEMENT_TIMEOUT;
use crate::statement::Prepared;
use crate::values::column::Column;

/// End of an execution.
pub(super) enum Reply {
    /// The statement is done, with this tag.
    Complete(String),
    /// The client has as many rows as it wanted.
    Suspended,
    /// There was no statement.
    Empty,
}

impl Connection {
    /// Runs the statements of a text one after the other, up to the first that fails.
    ///
    /// Errors: fatal.
    pub(super) async fn simple_query(&mut self, text: &str) -> Result<()> {
        self.session.remove_portal("");
        self.session.remove_statement("");
        let mut statements = lexer::statements(text).peekable();
        if statements.peek().is_none() {
            output::empty(&mut self.wire.output, b'I');
        }
        let mut is_alone = true;
        while let Some((start, end)) = statements.next() {
            let is_last = statements.peek().is_none();
            is_alone &= is_last;
            if let Err(error) = self.simple_statement(&text[start..end], is_alone, is_last).await {
                self.fail(&error.moved(&text[..start]))?;
                break;
            }
            self.flush_rows().await?;
        }
        self.session.close_portals();
        self.ready().await
    }

    async fn simple_statement(&mut self, text: &str, is_alone: bool, is_last: bool) -> Result<()> {
        let command = Command::parse(text)?;
        self.session.transaction.check(&command)?;
        let prepared = match &command {
            Command::Execute { name, .. } => Some(self.session.statement(name)?),
            _ => None,
        };
        let run = prepared.as_ref().map_or(&command, |prepared| &prepared.command);
        if let (Command::Change(verb), false) = (run, is_alone) {
            return Err(PgError::not_supported(format!(
                "{verb} together with other statements is not supported, as it could not be undone if one of them failed: send it alone"
            )));
        }
        // queries are described when they run
        let statement = match &command {
            Command::Query(_) | Command::Insert => Prepared::new(text, command, None),
            _ => self.described(text, command, vec![]).await?,
        };
        let mut portal = Portal::new(Arc::new(statement), vec![], vec![]);
        let reply = self.execute(&mut portal, None, true).await?;
        if is_last {
            self.end_implicit_transaction().await?;
        }
        if let Reply::Complete(tag) = reply {
            output::command_complete(&mut self.wire.output, &tag);
        }
        Ok(())
    }

    /// Runs a portal until its rows, or `rows_max` of them, are sent. With `is_simple`, the columns are sent before.
    ///
    /// Errors: the statement has failed, was cancelled, or has taken too long.
    pub(super) async fn execute(
        &mut self,
        portal: &mut Portal,
        rows_max: Option<u64>,
        is_simple: bool,
    ) -> Result<Reply> {
        if let Command::Execute { name, arguments } = &portal.statement.command {
            *portal = self.bind_named(name, arguments, portal)?;
        }
        let command = &portal.statement.command;
        let appends = command.appends();
        let is_interrupted_inside = appends || matches!(command, Command::Change(_));
        if !appends && !self.session.transaction.is_open() {
            // a statement sees what those before it have sent
            self.end_implicit_transaction().await?;
        }
        let executed = match is_interrupted_inside {
            // it is interrupted before it writes, or not at all
            true => self.run_portal(portal, rows_max, is_simple).await,
            false => {
                let cancelled = self.session.key.cancelled();
                let limit = self.session.settings.duration(STATEMENT_TIMEOUT);
                interruptible(cancelled, limit, self.run_portal(portal, rows_max, is_simple)).await
            }
        };
        if executed.is_err() {
            portal.rows = PortalRows::Ended;
        }
        executed
    }

    /// Does work of the client, which it may cancel and for which it may have set a limit.
    pub(super) async fn interruptible<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.session.settings.duration(STATEMENT_TIMEOUT);
        interruptible(self.session.key.cancelled(), limit, work).await
    }

    async fn run_portal(
        &mut self,
        portal: &mut Portal,
        rows_max: Option<u64>,
        is_simple: bool,
    ) -> Result<Reply> {
        let statement = portal.statement.clone();
        let complete = |tag: String| Ok(Reply::Complete(tag));
        if statement.command.uses_tables() {
            self.take_moment().await?;
        }
        match &statement.command {
            Command::Empty => Ok(Reply::Empty),
            Command::Query(verb) => {
                if let PortalRows::NotStarted = portal.rows {
                    portal.rows = self.open(portal).await?;
                }
                self.run_rows(portal, rows_max, is_simple, verb).await
            }
            Command::Show(name) => {
                if let PortalRows::NotStarted = portal.rows {
                    portal.rows = self.open_show(name.as_deref(), portal)?;
                }
                self.run_rows(portal, rows_max, is_simple, "SHOW").await
            }
            Command::UnlockAll => {
                if let PortalRows::NotStarted = portal.rows {
                    let columns = vec![Column::text(UNLOCK_ALL)];
                    portal.rows = self.open_texts(columns, vec![vec![String::new()]], portal)?;
                }
                self.run_rows(portal, rows_max, is_simple, "SELECT").await
            }
            Command::Change(verb) => {
                if !matches!(portal.rows, PortalRows::NotStarted) {
                    return Err(PgError::new(
                        code::NOT_IN_STATE,
                        format!("portal of {verb} cannot be run twice"),
                    ));
                }
                if self.session.transaction.is_open() {
                    return Err(PgError::not_supported(format!(
                        "{verb} inside of a transaction is not supported, as ROLLBACK could not undo it: send it outside of one"
                    )));
                }
                let count = self.change(&statement.text).await?;
                portal.rows = PortalRows::Ended;
                complete(format!("{verb} {count}"))
            }
            Command::Insert => {
                if let PortalRows::NotStarted = portal.rows {
                    portal.rows = self.insert(portal).await?;
                } else if let PortalRows::Ended = portal.rows {
                    return Err(PgError::new(code::NOT_IN_STATE, "portal of INSERT cannot be run twice"));
                }
                self.run_rows(portal, rows_max, is_simple, "INSERT").await
            }
            Command::CopyIn(copy) => {
                let rows = self.copy_in(copy).await?;
                complete(format!("COPY {rows}"))
            }
            Command::CopyOut(copy) => {
                let rows = self.copy_out(copy, &statement.text).await?;
                complete(format!("COPY {rows}"))
            }
            Command::Prepare { name, types, text } => {
                let prepared = self.prepare_named(name, types, text).await;
                prepared.map_err(|error| moved_into(error, &statement.text, text))?;
                complete("PREPARE".to_owned())
            }
            Command::Declare { name, is_held, format, text } => {
                let declared = self.declare(name, *is_held, *format, text).await;
                declared.map_err(|error| moved_into(error, &statement.text, text))?;
                complete("DECLARE CURSOR".to_owned())
            }
            Command::Fetch { cursor, count, is_move } => {
                self.fetch(cursor, *count, *is_move, &portal.formats, is_simple).await.map(Reply::Complete)
            }
            command => {
                if let Command::Commit = command {
                    self.append_transaction().await?;
                }
                let before = self.session.settings.reported();
                let (tag, notice) = self.session.run(command)?;
                if let Some(notice) = notice {
                    output::error(&mut self.wire.output, &notice);
                }
                for (old, new) in before.iter().zip(self.session.settings.reported()) {
                    if *old != new {
                        output::parameter_status(&mut self.wire.output, new.0, &new.1);
                    }
                }
                complete(tag.to_owned())
            }
        }
    }

    /// Starts the query of a portal.
    async fn open(&self, portal: &Portal) -> Result<PortalRows> {
        let Prepared { text, columns, .. } = &*portal.statement;
        let request = self.session.request(text).with_parameters(portal.values.clone());
        let reply = tokio::select! {
            reply = self.shared.database.query(request) => {
                reply.map_err(|error| PgError::of_database(&error, text))?
            }
            gone = self.wire.closed() => gone?,
        };
        let found = Column::all(&reply.schema, &reply.origins)?;
        let columns = match columns {
            Some(columns) if columns.len() != found.len() => {
                return Err(PgError::not_supported(format!(
                    "the statement was described with {} columns and has {} now: prepare it again",
                    columns.len(),
                    found.len()
                )));
            }
            Some(columns) => columns.clone(),
            None => found,
        };
        let zone = self.session.settings.zone().clone();
        let mut rows = OpenRows::new(columns.into(), portal.formats.clone(), zone, reply.batches, text);
        rows.is_endless = reply.is_endless;
        Ok(PortalRows::Open(Box::new(rows)))
    }

    fn open_show(&self, name: Option<&str>, portal: &Portal) -> Result<PortalRows> {
        let settings = &self.session.settings;
        let values = match name {
            Some(name) => vec![vec![settings.get(name)?]],
            None => {
                let (names, values): (Vec<_>, Vec<_>) = settings.all().into_iter().unzip();
                let descriptions = vec![String::new(); names.len()];
                vec![names, values, descriptions]
            }
        };
        self.open_texts(show_columns(name), values, portal)
    }

    /// Returns rows of texts, whose values are given by column.
    fn open_texts(
        &self,
        columns: Vec<Column>,
        values: Vec<Vec<String>>,
        portal: &Portal,
    ) -> Result<PortalRows> {
        let arrays = values.into_iter().map(|texts| Arc::new(StringArray::from(texts)) as ArrayRef);
        let batch = RecordBatch::try_from_iter(columns.iter().map(|column| column.name.as_str()).zip(arrays));
        let batch = batch.map_err(|e| PgError::new(code::INTERNAL, e.to_string()))?;
        let batches = futures::stream::iter([Ok(batch)]).boxed();
        let zone = self.session.settings.zone().clone();
        let rows = OpenRows::new(columns.into(), portal.formats.clone(), zone, batches, "");
        Ok(PortalRows::Open(Box::new(rows)))
    }

    /// Sends the rows of a portal that is open. `SELECT` has the number of its rows in its tag.
    async fn run_rows(
        &mut self,
        portal: &mut Portal,
        rows_max: Option<u64>,
        is_simple: bool,
        verb: &str,
    ) -> Result<Reply> {
        let mut sent = 0;
        if let PortalRows::Open(rows) = &mut portal.rows {
            if is_simple {
                output::row_description(&mut self.wire.output, &rows.columns, &portal.formats);
            }
            let has_ended;
            (sent, has_ended) = self.send_rows(rows, rows_max).await?;
            if !has_ended {
                return Ok(Reply::Suspended);
            }
            portal.rows = PortalRows::Ended;
        }
        Ok(Reply::Complete(match verb {
            "SELECT" => format!("SELECT {sent}"),
            "INSERT" => portal.tag.clone().unwrap_or_default(),
            other => other.to_owned(),
        }))
    }

    /// Sends rows, at most `rows_max`. Returns their number, and whether there are no more. As in PostgreSQL, a client that has got as many
    /// rows as it wanted does not learn whether they were all. Of rows without an end, a client that wants some gets those that are there,
    /// and waits for one.
    async fn send_rows(&mut self, rows: &mut OpenRows, rows_max: Option<u64>) -> Result<(u64, bool)> {
        let mut sent = 0;
        while rows_max != Some(sent) {
            if rows.is_endless && !rows.fill_now()? {
                if rows_max.is_some() && sent > 0 {
                    return Ok((sent, false));
                }
                self.wire.flush().await?;
            }
            if !self.fill(rows).await? {
                return Ok((sent, true));
            }
            while rows.has_row() && rows_max != Some(sent) && self.wire.output.len() < OUTPUT_BYTES {
                rows.put_row(&mut self.wire.output)?;
                sent += 1;
            }
            self.flush_rows().await?;
        }
        Ok((sent, false))
    }

    /// Waits for rows of the database, or for the client to go.
    async fn fill(&self, rows: &mut OpenRows) -> Result<bool> {
        if rows.has_row() {
            return Ok(true);
        }
        tokio::select! {
            filled = rows.fill() => filled,
            gone = self.wire.closed() => gone,
        }
    }

    /// Sends the output if it is large.
    async fn flush_rows(&mut self) -> Result<()> {
        match self.wire.output.len() < OUTPUT_BYTES {
            true => Ok(()),
            false => self.wire.flush().await,
        }
    }

    /// Takes the moment that all statements of the transaction read, if its level asks for one and it has none.
    async fn take_moment(&mut self) -> Result<()> {
        let level = self.session.settings.isolation();
        if !self.session.transaction.use_tables(level) {
            return Ok(());
        }
        let principal = self.session.principal.clone();
        let moment = self.interruptible(async {
            let moment = self.shared.database.hold_moment(&principal).await;
            moment.map_err(|error| PgError::of_database(&error, ""))
        });
        let moment = moment.await?;
        self.session.transaction.set_moment(moment);
        Ok(())
    }

    async fn copy_out(&mut self, copy: &CopyOut, whole: &str) -> Result<u64> {
        let CopyOut { text, options } = copy;
        let inner = Prepared::new(text, Command::Query("COPY"), None);
        let formats = vec![options.column_format()];
        let opened = self.open(&Portal::new(Arc::new(inner), vec![], formats)).await;
        let mut rows = match opened.map_err(|error| moved_into(error, whole, text))? {
            PortalRows::Open(rows) => rows,
            PortalRows::NotStarted | PortalRows::Ended => return Ok(0),
        };
        let mut writer = CopyWriter::new(options.clone(), &rows.columns, &mut self.wire.output)?;
        let mut sent = 0;
        loop {
            if rows.is_endless && !rows.fill_now()? {
                self.wire.flush().await?;
            }
            if !self.fill(&mut rows).await? {
                break;
            }
            while rows.has_row() && self.wire.output.len() < OUTPUT_BYTES {
                writer.put_row(&mut rows, &mut self.wire.output)?;
                sent += 1;
            }
            self.flush_rows().await?;
        }
        writer.finish(&mut self.wire.output);
        Ok(sent)
    }

    async fn declare(&mut self, name: &str, is_held: bool, format: Format, text: &str) -> Result<()> {
        if !is_held && !self.session.transaction.is_open() {
            return Err(outside("DECLARE CURSOR"));
        }
        let command = Command::parse(text)?;
        if !matches!(command, Command::Query(_)) {
            return Err(PgError::syntax("DECLARE: expected a query"));
        }
        let statement = self.described(text, command, vec![]).await?;
        if statement.parameters_used > 0 {
            return Err(PgError::not_supported(
                "a cursor takes no parameters: write the values into its text",
            ));
        }
        let mut portal = Portal::new(Arc::new(statement), vec![], vec![format]);
        portal.is_held = is_held;
        portal.rows = self.open(&portal).await?;
        self.session.add_portal(name, portal)
    }

    async fn fetch(
        &mut self,
        name: &str,
        count: Count,
        is_move: bool,
        formats: &[Format],
        is_simple: bool,
    ) -> Result<String> {
        let mut cursor = self.session.take_portal(name)?;
        let fetched = self.fetch_from(&mut cursor, count, is_move, formats, is_simple).await;
        if fetched.is_err() {
            cursor.rows = PortalRows::Ended;
        }
        self.session.return_portal(name, cursor);
        fetched
    }

    async fn fetch_from(
        &mut self,
        cursor: &mut Portal,
        count: Count,
        is_move: bool,
        formats: &[Format],
        is_simple: bool,
    ) -> Result<String> {
        if let PortalRows::NotStarted = cursor.rows {
            cursor.rows = self.open(cursor).await?;
        }
        let rows_max = match count {
            Count::Rows(rows) => Some(rows),
            Count::All => None,
        };
        if !is_move && is_simple {
            let columns = cursor.statement.columns.as_deref().unwrap_or_default();
            output::row_description(&mut self.wire.output, columns, &cursor.formats);
        }
        let mut taken = 0;
        if let PortalRows::Open(rows) = &mut cursor.rows {
            let mut has_ended = false;
            if !is_simple {
                rows.set_formats(formats)?;
            }
            match is_move {
                true => {
                    while rows_max != Some(taken) && !has_ended {
                        if rows.is_endless && taken > 0 && !rows.fill_now()? {
                            break;
                        }
                        has_ended = !self.fill(rows).await?;
                        if !has_ended {
                            rows.skip_row();
                            taken += 1;
                        }
                    }
                }
                false => (taken, has_ended) = self.send_rows(rows, rows_max).await?,
            }
            if has_ended {
                cursor.rows = PortalRows::Ended;
            }
        }
        Ok(format!("{} {taken}", if is_move { "MOVE" } else { "FETCH" }))
    }
}

/// Does work until it is done, was cancelled, or has taken too long.
pub(super) async fn interruptible<T>(
    cancelled: impl Future<Output = ()>,
    limit: Option<std::time::Duration>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let late = async {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = work => done,
        () = cancelled => Err(PgError::new(code::CANCELLED, "canceling statement due to user request")),
        () = late => Err(PgError::new(code::CANCELLED, "canceling statement due to statement timeout")),
    }
}

/// Returns the error of a statement inside of another one with its place in that one; without a place if the text is not part of it.
fn moved_into(error: PgError, whole: &str, inner: &str) -> PgError {
    match whole.find(inner) {
        Some(at) => error.moved(&whole[..at]),
        None => PgError { position: None, ..error },
    }
}
