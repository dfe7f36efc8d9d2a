//! Verification of the files of a backup against its manifest.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use tidemill_log::disk::{Disk, FileReader};
use tidemill_types::Result;

use super::report::{Consequence, Verification};
use crate::admin::backup::{MANIFEST, Manifest, checksum_text};
use crate::process::disk_files::{list, unreadable};

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;
const CONSEQUENCE: Consequence = Consequence {
    meaning: "the backup is not complete, and `tidemill restore` refuses it",
    remedy: "bring the file from another copy of this backup, or take another backup",
};

/// Compares each file with its size and checksum.
///
/// Errors: `Unavailable`.
pub fn check(disk: &dyn Disk, dir: &Path, manifest: &Manifest, found: &mut Verification) -> Result<()> {
    let mut damaged = Vec::new();
    for file in &manifest.files {
        let path = dir.join(&file.path);
        let problem = match disk.open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some("it is missing".to_owned()),
            Err(e) => return Err(unreadable(&path, e)),
            Ok(input) => {
                let (bytes, crc) = sum(FileReader::new(input)).map_err(|e| unreadable(&path, e))?;
                let crc = checksum_text(crc);
                match (bytes == file.bytes, crc == file.crc32c) {
                    (false, _) => Some(format!("it has {bytes} bytes, and {} in {MANIFEST}", file.bytes)),
                    (_, false) => Some(format!("its checksum is {crc}, and {} in {MANIFEST}", file.crc32c)),
                    _ => None,
                }
            }
        };
        damaged.extend(problem.map(|problem| (path.display().to_string(), problem)));
    }
    let files = manifest.files.len() as u64;
    let bytes = manifest.files.iter().map(|file| file.bytes).sum();
    found.add("backup", (files, bytes), format!("taken {}", manifest.time), damaged, CONSEQUENCE);
    let known: BTreeSet<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
    for extra in all_files(disk, dir, "")?.iter().filter(|name| !known.contains(name.as_str())) {
        if extra != MANIFEST {
            found
                .notes
                .push(format!("{} is not part of the backup; it is not restored", dir.join(extra).display()));
        }
    }
    Ok(())
}

fn sum(mut input: FileReader) -> std::io::Result<(u64, u32)> {
    let mut buffer = vec![0; READ_BYTES];
    let (mut bytes, mut crc) = (0, 0);
    loop {
        let n = input.read(&mut buffer)?;
        if n == 0 {
            return Ok((bytes, crc));
        }
        bytes += n as u64;
        crc = crc32c::crc32c_append(crc, &buffer[..n]);
    }
}

/// Returns the paths of all files below `dir`, relative to it.
fn all_files(disk: &dyn Disk, dir: &Path, below: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for name in list(disk, &dir.join(below))? {
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        match disk.list(&dir.join(&path)) {
            Ok(_) => files.extend(all_files(disk, dir, &path)?),
            Err(_) => files.push(path),
        }
    }
    Ok(files)
}
