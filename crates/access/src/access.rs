//! Users and tokens as front ends ask for them: the file, read again when it has changed.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use tidemill_types::{ErrorKind, Result, Timestamp};

use crate::accounts::Accounts;
use crate::file::{AccessFile, FileIdentity};
use crate::principal::{Principal, Proof};
use crate::token::Token;
use crate::verifier::Verifier;

/// Time between two looks at the file, in microseconds.
const CHECK_MICROS: i64 = 1_000_000;

type WallClock = Box<dyn Fn() -> Timestamp + Send + Sync>;

/// Users and tokens of a running server.
///
/// The file is looked at when somebody asks, at most once a second, and read when it has changed. A file that cannot be read then
/// leaves the users and tokens as they were; the log says so, and [`Self::problem`] does.
pub struct Access {
    file: AccessFile,
    now: WallClock,
    /// Secret from which salts of unknown users are derived.
    secret: [u8; 32],
    state: Mutex<State>,
}

struct State {
    accounts: Arc<Accounts>,
    /// Number of contents of the file so far.
    generation: u64,
    stamp: FileIdentity,
    checked: Timestamp,
    problem: Option<String>,
}

impl Access {
    /// Reads the file of users and tokens.
    ///
    /// Errors: those of [`AccessFile::read`].
    pub fn open(file: AccessFile) -> Result<Self> {
        Self::with_clock(file, Box::new(system_time))
    }

    /// Reads the file as [`Self::open`] does; `now` says when tokens expire and when the file is looked at again.
    ///
    /// Errors: those of [`AccessFile::read`].
    pub fn with_clock(file: AccessFile, now: Box<dyn Fn() -> Timestamp + Send + Sync>) -> Result<Self> {
        // the stamp first: a change in between is then read again
        let stamp = file.stamp()?;
        let accounts = Arc::new(file.read()?);
        if let Some(warning) = file.warning() {
            tracing::warn!("{warning}");
        }
        let state = State { accounts, generation: 0, stamp, checked: now(), problem: None };
        Ok(Self { file, now, secret: rand::random(), state: Mutex::new(state) })
    }

    /// Returns the caller who has this token; `None` for an unknown one, and for one that has expired.
    pub fn principal_of_token(&self, text: &[u8]) -> Option<Principal> {
        let (id, secret) = Token::parse(text)?;
        let accounts = self.accounts();
        let token = accounts.token(id).filter(|token| token.lets_in(secret, (self.now)()))?;
        accounts.principal_of_token(token)
    }

    /// Returns the caller who has proven to know the password of a user, which `verifier` has checked; `None` if the password has been
    /// changed or the user removed meanwhile.
    pub fn principal_of_login(&self, name: &str, verifier: &Verifier) -> Option<Principal> {
        self.accounts().principal_of_login(name, verifier)
    }

    /// Returns a user with the present rights, as one who has proven nothing: no change of a password ends what it has begun.
    pub fn principal_of_user(&self, name: &str) -> Option<Principal> {
        self.accounts().principal_of_user(name)
    }

    /// Returns what checks the password of a user. For a user who is unknown or has no password, it is one that no password fits.
    pub fn verifier(&self, name: &str) -> Verifier {
        let accounts = self.accounts();
        let known = accounts.user(name).and_then(|user| user.scram_sha_256.clone());
        known.unwrap_or_else(|| Verifier::of_unknown_user(name, &self.secret))
    }

    /// Returns a caller with the present rights; `None` for one whose user or token has gone, whose token has expired or was rotated,
    /// and whose password was changed. Callers that are not from the file stay as they are.
    pub fn renew(&self, principal: &Principal) -> Option<Principal> {
        let accounts = self.accounts();
        match principal.proof() {
            Some(Proof::Token { id, secret }) => {
                let is_valid = |token: &&Token| token.sha256 == *secret && token.is_valid((self.now)());
                accounts.principal_of_token(accounts.token(id).filter(is_valid)?)
            }
            Some(Proof::Password(verifier)) => accounts.principal_of_login(principal.name(), verifier),
            None if crate::name::is_own(principal.name()) => Some(principal.clone()),
            None => accounts.principal_of_user(principal.name()),
        }
    }

