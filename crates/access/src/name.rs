//! Names of users.

use tidemill_types::{Error, Result};

/// The first administrator. The token of the data directory, `DATA/token`, is this user's, and the password for MongoDB drivers.
pub const ADMIN: &str = "admin";
/// The caller of a server that needs no login.
pub(crate) const LOCAL: &str = "local";
/// Code of the process itself.
pub(crate) const SYSTEM: &str = "system";

const CHARS_MAX: usize = 64;

/// Returns whether the name is one of the server's own users.
pub(crate) fn is_own(name: &str) -> bool {
    [ADMIN, LOCAL, SYSTEM].contains(&name)
}

/// Checks the name of a new user.
///
/// Errors: `Invalid` for characters other than letters and digits of ASCII, `.`, `_`, `@` and `-`, for more than 64 of them, and for
/// the names that the server uses.
pub(crate) fn check(name: &str) -> Result<()> {
    if is_own(name) {
        return Err(Error::invalid(format!(
            "`{name}` is a user of the server itself: choose another name. `{ADMIN}` has all rights; its token and password are in \
             the file `token` of the data directory"
        )));
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '@', '-'].contains(&c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !starts_well || name.len() > CHARS_MAX || !name.chars().all(is_allowed) {
        return Err(Error::invalid(format!(
            "`{name}` is not a name of a user: expected 1 to {CHARS_MAX} letters, digits, `.`, `_`, `@` and `-`, the first a \
             letter or a digit"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for name in ["ana", "grafana-1", "7", "a.b@c_d"] {
            check(name).unwrap();
        }
        for name in ["", "-a", "a b", "a,b", "ä", "admin", "local", "system", &"x".repeat(65)] {
            assert!(check(name).is_err(), "{name}");
        }
    }
}
