//! The ten queries a to j: their texts, what goes in, what must come out.

use tidemill_flow::column::{Data, StringColumn};
use tidemill_flow::runtime::StreamBatch;
use tidemill_flow::{Column, Row, ValueRef};

use crate::random::{at, fnv1a, mix};

const SEED: u64 = 42;
/// The time of the first event; they come a millisecond apart.
const FIRST_MS: i64 = 1_700_000_000_000;
/// Where the hash of a row begins.
const ROW: u64 = 0x243F_6A88_85A3_08D3;

/// A query that is measured.
#[derive(Debug)]
pub struct Bench {
    /// One letter.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The query; it reads `S`, and `T` if [`Bench::two_streams`].
    pub query: &'static str,
    /// How many symbols there are.
    pub symbols: u64,
    /// Whether events go to two streams in turn.
    pub two_streams: bool,
    /// Whether what counts is the content of the table `Tab` in the end.
    pub table: bool,
    /// For a number of events, how many rows come out, and their checksum.
    pub known: [(u64, u64, u64); 3],
}

const fn bench(
    name: &'static str,
    title: &'static str,
    query: &'static str,
    symbols: u64,
    known: [(u64, u64, u64); 3],
) -> Bench {
    Bench { name, title, query, symbols, two_streams: false, table: false, known }
}

/// All of them.
pub const BENCHES: [Bench; 10] = [
    bench(
        "a",
        "filter",
        "from S[price > 100.0] select symbol, price insert into Out;",
        100,
        [
            (200_000, 99_367, 0x052d_fa70_b31d_ab09),
            (2_000_000, 996_904, 0x6891_1342_a80d_1602),
            (10_000_000, 4_987_380, 0xa0ae_f778_dd47_07b8),
        ],
    ),
    bench(
        "b",
        "projection",
        "from S select symbol, price * volume as notional, (price + 10.0) * 2.0 as p2, volume * 2 + 1 as v2 \
         insert into Out;",
        100,
        [
            (200_000, 200_000, 0xb94f_d7c4_228e_30cb),
            (2_000_000, 2_000_000, 0x1d21_cf5f_4d93_492d),
            (10_000_000, 10_000_000, 0x4d1a_313e_ad05_63ff),
        ],
    ),
    bench(
        "c",
        "length window, average by symbol",
        "from S#window.length(1000) select ts, symbol, avg(price) as ap group by symbol insert into Out;",
        100,
        [
            (200_000, 200_000, 0xda93_46d4_4f41_9500),
            (2_000_000, 2_000_000, 0x4e80_0e16_62b8_8482),
            (10_000_000, 10_000_000, 0x6100_5606_e2a7_cf68),
        ],
    ),
    bench(
        "d",
        "time window, sum and count by symbol",
        "from S#window.externalTime(ts, 10 sec) select ts, symbol, sum(price) as sp, count() as c \
         group by symbol insert into Out;",
        1_000,
        [
            (200_000, 200_000, 0x79b4_a19b_551d_c6a4),
            (2_000_000, 2_000_000, 0x9cb2_13fa_3d4e_af5d),
            (10_000_000, 10_000_000, 0xc660_448a_6bc3_7030),
        ],
    ),
    bench(
        "e",
        "batches of 1,000, sum and count by symbol",
        "from S#window.lengthBatch(1000) select symbol, sum(price) as sp, count() as c group by symbol \
         insert into Out;",
        100,
        [
            (200_000, 19_999, 0x548c_a8bc_7109_ac8a),
            (2_000_000, 199_992, 0xadca_5cf1_2b5d_75d9),
            (10_000_000, 999_956, 0x46b6_1782_6931_a06d),
        ],
    ),
    bench(
        "f",
        "pattern: a higher price within a second",
        "from every e1=S[price > 20.0] -> e2=S[price > e1.price] within 1 sec \
         select e1.ts as t1, e2.ts as t2, e1.price as p1, e2.price as p2 insert into Out;",
        100,
        [
            (200_000, 179_188, 0x1e47_8933_1123_0d0f),
            (2_000_000, 1_793_588, 0xee25_f914_62f2_abf4),
            (10_000_000, 8_969_334, 0x1f8d_018f_72ce_1178),
        ],
    ),
    bench(
        "g",
        "sequence: three rising prices",
        "from every e1=S[price > 100.0], e2=S[price > e1.price], e3=S[price > e2.price] \
         select e1.ts as t1, e2.ts as t2, e3.ts as t3 insert into Out;",
        100,
        [
            (200_000, 4_138, 0xa12b_be62_420b_3142),
            (2_000_000, 40_928, 0x051f_4c13_58cf_cbfc),
            (10_000_000, 205_131, 0xbd85_4982_90ad_f280),
        ],
    ),
    Bench {
        two_streams: true,
        ..bench(
            "h",
            "join of two windows of 100",
            "from S#window.length(100) as a join T#window.length(100) as b on a.symbol == b.symbol \
             select a.ts as t1, b.ts as t2, a.symbol as symbol, a.price + b.price as p insert into Out;",
            100,
            [
                (200_000, 200_240, 0x8de1_e757_0231_9026),
                (500_000, 499_274, 0x23c8_f7a1_9e6d_499b),
                (2_000_000, 1_997_795, 0x1503_fc09_7fc8_8d03),
            ],
        )
    },
    bench(
        "i",
        "running aggregates by symbol",
        "partition with (symbol of S) begin \
         from S select symbol, ts, sum(price) as s, count() as c, max(price) as m insert into Out; end;",
        10_000,
        [
            (200_000, 200_000, 0x7c86_570a_7543_da93),
            (2_000_000, 2_000_000, 0xba8b_7999_724d_0bdf),
            (10_000_000, 10_000_000, 0xea0e_e91e_8db6_00da),
        ],
    ),
    Bench {
        table: true,
        ..bench(
            "j",
            "update or insert by key",
            "from S select symbol, price, volume update or insert into Tab on Tab.symbol == symbol;",
            100_000,
            [
                (200_000, 86_465, 0x50f4_e609_6d7a_92aa),
                (2_000_000, 100_000, 0x941a_1e92_5821_36ce),
                (10_000_000, 100_000, 0x1af5_35aa_febc_ff9a),
            ],
        )
    },
];

