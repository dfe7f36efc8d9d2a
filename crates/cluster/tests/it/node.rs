//! One node against a log that the test writes: joins, removals, leases, take-overs, stamps.

use tidemill_cluster::{
    Action, BootTime, HybridTime, Incarnation, Node, NodeProfile, Now, Record, Refusal, Role, Standing, State,
};
use tidemill_types::{Offset, PartitionId};

use crate::log::{CLOCK_MS, facts, join, name};

const P0: PartitionId = PartitionId(0);

/// A node, its log, and a clock that the test advances by 50 ms at a time.
struct Driver {
    node: Node,
    log: Vec<Record>,
    ms: u64,
    /// True while nothing that the node appends arrives.
    cut: bool,
    barriers: Vec<(PartitionId, Offset)>,
}

fn ms(ms: u64) -> BootTime {
    BootTime(ms * 1_000)
}

impl Driver {
    fn new(node: &str) -> Self {
        let (address, zone) = (format!("{node}:7171"), String::new());
        let profile = NodeProfile {
            name: name(node),
            address,
            calls: String::new(),
            zone,
            weight: 100,
            cluster: facts(1),
        };
        let node = Node::new(profile, Incarnation(1), State::default(), ms(0)).unwrap();
        Self { node, log: Vec::new(), ms: 0, cut: false, barriers: Vec::new() }
    }

    fn now(&self) -> Now {
        Now { boot: ms(self.ms), clock_ms: CLOCK_MS + self.ms }
    }

    /// Reads what is new, decides, appends.
    fn act(&mut self) {
        self.read();
        for action in self.node.decide(self.now(), &[(P0, Offset(0))]) {
            match action {
                Action::Append(record) if !self.cut => self.log.push(*record),
                Action::Append(_) => {}
                Action::AppendBarrier { partition, epoch } => self.barriers.push((partition, epoch)),
            }
        }
        self.read();
    }

    fn read(&mut self) {
        while let Some(record) = self.log.get(self.node.state().next().0 as usize) {
            let record = record.clone();
            self.node.read(self.node.state().next(), &record, self.now().boot).unwrap();
        }
    }

    fn run_until(&mut self, end_ms: u64) {
        while self.ms < end_ms {
            self.ms += 50;
            self.act();
        }
    }

    fn apply_barriers(&mut self) {
        for (partition, epoch) in std::mem::take(&mut self.barriers) {
            assert!(self.node.barrier_applied(partition, epoch));
        }
    }

    fn answers(&self) -> bool {
        self.node.may_answer(P0, self.now().boot)
    }
}

/// A heartbeat of the other node, in its first life.
fn heartbeat(node: &str, sequence: u64) -> Record {
    let clock_ms = CLOCK_MS;
    Record::Heartbeat(tidemill_cluster::Heartbeat {
        node: name(node),
        incarnation: Incarnation(1),
        sequence,
        clock_ms,
        reserve: HybridTime::new(clock_ms + 5_000, 0),
        applied: vec![(P0, Offset(0))],
    })
}

#[test]
fn the_first_node_answers_after_a_heartbeat_and_a_barrier() {
    let mut driver = Driver::new("a");
    driver.act();
    assert_eq!(driver.node.standing(), &Standing::Member);
    assert!(!driver.answers());
    driver.act();
    assert!(!driver.answers(), "no barrier was applied");
    driver.apply_barriers();
    assert!(driver.answers());
    driver.cut = true;
    driver.run_until(950);
    assert!(driver.answers());
    driver.run_until(1_000);
    assert!(!driver.answers(), "its heartbeats do not come back");
    driver.cut = false;
    driver.run_until(1_300);
    assert!(driver.answers(), "the lease is back, and so are answers: nobody has taken over");
}

