//! `tidemill keys`: makes wrapping keys, and wraps the keys of a data directory again.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

/// Makes keys for encrypted data, and wraps those of a data directory with another one.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill keys new 2026")]
pub struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Subcommand)]
enum KeysCommand {
    /// Prints a line with a new random key for a key file. It is secret.
    New {
        /// Name of the key, by which the key ring remembers it.
        name: String,
    },
    /// Wraps the keys of a data directory that no program has open with the first key of its key file. The next start does so,
    /// too.
    Rotate {
        /// Data directory.
        #[arg(long, env = "TIDEMILL_DATA", value_name = "DIR")]
        data: PathBuf,
    },
}

pub fn keys(args: KeysArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        KeysCommand::New { name } => println!("{}", *tidemill_encryption::new_key_line(&name)?),
        KeysCommand::Rotate { data } => {
            let done = tidemill_engine::rotate_keys(&data)?;
            println!("{}: the keys are wrapped by `{}` now", data.display(), done.now);
            let unneeded: Vec<String> = done
                .before
                .iter()
                .filter(|name| **name != done.now)
                .map(|name| format!("`{name}`"))
                .collect();
            if !unneeded.is_empty() {
                println!("it does not need {} any more; its backups from before do", unneeded.join(", "));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
