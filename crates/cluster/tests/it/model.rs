//! The control protocol in a model checker: three nodes, all interleavings to a bound.
//!
//! The nodes are the real ones. They begin as members that have read everything; the first one owns the partition and answers. From there on, in each step a node
//! reads all of the log or nothing, decides by its clock, and what it appends arrives at once or later; or what is on the way arrives; or a tick of
//! time passes; or, once each, a user removes the owner by force or moves the partition. A node that takes no step is paused, or dead.
//!
//! A tick is 100 ms of true time. A lease of 199 ms just ends within two ticks of a slow clock, and the wait of 209 ms is just over after two ticks of a
//! fast one, so the model has no slack that the protocol does not have. Each clock is slow or fast, in all combinations.
//!
//! In the suite, the model has two ticks beyond the first one, one or two late reads or appends, and the clocks of the others are faster
//! than the owner's. `TIDEMILL_MODEL_TICKS` sets another number of ticks and has all clocks, `TIDEMILL_MODEL_LATE` sets the number of late reads and appends,
//! `TIDEMILL_MODEL_STATES` ends the search after a number of states.

use std::collections::VecDeque;
use std::sync::Arc;

use stateright::{Checker, HasDiscoveries, Model, Property};
use tidemill_cluster::simulation::{PlantedBug, plant};
use tidemill_cluster::{
    Action, BootTime, ClusterFacts, Incarnation, Node, NodeProfile, Now, Record, Remove, Standing, State,
    Timing,
};
use tidemill_types::{Offset, PartitionId};

use crate::log::{CLOCK_MS, facts, name};

const NODES: usize = 3;
const P0: PartitionId = PartitionId(0);
const TICK_US: u64 = 100_000;
const FAST_TICK_US: u64 = 105_000;
const TIMING: Timing = Timing {
    heartbeat_ms: 99,
    lease_ms: 199,
    suspicion_ms: 209,
    own_records_read: 2,
    take_over_wait_ms: 209,
    settle_ms: 3_600_000,
};

const ONE_ANSWERS: &str = "at most one node answers for the partition";
const TAKEN_OVER: &str = "another node answers after a removal";
const MOVED: &str = "another node answers after a move";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    nodes: Vec<Arc<Node>>,
    log: Vec<Arc<Record>>,
    on_the_way: Vec<VecDeque<Arc<Record>>>,
    ticks: u32,
    /// Bit of each node that has acted since the last tick.
    acted: u8,
    /// Bit of each node whose clock is fast.
    fast: u8,
    /// Number of times that a node has decided without reading what was there, or that what it appended was on the way.
    late: u32,
    removed: bool,
    moved: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Act { node: usize, reads: bool, held: bool },
    Arrive { node: usize },
    Tick,
    RemoveOwner,
    MoveToLast,
}

struct Protocol {
    /// Combinations of fast clocks.
    speeds: Vec<u8>,
    ticks_max: u32,
    /// Bound of [`World::late`].
    late_max: u32,
    /// True if a user removes the owner by force at some time.
    removes: bool,
    /// True if a user moves the partition at some time.
    moves: bool,
    bug: Option<PlantedBug>,
}

impl Default for Protocol {
    fn default() -> Self {
        Self {
            speeds: vec![0b110],
            ticks_max: bound("TIDEMILL_MODEL_TICKS", 3) as u32,
            late_max: 2,
            removes: false,
            moves: false,
            bug: None,
        }
    }
}

impl World {
    /// Returns a cluster that works.
    fn new(fast: u8) -> Self {
        let cluster = ClusterFacts { timing: TIMING, ..facts(1) };
        let node = |index: usize| {
            let (name, address) = (name(&format!("node-{index}")), format!("{index}"));
            let profile = NodeProfile {
                name,
                address,
                calls: String::new(),
                zone: String::new(),
                weight: 100,
                cluster: cluster.clone(),
            };
            Arc::new(Node::new(profile, Incarnation(1), State::default(), BootTime(0)).unwrap())
        };
        let nodes = (0..NODES).map(node).collect();
        let on_the_way = vec![VecDeque::new(); NODES];
        let mut world = Self {
            nodes,
            log: Vec::new(),
            on_the_way,
            ticks: 0,
            acted: 0,
            fast,
            late: 0,
            removed: false,
            moved: false,
        };
        for _ in 0..3 {
            for node in 0..NODES {
                world.act(node, true, false);
            }
        }
        // after a tick all have sent another heartbeat, and the owner has not read its own back
        world.ticks = 1;
        for node in 0..NODES {
            world.act(node, true, false);
        }
        assert_eq!(world.answering(), [0]);
        world
    }

    fn now(&self, node: usize) -> Now {
        let tick = if self.fast >> node & 1 == 1 { FAST_TICK_US } else { TICK_US };
        let us = u64::from(self.ticks) * tick;
        Now { boot: BootTime(us), clock_ms: CLOCK_MS + us / 1_000 }
    }

    fn act(&mut self, index: usize, reads: bool, held: bool) {
        let now = self.now(index);
        let node = Arc::make_mut(&mut self.nodes[index]);
        while reads && let Some(record) = self.log.get(node.state().next().0 as usize) {
            node.read(node.state().next(), record, now.boot).unwrap();
        }
        for action in node.decide(now, &[(P0, Offset(0))]) {
            match action {
                Action::Append(record) if held => self.on_the_way[index].push_back(Arc::from(record)),
                Action::Append(record) => self.log.push(Arc::from(record)),
                // records of the partition take no time here: this is the worst case
                Action::AppendBarrier { partition, epoch } => _ = node.barrier_applied(partition, epoch),
            }
        }
    }

