//! Feeds changed messages to the decoders of PostgreSQL's protocol, data of `COPY … FROM STDIN` among them, and reports those that they
//! do not survive.
//!
//! ```text
//! cargo run --release -p tidemill-postgres --features fuzzing --example fuzz_messages -- --seconds 600 [--seed N]
//! cargo run --release -p tidemill-postgres --features fuzzing --example fuzz_messages -- --replay HEX
//! ```
//!
//! A finding is a panic, the end of the process, or a message that takes more than a second or 64 MiB. It is printed as hexadecimal numbers.

use std::time::Duration;

use tidemill_fuzzing::{ByteChanges, InputBounds, StdRng, Target};
use tidemill_postgres::fuzzing::receive;

/// Messages to change: a letter and the content.
const SEEDS: [&[u8]; 25] = [
    b"QSELECT 'a''b', E'\\'', $$x$$, $t$;$t$ /* /* */ */ -- x\n; SET a = 'b', \"c\"; BEGIN\0",
    b"QSET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY\0",
    b"QPREPARE p (bigint, double precision) AS SELECT $1; EXECUTE p (1, -2.5e3, 'x'::text, NULL, true)\0",
    b"QDECLARE c BINARY NO SCROLL CURSOR WITH HOLD FOR SELECT 1; FETCH FORWARD 10 FROM c; MOVE ALL IN c; CLOSE ALL\0",
    b"QCOPY (SELECT (1)) TO STDOUT (FORMAT csv, HEADER true, DELIMITER ';', FORCE_QUOTE (a, b), NULL '')\0",
    b"QCOPY a.\"b\" (c, d) TO STDOUT WITH CSV HEADER QUOTE AS '\"' FORCE QUOTE *\0",
    b"QCOPY a.\"b\" (c, \"d\") FROM STDIN (FORMAT csv, HEADER match, NULL 'x', ESCAPE '\\'); INSERT INTO a VALUES ($1)\0",
    b"dt\t-7\t8\t1.5\t1.5e3\ta\\tb\t2024-05-01 10:00:00+02\t{\"a\": 1}\r\nf\t\\N\t\\x41\t\\101\tNaN\t\\q\tnow\t[]\r\n\\.\r\n",
    b"dbool|int|long|float|double|string|time|object\nyes|1|2|3|4|\\||infinity|null\n||||||\n",
    b"dtrue,1,2,3.5,-0,\"a\"\"b\",2024-05-01,\"{\"\"a\"\": [1]}\"\non,,,,,\"\r\n\",epoch,\"\"\n\\.\n",
    b"dh;h;h;h;h;h;h;h\nx;1;2;3;4;'a\\'b';'2024-05-01 12:00';'[\n]'\r\n",
    b"dPGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x08\0\0\0\x01\x01\0\0\0\x04\0\0\0\x07\0\0\0\x08\0\0\0\0\0\0\0\x07\0\0\0\x04\x3f\x80\0\0\0\0\0\x08\x3f\xf0\0\0\0\0\0\0\0\0\0\x01a\0\0\0\x08\0\0\0\0\0\0\0\x07\0\0\0\x03\x01{}\xff\xff",
    b"dPGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\x02xx\0\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"QSAVEPOINT a; ROLLBACK TO SAVEPOINT a; RELEASE a; DISCARD ALL; SHOW TIME ZONE; RESET ALL\0",
    b"Ps\0SELECT $1\0\0\x02\0\0\0\x14\0\0\x06\xa4",
    b"B\0s\0\0\x01\0\x01\0\x02\0\0\0\x08\0\0\0\0\0\0\0\x07\xff\xff\xff\xff\0\x01\0\x01",
    b"B\0\0\0\0\0\x03\0\0\0\x162024-05-01 12:00:00+02\0\0\0\x04\\x61\0\0\0\x05-1e-3\0\0",
    b"B\0\0\0\x01\0\x01\0\x01\0\0\0\x0e\0\x03\0\x01\x40\0\0\x02\0\x01\x09\x29\x17\x70\0\0",
    b"DSs\0",
    b"Ep\0\0\0\0\x0a",
    b"CPp\0",
    b"S",
    b"\0\0\x03\0\x02user\0ana\0options\0-c a=b\0\0",
    b"\0\x04\xd2\x16\x2e\0\0\0\x01key.",
    b"pSCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=abc",
];

const WORDS: [&[u8]; 16] = [
    b"'",
    b"\"",
    b"$",
    b"(",
    b" ",
    b"\\",
    b"\\.",
    b"\\N",
    b"\r\n",
    b"\t",
    b",",
    b"{",
    b"::",
    b"/*",
    b"NaN",
    b"infinity",
];

struct Messages(ByteChanges);

impl Target for Messages {
    fn next(&mut self, number: u64, random: &mut StdRng) -> Vec<u8> {
        self.0.next(number, random)
    }

    fn receive(&mut self, input: &[u8]) -> String {
        receive(input);
        "survived".to_owned()
    }
}

fn main() {
    let bounds = InputBounds { time: Duration::from_secs(1), bytes: 64 << 20, ..InputBounds::default() };
    tidemill_fuzzing::main(bounds, || {
        Messages(ByteChanges::new(SEEDS.iter().map(|seed| seed.to_vec()).collect(), &WORDS))
    });
}
