//! Callers, and the check of what they may do.

use std::fmt;
use std::sync::{Arc, LazyLock};

use tidemill_types::{Error, ErrorKind, Result};

use crate::grant::Grant;
use crate::name::{ADMIN, LOCAL, SYSTEM};
use crate::resource::Resource;
use crate::role::Action;
use crate::token::SecretHash;
use crate::verifier::Verifier;

/// Caller whose identity is proven, with its rights at that moment. Clones share them.
#[derive(Clone)]
pub struct Principal(Arc<Inner>);

struct Inner {
    name: String,
    /// Proof by which the caller was let in; `None` for one who needs none.
    proof: Option<Proof>,
    grants: Vec<Grant>,
    /// Limits of the token: what none of them allows is refused.
    limits: Option<Vec<Grant>>,
    /// True if the caller may only read, whatever its grants.
    reads_only: bool,
}

/// Proof of a caller's identity. A caller is let in for as long as it would be accepted again.
#[derive(Debug, Clone)]
pub(crate) enum Proof {
    /// A token, with the secret that it had.
    Token { id: String, secret: SecretHash },
    /// A login by password, with what checked it.
    Password(Verifier),
}

static OWN: LazyLock<[Principal; 3]> =
    LazyLock::new(|| [SYSTEM, LOCAL, ADMIN].map(|name| Principal::user(name, vec![Grant::everything()])));

impl Principal {
    /// Code of the process itself: rules, jobs and callers of the library. It has all rights.
    pub fn system() -> Self {
        OWN[0].clone()
    }

    /// The caller of a server that needs no login, which listens on a loopback address. It has all rights.
    pub fn local() -> Self {
        OWN[1].clone()
    }

    /// The first administrator, who has the token of the data directory. It has all rights.
    pub fn admin() -> Self {
        OWN[2].clone()
    }

    /// A user with these grants.
    pub fn user(name: impl Into<String>, grants: Vec<Grant>) -> Self {
        Self(Arc::new(Inner { name: name.into(), proof: None, grants, limits: None, reads_only: false }))
    }

    /// A user who was let in by a proof. A token may narrow the user's rights to `limits`.
    pub(crate) fn with_proof(
        name: impl Into<String>,
        proof: Proof,
        grants: Vec<Grant>,
        limits: Option<Vec<Grant>>,
    ) -> Self {
        Self(Arc::new(Inner { name: name.into(), proof: Some(proof), grants, limits, reads_only: false }))
    }

    /// Returns the same caller, who may only read what it may read. It is for requests that must not change anything.
    #[must_use]
    pub fn reading_only(&self) -> Self {
        let Inner { name, proof, grants, limits, .. } = &*self.0;
        let (name, proof) = (name.clone(), proof.clone());
        Self(Arc::new(Inner {
            name,
            proof,
            grants: grants.clone(),
            limits: limits.clone(),
            reads_only: true,
        }))
    }

    /// Returns the proof by which the caller was let in.
    pub(crate) fn proof(&self) -> Option<&Proof> {
        self.0.proof.as_ref()
    }

    /// Returns the name of the user.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the id of the token with which the caller was let in.
    pub fn token(&self) -> Option<&str> {
        match self.0.proof.as_ref()? {
            Proof::Token { id, .. } => Some(id),
            Proof::Password(_) => None,
        }
    }

    /// Returns the grants of the user, without the limits of a token.
    pub fn grants(&self) -> &[Grant] {
        &self.0.grants
    }

    /// Returns whether the caller may take the action on the object.
    pub fn can(&self, action: Action, resource: &Resource<'_>) -> bool {
        let allow = |grants: &[Grant]| grants.iter().any(|grant| grant.allows(action, resource));
        self.may_at_all(action) && allow(&self.0.grants) && self.0.limits.as_deref().is_none_or(allow)
    }

    fn may_at_all(&self, action: Action) -> bool {
        !self.0.reads_only || action == Action::Read
    }

    /// Returns whether the caller may take the action on every object, those to come included.
    pub fn can_everywhere(&self, action: Action) -> bool {
        let allow = |grants: &[Grant]| {
            grants.iter().any(|grant| grant.pattern.is_everything() && grant.role.allows(action))
        };
        self.may_at_all(action) && allow(&self.0.grants) && self.0.limits.as_deref().is_none_or(allow)
    }

