//! Sessions of users who have logged in by a password.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tidemill_access::Principal;
use tidemill_gateway::Clock;

/// Sessions by the hash of their token.
pub(super) struct Sessions {
    open: Mutex<HashMap<[u8; 32], Session>>,
    per_user_max: usize,
    lifetime: Duration,
    clock: Clock,
}

struct Session {
    principal: Principal,
    used: Instant,
}

impl Sessions {
    pub fn new(per_user_max: usize, lifetime: Duration, clock: Clock) -> Self {
        Self { open: Mutex::default(), per_user_max, lifetime, clock }
    }

    /// Opens a session and returns its token. If its user has too many, the one that was not used for longest ends.
    pub fn open(&self, principal: Principal) -> String {
        let token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let mut open = self.open.lock();
        let own = open.iter().filter(|(_, session)| session.principal.name() == principal.name());
        let mut own: Vec<_> = own.map(|(key, session)| (session.used, *key)).collect();
        if own.len() >= self.per_user_max {
            own.sort();
            for (_, key) in &own[..=own.len() - self.per_user_max] {
                open.remove(key);
            }
        }
        open.insert(key(token.as_bytes()), Session { principal, used: (self.clock)() });
        token
    }

    /// Returns who has opened the session of a token, with the rights of that moment.
    pub fn principal(&self, token: &[u8]) -> Option<Principal> {
        let now = (self.clock)();
        let mut open = self.open.lock();
        let session = open.get_mut(&key(token)).filter(|session| now < session.used + self.lifetime)?;
        session.used = now;
        Some(session.principal.clone())
    }

    /// Ends the session of a token. Returns whether there is one.
    pub fn close(&self, token: &[u8]) -> bool {
        self.open.lock().remove(&key(token)).is_some()
    }

    /// Ends sessions that were not used for long.
    pub fn tick(&self) {
        let now = (self.clock)();
        self.open.lock().retain(|_, session| now < session.used + self.lifetime);
    }
}

fn key(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn sessions_end_when_they_are_old_or_too_many() {
        let (start, passed) = (Instant::now(), Arc::new(Mutex::new(0)));
        let clock = {
            let passed = passed.clone();
            Arc::new(move || start + Duration::from_secs(*passed.lock()))
        };
        let sessions = Sessions::new(2, Duration::from_secs(10), clock);
        let user = |name: &str| Principal::user(name, vec![]);
        let first = sessions.open(user("ana"));
        *passed.lock() = 1;
        let second = sessions.open(user("ana"));
        let other = sessions.open(user("eva"));
        *passed.lock() = 2;
        assert!(sessions.principal(first.as_bytes()).is_some());
        // the second one was not used for longer
        let third = sessions.open(user("ana"));
        assert!(sessions.principal(second.as_bytes()).is_none());
        assert_eq!(sessions.principal(other.as_bytes()).unwrap().name(), "eva");
        *passed.lock() = 11;
        assert!(sessions.principal(third.as_bytes()).is_some());
        *passed.lock() = 12;
        assert!(sessions.principal(first.as_bytes()).is_none());
        sessions.tick();
        assert_eq!(sessions.open.lock().len(), 1);
    }
}
