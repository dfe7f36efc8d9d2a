//! The control partition and the logs of partitions, and what is on the way to them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidemill_types::{Offset, PartitionId};

/// A record in the log of a partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataRecord {
    /// A client's write: the register has this value from now on.
    Write { value: u64 },
    /// Barrier of an owner.
    Barrier { epoch: Offset },
}

/// A record on its way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Append {
    Control(Vec<u8>),
    Data(PartitionId, DataRecord),
}

/// A record in a log, and the time at which it arrived there, in microseconds.
#[derive(Debug)]
pub struct Landed<T> {
    pub at: u64,
    pub record: T,
}

/// All logs of a cluster.
#[derive(Debug, Default)]
pub struct Logs {
    pub control: Vec<Landed<Vec<u8>>>,
    pub data: Vec<Vec<Landed<DataRecord>>>,
    /// By time of arrival, then in the order of sending.
    on_the_way: BinaryHeap<Reverse<(u64, u64, Append)>>,
    sent: u64,
}

impl Logs {
    pub fn new(partitions: u32) -> Self {
        Self { data: (0..partitions).map(|_| Vec::new()).collect(), ..Self::default() }
    }

    pub fn send(&mut self, arrives_at: u64, append: Append) {
        self.sent += 1;
        self.on_the_way.push(Reverse((arrives_at, self.sent, append)));
    }

    /// Lets everything arrive that is due. Returns the number of control records that arrived.
    pub fn land(&mut self, now: u64) -> usize {
        let mut control = 0;
        while self.on_the_way.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((at, _, append))) = self.on_the_way.pop() else { break };
            match append {
                Append::Control(record) => {
                    self.control.push(Landed { at, record });
                    control += 1;
                }
                Append::Data(id, record) => self.data[id.0 as usize].push(Landed { at, record }),
            }
        }
        control
    }
}
