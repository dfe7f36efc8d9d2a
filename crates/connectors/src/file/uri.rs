//! Paths as users write them: with or without `file:`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Schemes of the other systems in which Siddhi's connector reads and writes.
const REMOTE: [&str; 11] =
    ["ftp", "ftps", "sftp", "smb", "smb2", "hdfs", "webdav", "webdavs", "http", "https", "s3"];

/// Returns the path that a text names, without `file:`. Escapes such as `%20` are replaced where the text has a scheme.
/// What follows `file://` is a path, because apps write `file://abc/xyz` for `/abc/xyz`.
///
/// Errors: another scheme, a wrong escape, no path. The text is not repeated, because it may have a password.
pub(super) fn parse_path(text: &str) -> Result<PathBuf, String> {
    let text = text.trim();
    let scheme = text.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| is_scheme(scheme));
    let path = match scheme {
        None => PathBuf::from(text),
        Some(scheme) if scheme.eq_ignore_ascii_case("file") => {
            let rest = &text[scheme.len() + 1..];
            let rest = match rest.strip_prefix("//") {
                None => rest.to_owned(),
                Some(behind) => {
                    let behind = behind.strip_prefix("localhost/").unwrap_or(behind);
                    format!("/{}", behind.trim_start_matches('/'))
                }
            };
            decode(&rest)?
        }
        Some(scheme) if REMOTE.iter().any(|known| known.eq_ignore_ascii_case(scheme)) => {
            return Err(format!(
                "files are not read or written over `{scheme}`; mount the directory of the server and write its path, \
                 as in `file:/mnt/server/in`"
            ));
        }
        Some(scheme) => {
            return Err(format!("unknown scheme `{scheme}`; expected a path, as in `file:/var/in`"));
        }
    };
    match path.as_os_str().is_empty() || path == Path::new("/") {
        true => Err("expected a path, as in `file:/var/in`".into()),
        false => Ok(path),
    }
}

fn is_scheme(text: &str) -> bool {
    // a single letter is a drive of Windows
    text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

fn decode(text: &str) -> Result<PathBuf, String> {
    let mut bytes = vec![];
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(
                "`%` in a URI is followed by two hexadecimal digits; write `%25` for a percent sign".into()
            );
        };
        bytes.push((high * 16 + low) as u8);
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (text, path) in [
            ("file:/a/b", "/a/b"),
            ("file:///a/b", "/a/b"),
            ("FILE://a/b", "/a/b"),
            ("file://localhost/a", "/a"),
            ("file:a/b.csv", "a/b.csv"),
            ("/a/b 100%.csv", "/a/b 100%.csv"),
            ("a:b/c", "a:b/c"),
            ("file:/a%20b/%C3%A4", "/a b/ä"),
        ] {
            assert_eq!(parse_path(text).unwrap(), Path::new(path), "{text}");
        }
        for (text, message) in [
            ("sftp://u:hunter2@h/x", "not read or written over `sftp`"),
            ("gopher:x", "unknown scheme `gopher`"),
            ("file:/a%2", "two hexadecimal digits"),
            ("file:", "expected a path"),
            ("", "expected a path"),
        ] {
            let error = parse_path(text).unwrap_err();
            assert!(error.contains(message) && !error.contains("hunter2"), "{error}");
        }
    }
}
