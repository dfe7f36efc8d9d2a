//! `tidemill query`: on-demand queries over tables, named windows and aggregations of SiddhiQL apps.

use std::io::Write;
use std::process::ExitCode;

use crate::cli::DataArgs;
use crate::cli::ask::sql::Session;
use crate::cli::stdio::Stdout;

/// Asks or changes a table of a *.siddhi file, or asks a named window or an aggregation.
///
/// The query is an on-demand query of SiddhiQL. Rows come as JSON arrays, one a line.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  tidemill query --data data 'from Last on price > 10.0 select symbol, price'"
)]
pub struct QueryArgs {
    #[command(flatten)]
    data: DataArgs,
    /// The query.
    query: String,
    /// The file that is meant, where several have a table of that name.
    #[arg(long, value_name = "FILE")]
    app: Option<String>,
}

pub fn query(args: QueryArgs) -> anyhow::Result<ExitCode> {
    let rows: Vec<Vec<serde_json::Value>> = match Session::open(&args.data)? {
        Session::Remote(client) => {
            let mut body = serde_json::json!({ "query": args.query });
            if let Some(app) = &args.app {
                body["app"] = app.as_str().into();
            }
            let mut reply = client.post("/api/v1/siddhi/query", &body)?;
            serde_json::from_value(reply["records"].take())?
        }
        Session::Local(tidemill) => tidemill.engine().query_on_demand(args.app.as_deref(), &args.query)?,
    };
    let mut out = std::io::BufWriter::new(Stdout);
    for row in rows {
        serde_json::to_writer(&mut out, &row)?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
