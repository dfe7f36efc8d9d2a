//! Where the records of a file begin and end.

use std::ops::Range;

use regex::bytes::Regex;

/// Boundaries of a record.
#[derive(Debug)]
pub(super) enum Framing {
    /// A line. Empty lines are skipped.
    Lines,
    /// Text between matches of regular expressions.
    Matches {
        /// Beginning of a record; without it, a record begins behind the one before.
        begin: Option<Regex>,
        /// End of a record; without it, a record ends before the next one.
        end: Option<Regex>,
    },
    /// Bytes of this number.
    Chunks(usize),
    /// The whole file.
    Whole,
}

/// Content of the file behind the bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// More of the file.
    More,
    /// Nothing for now; the file may grow.
    Nothing,
    /// Nothing, and no more will come.
    End,
}

/// Records in a part of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub records: Vec<Range<usize>>,
    /// Bytes that are not needed again.
    pub consumed: usize,
}

impl Framing {
    /// Finds up to `limit` records in `bytes`, which begin with one.
    pub(super) fn find(&self, bytes: &[u8], behind: Behind, limit: usize) -> Found {
        match self {
            Self::Lines => lines(bytes, behind, limit),
            Self::Matches { begin, end } => matches(begin.as_ref(), end.as_ref(), bytes, behind, limit),
            Self::Chunks(size) => chunks(*size, bytes, behind, limit),
            Self::Whole if behind == Behind::More || bytes.is_empty() => Found::default(),
            Self::Whole => {
                let mut found = Found::default();
                found.push(0..bytes.len(), bytes.len());
                found
            }
        }
    }
}

fn lines(bytes: &[u8], behind: Behind, limit: usize) -> Found {
    let mut found = Found::default();
    for end in memchr::memchr_iter(b'\n', bytes) {
        if found.records.len() == limit {
            return found;
        }
        found.push(line(bytes, found.consumed..end), end + 1);
    }
    if behind == Behind::End && found.records.len() < limit {
        found.push(line(bytes, found.consumed..bytes.len()), bytes.len());
    }
    found
}

/// Returns the range without the end of the line.
fn line(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let has_return = range.end > range.start && bytes.get(range.end - 1) == Some(&b'\r');
    range.start..range.end - usize::from(has_return)
}

fn matches(begin: Option<&Regex>, end: Option<&Regex>, bytes: &[u8], behind: Behind, limit: usize) -> Found {
    let mut found = Found::default();
    // a match that touches the end of the bytes may continue behind them
    let is_whole = |end: usize| end < bytes.len() || behind != Behind::More;
    while found.records.len() < limit {
        let at = found.consumed;
        let begun = match begin {
            None => Some(at..at),
            Some(begin) => begin.find_at(bytes, at).map(|m| m.range()),
        };
        let Some(begun) = begun.filter(|begun| is_whole(begun.end)) else { break };
        let next = begun.end.max(begun.start + 1).min(bytes.len());
        let (record_end, consumed) = match (begin, end) {
            (_, Some(end)) => match end.find_at(bytes, begun.end).map(|m| m.end()) {
                Some(end) if is_whole(end) && end > at => (end, end),
                _ => break,
            },
            (Some(begin), None) => match begin.find_at(bytes, next).map(|m| m.start()) {
                Some(following) if following > begun.start => (following, following),
                _ if behind == Behind::End => (bytes.len(), bytes.len()),
                _ => {
                    found.consumed = begun.start;
                    return found;
                }
            },
            (None, None) => break,
        };
        found.push(trim(bytes, begun.start..record_end), consumed);
    }
    if behind == Behind::End && found.records.len() < limit {
        found.consumed = bytes.len();
    }
    found
}

fn trim(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let text = bytes.get(range.clone()).unwrap_or_default();
    let start = range.start + (text.len() - text.trim_ascii_start().len());
    start..start + text.trim_ascii().len()
}

fn chunks(size: usize, bytes: &[u8], behind: Behind, limit: usize) -> Found {
    let mut found = Found::default();
    while found.records.len() < limit && found.consumed < bytes.len() {
        let end = found.consumed + size;
        match end <= bytes.len() {
            true => found.push(found.consumed..end, end),
            false if behind == Behind::More => break,
            false => found.push(found.consumed..bytes.len(), bytes.len()),
        }
    }
    found
}

