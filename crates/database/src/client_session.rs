//! State of a client's session, as its statements may ask for it.

/// State of a session of a front end that has some.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientSession {
    /// Number of the session: `pg_backend_pid()`.
    pub process: u32,
    /// Settings, by name.
    pub settings: Vec<SessionSetting>,
}

/// A setting of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSetting {
    /// Name as `SHOW` writes it.
    pub name: String,
    /// Present value.
    pub value: String,
    /// Value of a session that has not set it; `None` for a setting without one.
    pub default: Option<String>,
}

impl ClientSession {
    /// Returns the setting of this name, in any case.
    pub fn setting(&self, name: &str) -> Option<&SessionSetting> {
        self.settings.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
    }
}
