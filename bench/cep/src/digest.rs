//! Digests by which outputs are compared, and those that are known to be right.

use sha2::{Digest as _, Sha256};
use tidemill_flow::batch::Batch;
use tidemill_flow::column::Data;

/// What came out of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Mails that came out.
    pub rows: u64,
    /// Characters, words and paragraphs of their bodies.
    pub metrics: [u64; 3],
}

/// A digest of the mails that came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Mails that go in.
    pub mails: u64,
    /// What comes out.
    pub totals: Totals,
    /// The sum of the first eight bytes of each row's SHA-256, whatever their order.
    pub rowsum: u64,
    /// SHA-256 of all rows in order.
    pub sha256: &'static str,
}

const fn known(mails: u64, rows: u64, rowsum: u64, sha256: &'static str, metrics: [u64; 3]) -> Known {
    Known { mails, totals: Totals { rows, metrics }, rowsum, sha256 }
}

/// What must come out of a corpus of a size: what six other implementations agree on.
pub const KNOWN: [Known; 3] = [
    known(
        2_000,
        1_655,
        0x8ad6_357f_46f1_1a7e,
        "a517c8f31138f9f7a8ec53822cd5f3e42386c1dbff40ea8ee5e043a8d17787e0",
        [5_004_845, 696_521, 17_788],
    ),
    known(
        50_000,
        41_377,
        0x2261_1040_7cd8_4ba1,
        "5abc82575fae18c7c83180472ca2320407c20015b3d696885af2c07da8456dc8",
        [77_062_978, 10_709_134, 284_988],
    ),
    known(
        517_417,
        428_187,
        0x52c9_2b48_bdfc_a6dd,
        "e6ee2fa4db12fd6384c26589afffb39185282037ee7f6c6c05039d3fd805c1cf",
        [768_993_324, 106_855_628, 2_854_300],
    ),
];

/// What must come out of a corpus of that many mails, where it is known.
pub fn expected(mails: u64) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.mails == mails)
}

/// Takes rows in.
#[derive(Debug, Default)]
pub struct Digest {
    rows: u64,
    rowsum: u64,
    all: Sha256,
    row: Vec<u8>,
}

impl Digest {
    /// Takes mails as they come out: a time and six texts each.
    pub fn add(&mut self, mails: &Batch) {
        for row in 0..mails.len() {
            self.row.clear();
            for (i, column) in mails.columns.iter().enumerate() {
                match column.data() {
                    Data::Long(times) => self.row.extend_from_slice(times[row].to_string().as_bytes()),
                    Data::Str(texts) => self.row.extend_from_slice(texts.get(row).as_bytes()),
                    _ => {}
                }
                self.row.push(if i + 1 == mails.columns.len() { 0x1e } else { 0x1f });
            }
            self.all.update(&self.row);
            let hash = Sha256::digest(&self.row);
            let first = hash.iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
            self.rowsum = self.rowsum.wrapping_add(first);
            self.rows += 1;
        }
    }

    /// Rows, their sum, and the digest of all.
    pub fn finish(self) -> (u64, u64, String) {
        let all = self.all.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        (self.rows, self.rowsum, all)
    }
}