    /// Checks that the caller may take the action on the object. It is for callers to make the check before they look whether the
    /// object exists, so that the answer does not say so.
    ///
    /// Errors: `Forbidden` with the caller, the right that is missing, the object, and the command that grants it.
    pub fn may(&self, action: Action, resource: &Resource<'_>) -> Result<()> {
        match self.can(action, resource) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Forbidden, self.refusal(action, resource))),
        }
    }

    /// Returns the name by which lists of statements have the caller: that of the user, and for a token with limits `USER/TOKEN`, as it
    /// is not let in for what the user does otherwise.
    pub fn caller(&self) -> String {
        match (&self.0.limits, self.token()) {
            (Some(_), Some(token)) => format!("{}/{token}", self.name()),
            _ => self.name().to_owned(),
        }
    }

    /// Checks that the caller may see or end what `owner`, a [`Self::caller`], does: its own, or that of others as an administrator.
    ///
    /// Errors: those of [`Self::may`].
    pub fn may_manage(&self, owner: &str) -> Result<()> {
        match self.manages(owner) {
            true => Ok(()),
            false => self.may(Action::Administer, &Resource::SERVER),
        }
    }

    /// Returns whether the caller may see or end what `owner`, a [`Self::caller`], does. A user may for the own tokens.
    pub fn manages(&self, owner: &str) -> bool {
        let user = owner.split_once('/').map_or(owner, |(user, _)| user);
        let is_own = self.caller() == owner || self.0.limits.is_none() && self.name() == user;
        is_own || self.can(Action::Administer, &Resource::SERVER)
    }

    /// Returns the message for a right that is missing.
    pub fn refusal(&self, action: Action, resource: &Resource<'_>) -> String {
        let Inner { name, grants, .. } = &*self.0;
        let (verb, role) = (action.verb(), action.role());
        let object = match resource == &Resource::SERVER {
            true => "the server".to_owned(),
            false => resource.to_string(),
        };
        if !self.may_at_all(action) {
            return format!("user `{name}` may not {verb} {object} here: requests of this kind only read");
        }
        let user_may = grants.iter().any(|grant| grant.allows(action, resource));
        match self.token() {
            // the user may, so it is the token that does not let it
            Some(token) if user_may => format!(
                "token `{token}` of user `{name}` may not {verb} {object}: its limits do not include it. \
                 `tidemill tokens new {name} --data DATA` makes a token without limits"
            ),
            _ => format!(
                "user `{name}` may not {verb} {object}: the role `{role}` on it is not granted. An administrator grants it \
                 with `tidemill users grant {name} {role} {} --data DATA`",
                quoted(&resource.to_string())
            ),
        }
    }
}

/// Returns a text as a word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":._-/".contains(c);
    match text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.token() {
            Some(token) => write!(f, "Principal({}, token {token})", self.0.name),
            None => write!(f, "Principal({})", self.0.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(texts: &[&str]) -> Vec<Grant> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn one_grant_has_to_allow_the_whole_action() {
        let ana = Principal::user("ana", grants(&["read *", "write stream:Orders"]));
        let (orders, other) = (Resource::stream("Orders"), Resource::stream("Other"));
        assert!(ana.can(Action::Write, &orders) && ana.can(Action::Read, &other));
        assert!(!ana.can(Action::Write, &other) && !ana.can(Action::Author, &orders));
        assert!(ana.can_everywhere(Action::Read) && !ana.can_everywhere(Action::Write));
        assert!(!Principal::user("new", vec![]).can(Action::Read, &orders));
    }

    #[test]
    fn a_token_can_only_narrow_the_rights_of_its_user() {
        let limits = grants(&["admin stream:Orders", "read stream:Other"]);
        let proof = Proof::Token { id: "t1".to_owned(), secret: SecretHash::of("secret") };
        let token = Principal::with_proof("ana", proof, grants(&["write stream:*"]), Some(limits));
        assert!(token.can(Action::Write, &Resource::stream("Orders")));
        assert!(!token.can(Action::Author, &Resource::stream("Orders")), "the user may not");
        assert!(!token.can(Action::Write, &Resource::stream("Other")), "the token may not");
        let message = token.may(Action::Write, &Resource::stream("Other")).unwrap_err().to_string();
        assert!(message.contains("token `t1`") && message.contains("tidemill tokens new ana"), "{message}");
        let message = token.may(Action::Author, &Resource::stream("Orders")).unwrap_err().to_string();
        assert!(message.contains("tidemill users grant ana author stream:Orders"), "{message}");
    }

    #[test]
    fn a_caller_that_only_reads_has_no_other_right() {
        let ana = Principal::user("ana", grants(&["admin stream:Orders", "read stream:Other"]));
        let (orders, hidden) = (Resource::stream("Orders"), Resource::stream("Hidden"));
        let reading = ana.reading_only();
        assert!(reading.can(Action::Read, &orders) && !reading.can(Action::Read, &hidden));
        for action in [Action::Write, Action::Author, Action::Administer] {
            assert!(ana.can(action, &orders) && !reading.can(action, &orders));
            assert!(!Principal::admin().reading_only().can_everywhere(action));
        }
        assert!(Principal::admin().reading_only().can_everywhere(Action::Read));
        assert_eq!(reading.caller(), ana.caller());
        let message = reading.may(Action::Write, &orders).unwrap_err().to_string();
        assert_eq!(message, "user `ana` may not write stream:Orders here: requests of this kind only read");
    }

    #[test]
    fn a_refusal_can_be_pasted_into_a_shell() {
        let ana = Principal::user("ana", vec![]);
        let error = ana.may(Action::Read, &Resource::stream("it's *")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden);
        assert!(error.to_string().contains(r"users grant ana read 'stream:it'\''s *' --data"), "{error}");
        let error = ana.may(Action::Administer, &Resource::SERVER).unwrap_err().to_string();
        assert!(
            error.contains("may not administer the server") && error.contains("grant ana admin server"),
            "{error}"
        );
    }

    #[test]
    fn the_system_and_the_first_administrator_may_do_everything() {
        for principal in [Principal::system(), Principal::local(), Principal::admin()] {
            assert!(principal.can_everywhere(Action::Administer));
            principal.may_manage("another").unwrap();
        }
        let ana = Principal::user("ana", grants(&["author *"]));
        ana.may_manage("ana").unwrap();
        assert!(ana.may_manage("eva").is_err());
    }
}