/// A trade, as an event that is sent by itself.
#[derive(Debug)]
pub struct Trade {
    symbol: String,
    price: f64,
    volume: i64,
    time: i64,
}

impl Trade {
    /// Trade number `i` with one of `symbols` symbols.
    pub fn of(i: u64, symbols: u64) -> Self {
        let (symbol, price, volume, time) = trade(i, symbols);
        Self { symbol, price, volume, time }
    }

    /// Time of the event in milliseconds since 1970.
    pub fn time(&self) -> i64 {
        self.time
    }

    /// The attributes of the streams.
    #[inline]
    pub fn values(&self) -> [ValueRef<'_>; 4] {
        [
            ValueRef::Str(&self.symbol),
            ValueRef::Double(self.price),
            ValueRef::Long(self.volume),
            ValueRef::Long(self.time),
        ]
    }
}

/// Trade number `i` with one of `symbols` symbols: symbol, price, volume, time in milliseconds since 1970.
pub fn trade(i: u64, symbols: u64) -> (String, f64, i64, i64) {
    let (one, two) = (at(SEED, 2 * i), at(SEED, 2 * i + 1));
    let price = 0.25 * ((two >> 32) % 800) as f64;
    let volume = ((two & 0xFFFF_FFFF) % 1000) as i64;
    (format!("S{:06}", (one >> 33) % symbols), price, volume, FIRST_MS + i as i64)
}

impl Bench {
    /// The app.
    pub fn app(&self) -> String {
        let attributes = "(symbol string, price double, volume long, ts long)";
        let second =
            if self.two_streams { format!("define stream T {attributes};\n") } else { String::new() };
        let table = "@PrimaryKey('symbol') define table Tab (symbol string, price double, volume long);\n";
        let table = if self.table { table } else { "" };
        format!("define stream S {attributes};\n{second}{table}{}\n", self.query)
    }

    /// Events with these numbers, for stream number `stream` of the app.
    pub fn events(&self, stream: usize, events: impl Iterator<Item = u64>) -> StreamBatch {
        let (mut symbols, mut prices) = (StringColumn::default(), vec![]);
        let (mut volumes, mut times) = (vec![], vec![]);
        for i in events {
            let (symbol, price, volume, time) = trade(i, self.symbols);
            symbols.push(&symbol);
            prices.push(price);
            volumes.push(volume);
            times.push(time);
        }
        let data = [Data::Str(symbols), Data::Double(prices), Data::Long(volumes), Data::Long(times.clone())];
        let mut columns: Vec<Column> = data.into_iter().map(Column::of).collect();
        columns.iter_mut().for_each(Column::share);
        StreamBatch { stream, columns, times }
    }
}

/// Rows and the sum of their hashes, whatever their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checksum {
    /// How many.
    pub rows: u64,
    /// The sum.
    pub sum: u64,
}

impl Checksum {
    /// Takes rows in.
    pub fn add(&mut self, columns: &[Column]) {
        for row in 0..columns.first().map_or(0, Column::len) {
            let hash = columns.iter().fold(ROW, |hash, column| mix(hash ^ bits(column.value_ref(row))));
            self.sum = self.sum.wrapping_add(hash);
            self.rows += 1;
        }
    }

    /// Takes a row in.
    pub fn add_row(&mut self, row: Row<'_>) {
        let hash = row.values.iter().fold(ROW, |hash, value| mix(hash ^ bits(*value)));
        self.sum = self.sum.wrapping_add(hash);
        self.rows += 1;
    }
}

fn bits(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Long(n) => n as u64,
        // both zeros are one
        ValueRef::Double(n) => (n + 0.0).to_bits(),
        ValueRef::Str(text) => fnv1a(text.as_bytes()),
        _ => 0,
    }
}
