//! Grants: a role on the objects of a pattern.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tidemill_types::{Error, Result};

use crate::pattern::Pattern;
use crate::resource::Resource;
use crate::role::{Action, Role};

/// A role on the objects of a pattern, as text `read stream:Orders*`. Without a pattern, it is on every object: `read`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// The role.
    pub role: Role,
    /// The objects.
    pub pattern: Pattern,
}

impl Grant {
    /// The grant of all rights.
    pub fn everything() -> Self {
        Self { role: Role::Admin, pattern: Pattern::everything() }
    }

    /// Returns whether the grant allows the action on the object.
    pub fn allows(&self, action: Action, resource: &Resource<'_>) -> bool {
        self.role.allows(action) && self.pattern.matches(resource)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.pattern)
    }
}

impl FromStr for Grant {
    type Err = Error;

    /// Parses a grant.
    ///
    /// Errors: `Invalid` for an unknown role and a wrong pattern.
    fn from_str(text: &str) -> Result<Self> {
        let (role, pattern) = text.split_once(' ').unwrap_or((text, "*"));
        Ok(Self { role: role.parse()?, pattern: pattern.parse()? })
    }
}

impl Serialize for Grant {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Grant {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // errors of a visitor get the place of the text, those behind it the place after the text
        struct TextVisitor;

        impl de::Visitor<'_> for TextVisitor {
            type Value = Grant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a grant such as \"read stream:Orders*\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Grant, E> {
                text.parse().map_err(|e: Error| E::custom(e.message()))
            }
        }

        d.deserialize_str(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_texts() {
        for text in ["read *", "write collection:docs.*", "admin server"] {
            assert_eq!(text.parse::<Grant>().unwrap().to_string(), text);
        }
        assert_eq!("author".parse::<Grant>().unwrap().to_string(), "author *");
        for wrong in ["", "reads", "read Orders", "read  *"] {
            assert!(wrong.parse::<Grant>().is_err(), "{wrong}");
        }
    }
}
