//! Who may do what: users and tokens in one file, roles, grants by pattern, and the check that every front end makes.
//!
//! ```
//! use tidemill_access::{Action, Grant, Principal, Resource};
//!
//! # fn main() -> tidemill_types::Result<()> {
//! let grants: Vec<Grant> = vec!["read stream:Orders*".parse()?, "write collection:docs.*".parse()?];
//! let ana = Principal::user("ana", grants);
//! ana.may(Action::Read, &Resource::stream("OrdersLate"))?;
//! ana.may(Action::Write, &Resource::collection("customers"))?;
//! let refused = ana.may(Action::Write, &Resource::stream("Orders")).unwrap_err();
//! assert!(refused.to_string().contains("tidemill users grant ana write stream:Orders"));
//! # Ok(())
//! # }
//! ```
//!
//! A front end asks [`Access`] for the [`Principal`] behind a token or a login, and the principal for each [`Action`] on a
//! [`Resource`]. [`AccessFile`] reads and changes the [`Accounts`] of a data directory, `access.json`; [`Access`] reads the
//! file again when it has changed, so that the command line and a running server need no connection. The file has no
//! password and no token, only what checks them: a [`Verifier`] for SCRAM-SHA-256 and hashes.
//!
//! The crate knows neither the engine nor a protocol. Code inside of the process acts as [`Principal::system`].

mod access;
mod accounts;
mod file;
mod grant;
mod name;
mod pattern;
mod principal;
mod resource;
mod role;
mod token;
mod verifier;

pub use access::Access;
pub use accounts::{Accounts, User};
pub use file::AccessFile;
pub use grant::Grant;
pub use name::ADMIN;
pub use pattern::Pattern;
pub use principal::Principal;
pub use resource::Resource;
pub use role::{Action, Role};
pub use token::{NewToken, Token};
pub use verifier::{ITERATIONS, SALT_BYTES, Verifier};
