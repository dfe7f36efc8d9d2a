//! Users and tokens: the content of the file, and its changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Result, Timestamp, did_you_mean};

use crate::grant::Grant;
use crate::name::{self, ADMIN};
use crate::principal::{Principal, Proof};
use crate::token::{NewToken, Token};
use crate::verifier::Verifier;

/// Version of the file.
const VERSION: u32 = 1;

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Name, by which messages and logins call the user.
    pub name: String,
    /// Rights, in order and without repetition.
    pub grants: Vec<Grant>,
    /// Verifier of the password; `None` for a user that has tokens only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scram_sha_256: Option<Verifier>,
}

/// Users and tokens of a data directory. The first administrator is not among the users; it has all rights and may have tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    users: BTreeMap<String, User>,
    tokens: BTreeMap<String, Token>,
}

/// The form in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    users: Vec<User>,
    tokens: Vec<Token>,
}

impl Accounts {
    /// Parses the text of a file.
    ///
    /// Errors: `Corrupt` with line and column, or with the name of what occurs twice or is missing.
    pub(crate) fn parse(text: &[u8]) -> Result<Self> {
        let stored: Stored = serde_json::from_slice(text).map_err(|e| {
            let message = e.to_string();
            let message = message.split(" at line ").next().unwrap_or_default();
            Error::new(
                tidemill_types::ErrorKind::Corrupt,
                format!("line {}, column {}: {message}", e.line(), e.column()),
            )
        })?;
        if stored.version != VERSION {
            return Err(Error::corrupt(format!(
                "version {}: this program reads version {VERSION}",
                stored.version
            )));
        }
        let mut accounts = Self::default();
        for user in stored.users {
            name::check(&user.name).map_err(|e| Error::corrupt(e.message()))?;
            let name = user.name.clone();
            if accounts.users.insert(name.clone(), user).is_some() {
                return Err(Error::corrupt(format!("user `{name}` is there twice: remove one of them")));
            }
        }
        for token in stored.tokens {
            if token.user != ADMIN && !accounts.users.contains_key(&token.user) {
                return Err(Error::corrupt(format!(
                    "token `{}` is of user `{}`, who is not there: remove the token or add the user",
                    token.id, token.user
                )));
            }
            let id = token.id.clone();
            if accounts.tokens.insert(id.clone(), token).is_some() {
                return Err(Error::corrupt(format!("token `{id}` is there twice: remove one of them")));
            }
        }
        Ok(accounts)
    }

    /// Returns the text of a file.
    pub(crate) fn to_text(&self) -> Result<String> {
        let stored = Stored {
            version: VERSION,
            users: self.users.values().cloned().collect(),
            tokens: self.tokens.values().cloned().collect(),
        };
        let text = serde_json::to_string_pretty(&stored);
        text.map(|text| text + "\n").map_err(|e| Error::internal("users and tokens as JSON").with_source(e))
    }

