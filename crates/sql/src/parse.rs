//! Parser of a query into one read-only statement.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::sqlparser::ast::{SetExpr, Statement as Ast, Visit, Visitor};
use datafusion::logical_expr::sqlparser::parser::ParserError;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use tidemill_types::{Error, Result};

use crate::dialect::TidemillDialect;
use crate::error::{from_datafusion, place};
use crate::pg_catalog::Mentions;
use crate::{asof, execution::stack, names, pg_catalog, tree};

/// Parses `text` into one read-only statement. Returns it with the parts of the catalogs that it names.
///
/// Errors: `LimitReached` for text longer than `bytes_max`; `Invalid` with line and column for text that is
/// not SQL; `Invalid` with an alternative for statements that write, for more than one statement, and for one
/// that is nested too deeply or too large ([`tree::bound`]).
pub(crate) fn parse(state: &SessionState, text: &str, bytes_max: usize) -> Result<(Statement, Mentions)> {
    check_size(text, bytes_max)?;
    stack::parsing(text, || {
        let mut statement = one_statement(state, text)?;
        // before `bound` rewrites expressions, because columns are named by their original text
        let named = names::name_columns(&mut statement);
        tree::bound(&mut statement, text)?;
        check_read_only(&statement)?;
        let mentions = pg_catalog::rewrite(&mut statement, text, &named)?;
        Ok((statement, mentions))
    })?
}

/// Checks that a text may be parsed.
///
/// Errors: `LimitReached` for text longer than `bytes_max`; `Invalid` for too many brackets.
pub(crate) fn check_size(text: &str, bytes_max: usize) -> Result<()> {
    if text.len() > bytes_max {
        return Err(Error::limit(format!(
            "the query is {} bytes long, the limit is {bytes_max} (`sql.text_bytes_max`)",
            text.len()
        )));
    }
    match tree::too_many_brackets(text) {
        true => Err(nested()),
        false => Ok(()),
    }
}

/// Parses one statement, whatever it does.
///
/// Errors: those of the syntax, with their place; there is more than one.
pub(crate) fn one_statement(state: &SessionState, text: &str) -> Result<Statement> {
    let levels = state.config_options().sql_parser.recursion_limit.get();
    let tokens = asof::tokens(text, &TidemillDialect)?;
    let has_asof = tokens.is_some();
    let builder = match tokens {
        Some(tokens) => DFParserBuilder::new(tokens),
        None => DFParserBuilder::new(text),
    };
    let parsed = builder
        .with_dialect(&TidemillDialect)
        .with_recursion_limit(levels)
        .build()
        .and_then(|mut parser| parser.parse_statements());
    let mut statements = parsed.map_err(|e| syntax(&e, text))?;
    if statements.len() > 1 {
        return Err(Error::invalid("more than one statement: send them one at a time"));
    }
    let mut statement = statements
        .pop_front()
        .ok_or_else(|| Error::invalid("the query is empty: type, for example, SELECT 1 or SHOW TABLES"))?;
    if has_asof {
        asof::rewrite(&mut statement)?;
    }
    Ok(statement)
}

fn nested() -> Error {
    Error::invalid(
        "the query is nested too deeply: brackets, functions and queries inside one another may be 50 levels deep. Take \
         inner queries out with WITH name AS (…)",
    )
}

fn syntax(error: &DataFusionError, text: &str) -> Error {
    match error {
        DataFusionError::Diagnostic(_, inner) => syntax(inner, text),
        DataFusionError::SQL(inner, _) => match inner.as_ref() {
            ParserError::ParserError(message) | ParserError::TokenizerError(message) => {
                located(message, text)
            }
            ParserError::RecursionLimitExceeded => nested(),
        },
        other => from_datafusion(other, Some(text)),
    }
}

/// Moves the parser's ` at Line: 1, Column: 8` to the front, in our format.
fn located(message: &str, text: &str) -> Error {
    let in_our_words =
        |what: &str| what.replacen("Expected: ", "expected ", 1).replace(", found: ", ", found ");
    if let Some(what) = message.strip_suffix(", found: EOF") {
        let line = text.lines().count().max(1);
        let column = text.lines().last().map_or(0, |l| l.chars().count()) + 1;
        let at = place(text, line as u64, column as u64);
        return Error::invalid(format!("{at}: {}, found the end of the query", in_our_words(what)));
    }
    let Some((what, at)) = message.rsplit_once(" at Line: ") else {
        return Error::invalid(in_our_words(message));
    };
    let mut numbers = at.split(", Column: ").map(|n| n.trim().parse::<u64>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(line)), Some(Ok(column))) => {
            Error::invalid(format!("{}: {}", place(text, line, column), in_our_words(what)))
        }
        _ => Error::invalid(in_our_words(message)),
    }
}

