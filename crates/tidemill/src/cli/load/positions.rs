//! Positions of inputs: where a load of an input begins, and whether it is the input of an earlier load.
//!
//! A position is stored under a name such as `load Trades from /data/day.csv [4096 1f3a…] #2`: the streams, the place, the
//! length and hash of the first bytes, and the number of the load from the second on.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};
use tidemill::Engine;
use xxhash_rust::xxh3::xxh3_64;

use super::LoadArgs;
use super::inputs::{Input, Place};

/// Bytes by which an input is known again, at most.
const HEAD_BYTES: u64 = 4096;

/// Start of an input, and the name under which its position is stored.
#[derive(Debug)]
pub struct Plan {
    /// The name.
    pub name: String,
    /// Rows to leave out; `None` if no position is stored.
    pub start: Option<u64>,
}

/// First bytes of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    bytes: u64,
    hash: u64,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} {:016x}]", self.bytes, self.hash)
    }
}

impl Head {
    fn parse(text: &str) -> Option<Self> {
        let (bytes, hash) = text.strip_prefix('[')?.strip_suffix(']')?.split_once(' ')?;
        Some(Self { bytes: bytes.parse().ok()?, hash: u64::from_str_radix(hash, 16).ok()? })
    }

    /// Returns the head of an input: its first `bytes`, or fewer if it is shorter. `None` for input that can be read once.
    fn of(input: &Input, bytes: u64) -> anyhow::Result<Option<Self>> {
        let read = match &input.place {
            Place::Stdin => return Ok(None),
            Place::File(path) if !path.is_file() => return Ok(None),
            Place::File(path) => first_bytes(path, bytes),
            Place::Object(object) => object.first_bytes(bytes),
        };
        let read = read.with_context(|| input.to_string())?;
        Ok(Some(Self { bytes: read.len() as u64, hash: xxh3_64(&read) }))
    }
}

fn first_bytes(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    File::open(path)?.take(bytes).read_to_end(&mut read)?;
    Ok(read)
}

/// An earlier load of the same place into the same streams.
#[derive(Debug)]
struct Earlier {
    name: String,
    /// `None` for input that can be read once.
    head: Option<Head>,
    number: u64,
}

impl Earlier {
    /// Parses the name of a position that begins with `base`.
    fn parse(name: &str, base: &str) -> Option<Self> {
        let rest = name.strip_prefix(base)?.trim_start();
        let (head, number) = match rest.split_once('#') {
            Some((head, number)) => (head.trim_end(), number.parse().ok()?),
            None => (rest, 1),
        };
        let head = if head.is_empty() { None } else { Some(Head::parse(head)?) };
        Some(Self { name: name.to_owned(), head, number })
    }
}

/// Decides where `input` begins.
///
/// Errors: it was loaded before, and the command does not say what to do about it, or it begins with other bytes now.
pub fn plan(engine: &Engine, args: &LoadArgs, streams: &str, input: &Input) -> anyhow::Result<Plan> {
    let shown = match (input.is_stdin(), &args.name) {
        (true, None) if args.resume => bail!(
            "standard input has no position unless it has a name: expected `--name NAME` as in the first load"
        ),
        (true, None) => return Ok(Plan { name: "load -".into(), start: None }),
        (true, Some(name)) => name.clone(),
        (false, _) => input.to_string(),
    };
    let base = format!("load {streams} from {shown}");
    let names = engine.source_names()?;
    let earlier = names.iter().filter_map(|name| Earlier::parse(name, &base));
    let Some(last) = earlier.max_by_key(|earlier| earlier.number) else {
        return Ok(Plan { name: new_name(&base, input, 1)?, start: Some(0) });
    };
    if args.again {
        return Ok(Plan { name: new_name(&base, input, last.number + 1)?, start: Some(0) });
    }
    if let Some(head) = last.head
        && Head::of(input, head.bytes)?.is_some_and(|now| now != head)
    {
        bail!(
            "{shown}: was loaded before, and begins with other bytes now, so it is not known which rows are new: `--again` loads \
             all of them"
        );
    }
    let start = engine.source_position(&last.name)?.unwrap_or_default();
    if !args.resume {
        let rows = if start > 0 { format!(" up to row {start}") } else { String::new() };
        bail!(
            "{shown}: was loaded before{rows}: `--resume` loads what comes after that, `--again` loads all rows once more"
        );
    }
    if start > 0 {
        eprintln!("{shown}: goes on behind row {start}");
    }
    Ok(Plan { name: last.name, start: Some(start) })
}

fn new_name(base: &str, input: &Input, number: u64) -> anyhow::Result<String> {
    let head = Head::of(input, HEAD_BYTES)?.map_or_else(String::new, |head| format!(" {head}"));
    let number = if number == 1 { String::new() } else { format!(" #{number}") };
    Ok(format!("{base}{head}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_positions_are_parsed() {
        let head = Head { bytes: 100, hash: 0x1f };
        let base = "load T from /a b/#1.csv";
        for (head, number) in [(Some(head), 1), (Some(head), 12), (None, 1), (None, 3)] {
            let shown = head.map_or_else(String::new, |head| format!(" {head}"));
            let suffix = if number == 1 { String::new() } else { format!(" #{number}") };
            let found = Earlier::parse(&format!("{base}{shown}{suffix}"), base).unwrap();
            assert_eq!((found.head, found.number), (head, number));
        }
        for other in ["load T from /a b/#1.csv.gz", "load T from /a b/#1.csv [x]", "load U from /a b/#1.csv"]
        {
            assert!(Earlier::parse(other, base).is_none(), "{other}");
        }
    }
}
