//! The mails: no public package ships the Enron corpus, so this makes one of its size and kind, the same each time.

use std::collections::HashSet;
use std::fmt::Write;

use tidemill_types::{Error, Result};

use crate::random::{Random, STEP, at, fnv1a, mix};

/// The seed of the corpora whose digests are known.
pub const SEED: u64 = 42;
/// Mails of the whole corpus, and those of them that come from outside.
const WHOLE: u64 = 517_417;
const OUTSIDE: u64 = 89_230;
/// The time of the first mail, and from one to the next, milliseconds.
const FIRST_MS: i64 = 975_628_800_000;
const STEP_MS: i64 = 1000;
/// Body bytes: median and spread of the logarithm, bounds, and the one large body.
const BODY_MEDIAN: f64 = 675.0;
const BODY_SIGMA: f64 = 1.4;
const BODY_MIN: usize = 12;
const BODY_MAX: usize = 400_000;
const BODY_LARGE: usize = 1_920_000;
/// Columns of a line.
const LINE: usize = 74;
/// Words taken from the list, behind those that are ranked by hand.
const WORDS: usize = 20_000;
/// Different people.
const PEOPLE: u64 = 20_000;
/// Where the numbers of people outside begin.
const STRANGERS: u64 = 1_000_000;

const COMMON: &str = "the to and of a in for is on that you be with this will have are as we it at from if not or \
    your by can i any our please has was all they an do which but would there me been up out about know so what more \
    time get their may new who also one other us than need when should he could call let its just had some only over \
    make were these his like them no how here into now want see my after two forward work said information deal market \
    price power gas energy company meeting email thanks attached";
const NAMES: [&str; 3] = ["Kenneth Lay", "Jeffrey Skilling", "Andrew Fastow"];
const FOREIGN: [&str; 8] = ["café", "résumé", "naïve", "Zürich", "São", "€500", "piñata", "façade"];
const DOMAINS: [&str; 16] = [
    "yahoo.com",
    "hotmail.com",
    "aol.com",
    "msn.com",
    "txu.com",
    "caiso.com",
    "worldnet.att.net",
    "houston.rr.com",
    "dynegy.com",
    "reliant.com",
    "enron.net",
    "enronxgate.org",
    "ferc.fed.us",
    "andersen.com",
    "wsj.com",
    "mail.utexas.edu",
];

/// A mail.
#[derive(Debug, Clone, Default)]
pub struct Mail {
    /// When it was sent, milliseconds since 1970; no two are alike.
    pub time: i64,
    /// Sender, receivers (To, CC, BCC, each a list with `, ` between), subject, body.
    pub texts: [String; 6],
}

/// The fields of a mail behind its time.
pub const TEXTS: [&str; 6] = ["fromAddress", "toAddresses", "ccAddresses", "bccAddresses", "subject", "body"];

/// Makes the mails of a corpus.
#[derive(Debug)]
pub struct Corpus {
    vocabulary: Vec<String>,
    /// The sum of the weights up to each word.
    weights: Vec<u64>,
    mails: u64,
    outside: u64,
    /// Spreads the senders from outside over the corpus; has no divisor in common with its size.
    stride: u64,
}

impl Corpus {
    /// A corpus of that many mails over the words of a list, one a line.
    ///
    /// Errors: `Invalid` for no mails, or a list without enough words.
    pub fn new(list: &str, mails: u64) -> Result<Self> {
        if mails == 0 {
            return Err(Error::invalid("a corpus has at least one mail"));
        }
        let vocabulary = vocabulary(list);
        if vocabulary.len() < WORDS {
            let found = vocabulary.len();
            return Err(Error::invalid(format!(
                "expected a list of more than {WORDS} words, {found} are usable"
            )));
        }
        let weight = |rank: usize| (1 << 40) / (10 * rank as u64 + 27);
        let weights = (0..vocabulary.len()).scan(0, |sum, rank| {
            *sum += weight(rank);
            Some(*sum)
        });
        let weights = weights.collect();
        let outside = (mails * OUTSIDE + WHOLE / 2) / WHOLE;
        let stride = (2_654_435_761 % mails..).find(|s| divisor(*s, mails) == 1).unwrap_or(1);
        Ok(Self { vocabulary, weights, mails, outside, stride })
    }

