//! Option `--set NAME=VALUE` of all commands that read an app.

/// Values for the variables of an app.
#[derive(clap::Args)]
pub struct VarArgs {
    /// Give a variable `${NAME}` of the app a value, in place of the one in its [vars].
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE, for example data=/path/to/files".into()),
    }
}
