//! `tidemill completions`: scripts by which shells complete commands and options.

use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;

use super::stdio::Stdout;

/// Prints the script by which a shell completes commands and options.
///
/// bash: write it to ~/.local/share/bash-completion/completions/tidemill. zsh: to a file _tidemill in a directory of $fpath.
/// fish: to ~/.config/fish/completions/tidemill.fish.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill completions bash")]
pub struct CompletionsArgs {
    /// Shell for which the script is.
    #[arg(value_enum)]
    shell: Shell,
}

pub fn completions(args: CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "tidemill", &mut script);
    Stdout.write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