    /// Returns the users by name.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// Returns the user of this name.
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// Returns the tokens by id.
    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.tokens.values()
    }

    /// Returns the rights of a user, or of the first administrator.
    fn grants(&self, user: &str) -> Option<Vec<Grant>> {
        match user {
            ADMIN => Some(vec![Grant::everything()]),
            name => self.users.get(name).map(|user| user.grants.clone()),
        }
    }

    /// Returns the caller who has proven to know the password that `verifier` checks; `None` if it is not that of the user any more.
    pub(crate) fn principal_of_login(&self, name: &str, verifier: &Verifier) -> Option<Principal> {
        let user = self.users.get(name).filter(|user| user.scram_sha_256.as_ref() == Some(verifier))?;
        let proof = Proof::Password(verifier.clone());
        Some(Principal::with_proof(name, proof, user.grants.clone(), None))
    }

    /// Returns a user as a caller, without a proof.
    pub(crate) fn principal_of_user(&self, name: &str) -> Option<Principal> {
        self.users.get(name).map(|user| Principal::user(name, user.grants.clone()))
    }

    /// Returns the caller who has this token.
    pub(crate) fn principal_of_token(&self, token: &Token) -> Option<Principal> {
        let grants = self.grants(&token.user)?;
        let proof = Proof::Token { id: token.id.clone(), secret: token.sha256 };
        Some(Principal::with_proof(&token.user, proof, grants, token.limits.clone()))
    }

    /// Returns the token of this id.
    pub(crate) fn token(&self, id: &str) -> Option<&Token> {
        self.tokens.get(id)
    }

    /// Adds a user.
    ///
    /// Errors: `Invalid` for a name that cannot be one; `Conflict` if the user is there.
    pub fn add_user(&mut self, name: &str, grants: Vec<Grant>, password: Option<Verifier>) -> Result<()> {
        name::check(name)?;
        if self.users.contains_key(name) {
            return Err(Error::conflict(format!(
                "user `{name}` is there already: `tidemill users grant {name} ROLE PATTERN` adds rights, \
                 `tidemill users password {name}` sets another password"
            )));
        }
        let mut user = User { name: name.to_owned(), grants, scram_sha_256: password };
        user.sort();
        self.users.insert(name.to_owned(), user);
        Ok(())
    }

    /// Removes a user with all tokens. Returns how many tokens there were.
    ///
    /// Errors: `NotFound`.
    pub fn remove_user(&mut self, name: &str) -> Result<usize> {
        self.user_mut(name)?;
        self.users.remove(name);
        let before = self.tokens.len();
        self.tokens.retain(|_, token| token.user != name);
        Ok(before - self.tokens.len())
    }

    /// Adds a grant. Returns whether the user did not have it.
    ///
    /// Errors: `NotFound`.
    pub fn grant(&mut self, name: &str, grant: Grant) -> Result<bool> {
        let user = self.user_mut(name)?;
        if user.grants.contains(&grant) {
            return Ok(false);
        }
        user.grants.push(grant);
        user.sort();
        Ok(true)
    }

    /// Removes a grant.
    ///
    /// Errors: `NotFound`, with the grants that the user has: only a grant that is written in this way can be removed.
    pub fn revoke(&mut self, name: &str, grant: &Grant) -> Result<()> {
        let user = self.user_mut(name)?;
        let before = user.grants.len();
        user.grants.retain(|known| known != grant);
        if user.grants.len() < before {
            return Ok(());
        }
        let known: Vec<String> = user.grants.iter().map(|grant| format!("`{grant}`")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Error::not_found(format!("user `{name}` has no grant `{grant}`. Grants of the user: {known}")))
    }

    /// Sets the password of a user; `None` ends logins by password.
    ///
    /// Errors: `NotFound`.
    pub fn set_password(&mut self, name: &str, password: Option<Verifier>) -> Result<()> {
        self.user_mut(name)?.scram_sha_256 = password;
        Ok(())
    }

    /// Makes a token of a user, or of the first administrator.
    ///
    /// Errors: `NotFound`.
    pub fn new_token(
        &mut self,
        user: &str,
        limits: Option<Vec<Grant>>,
        now: Timestamp,
        expires: Option<Timestamp>,
    ) -> Result<NewToken> {
        if user != ADMIN {
            self.user_mut(user)?;
        }
        let new = Token::create(user, limits, now, expires);
        self.tokens.insert(new.token.id.clone(), new.token.clone());
        Ok(new)
    }

    /// Gives a token another secret; the former one is not accepted any more.
    ///
    /// Errors: `NotFound`.
    pub fn rotate_token(&mut self, id: &str, now: Timestamp) -> Result<NewToken> {
        let token = self.tokens.get(id).cloned().ok_or_else(|| self.no_token(id))?;
        let new = token.with_new_secret(now);
        self.tokens.insert(id.to_owned(), new.token.clone());
        Ok(new)
    }

    /// Removes a token.
    ///
    /// Errors: `NotFound`.
    pub fn revoke_token(&mut self, id: &str) -> Result<Token> {
        self.tokens.remove(id).ok_or_else(|| self.no_token(id))
    }

    fn no_token(&self, id: &str) -> Error {
        let hint = match self.tokens.is_empty() {
            true => ". There are no tokens yet: `tidemill tokens new USER` makes one".to_owned(),
            false => did_you_mean(id, self.tokens.keys().map(String::as_str)),
        };
        Error::not_found(format!("there is no token `{id}`{hint}"))
    }

    fn user_mut(&mut self, name: &str) -> Result<&mut User> {
        if name == ADMIN {
            return Err(Error::invalid(format!(
                "`{ADMIN}` is the first administrator, who has all rights and the token of the data directory, `DATA/token`: \
                 it cannot be changed here"
            )));
        }
        if !self.users.contains_key(name) {
            let hint = match self.users.is_empty() {
                true => format!(". There are no users yet: `tidemill users add {name}` adds one"),
                false => did_you_mean(name, self.users.keys().map(String::as_str)),
            };
            return Err(Error::not_found(format!("there is no user `{name}`{hint}")));
        }
        Ok(self.users.get_mut(name).expect("it was found above"))
    }
}

