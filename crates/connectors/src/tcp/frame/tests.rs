//! Frames as bytes: `tests/cases/tcp_frames.txt` has for each framing bytes and what they mean.

use std::fmt::Write as _;
use std::path::Path;

use super::*;

const BYTES_MAX: usize = 64;

/// Decodes bytes that arrive `step` at a time.
fn decode(framing: Framing, bytes: &[u8], step: usize) -> String {
    let mut out = String::new();
    let mut buffer = BytesMut::new();
    let show = |frame: &Frame| {
        let channel = frame.channel.as_ref().map_or(String::new(), |channel| format!("channel {channel:?} "));
        format!("  {channel}message \"{}\"\n", frame.payload.escape_ascii())
    };
    for part in bytes.chunks(step) {
        buffer.extend_from_slice(part);
        loop {
            match framing.decode(&mut buffer, BYTES_MAX) {
                Ok(Some(frame)) => out.push_str(&show(&frame)),
                Ok(None) => break,
                Err(e) => return out + &format!("  error: {e}\n"),
            }
        }
    }
    match framing.finish(buffer) {
        Ok(Some(frame)) => out.push_str(&show(&frame)),
        Ok(None) => {}
        Err(e) => writeln!(out, "  error: {e}").unwrap(),
    }
    out
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte =
        |pair: &str| u8::from_str_radix(pair, 16).unwrap_or_else(|e| panic!("{pair} in `{text}`: {e}"));
    (0..digits.len()).step_by(2).map(|at| byte(&digits[at..at + 2])).collect()
}

#[test]
fn frames_are_read_as_the_cases_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/tcp_frames.txt");
    let cases = std::fs::read_to_string(&path).unwrap();
    let mut refilled = String::new();
    for line in cases.lines().filter(|line| !line.starts_with("  ")) {
        refilled.push_str(line);
        refilled.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (framing, hex) = line.split_once(' ').unwrap();
        let (framing, bytes) = (Framing::parse(framing), from_hex(hex));
        let whole = decode(framing, &bytes, bytes.len());
        assert_eq!(whole, decode(framing, &bytes, 1), "byte by byte: {line}");
        refilled.push_str(&whole);
    }
    if std::env::var_os("UPDATE_CASES").is_some() {
        return std::fs::write(&path, refilled).unwrap();
    }
    assert_eq!(cases, refilled, "UPDATE_CASES=1 refills {}", path.display());
}

#[test]
fn frames_that_are_written_can_be_read() {
    for framing in [Framing::Siddhi, Framing::Line, Framing::Length] {
        let mut bytes = vec![];
        for payload in ["a", "ä with two bytes", "third"] {
            framing.encode("session", "app/Stream", payload.as_bytes(), &mut bytes).unwrap();
        }
        let channel = if framing == Framing::Siddhi { "channel \"app/Stream\" " } else { "" };
        let expected = format!(
            "  {channel}message \"a\"\n  {channel}message \"\\xc3\\xa4 with two bytes\"\n  {channel}message \"third\"\n"
        );
        assert_eq!(decode(framing, &bytes, bytes.len()), expected);
    }
    assert!(Framing::Line.encode("", "", b"two\nlines", &mut vec![]).is_err());
}