    /// Returns a number that is another one after each change of the file.
    pub fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Returns why the present file is not in force; `None` if it is.
    pub fn problem(&self) -> Option<String> {
        self.state().problem.clone()
    }

    /// Returns the users and tokens in force.
    pub fn accounts(&self) -> Arc<Accounts> {
        self.state().accounts.clone()
    }

    /// Returns the present state, after a look at the file if it is time for one.
    fn state(&self) -> MutexGuard<'_, State> {
        let now = (self.now)();
        let mut state = self.state.lock();
        // a clock that was set back does not keep the file from being looked at
        if !(0..CHECK_MICROS).contains(&now.0.saturating_sub(state.checked.0)) {
            state.checked = now;
            self.look(&mut state);
        }
        state
    }

    /// Reads the file if it has changed.
    fn look(&self, state: &mut State) {
        let stamp = match self.file.stamp() {
            Ok(stamp) if stamp == state.stamp => return,
            Ok(stamp) => stamp,
            Err(error) => return state.keep(&error.to_string()),
        };
        match self.file.read() {
            Ok(accounts) => {
                tracing::info!(path = %self.file.path().display(), "users and tokens have changed");
                state.accounts = Arc::new(accounts);
                state.generation += 1;
                state.problem = None;
                state.stamp = stamp;
            }
            Err(error) => {
                state.keep(&error.to_string());
                // a damaged file stays so until it changes; one that cannot be read now may be in a moment
                if error.kind() == ErrorKind::Corrupt {
                    state.stamp = stamp;
                }
            }
        }
    }
}

impl State {
    /// Keeps users and tokens as they are, because the file cannot be read.
    fn keep(&mut self, error: &str) {
        if self.problem.as_deref() != Some(error) {
            tracing::error!("users and tokens stay as they were: {error}");
            self.problem = Some(error.to_owned());
        }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("file", &self.file).finish_non_exhaustive()
    }
}

