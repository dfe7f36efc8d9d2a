//! Small JSON files of the data directory, with a checksum as their last field.

use std::io::{IoSlice, Read};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_log::disk::{Disk, FileReader, write_all};
use tidemill_types::{Error, Result};

use crate::crash_points;

/// Separator between the last field of a file and its checksum of eight hexadecimal digits.
const CHECKSUM: &str = ",\n  \"crc32c\": \"";
/// Text after the checksum.
const END: &str = "\"\n}";

/// Reads a file written by [`write_json`]; returns `None` if it does not exist. A file without a checksum, as
/// older releases wrote it, is accepted.
///
/// Errors: `Corrupt` if the checksum does not match, or if the content is not a `T`; `Unavailable` if the
/// file cannot be read.
pub fn read_json<T: DeserializeOwned>(disk: &dyn Disk, path: &Path) -> Result<Option<T>> {
    let mut bytes = Vec::new();
    match disk.open(path).and_then(|file| FileReader::new(file).read_to_end(&mut bytes)) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            return Err(Error::unavailable(format!("{}: cannot be opened", path.display())).with_source(e));
        }
    }
    if let Some((content, sum)) = split(&bytes)
        && sum != checksum(content)
    {
        return Err(Error::corrupt(format!(
            "{}: the checksum is {}, but its content has {}: the file is damaged. Restore it from a backup; if you \
             changed it by hand, remove its line `crc32c`",
            path.display(),
            String::from_utf8_lossy(sum),
            String::from_utf8_lossy(&checksum(content)),
        )));
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|e| Error::corrupt(format!("{}: cannot be read", path.display())).with_source(e))
}

/// Replaces the file atomically: after a crash it has the old content or the new. `value` is a struct or a
/// non-empty map.
///
/// Errors: `Unavailable` if the file cannot be written.
pub fn write_json(disk: &dyn Disk, path: &Path, value: &impl Serialize) -> Result<()> {
    let failed = |e: std::io::Error| {
        Error::unavailable(format!("{}: cannot be written", path.display())).with_source(e)
    };
    let step = |what: &str| crash_points::before(|| format!("{what} {}", path.display()));
    let temporary = path.with_extension("tmp");
    step("write beside");
    let file = disk.create(&temporary).map_err(failed)?;
    let bytes = encode_json(value)?;
    write_all(&*file, 0, &mut [IoSlice::new(&bytes)]).and_then(|()| file.sync()).map_err(failed)?;
    step("replace");
    disk.rename(&temporary, path).map_err(failed)?;
    step("sync the directory of");
    let dir = path.parent().unwrap_or(Path::new("."));
    disk.sync_dir(dir).map_err(failed)
}

/// Returns the content of a file as [`write_json`] writes it.
///
/// Errors: `Internal` for a value that JSON does not have.
pub fn encode_json(value: &impl Serialize) -> Result<Vec<u8>> {
    let text = serde_json::to_vec_pretty(value)
        .map_err(|e| Error::internal("a file of the data directory cannot be encoded").with_source(e))?;
    let content = text.strip_suffix(b"\n}").unwrap_or(&text);
    Ok([content, CHECKSUM.as_bytes(), &checksum(content), END.as_bytes()].concat())
}

/// Splits a file into the content before the checksum, and the checksum.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let sealed = bytes.strip_suffix(END.as_bytes())?;
    let (content, sum) = sealed.split_at_checked(sealed.len().checked_sub(8)?)?;
    Some((content.strip_suffix(CHECKSUM.as_bytes())?, sum))
}

fn checksum(content: &[u8]) -> [u8; 8] {
    let mut digits = [0; 8];
    for (digit, shift) in digits.iter_mut().zip((0..8).rev()) {
        *digit = b"0123456789abcdef"[(crc32c::crc32c(content) >> (4 * shift) & 15) as usize];
    }
    digits
}

#[cfg(test)]
mod tests {
    use tidemill_log::disk::OsDisk;

    use super::*;

    #[test]
    fn files_without_a_checksum_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let value = std::collections::BTreeMap::from([("a", "\"\n}")]);
        write_json(&OsDisk, &path, &value).unwrap();
        let read = || read_json::<std::collections::BTreeMap<String, String>>(&OsDisk, &path);
        assert_eq!(read().unwrap().unwrap()["a"], "\"\n}");
        std::fs::write(&path, "{\"a\":\"b\"\n}").unwrap();
        assert_eq!(read().unwrap().unwrap()["a"], "b");
        std::fs::write(&path, "\"\n}").unwrap();
        assert!(read().is_err());
        write_json(&OsDisk, &path, &value).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"a\"", "\"b\"")).unwrap();
        assert!(read().unwrap_err().message().contains("checksum"));
    }
}
