//! `tidemill tokens`: the tokens of users, for programs that speak HTTP.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Subcommand;
use tidemill::access::{Accounts, Grant, NewToken};
use tidemill::{Duration, Timestamp};

use crate::cli::admin::users::DirectoryArgs;
use crate::cli::ask::columns::print_columns;

/// Makes, lists, rotates and revokes tokens of users, which programs send over HTTP: `Authorization: Bearer TOKEN`.
///
/// A running server follows within a second. The file of users has hashes only: a token is shown once, when it is made.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  tidemill tokens new admin --expires 30d --limit 'read *' --data data\n  tidemill tokens list --data data"
)]
pub struct TokensArgs {
    #[command(subcommand)]
    command: TokensCommand,
}

#[derive(Subcommand)]
enum TokensCommand {
    /// Makes a token and prints it, on standard output alone.
    New {
        /// User whose rights it has; `admin` is the first administrator.
        user: String,
        /// Grant that limits the token, such as 'read stream:Orders': it has the rights of the user that a limit allows. Can be
        /// repeated.
        #[arg(long = "limit", value_name = "ROLE PATTERN")]
        limits: Vec<Grant>,
        /// Time after which the token is not accepted any more, such as 30d or 12h.
        #[arg(long, value_name = "DURATION", value_parser = Duration::parse)]
        expires: Option<Duration>,
        #[command(flatten)]
        directory: DirectoryArgs,
    },
    /// Lists the tokens, without their secrets.
    List {
        #[command(flatten)]
        directory: DirectoryArgs,
    },
    /// Gives a token another secret and prints it. The former one is not accepted any more.
    Rotate {
        /// Id of the token, as `tidemill tokens list` shows it.
        id: String,
        #[command(flatten)]
        directory: DirectoryArgs,
    },
    /// Revokes a token.
    Revoke {
        /// Id of the token, as `tidemill tokens list` shows it.
        id: String,
        #[command(flatten)]
        directory: DirectoryArgs,
    },
}

pub fn tokens(args: TokensArgs) -> anyhow::Result<ExitCode> {
    let now = now();
    match args.command {
        TokensCommand::New { user, limits, expires, directory } => {
            let limits = Some(limits).filter(|limits| !limits.is_empty());
            let expires = expires.map(|after| now.0.checked_add(after.0).map(Timestamp));
            let expires =
                expires.map(|time| time.context("--expires: the time is too far away")).transpose()?;
            let new = directory.file()?.update(|accounts| accounts.new_token(&user, limits, now, expires))?;
            show(&new);
        }
        TokensCommand::List { directory } => list(&directory.file()?.read()?, now),
        TokensCommand::Rotate { id, directory } => {
            show(&directory.file()?.update(|accounts| accounts.rotate_token(&id, now))?);
        }
        TokensCommand::Revoke { id, directory } => {
            let token = directory.file()?.update(|accounts| accounts.revoke_token(&id))?;
            println!("token {id} of user {} is revoked", token.user);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a new token: the token itself on standard output, so that a script can keep it, and the rest elsewhere.
fn show(new: &NewToken) {
    let until = new.token.expires.map(|time| format!(" until {time}")).unwrap_or_default();
    eprintln!("token {} of user {}{until}; it is shown only now:", new.token.id, new.token.user);
    println!("{}", new.text);
}

fn list(accounts: &Accounts, now: Timestamp) {
    let rows: Vec<[String; 5]> = accounts
        .tokens()
        .map(|token| {
            let expires = match token.expires {
                None => "never".to_owned(),
                Some(time) if token.is_valid(now) => time.to_string(),
                Some(time) => format!("{time} (expired)"),
            };
            let limits = match &token.limits {
                None => "none".to_owned(),
                Some(limits) => limits.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            };
            [token.id.clone(), token.user.clone(), token.created.to_string(), expires, limits]
        })
        .collect();
    print_columns(["id", "user", "created", "expires", "limits"], &rows);
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // whole seconds, as people read them
    Timestamp(i64::try_from(since.as_secs()).map_or(i64::MAX, |seconds| seconds.saturating_mul(1_000_000)))
}
