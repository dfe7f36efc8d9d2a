//! Databases that the stream functions `rdbms:query` and `rdbms:cud` send statements to.

use tidemill_connect::{
    DataSource, DataSourceContext, DataSourceType, OptionError, OptionSpec, Options, StoredRow, TypedValue,
    WritePosition,
};
use tidemill_relational::{DatabaseUrl, StatementRunner};
use tidemill_types::{EventId, FieldType, Result};

use crate::stores::StoreCalls;

/// Options of `[datasources.NAME]`. Those of connection pools have no effect: an app has one connection.
const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("url", "Address of the database.").alias("jdbc.url").required().secret(),
    OptionSpec::text("username", "User."),
    OptionSpec::text("password", "Password of the user.").secret(),
];

/// Opens databases.
pub(super) struct RdbmsDataSourceType;

impl DataSourceType for RdbmsDataSourceType {
    fn create(
        &self,
        options: &[(String, String)],
        context: &DataSourceContext,
    ) -> Result<Box<dyn DataSource>, OptionError> {
        let is_known = |name: &str| ["url", "jdbc.url", "username", "password"].contains(&name);
        let known: Vec<_> = options.iter().filter(|(name, _)| is_known(name)).cloned().collect();
        let options = Options::check(OPTIONS, &known, &format!("the data source `{}`", context.name))?;
        let url =
            DatabaseUrl::parse(options.text("url")).map_err(|message| OptionError::option("url", message))?;
        let text = |name: &str| options.get(name).map(str::to_owned);
        let writer = format!("{}/{} (rdbms:cud)", context.writer, context.name);
        let runner = StatementRunner::new(url, text("username"), text("password"), &writer)
            .map_err(OptionError::connector)?;
        let calls =
            StoreCalls { table: format!("data source {}", context.name), monitor: context.monitor.clone() };
        Ok(Box::new(RdbmsDataSource { runner, calls }))
    }
}

struct RdbmsDataSource {
    runner: StatementRunner,
    calls: StoreCalls,
}

impl DataSource for RdbmsDataSource {
    fn query(
        &mut self,
        statement: &str,
        parameters: &[TypedValue],
        columns: &[FieldType],
    ) -> Result<Vec<StoredRow>> {
        let runner = &mut self.runner;
        self.calls.until_reached(|| runner.query(statement, parameters, columns))
    }

    fn execute(
        &mut self,
        statement: &str,
        parameters: &[TypedValue],
        at: Option<WritePosition>,
    ) -> Result<Option<u64>> {
        let at = at.map(|at| EventId { partition: at.partition, offset: at.offset, row: at.call });
        let runner = &mut self.runner;
        self.calls.until_reached(|| runner.execute(statement, parameters, at))
    }
}
