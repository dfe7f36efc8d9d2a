//! The extended protocol: statements are prepared, bound to values and executed by messages of their own.

use tidemill_database::Parameter;

use super::Connection;
use super::execute::Reply;
use crate::error::{PgError, Result, code};
use crate::messages::input::{Bind, Format, Message, Target};
use crate::messages::output;
use crate::portal::Portal;
use crate::values::parameters;

impl Connection {
    /// Answers a message of the extended protocol.
    ///
    /// Errors: what follows is skipped up to `Sync`.
    pub(super) async fn extended(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Parse { name, text, types } => {
                self.session.check_new_statement(&name)?;
                let statement = self.prepare(&text, &types).await?;
                self.session.add_statement(&name, statement)?;
                output::empty(&mut self.wire.output, b'1');
            }
            Message::Bind(bind) => {
                let name = bind.portal.clone();
                let portal = self.bind(bind)?;
                self.session.add_portal(&name, portal)?;
                output::empty(&mut self.wire.output, b'2');
            }
            Message::Describe(Target::Statement, name) => {
                let statement = self.session.statement(&name)?;
                let oids: Vec<u32> = statement.parameters.iter().map(|parameter| parameter.oid).collect();
                output::parameter_description(&mut self.wire.output, &oids);
                match &statement.columns {
                    Some(columns) => output::row_description(&mut self.wire.output, columns, &[]),
                    None => output::empty(&mut self.wire.output, b'n'),
                }
            }
            Message::Describe(Target::Portal, name) => {
                let portal = self.session.portal(&name)?;
                match &portal.statement.columns {
                    Some(columns) => output::row_description(&mut self.wire.output, columns, &portal.formats),
                    None => output::empty(&mut self.wire.output, b'n'),
                }
            }
            Message::Execute { portal: name, rows_max } => {
                let mut portal = self.session.take_portal(&name)?;
                self.session.transaction.check(&portal.statement.command)?;
                let reply = self.execute(&mut portal, (rows_max > 0).then_some(rows_max), false).await?;
                match reply {
                    Reply::Complete(tag) => output::command_complete(&mut self.wire.output, &tag),
                    Reply::Suspended => output::empty(&mut self.wire.output, b's'),
                    Reply::Empty => output::empty(&mut self.wire.output, b'I'),
                }
                // `COMMIT`, `CLOSE ALL` and `DISCARD ALL` have closed it as well
                let stays = !portal.statement.command.closes_portals();
                if stays {
                    self.session.return_portal(&name, portal);
                }
            }
            Message::Close(target, name) => {
                // one that does not exist is closed
                match target {
                    Target::Statement => self.session.remove_statement(&name),
                    Target::Portal => self.session.remove_portal(&name),
                };
                output::empty(&mut self.wire.output, b'3');
            }
            other => return Err(PgError::protocol(format!("{other:?} is not of the extended protocol"))),
        }
        Ok(())
    }

    fn bind(&self, bind: Bind) -> Result<Portal> {
        let statement = self.session.statement(&bind.statement)?;
        self.session.transaction.check(&statement.command)?;
        let (expected, found) = (statement.parameters.len(), bind.values.len());
        if expected != found {
            return Err(PgError::new(
                code::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {found} parameters, but prepared statement \"{}\" requires {expected}",
                    bind.statement
                ),
            ));
        }
        check_formats("parameters", &bind.parameter_formats, found)?;
        let columns = statement.columns.as_ref().map_or(0, Vec::len);
        // a statement without rows has no columns to have a format
        if statement.columns.is_some() {
            check_formats("columns", &bind.result_formats, columns)?;
        }
        let zone = self.session.settings.zone();
        let values = statement.parameters.iter().zip(&bind.values).enumerate().map(|(at, (ty, value))| {
            let format = output::format_at(&bind.parameter_formats, at);
            parameters::decode(at + 1, value.as_ref(), *ty, format, zone)
        });
        let mut values = values.collect::<Result<Vec<Parameter>>>()?;
        values.truncate(statement.parameters_used);
        Ok(Portal::new(statement, values, bind.result_formats))
    }
}

/// Checks that there are formats for all values, one for each of them, or none.
fn check_formats(what: &str, formats: &[Format], values: usize) -> Result<()> {
    match formats.len() <= 1 || formats.len() == values {
        true => Ok(()),
        false => Err(PgError::new(
            code::PROTOCOL_VIOLATION,
            format!("bind message has {} formats of {what}, but there are {values} {what}", formats.len()),
        )),
    }
}