impl Found {
    fn push(&mut self, record: Range<usize>, consumed: usize) {
        if !record.is_empty() {
            self.records.push(record);
        }
        self.consumed = consumed;
    }

    /// Gives the last record back, so that it is found again once it is known what follows it.
    pub(super) fn hold_last(&mut self) {
        if let Some(last) = self.records.pop() {
            self.consumed = last.start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(framing: &Framing, text: &str, behind: Behind) -> (Vec<String>, usize) {
        let found = framing.find(text.as_bytes(), behind, 100);
        (found.records.into_iter().map(|r| text[r].to_owned()).collect(), found.consumed)
    }

    fn regexes(begin: &str, end: &str) -> Framing {
        let regex = |text: &str| (!text.is_empty()).then(|| Regex::new(text).unwrap());
        Framing::Matches { begin: regex(begin), end: regex(end) }
    }

    #[test]
    fn lines_end_with_a_line_feed() {
        let text = "a\r\n\nb\nc";
        assert_eq!(find(&Framing::Lines, text, Behind::Nothing), (vec!["a".into(), "b".into()], 6));
        assert_eq!(find(&Framing::Lines, text, Behind::More).1, 6);
        let (all, consumed) = find(&Framing::Lines, text, Behind::End);
        assert_eq!((all, consumed), (vec!["a".into(), "b".into(), "c".into()], 7));
        let limited = Framing::Lines.find(b"a\nb\nc\n", Behind::End, 2);
        assert_eq!(limited, Found { records: vec![0..1, 2..3], consumed: 4 });
    }

    #[test]
    fn matches_are_found() {
        let both = regexes("<e>", "</e>");
        let text = "x<e>1</e> junk <e>2</e><e>3";
        let two = vec!["<e>1</e>".to_owned(), "<e>2</e>".to_owned()];
        assert_eq!(find(&both, text, Behind::Nothing), (two.clone(), 23));
        assert_eq!(find(&both, text, Behind::End), (two, 27));
        // more may belong to the match
        assert_eq!(find(&regexes("", r"\d+;?"), "a1", Behind::More), (vec![], 0));
        assert_eq!(find(&regexes("", r"\d+;?"), "a1", Behind::Nothing), (vec!["a1".into()], 2));

        let begin = regexes(r"(?m)^at ", "");
        let text = "at 1\n x\nat 2\n";
        assert_eq!(find(&begin, text, Behind::Nothing), (vec!["at 1\n x".into()], 8));
        assert_eq!(find(&begin, text, Behind::End), (vec!["at 1\n x".into(), "at 2".into()], 13));

        let end = regexes("", "END");
        assert_eq!(find(&end, "a END\nb END c", Behind::Nothing), (vec!["a END".into(), "b END".into()], 11));
    }

    /// Whatever the sizes of the parts that are read, the records are the same.
    #[test]
    fn parts_make_no_difference() {
        let text = "<e>1</e>\n\n<e>22</e>\r\n<e>\n3</e>junk<e>4</e>\nlast";
        for framing in [Framing::Lines, regexes("<e>", "</e>"), regexes("<e>", ""), Framing::Chunks(7)] {
            let whole = find(&framing, text, Behind::End).0;
            for size in 1..=text.len() {
                let (mut position, mut length, mut records) = (0, size, vec![]);
                while position < text.len() {
                    let end = (position + length).min(text.len());
                    let behind = if end < text.len() { Behind::More } else { Behind::End };
                    let (some, consumed) = find(&framing, &text[position..end], behind);
                    records.extend(some);
                    position += consumed;
                    length = if consumed == 0 { length * 2 } else { size };
                }
                assert_eq!(records, whole, "{framing:?} in parts of {size}");
            }
        }
    }

    #[test]
    fn a_whole_file_waits_for_its_end() {
        assert_eq!(find(&Framing::Whole, "ab", Behind::More), (vec![], 0));
        assert_eq!(find(&Framing::Whole, "ab", Behind::End), (vec!["ab".into()], 2));
        assert_eq!(find(&Framing::Whole, "", Behind::End), (vec![], 0));
    }
}