fn system_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use tempfile::TempDir;

    use super::*;
    use crate::{Action, Resource};

    const SECOND: i64 = 1_000_000;

    struct World {
        dir: TempDir,
        clock: Arc<AtomicI64>,
        access: Access,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let file = AccessFile::in_directory(dir.path());
            let clock = Arc::new(AtomicI64::new(1_700_000_000 * SECOND));
            let now = clock.clone();
            let now = Box::new(move || Timestamp(now.load(Ordering::Relaxed)));
            Self { access: Access::with_clock(file, now).unwrap(), dir, clock }
        }

        fn file(&self) -> AccessFile {
            AccessFile::in_directory(self.dir.path())
        }

        fn now(&self) -> Timestamp {
            Timestamp(self.clock.load(Ordering::Relaxed))
        }

        fn advance(&self, micros: i64) {
            self.clock.fetch_add(micros, Ordering::Relaxed);
        }

        fn token(&self, grant: &str, expires: Option<Timestamp>) -> String {
            let now = self.now();
            let update = self.file().update(|accounts| {
                accounts.add_user("ana", vec![grant.parse()?], None)?;
                accounts.new_token("ana", None, now, expires)
            });
            update.unwrap().text
        }
    }

    #[test]
    fn a_change_of_the_file_holds_after_a_second() {
        let world = World::new();
        let token = world.token("read stream:a", None);
        assert!(world.access.principal_of_token(token.as_bytes()).is_none(), "the file is not looked at yet");
        world.advance(SECOND);
        let ana = world.access.principal_of_token(token.as_bytes()).unwrap();
        assert_eq!((ana.name(), world.access.generation()), ("ana", 1));
        world.file().update(|accounts| accounts.grant("ana", "write *".parse()?)).unwrap();
        world.advance(SECOND);
        assert!(!ana.can(Action::Write, &Resource::stream("a")), "a principal is of its moment");
        assert!(world.access.renew(&ana).unwrap().can(Action::Write, &Resource::stream("a")));
        world.file().update(|accounts| accounts.remove_user("ana")).unwrap();
        world.advance(SECOND);
        assert!(world.access.renew(&ana).is_none() && world.access.principal_of_user("ana").is_none());
        assert!(world.access.renew(&Principal::admin()).is_some());
    }

    #[test]
    fn a_new_secret_ends_what_the_former_one_has_begun() {
        let world = World::new();
        let token = world.token("read", None);
        let (former, next) = (Verifier::new("former password"), Verifier::new("next password"));
        world.file().update(|accounts| accounts.set_password("ana", Some(former.clone()))).unwrap();
        world.advance(SECOND);
        let by_token = world.access.principal_of_token(token.as_bytes()).unwrap();
        let by_password = world.access.principal_of_login("ana", &former).unwrap();
        let unproven = world.access.principal_of_user("ana").unwrap();
        assert!(world.access.principal_of_login("ana", &next).is_none());
        let now = world.now();
        let id = by_token.token().unwrap().to_owned();
        let rotated = world.file().update(|accounts| accounts.rotate_token(&id, now)).unwrap().text;
        world.advance(SECOND);
        assert!(world.access.renew(&by_token).is_none());
        let rotated = world.access.principal_of_token(rotated.as_bytes()).unwrap();
        assert!(world.access.renew(&rotated).is_some() && world.access.renew(&by_password).is_some());
        world.file().update(|accounts| accounts.set_password("ana", Some(next.clone()))).unwrap();
        world.advance(SECOND);
        assert!(world.access.renew(&by_password).is_none());
        assert!(world.access.principal_of_login("ana", &former).is_none());
        let by_next = world.access.principal_of_login("ana", &next).unwrap();
        world.file().update(|accounts| accounts.set_password("ana", None)).unwrap();
        world.advance(SECOND);
        assert!(world.access.renew(&by_next).is_none());
        assert!(world.access.renew(&rotated).is_some() && world.access.renew(&unproven).is_some());
    }

    #[test]
    fn a_token_expires_while_it_is_used() {
        let world = World::new();
        let token = world.token("read", Some(Timestamp(world.now().0 + 5 * SECOND)));
        world.advance(2 * SECOND);
        let ana = world.access.principal_of_token(token.as_bytes()).unwrap();
        world.advance(3 * SECOND);
        assert!(world.access.principal_of_token(token.as_bytes()).is_none());
        assert!(world.access.renew(&ana).is_none());
    }

    #[test]
    fn a_damaged_file_leaves_the_users_as_they_were() {
        let world = World::new();
        let token = world.token("read", None);
        world.advance(SECOND);
        assert!(world.access.principal_of_token(token.as_bytes()).is_some());
        std::fs::write(world.file().path(), "{\"version\": 1,").unwrap();
        world.advance(SECOND);
        assert!(world.access.principal_of_token(token.as_bytes()).is_some());
        let problem = world.access.problem().unwrap();
        assert!(problem.contains("access.json: line 1, column 14"), "{problem}");
        assert!(Access::open(world.file()).is_err(), "a start refuses it");
        std::fs::remove_file(world.file().path()).unwrap();
        // it cannot be read, and not because of its content: it is looked at again
        std::fs::create_dir(world.file().path()).unwrap();
        world.advance(SECOND);
        assert!(world.access.principal_of_token(token.as_bytes()).is_some());
        assert!(world.access.problem().unwrap().contains("cannot be read"));
        let stamp = world.access.state.lock().stamp;
        assert_ne!(stamp, world.file().stamp().unwrap(), "a later look reads it");
        std::fs::remove_dir(world.file().path()).unwrap();
        world.advance(SECOND);
        assert!(world.access.principal_of_token(token.as_bytes()).is_none());
        assert_eq!(world.access.problem(), None);
    }

    #[test]
    fn a_user_without_a_password_has_a_verifier_as_others_have() {
        let world = World::new();
        let verifier = Verifier::new("secret");
        let update = world.file().update(|accounts| {
            accounts.add_user("ana", vec![], Some(verifier.clone()))?;
            accounts.add_user("eva", vec![], None)
        });
        update.unwrap();
        world.advance(SECOND);
        assert_eq!(world.access.verifier("ana"), verifier);
        for name in ["eva", "unknown"] {
            assert_eq!(world.access.verifier(name), world.access.verifier(name), "{name}");
        }
    }
}
