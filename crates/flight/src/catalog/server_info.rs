//! `GetSqlInfo`: what the server and its SQL can do.

use std::sync::LazyLock;

use arrow_array::RecordBatch;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetSqlInfo, SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity, SqlSupportedTransaction,
    SqlTransactionIsolationLevel,
};
use arrow_schema::SchemaRef;
use tidemill_types::{Error, Result};

use super::failed;

/// Version of Arrow that reads and writes what travels.
const ARROW_VERSION: &str = "59";

static INFO: LazyLock<Option<SqlInfoData>> = LazyLock::new(|| all().build().ok());

pub(super) fn columns() -> SchemaRef {
    std::sync::Arc::new(SqlInfoDataBuilder::schema().clone())
}

pub(super) fn rows(command: CommandGetSqlInfo) -> Result<RecordBatch> {
    let info = INFO.as_ref().ok_or_else(|| Error::internal("what the server can do cannot be written"))?;
    command.into_builder(info).build().map_err(failed)
}

/// A set of the numbered alternatives of a property.
fn bits<const N: usize>(numbers: [i32; N]) -> i32 {
    numbers.into_iter().fold(0, |bits, number| bits | 1 << number)
}

fn all() -> SqlInfoDataBuilder {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "Tidemill");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, ARROW_VERSION);
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 0_i32);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0_i32);
    for statement in [SqlInfo::SqlDdlCatalog, SqlInfo::SqlDdlSchema, SqlInfo::SqlDdlTable] {
        info.append(statement, false);
    }
    info.append(
        SqlInfo::SqlIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i64,
    );
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(
        SqlInfo::SqlQuotedIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i64,
    );
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i64);
    info.append(SqlInfo::SqlSearchStringEscape, "\\");
    info.append(SqlInfo::SqlExtraNameCharacters, "");
    for supported in [
        SqlInfo::SqlSupportsColumnAliasing,
        SqlInfo::SqlNullPlusNullIsNull,
        SqlInfo::SqlSupportsTableCorrelationNames,
        SqlInfo::SqlSupportsExpressionsInOrderBy,
        SqlInfo::SqlSupportsOrderByUnrelated,
        SqlInfo::SqlSupportsLikeEscapeClause,
        SqlInfo::SqlSupportsNonNullableColumns,
        SqlInfo::SqlCatalogAtStart,
        SqlInfo::SqlCorrelatedSubqueriesSupported,
    ] {
        info.append(supported, true);
    }
    for missing in [
        SqlInfo::SqlSupportsDifferentTableCorrelationNames,
        SqlInfo::SqlSupportsIntegrityEnhancementFacility,
        SqlInfo::SqlSelectForUpdateSupported,
        SqlInfo::SqlStoredProceduresSupported,
        SqlInfo::SqlTransactionsSupported,
        SqlInfo::SqlDataDefinitionCausesTransactionCommit,
        SqlInfo::SqlDataDefinitionsInTransactionsIgnored,
        SqlInfo::SqlBatchUpdatesSupported,
        SqlInfo::SqlSavepointsSupported,
        SqlInfo::SqlNamedParametersSupported,
        SqlInfo::SqlLocatorsUpdateCopy,
        SqlInfo::SqlStoredFunctionsUsingCallSyntaxSupported,
        SqlInfo::SqlMaxRowSizeIncludesBlobs,
    ] {
        info.append(missing, false);
    }
    // unrelated to the selected columns, and beyond them
    info.append(SqlInfo::SqlSupportedGroupBy, bits([0, 1]));
    // minimum and core grammar
    info.append(SqlInfo::SqlSupportedGrammar, bits([0, 1]));
    info.append(SqlInfo::SqlAnsi92SupportedLevel, bits([0]));
    // limited and full outer joins
    info.append(SqlInfo::SqlOuterJoinsSupportLevel, bits([1, 2]));
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    info.append(SqlInfo::SqlProcedureTerm, "function");
    info.append(SqlInfo::SqlCatalogTerm, "catalog");
    // names with schema and catalog stand in queries only
    info.append(SqlInfo::SqlSchemasSupportedActions, 0_i32);
    info.append(SqlInfo::SqlCatalogsSupportedActions, 0_i32);
    info.append(SqlInfo::SqlSupportedPositionedCommands, 0_i32);
    // in comparisons, EXISTS, IN, ANY and ALL
    info.append(SqlInfo::SqlSupportedSubqueries, bits([0, 1, 2, 3]));
    info.append(SqlInfo::SqlSupportedUnions, bits([0, 1]));
    // no limit, or one that is not known
    for number in SqlInfo::SqlMaxBinaryLiteralLength as i32..=SqlInfo::SqlMaxUsernameLength as i32 {
        if number != SqlInfo::SqlMaxRowSizeIncludesBlobs as i32 {
            info.append(number as u32, 0_i64);
        }
    }
    let none = SqlTransactionIsolationLevel::SqlTransactionNone as i32;
    info.append(SqlInfo::SqlDefaultTransactionIsolation, i64::from(none));
    info.append(SqlInfo::SqlSupportedTransactionsIsolationLevels, bits([none]));
    // forward only, to be read
    info.append(SqlInfo::SqlSupportedResultSetTypes, bits([1]));
    info.append(SqlInfo::SqlSupportedConcurrenciesForResultSetForwardOnly, bits([1]));
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_or_all_of_the_properties_are_returned() {
        let one =
            rows(CommandGetSqlInfo { info: vec![SqlInfo::FlightSqlServerName as u32, 99_999] }).unwrap();
        assert_eq!((one.num_rows(), one.schema()), (1, columns()));
        let all = rows(CommandGetSqlInfo { info: vec![] }).unwrap();
        assert!(all.num_rows() > 60, "{}", all.num_rows());
    }
}
