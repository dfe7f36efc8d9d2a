//! Where wrapping keys come from: a file, or the output of a command.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tidemill_types::{Error, Result};
use zeroize::Zeroizing;

use crate::wrapping_keys::WrappingKeys;

/// Maximum size of a key file, and of the output of a command.
const KEYS_BYTES_MAX: usize = 64 << 10;
/// Time limit of a command.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(30);
/// Interval at which the end of a command that has closed its output is looked for.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// Source of the wrapping keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// A program and its arguments, which prints what a file would have.
    Command(Vec<String>),
}

impl KeySource {
    /// Reads the keys.
    ///
    /// Errors: `Invalid` for a source that cannot be read, a command that fails or takes longer than 30 seconds, and for a
    /// content without keys. No error has a key in it.
    pub fn read(&self) -> Result<WrappingKeys> {
        match self {
            Self::File(path) => {
                let named = format!("key_file {}", path.display());
                let file = std::fs::File::open(path)
                    .map_err(|e| Error::invalid(format!("{named} cannot be opened")).with_source(e))?;
                parse(&read_bounded(file).map_err(|e| unreadable(&named, e))?).map_err(|e| e.context(named))
            }
            Self::Command(words) => run(words, COMMAND_TIME_MAX),
        }
    }
}

fn unreadable(named: &str, e: io::Error) -> Error {
    Error::invalid(format!("{named} cannot be read")).with_source(e)
}

fn read_bounded(mut source: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    // as large as it can get, so that no copy of a key is left behind when it grows
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEYS_BYTES_MAX + 1));
    source.by_ref().take(KEYS_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > KEYS_BYTES_MAX {
        true => Err(io::Error::other(format!("it has more than {KEYS_BYTES_MAX} bytes"))),
        false => Ok(bytes),
    }
}

fn parse(bytes: &[u8]) -> Result<WrappingKeys> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Error::invalid("it is not text: expected lines `NAME BASE64`"))?;
    WrappingKeys::parse(text)
}

/// Runs a command and parses its output. What it writes to its standard error goes to that of this process.
fn run(words: &[String], limit: Duration) -> Result<WrappingKeys> {
    let [program, arguments @ ..] = words else {
        return Err(Error::invalid("key_command is empty: expected a program and its arguments"));
    };
    // arguments may be secrets
    let named = format!("key_command `{program}`");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Error::invalid(format!("{named} cannot be started")).with_source(e))?;
    let deadline = Instant::now() + limit;
    let outcome = output_of(&mut child, deadline);
    if outcome.is_err() {
        // one that has ended already cannot be killed
        let _ = child.kill();
        let _ = child.wait();
    }
    let bytes = outcome.map_err(|e| e.context(named.clone()))?;
    parse(&bytes).map_err(|e| e.context(format!("the output of {named}")))
}

fn output_of(child: &mut Child, deadline: Instant) -> Result<Zeroizing<Vec<u8>>> {
    let late = || {
        Error::invalid("it did not end in time: expected it to print the keys and to end within 30 seconds")
    };
    let failed = |e: io::Error| Error::invalid("its output cannot be read").with_source(e);
    let output = child.stdout.take().ok_or_else(|| Error::internal("it has no output"))?;
    let (send, receive) = channel();
    // The thread ends with the output, which a grandchild may keep open: it is not waited for.
    std::thread::Builder::new()
        .name("key command".to_owned())
        .spawn(move || send.send(read_bounded(output)))
        .map_err(failed)?;
    let bytes = match receive.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(read) => read.map_err(failed)?,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Err(late()),
    };
    loop {
        match child.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(bytes),
            Some(status) => return Err(Error::invalid(format!("it failed: {status}"))),
            None if Instant::now() >= deadline => return Err(late()),
            None => std::thread::sleep(END_INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "first QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[test]
    fn files_and_commands_have_the_same_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, LINE).unwrap();
        assert_eq!(KeySource::File(path).read().unwrap().current().0, "first");
        let command = KeySource::Command(shell(&format!("echo {LINE}")));
        assert_eq!(command.read().unwrap().current().0, "first");
    }

    #[test]
    fn sources_that_fail_are_named_and_no_key_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let missing = KeySource::File(dir.path().join("none")).read().unwrap_err().to_string();
        assert!(missing.contains("none cannot be opened"), "{missing}");
        let large = dir.path().join("large");
        std::fs::write(&large, vec![b'#'; KEYS_BYTES_MAX + 1]).unwrap();
        let error = KeySource::File(large).read().unwrap_err();
        assert!(format!("{error:?}").contains("more than 65536 bytes"), "{error:?}");
        for (words, expected) in [
            (vec![], "key_command is empty"),
            (vec!["/no/such/program".to_owned()], "`/no/such/program` cannot be started"),
            (shell(&format!("echo {LINE}; exit 3")), "it failed: exit status: 3"),
            (shell("true"), "the output of key_command `sh`: there is no key"),
            (shell("printf '\\377'"), "it is not text"),
        ] {
            let error = KeySource::Command(words).read().unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("QUFB"), "{error}");
        }
    }

    #[test]
    fn a_command_that_hangs_is_ended() {
        for script in ["sleep 600", "exec >&-; sleep 600"] {
            let started = Instant::now();
            let error = run(&shell(script), Duration::from_millis(200)).unwrap_err().to_string();
            assert!(error.contains("did not end in time"), "{error}");
            assert!(started.elapsed() < Duration::from_secs(60));
        }
    }
}
