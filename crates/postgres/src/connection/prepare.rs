//! Statements are checked and described before they run.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_database::Parameter;

use super::Connection;
use crate::command::{Argument, Command, UNLOCK_ALL};
use crate::error::{PgError, Result};
use crate::lexer::{self, TokenKind};
use crate::portal::Portal;
use crate::statement::Prepared;
use crate::values::column::Column;
use crate::values::parameters;
use crate::values::types::{OID, OID_LIST, ParameterType};

impl Connection {
    /// Prepares a text of one statement, whose client has named the types of the first parameters; 0 for one that it does not
    /// know.
    ///
    /// Errors: those in the text; there is more than one statement.
    pub(super) async fn prepare(&self, text: &str, types: &[u32]) -> Result<Prepared> {
        let mut statements = lexer::statements(text);
        let (start, end) = statements.next().unwrap_or((0, 0));
        if statements.next().is_some() {
            return Err(PgError::syntax("cannot insert multiple commands into a prepared statement"));
        }
        let own = &text[start..end];
        let command = Command::parse(own).map_err(|error| error.moved(&text[..start]))?;
        self.session.transaction.check(&command)?;
        let types = types.iter().map(|oid| Some(*oid).filter(|oid| *oid != 0).map(ParameterType::of_oid));
        let described = self.described(own, command, types.collect()).await;
        described.map_err(|error| error.moved(&text[..start]))
    }

    /// Describes a statement. Types that are given take the place of those that the database expects.
    ///
    /// Errors: those in its text.
    pub(super) async fn described(
        &self,
        text: &str,
        command: Command,
        types: Vec<Option<ParameterType>>,
    ) -> Result<Prepared> {
        match &command {
            Command::Query(_) | Command::Insert => self.described_query(text, command, types).await,
            Command::Show(name) => {
                let columns = show_columns(name.as_deref());
                Ok(Prepared::new(text, command, Some(columns)))
            }
            Command::UnlockAll => Ok(Prepared::new(text, command, Some(vec![Column::text(UNLOCK_ALL)]))),
            Command::Fetch { cursor, is_move: false, .. } => {
                let columns = self.session.portal(cursor)?.statement.columns.clone();
                Ok(Prepared::new(text, command, columns))
            }
            Command::Execute { name, .. } => {
                let columns = self.session.statement(name)?.columns.clone();
                Ok(Prepared::new(text, command, columns))
            }
            _ => {
                let has_parameters = lexer::tokens(text).any(|token| token.kind == TokenKind::Parameter);
                if has_parameters && !matches!(command, Command::Prepare { .. }) {
                    return Err(PgError::not_supported(
                        "this statement takes no parameters: write the values into its text",
                    ));
                }
                Ok(Prepared::new(text, command, None))
            }
        }
    }

    async fn described_query(
        &self,
        text: &str,
        command: Command,
        types: Vec<Option<ParameterType>>,
    ) -> Result<Prepared> {
        let request = self.session.request(text);
        let described = self.interruptible(async {
            tokio::select! {
                described = self.shared.database.describe(request) => {
                    described.map_err(|error| PgError::of_database(&error, text))
                }
                gone = self.wire.closed() => gone,
            }
        });
        let description = described.await?;
        let used = description.parameters.len();
        let oids = casts_to_oid(text);
        let parameters = (0..used.max(types.len())).map(|at| {
            let given = types.get(at).copied().flatten().or_else(|| oids.get(&(at + 1)).copied());
            let expected = description.parameters.get(at).and_then(Option::as_ref);
            given.unwrap_or_else(|| ParameterType::of_column(expected))
        });
        let parameters = parameters.collect();
        let columns = Column::all(&description.columns, &description.origins)?;
        // without RETURNING there are no rows
        let has_rows = command != Command::Insert || !columns.is_empty();
        let (text, columns) = (text.to_owned(), has_rows.then_some(columns));
        Ok(Prepared { text, command, parameters, parameters_used: used, columns })
    }

    /// Prepares the statement of `PREPARE`.
    pub(super) async fn prepare_named(&mut self, name: &str, types: &[String], text: &str) -> Result<()> {
        self.session.check_new_statement(name)?;
        let named = types.iter().map(|ty| {
            let unknown = || PgError::new("42704", format!("type \"{ty}\" is not supported for a parameter"));
            ParameterType::of_name(ty).map(Some).ok_or_else(unknown)
        });
        let command = Command::parse(text)?;
        if !matches!(command, Command::Query(_) | Command::Change(_) | Command::Insert) {
            return Err(PgError::syntax("PREPARE: expected a query, INSERT, DELETE or UPDATE"));
        }
        let statement = self.described(text, command, named.collect::<Result<_>>()?).await?;
        self.session.add_statement(name, statement)
    }

    /// Returns a portal of the statement that `EXECUTE` names.
    ///
    /// Errors: the name is unknown, or the arguments are not values of its parameters.
    pub(super) fn bind_named(&self, name: &str, arguments: &[Argument], portal: &Portal) -> Result<Portal> {
        let statement: Arc<Prepared> = self.session.statement(name)?;
        let (expected, found) = (statement.parameters.len(), arguments.len());
        if expected != found {
            return Err(PgError::syntax(format!(
                "wrong number of parameters for prepared statement \"{name}\": expected {expected}, found {found}"
            )));
        }
        let zone = self.session.settings.zone();
        let values = statement.parameters.iter().zip(arguments).enumerate().map(|(at, (ty, argument))| {
            let text = match argument {
                Argument::Null => None,
                Argument::Text(text) => Some(text.clone().into()),
            };
            parameters::decode(at + 1, text.as_ref(), *ty, crate::messages::input::Format::Text, zone)
        });
        let mut values = values.collect::<Result<Vec<Parameter>>>()?;
        values.truncate(statement.parameters_used);
        Ok(Portal::new(statement, values, portal.formats.clone()))
    }
}

/// Returns the columns of `SHOW`.
pub(super) fn show_columns(name: Option<&str>) -> Vec<Column> {
    match name {
        Some(name) => vec![Column::text(&name.to_lowercase())],
        None => ["name", "setting", "description"].map(Column::text).into(),
    }
}

/// Returns the types of parameters, by number from 1, that the text casts to `oid` or `oid[]`: numbers for the database, and for clients types of
/// their own. asyncpg looks types up by a statement with `$1::oid[]`, and would look up any other list before.
fn casts_to_oid(text: &str) -> BTreeMap<usize, ParameterType> {
    let mut casts = BTreeMap::new();
    let tokens: Vec<&str> = lexer::tokens(text).map(|token| &text[token.start..token.end]).collect();
    for (at, token) in tokens.iter().enumerate() {
        let number = token.strip_prefix('$').and_then(|number| number.parse().ok());
        let Some((number, [":", ":", ty, rest @ ..])) = number.zip(tokens.get(at + 1..)) else { continue };
        if ty.eq_ignore_ascii_case("oid") {
            let is_list = rest.starts_with(&["[", "]"]);
            casts.insert(number, ParameterType::of_oid(if is_list { OID_LIST } else { OID }));
        }
    }
    casts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_to_oid_are_found_in_the_text() {
        let text = "SELECT '$1::oid' FROM t WHERE a = any($2::OID[]) AND b = $3 :: oid AND c = $4::oidvector AND d = $5 -- $6::oid";
        let found: Vec<(usize, u32)> = casts_to_oid(text).into_iter().map(|(at, ty)| (at, ty.oid)).collect();
        assert_eq!(found, [(2, OID_LIST), (3, OID)]);
    }
}