    /// Mail `i`.
    pub fn mail(&self, i: u64) -> Mail {
        let mut r = Random::new(mix(SEED ^ i.wrapping_mul(STEP)));
        let place = (u128::from(i) * u128::from(self.stride) % u128::from(self.mails)) as u64;
        let mut mail = Mail { time: FIRST_MS + i as i64 * STEP_MS, ..Mail::default() };
        let [from, to, cc, bcc, subject, body] = &mut mail.texts;
        self.address(&mut r, place >= self.outside, from);
        let receivers = match r.below(100) {
            0..=54 => 1,
            55..=79 => 2 + r.below(2),
            80..=94 => 4 + r.below(7),
            _ => 11 + r.below(50),
        };
        self.addresses(&mut r, receivers, to);
        if r.chance(2, 5) {
            let receivers = 1 + r.below(8);
            self.addresses(&mut r, receivers, cc);
        }
        if r.chance(1, 10) {
            let receivers = 1 + r.below(4);
            self.addresses(&mut r, receivers, bcc);
        }
        self.subject(&mut r, subject);
        let drawn = body_bytes(&mut r);
        let bytes = if place == self.outside { BODY_LARGE } else { drawn };
        let mut writer = BodyWriter {
            damaged: r.chance(8, 100),
            foreign: r.chance(1, 200),
            quotes_at: if r.chance(1, 4) { bytes / 3 } else { usize::MAX },
            corpus: self,
            bytes,
            r,
            column: 0,
            body,
        };
        writer.write();
        mail
    }

    fn word(&self, r: &mut Random) -> &str {
        let drawn = r.below(self.weights.last().copied().unwrap_or(1));
        &self.vocabulary[self.weights.partition_point(|sum| *sum <= drawn)]
    }

    fn address(&self, r: &mut Random, inside: bool, out: &mut String) {
        // low numbers are drawn more often
        let person = r.below(PEOPLE) * r.below(PEOPLE) / PEOPLE;
        let person = if inside { person } else { person + STRANGERS };
        let part = |n, words| &self.vocabulary[(at(99, n) % words + 200) as usize % self.vocabulary.len()];
        let (first, last) = (part(2 * person, 5_000), part(2 * person + 1, 15_000));
        let domain = if inside { "enron.com" } else { DOMAINS[r.below(16) as usize] };
        out.extend([first.as_str(), ".", last, "@", domain]);
    }

    fn addresses(&self, r: &mut Random, count: u64, out: &mut String) {
        for i in 0..count {
            if i > 0 {
                out.push_str(", ");
            }
            let inside = r.chance(3, 4);
            self.address(r, inside, out);
        }
    }

    fn subject(&self, r: &mut Random, out: &mut String) {
        out.push_str(match r.below(10) {
            0..=2 => "RE: ",
            3 => "FW: ",
            _ => "",
        });
        for i in 0..2 + r.below(6) {
            if i > 0 {
                out.push(' ');
            }
            capitalised(self.word(r), out);
        }
    }
}

/// Common words first, then those of the list in an order that has nothing to do with the alphabet.
fn vocabulary(list: &str) -> Vec<String> {
    let common: Vec<&str> = COMMON.split_ascii_whitespace().collect();
    let known: HashSet<&str> = common.iter().copied().collect();
    let usable = |word: &&str| {
        (2..=14).contains(&word.len())
            && word.bytes().all(|b| b.is_ascii_lowercase())
            && !known.contains(word)
    };
    let mut others: Vec<(u64, &str)> =
        list.lines().filter(usable).map(|word| (mix(fnv1a(word.as_bytes()) ^ 7), word)).collect();
    others.sort_unstable();
    common
        .into_iter()
        .chain(others.into_iter().take(WORDS).map(|(_, word)| word))
        .map(str::to_owned)
        .collect()
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

fn capitalised(word: &str, out: &mut String) {
    let mut chars = word.chars();
    out.extend(chars.next().map(|c| c.to_ascii_uppercase()));
    out.push_str(chars.as_str());
}

/// Log-normal.
fn body_bytes(r: &mut Random) -> usize {
    let (a, b) = (r.unit(), r.unit());
    let normal = libm::sqrt(-2.0 * libm::log(a)) * libm::cos(std::f64::consts::TAU * b);
    let bytes = libm::exp(libm::log(BODY_MEDIAN) + BODY_SIGMA * normal) as usize;
    bytes.clamp(BODY_MIN, BODY_MAX)
}

/// Writes a body.
struct BodyWriter<'c> {
    corpus: &'c Corpus,
    r: Random,
    /// Whether quoted-printable left traces in it.
    damaged: bool,
    /// Whether it has words that are not ASCII.
    foreign: bool,
    /// The length from which it quotes the head of another mail.
    quotes_at: usize,
    /// The length at which it ends.
    bytes: usize,
    column: usize,
    body: &'c mut String,
}