fn check_read_only(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Statement(ast) => check_read_only_ast(ast),
        Statement::Explain(explain) => match explain.statement.as_ref() {
            Statement::Statement(ast) => check_explained(ast),
            other => check_read_only(other),
        },
        Statement::CopyTo(_) => Err(not_supported("COPY", EXPORT)),
        Statement::CreateExternalTable(_) => Err(not_supported("CREATE", DECLARE)),
        Statement::Reset(_) => Err(not_supported("RESET", SETTINGS)),
    }
}

const SEND: &str =
    "send events to a stream (POST /api/v1/streams/NAME), change documents through their collection";
const INSERT: &str = "begin with INSERT INTO a stream, with the query behind it";
const DECLARE: &str = "streams are declared in the app's rules, collections appear with their first document";
const EXPORT: &str = "run the query with the output format csv, json or ndjson and keep what it prints";
const SETTINGS: &str = "limits of queries are settings of the app: sql.memory_bytes, sql.query_timeout …";
const SNAPSHOT: &str = "every query reads one snapshot by itself";
const TABLES: &str =
    "SHOW TABLES lists the tables of the schemas events, docs and system; there is one database";
const DIRECT: &str = "send the query itself";

fn not_supported(verb: &str, instead: &str) -> Error {
    Error::invalid(format!("{verb} is not supported. Instead: {instead}"))
}

fn check_explained(ast: &Ast) -> Result<()> {
    match ast {
        Ast::Insert(_) => Err(not_supported("EXPLAIN of INSERT", "explain its query")),
        other => check_read_only_ast(other),
    }
}

fn check_read_only_ast(ast: &Ast) -> Result<()> {
    let instead = match ast {
        Ast::Query(_)
        | Ast::ShowTables { .. }
        | Ast::ShowColumns { .. }
        | Ast::ShowVariable { .. }
        | Ast::ShowVariables { .. }
        | Ast::ShowFunctions { .. }
        | Ast::ExplainTable { .. } => {
            let mut visitor = WriteFinder(None);
            let _ = ast.visit(&mut visitor);
            return visitor.0.map_or(Ok(()), Err);
        }
        Ast::Explain { statement, .. } => return check_explained(statement),
        Ast::Insert(_) => INSERT,
        Ast::Update { .. } | Ast::Delete(_) | Ast::Merge { .. } | Ast::Truncate { .. } => SEND,
        Ast::Copy { .. } | Ast::CopyIntoSnowflake { .. } | Ast::Unload { .. } => EXPORT,
        Ast::Set(_) => SETTINGS,
        Ast::StartTransaction { .. } | Ast::Commit { .. } | Ast::Rollback { .. } | Ast::Savepoint { .. } => {
            SNAPSHOT
        }
        Ast::Prepare { .. } | Ast::Execute { .. } | Ast::Deallocate { .. } => DIRECT,
        Ast::ShowDatabases { .. } | Ast::ShowSchemas { .. } | Ast::ShowCatalogs { .. } => TABLES,
        Ast::CreateFunction { .. } => "use the built-in functions: SHOW FUNCTIONS lists them",
        Ast::CreateView { .. } => "put the inner query into WITH name AS (…)",
        _ => DECLARE,
    };
    let text = ast.to_string();
    let words = if text.starts_with("SHOW ") { 2 } else { 1 };
    let verb: Vec<&str> = text.split_whitespace().take(words).collect();
    Err(not_supported(&verb.join(" "), instead))
}

/// Visitor that finds a write inside a query, such as `WITH x AS (INSERT …)` or `SELECT … INTO t`.
struct WriteFinder(Option<Error>);

impl Visitor for WriteFinder {
    type Break = ();

    fn pre_visit_query(
        &mut self,
        query: &datafusion::logical_expr::sqlparser::ast::Query,
    ) -> ControlFlow<Self::Break> {
        let found = match query.body.as_ref() {
            SetExpr::Insert(_) => Some(not_supported("INSERT inside of a query", INSERT)),
            SetExpr::Update(_) => Some(not_supported("UPDATE", SEND)),
            SetExpr::Delete(_) => Some(not_supported("DELETE", SEND)),
            SetExpr::Merge(_) => Some(not_supported("MERGE", SEND)),
            SetExpr::Select(select) if select.into.is_some() => Some(not_supported("SELECT INTO", EXPORT)),
            _ => None,
        };
        match found {
            Some(error) => {
                self.0 = Some(error);
                ControlFlow::Break(())
            }
            None => ControlFlow::Continue(()),
        }
    }
}