    fn answering(&self) -> Vec<usize> {
        (0..NODES).filter(|node| self.nodes[*node].may_answer(P0, self.now(*node).boot)).collect()
    }

    /// Returns the state as the whole log makes it.
    fn state(&self) -> State {
        let furthest = self.nodes.iter().max_by_key(|node| node.state().next());
        let mut state = furthest.map(|node| node.state().clone()).unwrap_or_default();
        while let Some(record) = self.log.get(state.next().0 as usize) {
            state.apply(state.next(), record).unwrap();
        }
        state
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        self.speeds.iter().copied().map(World::new).collect()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Step>) {
        for node in 0..NODES {
            if !world.on_the_way[node].is_empty() {
                // what a node sends later does not overtake
                actions.push(Step::Arrive { node });
            }
            if world.acted >> node & 1 == 1 {
                continue;
            }
            if world.on_the_way[node].is_empty() {
                actions.push(Step::Act { node, reads: true, held: false });
                if world.late < self.late_max {
                    actions.push(Step::Act { node, reads: false, held: false });
                }
            }
            if world.late < self.late_max || !world.on_the_way[node].is_empty() {
                actions.push(Step::Act { node, reads: true, held: true });
            }
        }
        if world.ticks < self.ticks_max {
            actions.push(Step::Tick);
        }
        if self.removes && !world.removed {
            actions.push(Step::RemoveOwner);
        }
        if self.moves && !world.moved {
            actions.push(Step::MoveToLast);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        plant(self.bug);
        let mut next = world.clone();
        match step {
            Step::Act { node, reads, held } => {
                let was_on_the_way = !next.on_the_way[node].is_empty();
                let lags = !reads && (next.nodes[node].state().next().0 as usize) < next.log.len();
                next.act(node, reads, held);
                next.acted |= 1 << node;
                next.late += u32::from(lags || (!was_on_the_way && !next.on_the_way[node].is_empty()));
            }
            Step::Arrive { node } => {
                let arrived = std::mem::take(&mut next.on_the_way[node]);
                next.log.extend(arrived);
            }
            Step::Tick => (next.ticks, next.acted) = (next.ticks + 1, 0),
            Step::RemoveOwner => {
                let state = world.state();
                let owner = state.owner(P0)?;
                let last_sequence = state.members()[owner.node].sequence;
                let (node, incarnation) = (owner.node.clone(), owner.incarnation);
                let remove = Remove { node, incarnation, last_sequence, by: name("user") };
                next.log.push(Arc::new(Record::Remove(remove)));
                next.removed = true;
            }
            Step::MoveToLast => {
                let to = world.nodes[NODES - 1].profile().name.clone();
                next.log.push(Arc::new(Record::Move { partition: P0, to }));
                next.moved = true;
            }
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn answers_and(world: &World, holds: impl Fn(usize) -> bool) -> bool {
            matches!(world.answering().as_slice(), [node] if holds(*node))
        }
        vec![
            Property::always(ONE_ANSWERS, |model: &Self, world: &World| {
                plant(model.bug);
                world.answering().len() <= 1
            }),
            Property::sometimes(TAKEN_OVER, |_, world: &World| {
                let is_member = |node: usize| *world.nodes[node].standing() == Standing::Member;
                let state = world.state();
                state.members().len() < NODES && answers_and(world, |node| node != 0 && is_member(node))
            }),
            Property::sometimes(MOVED, |_, world: &World| {
                world.moved && world.state().members().len() == NODES && answers_and(world, |node| node != 0)
            }),
        ]
    }
}

fn bound(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Explores all interleavings of a model. Returns the properties of which it found an example or a counterexample, with the steps.
fn explore(model: Protocol) -> Vec<(&'static str, String)> {
    let title = format!("{:?}", (model.removes, model.moves, model.bug));
    let states = bound("TIDEMILL_MODEL_STATES", usize::MAX);
    let checker = model.checker().target_state_count(states).threads(2);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (unique, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{title}: {unique} different states, depth {depth}");
    let discoveries = checker.discoveries();
    discoveries.into_iter().map(|(name, path)| (name, format!("{:?}", path.into_actions()))).collect()
}
#[test]
fn at_most_one_node_answers_in_all_interleavings() {
    let all = std::env::var("TIDEMILL_MODEL_TICKS").is_ok();
    for (removes, moves) in [(false, false), (true, false), (false, true)] {
        let speeds = if all { (0..1 << NODES).collect() } else { vec![0b110] };
        // without a user there are fewer steps to combine
        let late_max = bound("TIDEMILL_MODEL_LATE", if removes || moves { 1 } else { 2 }) as u32;
        let found = explore(Protocol { speeds, late_max, removes, moves, ..Protocol::default() });
        if let Some((_, steps)) = found.iter().find(|(name, _)| *name == ONE_ANSWERS) {
            panic!("two nodes answer: {steps}");
        }
        let expected = if moves { MOVED } else { TAKEN_OVER };
        assert!(found.iter().any(|(name, _)| *name == expected), "{expected}: {found:?}");
    }
}

#[test]
fn the_model_finds_planted_bugs() {
    for (bug, removes, moves) in [
        (PlantedBug::LeaseFromReading, false, false),
        (PlantedBug::AnswerAfterLease, false, false),
        (PlantedBug::NoWait, true, false),
        (PlantedBug::AnswerAfterResigning, false, true),
    ] {
        let found = explore(Protocol { removes, moves, bug: Some(bug), ..Protocol::default() });
        let counterexample = found.iter().find(|(name, _)| *name == ONE_ANSWERS);
        println!("{counterexample:?}");
        assert!(counterexample.is_some(), "{bug:?} is not found");
    }
}
