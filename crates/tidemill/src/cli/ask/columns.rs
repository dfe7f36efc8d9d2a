//! Rows of text in columns.

/// Prints rows in columns as wide as their widest text, below their names.
pub fn print_columns<const N: usize>(names: [&str; N], rows: &[[String; N]]) {
    let widths: [usize; N] = std::array::from_fn(|at| {
        let texts = rows.iter().map(|row| row[at].chars().count());
        texts.chain([names[at].len()]).max().unwrap_or(0)
    });
    let line = |texts: [&str; N]| {
        let cells: Vec<String> =
            texts.iter().zip(widths).map(|(text, width)| format!("{text:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    println!("{}", line(names));
    for row in rows {
        println!("{}", line(std::array::from_fn(|at| row[at].as_str())));
    }
}
