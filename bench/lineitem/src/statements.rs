//! The 11 statements.

use tidemill_bench_tsbs::statements::Statement;

/// Name, text, and the column that orders the rows where there is a limit.
const STATEMENTS: [(&str, &str, Option<usize>); 11] = [
    ("01_count_star_interval", include_str!("../statements/01_count_star_interval.sql"), None),
    ("02_sum_price", include_str!("../statements/02_sum_price.sql"), None),
    ("03_sum_all", include_str!("../statements/03_sum_all.sql"), None),
    ("04_sum_all_year", include_str!("../statements/04_sum_all_year.sql"), None),
    ("05_sum_all_filter", include_str!("../statements/05_sum_all_filter.sql"), None),
    ("06_top_100_parts", include_str!("../statements/06_top_100_parts.sql"), Some(1)),
    ("07_top_100_parts_details", include_str!("../statements/07_top_100_parts_details.sql"), Some(1)),
    ("08_top_100_parts_filter", include_str!("../statements/08_top_100_parts_filter.sql"), Some(1)),
    ("09_top_100_commitdate", include_str!("../statements/09_top_100_commitdate.sql"), Some(1)),
    ("10_complex_orderkey", include_str!("../statements/10_complex_orderkey.sql"), None),
    ("11_complex_partkey_orderkey", include_str!("../statements/11_complex_partkey_orderkey.sql"), None),
];

/// Returns them in order. Tidemill and DuckDB understand the same texts.
pub fn statements() -> Vec<Statement> {
    let statement = |(name, text, key): &(&str, &str, Option<usize>)| Statement {
        name: (*name).to_owned(),
        text: text.trim().to_owned(),
        key: *key,
    };
    STATEMENTS.iter().map(statement).collect()
}
