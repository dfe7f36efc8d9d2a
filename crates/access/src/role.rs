//! Roles, and the actions that they allow.

use std::fmt;
use std::str::FromStr;

use tidemill_types::{Error, Result, did_you_mean};

/// Rights on objects. Each role has those of the roles before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Queries, finds, followed streams and the state of objects.
    Read,
    /// Events and documents.
    Write,
    /// Deployments, runs of rules, replays, and records that were set aside.
    Author,
    /// Users, tokens, backups, settings, and the statements of others.
    Admin,
}

impl Role {
    /// All roles, the weakest first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Author, Self::Admin];

    /// Returns the name in grants.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Author => "author",
            Self::Admin => "admin",
        }
    }

    /// Returns whether the role allows the action.
    pub fn allows(self, action: Action) -> bool {
        self >= action.role()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            Error::invalid(format!("`{text}` is not a role{}", did_you_mean(text, names)))
        })
    }
}

/// Action that a caller wants to take on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Looks at the object.
    Read,
    /// Adds or changes events and documents.
    Write,
    /// Changes what an app does, or runs a part of it.
    Author,
    /// Changes what concerns everybody.
    Administer,
}

impl Action {
    /// Returns the weakest role that allows the action.
    pub fn role(self) -> Role {
        match self {
            Self::Read => Role::Read,
            Self::Write => Role::Write,
            Self::Author => Role::Author,
            Self::Administer => Role::Admin,
        }
    }

    /// Returns the words for the action, as messages use them: `may not write …`.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Author => "act as an author of",
            Self::Administer => "administer",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_the_rights_of_those_before_it() {
        let allowed = |role: Role| {
            let actions = [Action::Read, Action::Write, Action::Author, Action::Administer];
            actions.into_iter().filter(|action| role.allows(*action)).count()
        };
        assert_eq!(Role::ALL.map(allowed), [1, 2, 3, 4]);
    }

    #[test]
    fn roles_are_names() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse::<Role>().unwrap(), role);
        }
        let error = "writer".parse::<Role>().unwrap_err().to_string();
        assert!(error.contains("`writer`") && error.contains("`write`"), "{error}");
    }
}
