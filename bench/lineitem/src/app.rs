//! The app that keeps the line items.

use std::path::Path;

use anyhow::Result;
use tidemill::{App, Tidemill};

/// Tidemill has no decimals and no dates: amounts are doubles, dates are times at midnight.
const STREAM: &str = "\
event lineitem {
  l_orderkey: long, l_partkey: long, l_suppkey: long, l_linenumber: int,
  l_quantity: double, l_extendedprice: double, l_discount: double, l_tax: double,
  l_returnflag: string, l_linestatus: string, l_shipdate: time, l_commitdate: time, l_receiptdate: time,
  l_shipinstruct: string, l_shipmode: string, l_comment: string,
} key l_orderkey time l_shipdate;
";

/// Opens a fresh data directory below `dir`. `on_demand`: everything stays in memory until the benchmark flushes it.
pub fn open(dir: &Path, settings: &[String], on_demand: bool) -> Result<Tidemill> {
    let app = dir.join("app");
    std::fs::create_dir_all(&app)?;
    std::fs::write(app.join("lineitem.rules"), STREAM)?;
    let own = [
        "flush_interval = \"1 day\"",
        "flush_bytes = \"1024GiB\"",
        "tail_bytes = \"1024GiB\"",
        "unflushed_bytes = \"1024GiB\"",
    ];
    let own = own.iter().filter(|_| on_demand).map(|line| (*line).to_owned());
    let lines: Vec<String> = own.chain(settings.iter().cloned()).collect();
    std::fs::write(app.join("app.toml"), format!("name = \"lineitem\"\n[settings]\n{}\n", lines.join("\n")))?;
    Ok(Tidemill::open_with(dir.join("data"), App::read(&app, &[])?)?)
}