#[test]
fn a_lost_owner_is_removed_and_taken_over_after_its_lease() {
    let mut driver = Driver::new("b");
    driver.log = vec![Record::Join(join("a", 1)), heartbeat("a", 1)];
    driver.act();
    driver.act();
    assert_eq!(driver.node.role(P0), Some(Role::Standby), "it has applied as much as the owner");
    driver.run_until(1_400);
    assert!(driver.node.state().members().contains_key(&name("a")));
    driver.run_until(1_500);
    assert_eq!(driver.node.role(P0), Some(Role::Owner));
    assert_eq!(driver.barriers.len(), 0, "decided with the next step");
    driver.run_until(1_550);
    assert!(!driver.answers());
    driver.apply_barriers();
    assert!(driver.answers());
    let stamp = driver.node.stamp(P0, driver.now());
    // the clock of the former owner was ahead, so the first heartbeats have reserved too little
    assert!(stamp.unwrap_err().to_string().contains("next heartbeat reserves more"));
    driver.run_until(2_000);
    assert!(driver.node.stamp(P0, driver.now()).unwrap() > HybridTime::new(CLOCK_MS + 5_000, 0));
}

#[test]
fn the_owner_after_a_forced_removal_waits_for_the_lease() {
    let mut driver = Driver::new("b");
    driver.log = vec![Record::Join(join("a", 1))];
    driver.run_until(500);
    driver.log.push(heartbeat("a", 1));
    driver.run_until(550);
    driver.log.push(Record::Remove(tidemill_cluster::Remove {
        node: name("a"),
        incarnation: Incarnation(1),
        last_sequence: 1,
        by: name("user"),
    }));
    driver.run_until(600);
    assert_eq!(driver.node.role(P0), Some(Role::Owner));
    driver.run_until(1_600);
    assert_eq!(driver.barriers.len(), 0, "the heartbeat was read at 550");
    driver.run_until(1_650);
    assert_eq!(driver.barriers.len(), 1);
    driver.run_until(2_600);
    assert_eq!(driver.barriers.len(), 1);
    driver.run_until(2_650);
    assert_eq!(driver.barriers.len(), 2, "it was lost, so it is sent again");
}

#[test]
fn a_node_that_begins_with_a_snapshot_waits_for_leases_that_it_does_not_know() {
    let mut former = Driver::new("a");
    former.run_until(500);
    let mut state = former.node.state().clone();
    let member = &state.members()[&name("a")];
    let remove = Record::Remove(tidemill_cluster::Remove {
        node: name("a"),
        incarnation: member.incarnation,
        last_sequence: member.sequence,
        by: name("user"),
    });
    state.apply(state.next(), &remove).unwrap();
    let next = state.next();
    let mut driver = Driver::new("b");
    driver.ms = 600;
    driver.node = Node::new(driver.node.profile().clone(), Incarnation(1), state, driver.now().boot).unwrap();
    driver.log = vec![Record::Drain { node: name("x") }; next.0 as usize];
    driver.run_until(1_650);
    assert_eq!((driver.node.role(P0), driver.barriers.len()), (Some(Role::Owner), 0));
    driver.run_until(1_700);
    assert_eq!(driver.barriers.len(), 1);
}

#[test]
fn a_node_that_starts_again_alone_removes_its_former_life() {
    let mut driver = Driver::new("a");
    let mut former = join("a", 1);
    former.incarnation = Incarnation(99);
    former.clock_ms -= 86_400_000;
    let other = tidemill_cluster::Join { clock_ms: former.clock_ms, ..join("c", 1) };
    driver.log = vec![Record::Join(former), Record::Join(other)];
    driver.run_until(1_400);
    assert_eq!(driver.node.standing(), &Standing::Joining);
    driver.run_until(2_000);
    assert_eq!(driver.node.standing(), &Standing::Member, "both were removed, a day after they were lost");
    assert_eq!(driver.node.state().members().len(), 1);
}

#[test]
fn a_node_whose_name_is_taken_gives_up() {
    let mut driver = Driver::new("a");
    let mut other = join("a", 1);
    other.incarnation = Incarnation(99);
    driver.log = vec![Record::Join(other)];
    for sequence in 1..20 {
        driver.log.push(Record::Heartbeat(match heartbeat("a", sequence) {
            Record::Heartbeat(heartbeat) => {
                tidemill_cluster::Heartbeat { incarnation: Incarnation(99), ..heartbeat }
            }
            other => panic!("{other:?}"),
        }));
        driver.run_until(driver.ms + 250);
    }
    assert!(matches!(driver.node.standing(), Standing::Refused(Refusal::NameTaken { .. })));
    let end = driver.log.len();
    driver.run_until(driver.ms + 1_000);
    assert_eq!(driver.log.len(), end, "it is silent");
}

