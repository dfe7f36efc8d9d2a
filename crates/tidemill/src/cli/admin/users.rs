//! `tidemill users`: the users of a data directory, and what they may do.

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use tidemill::access::{ADMIN, AccessFile, Grant, Pattern, Role, User, Verifier};

use crate::cli::ask::columns::print_columns;

/// Environment variable with the password of a user.
pub const PASSWORD_VARIABLE: &str = "TIDEMILL_PASSWORD";

/// Adds, lists and changes users of a data directory: who may do what over HTTP and for MongoDB drivers.
///
/// A running server follows within a second. Roles: read, write, author, admin; each has the rights of those before it.
/// Patterns: `*` (everything), `server`, or a kind and a name with `*` for any characters: stream:Orders*,
/// collection:docs.orders, table:Last, system:ledger, rule:LateTakeOff, query:average.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  tidemill users add grafana --no-password --grant 'read stream:*' --data data\n  tidemill users grant grafana write collection:docs.notes --data data\n  tidemill users list --data data"
)]
pub struct UsersArgs {
    #[command(subcommand)]
    command: UsersCommand,
}

#[derive(Subcommand)]
enum UsersCommand {
    /// Adds a user. The password, for MongoDB drivers, is read from the environment variable TIDEMILL_PASSWORD, or else asked for,
    /// or else the first line of standard input.
    Add {
        /// Name of the user.
        name: String,
        /// Role, and the objects on which the user has it: 'read stream:Orders*'. A role alone is on everything. Can be repeated.
        #[arg(long = "grant", value_name = "ROLE PATTERN")]
        grants: Vec<Grant>,
        /// The user has no password: it has tokens only, for HTTP.
        #[arg(long)]
        no_password: bool,
        #[command(flatten)]
        directory: DirectoryArgs,
    },
    /// Lists the users and their grants.
    List {
        #[command(flatten)]
        directory: DirectoryArgs,
    },
    /// Grants a role on the objects of a pattern.
    Grant {
        /// Name of the user.
        name: String,
        /// read, write, author or admin.
        role: Role,
        /// The objects, such as 'stream:Orders*'.
        #[arg(default_value = "*")]
        pattern: Pattern,
        #[command(flatten)]
        directory: DirectoryArgs,
    },
    /// Revokes a grant, which has to be given as `tidemill users list` shows it.
    Revoke {
        /// Name of the user.
        name: String,
        /// read, write, author or admin.
        role: Role,
        /// The objects, such as 'stream:Orders*'.
        #[arg(default_value = "*")]
        pattern: Pattern,
        #[command(flatten)]
        directory: DirectoryArgs,
    },
    /// Removes a user with all tokens.
    Remove {
        /// Name of the user.
        name: String,
        #[command(flatten)]
        directory: DirectoryArgs,
    },
    /// Sets another password, which is read as `add` reads it.
    Password {
        /// Name of the user.
        name: String,
        /// Remove the password: the user has tokens only.
        #[arg(long)]
        none: bool,
        #[command(flatten)]
        directory: DirectoryArgs,
    },
}

/// The data directory of users and tokens.
#[derive(clap::Args)]
pub struct DirectoryArgs {
    /// Data directory.
    #[arg(long, env = "TIDEMILL_DATA", value_name = "DIR")]
    data: PathBuf,
}

impl DirectoryArgs {
    /// Returns the file of users and tokens.
    ///
    /// Errors: there is no data directory.
    pub fn file(&self) -> anyhow::Result<AccessFile> {
        if !is_data_directory(&self.data) {
            bail!("{} is not a data directory: `tidemill run APP --data {0}` makes one", self.data.display());
        }
        Ok(AccessFile::in_directory(&self.data))
    }
}

fn is_data_directory(path: &Path) -> bool {
    path.join("meta.json").is_file()
}

pub fn users(args: UsersArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        UsersCommand::Add { name, grants, no_password, directory } => {
            let file = directory.file()?;
            // a name that cannot be added is refused before a password is asked for
            file.read()?.add_user(&name, vec![], None)?;
            let password = if no_password { None } else { Some(read_password(&name)?) };
            file.update(|accounts| accounts.add_user(&name, grants, password))?;
            print_grants(&file, &name)?;
        }
        UsersCommand::List { directory } => list(&directory.file()?)?,
        UsersCommand::Grant { name, role, pattern, directory } => {
            let file = directory.file()?;
            file.update(|accounts| accounts.grant(&name, Grant { role, pattern }))?;
            print_grants(&file, &name)?;
        }
        UsersCommand::Revoke { name, role, pattern, directory } => {
            let file = directory.file()?;
            file.update(|accounts| accounts.revoke(&name, &Grant { role, pattern }))?;
            print_grants(&file, &name)?;
        }
        UsersCommand::Remove { name, directory } => {
            let tokens = directory.file()?.update(|accounts| accounts.remove_user(&name))?;
            println!("user {name} is removed, and {tokens} of its tokens");
        }
        UsersCommand::Password { name, none, directory } => {
            let file = directory.file()?;
            file.read()?.set_password(&name, None)?;
            let password = if none { None } else { Some(read_password(&name)?) };
            file.update(|accounts| accounts.set_password(&name, password))?;
            println!("user {name}: the password is {}", if none { "removed" } else { "set" });
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_grants(file: &AccessFile, name: &str) -> anyhow::Result<()> {
    let accounts = file.read()?;
    let user = accounts.user(name).with_context(|| format!("user {name} was removed just now"))?;
    println!("user {name}: {}", grants_of(user));
    Ok(())
}

fn grants_of(user: &User) -> String {
    let grants: Vec<String> = user.grants.iter().map(ToString::to_string).collect();
    if grants.is_empty() { "no grants".to_owned() } else { grants.join(", ") }
}

fn list(file: &AccessFile) -> anyhow::Result<()> {
    let accounts = file.read()?;
    let tokens = |name: &str| accounts.tokens().filter(|token| token.user == name).count().to_string();
    let row = |name: &str, password: &str, grants: String| {
        [name.to_owned(), password.to_owned(), tokens(name), grants]
    };
    // its token in the file `token` is not one of those that are counted
    let mut rows = vec![row(ADMIN, "DATA/token", Grant::everything().to_string())];
    for user in accounts.users() {
        let password = if user.scram_sha_256.is_some() { "yes" } else { "no" };
        rows.push(row(&user.name, password, grants_of(user)));
    }
    print_columns(["user", "password", "tokens", "grants"], &rows);
    Ok(())
}

/// Reads a password: from the environment, from the terminal without showing it, or else from standard input.
fn read_password(name: &str) -> anyhow::Result<Verifier> {
    let password = match std::env::var(PASSWORD_VARIABLE) {
        Ok(password) => password,
        Err(_) if std::io::stdin().is_terminal() => {
            let password =
                rpassword::prompt_password(format!("Password of {name}: ")).context("the password")?;
            let again = rpassword::prompt_password("The same again: ").context("the password")?;
            if password != again {
                bail!("the two passwords differ");
            }
            password
        }
        Err(_) => {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).context("the password on standard input")?;
            line.trim_end_matches(['\r', '\n']).to_owned()
        }
    };
    if password.is_empty() {
        bail!(
            "there is no password: set {PASSWORD_VARIABLE}, or give it on standard input; --no-password adds a user that has \
             tokens only"
        );
    }
    Ok(Verifier::of_new_password(&password)?)
}