impl User {
    fn sort(&mut self) {
        self.grants.sort_by(|a, b| (&a.pattern, a.role).cmp(&(&b.pattern, b.role)));
        self.grants.dedup();
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::ErrorKind;

    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    fn accounts() -> Accounts {
        let mut accounts = Accounts::default();
        accounts.add_user("ana", vec!["write *".parse().unwrap(), "read *".parse().unwrap()], None).unwrap();
        accounts
    }

    #[test]
    fn accounts_are_read_as_they_are_written() {
        let mut accounts = accounts();
        accounts.set_password("ana", Some(Verifier::new("secret"))).unwrap();
        accounts.new_token("ana", None, NOW, None).unwrap();
        accounts.new_token("admin", Some(vec!["read".parse().unwrap()]), NOW, Some(NOW)).unwrap();
        let text = accounts.to_text().unwrap();
        assert_eq!(Accounts::parse(text.as_bytes()).unwrap(), accounts);
    }

    #[test]
    fn grants_come_and_go_as_they_are_written() {
        let mut accounts = accounts();
        let grants = |accounts: &Accounts| {
            accounts.user("ana").unwrap().grants.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(grants(&accounts), ["read *", "write *"]);
        assert!(!accounts.grant("ana", "read".parse().unwrap()).unwrap());
        accounts.revoke("ana", &"write *".parse().unwrap()).unwrap();
        assert_eq!(grants(&accounts), ["read *"]);
        let error = accounts.revoke("ana", &"read stream:a".parse().unwrap()).unwrap_err();
        assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("`read *`"), "{error}");
    }

    #[test]
    fn a_user_who_goes_takes_its_tokens() {
        let mut accounts = accounts();
        accounts.new_token("ana", None, NOW, None).unwrap();
        accounts.new_token("admin", None, NOW, None).unwrap();
        assert_eq!(accounts.remove_user("ana").unwrap(), 1);
        assert_eq!(accounts.tokens().map(|token| token.user.as_str()).collect::<Vec<_>>(), ["admin"]);
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let mut accounts = accounts();
        for (error, hint) in [
            (accounts.remove_user("anna").unwrap_err(), "Did you mean `ana`?"),
            (accounts.new_token("eva", None, NOW, None).unwrap_err(), "ana"),
            (accounts.revoke_token("x").unwrap_err(), "tidemill tokens new"),
            (accounts.rotate_token("x", NOW).unwrap_err(), "tidemill tokens new"),
            (accounts.add_user("ana", vec![], None).unwrap_err(), "tidemill users grant ana"),
            (accounts.add_user("admin", vec![], None).unwrap_err(), "choose another name"),
            (accounts.remove_user("admin").unwrap_err(), "first administrator"),
        ] {
            assert!(error.to_string().contains(hint), "{error}");
        }
    }

    #[test]
    fn a_damaged_file_is_refused_with_its_place() {
        let good = accounts().to_text().unwrap();
        for (from, to, hint) in [
            ("\"read *\"", "\"reed *\"", "line 7, column 16: `reed` is not a role. Did you mean `read`?"),
            ("\"read *\"", "\"read streams:x\"", "Did you mean `stream`?"),
            ("\"version\": 1", "\"version\": 2", "version 2: this program reads version 1"),
            ("\"name\"", "\"nme\"", "unknown field `nme`"),
            ("]", "", "line "),
            ("\"name\": \"ana\"", "\"name\": \"admin\"", "choose another name"),
        ] {
            let error = Accounts::parse(good.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(hint), "{error}");
        }
        let mut orphan = accounts();
        orphan.new_token("ana", None, NOW, None).unwrap();
        let text = orphan.to_text().unwrap().replace("\"name\": \"ana\"", "\"name\": \"eva\"");
        let error = Accounts::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("`ana`, who is not there"), "{error}");
    }
}