#[test]
fn a_node_of_another_cluster_removes_nobody() {
    let mut driver = Driver::new("a");
    let mut other = join("b", 1);
    other.cluster.id = "c2".into();
    driver.log = vec![Record::Join(other)];
    driver.run_until(10_000);
    assert!(matches!(driver.node.standing(), Standing::Refused(Refusal::OtherCluster { .. })));
    assert_eq!(driver.log.len(), 2, "its one join");
}

#[test]
fn a_removed_node_is_silent_and_joins_in_another_life() {
    let mut driver = Driver::new("a");
    driver.act();
    driver.act();
    driver.apply_barriers();
    assert!(driver.answers());
    let member = &driver.node.state().members()[&name("a")];
    driver.log.push(Record::Remove(tidemill_cluster::Remove {
        node: name("a"),
        incarnation: member.incarnation,
        last_sequence: member.sequence,
        by: name("b"),
    }));
    driver.read();
    assert!(!driver.answers() && driver.node.role(P0).is_none());
    assert_eq!(driver.node.standing(), &Standing::Removed { by: name("b") });
    assert_eq!(driver.node.decide(driver.now(), &[]), []);
    driver.node.rejoin(Incarnation(2));
    driver.run_until(1_400);
    driver.apply_barriers();
    assert!(driver.answers());
    assert_eq!(driver.node.state().owner(P0).unwrap().incarnation, Incarnation(2));
}

#[test]
fn a_node_that_leaves_hands_over_before_it_stops() {
    let (mut a, mut b) = (Driver::new("a"), Driver::new("b"));
    let mut left_at = None;
    let mut unanswered = 0;
    for step in 0..60 {
        for (driver, other) in [(0, 1), (1, 0)] {
            let drivers = [&mut a, &mut b];
            drivers[driver].run_until((step + 1) * 50);
            drivers[driver].apply_barriers();
            let log = drivers[driver].log.clone();
            drivers[other].log = log;
            drivers[other].read();
        }
        if step == 20 {
            a.node.leave();
        }
        assert!(!(a.answers() && b.answers()));
        unanswered += usize::from(step > 2 && !a.answers() && !b.answers());
        if a.node.standing() == &Standing::Left {
            left_at.get_or_insert(step);
        }
    }
    assert!(left_at.is_some_and(|step| step < 45), "{left_at:?}");
    assert!(unanswered <= 2, "{unanswered} steps of 50 ms without an owner");
    assert!(b.answers());
}

#[test]
fn the_last_node_leaves_at_once() {
    let mut driver = Driver::new("a");
    driver.run_until(500);
    driver.apply_barriers();
    driver.node.leave();
    driver.act();
    assert!(!driver.answers());
    assert_eq!(driver.node.standing(), &Standing::Left);
}

#[test]
fn a_profile_that_no_cluster_admits_is_refused() {
    let mut profile = Driver::new("a").node.profile().clone();
    profile.weight = 0;
    assert!(
        Node::new(profile, Incarnation(1), State::default(), ms(0))
            .unwrap_err()
            .to_string()
            .contains("weight 0")
    );
}

#[test]
fn a_node_that_has_stopped_to_leave_does_not_come_back_for_a_node_that_joins() {
    let mut driver = Driver::new("a");
    driver.run_until(500);
    driver.apply_barriers();
    driver.node.leave();
    // its removal of itself is lost, and another node joins before the next one
    driver.cut = true;
    driver.act();
    driver.cut = false;
    driver.log.push(Record::Join(join("b", 1)));
    driver.run_until(1_000);
    assert_eq!(driver.node.standing(), &Standing::Left);
    assert_eq!(driver.node.state().owner(P0).map(|owner| owner.node.clone()), Some(name("b")));
}