impl BodyWriter<'_> {
    fn write(&mut self) {
        if self.r.chance(1, 10) {
            self.body.push('\n');
        }
        while self.paragraph() {
            self.body.push_str("\n\n");
            self.column = 0;
        }
        if self.r.chance(1, 3) {
            self.body.push('\n');
        }
    }

    /// Whether it was written to its end.
    fn paragraph(&mut self) -> bool {
        if self.body.len() >= self.quotes_at {
            self.quotes_at = usize::MAX;
            self.quoted_head();
        }
        let sentences = 1 + self.r.below(6);
        (0..sentences).all(|_| self.sentence())
    }

    fn quoted_head(&mut self) {
        self.body.push_str(" -----Original Message-----\nFrom: \t");
        self.corpus.address(&mut self.r, true, self.body);
        let (hour, minute) = (8 + self.r.below(10), self.r.below(60));
        let _ = write!(self.body, "\nSent:\tMonday, November 27, 2000 {hour}:{minute:02} AM\nTo:\t");
        self.corpus.address(&mut self.r, true, self.body);
        self.body.push_str("\nSubject:\t");
        self.corpus.subject(&mut self.r, self.body);
        self.body.push_str("\n\n");
        self.column = 0;
    }

    fn sentence(&mut self) -> bool {
        let words = 4 + self.r.below(17);
        let name = match self.r.below(4000) {
            0..=7 => Some(0),
            8..=12 => Some(1),
            13..=17 => Some(2),
            _ => None,
        };
        let named = name.map(|name| (self.r.below(words), NAMES[name]));
        let mut word = String::new();
        for place in 0..words {
            if self.body.len() >= self.bytes {
                return false;
            }
            word.clear();
            match named {
                Some((at, name)) if at == place => word.push_str(name),
                _ => self.draw(place == 0, &mut word),
            }
            if place + 1 == words {
                word.push(match self.r.below(12) {
                    0 => '?',
                    1 => '!',
                    _ => '.',
                });
            } else if self.r.chance(1, 12) {
                word.push(',');
            }
            self.put(&word);
        }
        true
    }

    fn draw(&mut self, first: bool, word: &mut String) {
        let kind = self.r.below(64);
        match kind {
            0 => {
                let _ = write!(word, "{}", self.r.below(100_000));
            }
            1 if self.foreign => word.push_str(FOREIGN[self.r.below(8) as usize]),
            _ => {
                let drawn = self.corpus.word(&mut self.r);
                if first || kind == 2 { capitalised(drawn, word) } else { word.push_str(drawn) }
            }
        }
    }

    /// Puts a word on the line, or on the next.
    fn put(&mut self, word: &str) {
        if self.column > 0 && self.column + 1 + word.len() > LINE {
            if self.damaged {
                self.body.push_str(match self.r.below(3) {
                    0 => "=20",
                    1 => " =",
                    _ => "",
                });
            }
            self.body.push('\n');
            self.column = 0;
        } else if self.column > 0 {
            if self.damaged && self.r.chance(1, 100) {
                self.body.push_str("=3D");
                self.column += 3;
            }
            self.body.push(' ');
            self.column += 1;
        }
        self.column += word.len();
        self.body.push_str(word);
    }
}
