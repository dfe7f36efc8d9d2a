//! Admission, drains, moves, resignations, protocols: what is refused, and the text that helps.

use tidemill_cluster::{
    ClusterEvent, Incarnation, Join, NodeName, OwnerReason, Record, Refusal, Remove, Role, State, Timing,
};
use tidemill_types::{Offset, PartitionId};

use crate::log::{CLOCK_MS, Log, join, name};

/// Returns the refusal of a join in a cluster of two.
fn refusal(change: impl FnOnce(&mut Join)) -> Option<Refusal> {
    let mut log = Log::settled(2, 4, 0);
    let mut join = join("late", 4);
    change(&mut join);
    let node = join.node.clone();
    log.append(Record::Join(join));
    log.state.refused_joins().get(&node).map(|refused| refused.refusal.clone())
}

#[test]
fn a_join_is_refused_with_what_differs_and_what_helps() {
    assert_eq!(refusal(|_| ()), None);
    let text = |change: fn(&mut Join)| refusal(change).unwrap().to_string();
    let contains = |text: String, parts: &[&str]| {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    contains(text(|j| j.node = name("node-1")), &["alive at node-1:7171", "tidemill cluster status"]);
    contains(text(|j| j.clock_ms += 10_001), &["10001 ms ahead of", "date -u"]);
    contains(text(|j| j.clock_ms -= 10_001), &["10001 ms behind", "date -u"]);
    contains(text(|j| j.clock_ms = u64::MAX), &["ahead of"]);
    contains(text(|j| j.cluster.id = "c2".into()), &["cluster c1", "c2", "--cluster"]);
    contains(text(|j| j.cluster.partitions = 5), &["4 partitions", "5"]);
    contains(text(|j| j.cluster.home_rule = 1), &["rule 0", "rule 1", "data directory"]);
    contains(
        text(|j| j.cluster.origin = "3fa85f64a1b2 (01020304)".into()),
        &["continues no data directory", "the data directory 3fa85f64a1b2 (01020304)", "--store"],
    );
    contains(text(|j| j.cluster.app = "app2".into()), &["app1", "app2"]);
    contains(text(|j| j.cluster.timing = Timing::LARGE), &["settings"]);
    contains(text(|j| (j.protocol_min, j.protocol_max) = (2, 3)), &["protocol 1", "2 to 3", "finalize"]);
    assert_eq!(refusal(|j| j.clock_ms += 10_000), None);
    assert!(refusal(|j| j.node = name("node-1")).unwrap().may_pass());
    assert!(!refusal(|j| j.cluster.id = "c2".into()).unwrap().may_pass());
}

#[test]
fn a_join_that_is_repeated_changes_nothing_and_a_former_life_is_refused() {
    let mut log = Log::new();
    log.append(Record::Join(join("a", 2)));
    assert_eq!(log.append(Record::Join(join("a", 2))), []);
    log.remove(&name("a"));
    log.append(Record::Join(join("a", 2)));
    assert_eq!(log.state.refused_joins()[&name("a")].refusal, Refusal::LifeEnded);
    log.append(Record::Join(Join { incarnation: Incarnation(2), ..join("a", 2) }));
    assert_eq!(log.state.owner(PartitionId(1)).unwrap().incarnation, Incarnation(2));
    assert!(log.state.refused_joins().is_empty(), "it is a member now");
}

#[test]
fn without_members_app_and_intervals_are_new_and_id_and_rule_of_homes_are_not() {
    let mut log = Log::new();
    log.append(Record::Join(join("a", 2)));
    log.remove(&name("a"));
    let mut other = join("b", 2);
    other.cluster.id = "c2".into();
    log.append(Record::Join(other));
    assert!(matches!(log.state.refused_joins()[&name("b")].refusal, Refusal::OtherCluster { .. }));
    let mut other = join("b", 2);
    other.cluster.home_rule = 1;
    log.append(Record::Join(other));
    assert!(matches!(log.state.refused_joins()[&name("b")].refusal, Refusal::OtherHomeRule { .. }));
    let mut other = join("b", 2);
    other.cluster.origin = "3fa85f64a1b2".into();
    log.append(Record::Join(other));
    assert!(matches!(log.state.refused_joins()[&name("b")].refusal, Refusal::OtherOrigin { .. }));
    let mut changed = join("b", 2);
    (changed.cluster.app, changed.cluster.timing) = ("app2".into(), Timing::LARGE);
    changed.clock_ms = CLOCK_MS + 86_400_000;
    log.append(Record::Join(changed));
    assert_eq!(log.state.cluster().unwrap().app, "app2");
    assert_eq!(log.state.owner(PartitionId(0)).unwrap().node, &name("b"));
}

#[test]
fn a_removal_counts_only_with_the_last_heartbeat() {
    let mut log = Log::settled(2, 2, 0);
    let node = name("node-0");
    let member = log.state.members()[&node].clone();
    let remove = |incarnation, last_sequence| {
        Record::Remove(Remove { node: node.clone(), incarnation, last_sequence, by: name("node-1") })
    };
    let stale = remove(member.incarnation, member.sequence);
    log.caught_up(&node);
    assert_eq!(log.append(stale), [], "a later heartbeat stands before it");
    assert_eq!(log.append(remove(Incarnation(99), member.sequence + 1)), [], "another life");
    assert_ne!(log.append(remove(member.incarnation, member.sequence + 1)), []);
    assert_eq!(log.state.former_members()[&node].by, name("node-1"));
}

#[test]
fn a_drained_member_owns_and_follows_nothing() {
    let mut log = Log::settled(3, 12, 0);
    let node = name("node-0");
    log.append(Record::Drain { node: node.clone() });
    log.settle();
    assert_eq!(log.state.followed(&node).count(), 0, "{:?}", log.loads());
    assert_eq!(log.loads(), [(0, 0), (6, 6), (6, 6)]);
    log.append(Record::Drain { node: name("node-1") });
    log.settle();
    assert_eq!(log.loads(), [(0, 0), (0, 0), (12, 0)]);
    assert_eq!(
        rejected(&mut log, Record::Drain { node: name("node-2") }),
        "drain: no other member could take the partitions of node-2; start one first"
    );
}

#[test]
fn a_move_stays_where_a_user_wants_it() {
    let mut log = Log::settled(3, 3, 0);
    let id = PartitionId(1);
    let owner = log.state.owner(id).unwrap().node.clone();
    let to = log.state.members().keys().find(|node| **node != owner).unwrap().clone();
    log.append(Record::Move { partition: id, to: to.clone() });
    log.settle();
    log.settle();
    assert_eq!(log.state.owner(id).unwrap().node, &to);
    log.append(Record::Drain { node: to.clone() });
    log.settle();
    assert_ne!(log.state.owner(id).unwrap().node, &to);
}

#[test]
fn requests_that_cannot_be_fulfilled_say_why() {
    let mut log = Log::settled(2, 2, 0);
    let owner = log.state.owner(PartitionId(0)).unwrap().node.clone();
    let text = |log: &mut Log, record| rejected(log, record);
    let move_to = |id, to: &NodeName| Record::Move { partition: PartitionId(id), to: to.clone() };
    assert!(text(&mut log, move_to(2, &owner)).contains("no partition 2, the cluster has 2"));
    assert!(text(&mut log, move_to(0, &owner)).contains("owns partition 0 already"));
    assert!(text(&mut log, move_to(0, &name("node-12"))).contains("node-12"));
    assert!(text(&mut log, Record::Drain { node: name("nod-1") }).contains("Did you mean `node-1`"));
    assert!(text(&mut log, Record::Finalize { protocol: 1 }).contains("uses protocol 1 already"));
    let unable = text(&mut log, Record::Finalize { protocol: 2 });
    assert!(
        unable.contains("node-0 speaks protocols 1 to 1") && unable.contains("speaks 2 first"),
        "{unable}"
    );
    log.append(Record::Deploy { app: "app2".into() });
    assert_eq!(log.state.deploy().map(|deploy| deploy.app.as_str()), Some("app2"));
    log.append(Record::Drain { node: name("node-1") });
    assert!(text(&mut log, move_to(0, &name("node-1"))).contains("is draining"));
}

#[test]
fn a_later_protocol_is_used_when_all_members_speak_it() {
    let mut log = Log::new();
    log.append(Record::Join(join("a", 1)));
    assert_eq!(log.state.protocol(), 1);
    log.append(Record::Join(Join { protocol_max: 2, ..join("b", 1) }));
    assert!(rejected(&mut log, Record::Finalize { protocol: 2 }).contains("a speaks protocols 1 to 1"));
    log.remove(&name("a"));
    assert_eq!(log.append(Record::Finalize { protocol: 2 }), [ClusterEvent::Finalized { protocol: 2 }]);
    log.append(Record::Join(Join { incarnation: Incarnation(2), ..join("a", 1) }));
    let refusal = log.state.refused_joins()[&name("a")].refusal.to_string();
    assert!(
        refusal.contains("protocol 2, this build speaks 1 to 1") && refusal.contains("newer build"),
        "{refusal}"
    );
}

#[test]
fn a_resignation_gives_the_partition_away_once() {
    let mut log = Log::settled(3, 3, 0);
    let id = PartitionId(0);
    let owner = log.state.owner(id).unwrap();
    let (from, epoch) = (owner.node.clone(), owner.epoch);
    let standby = log.state.standby(id).unwrap().clone();
    let target = log.state.members().keys().find(|node| **node != from && **node != standby).unwrap().clone();
    log.append(Record::Move { partition: id, to: target.clone() });
    // the target is lost while the owner has stopped answering: the standby is next
    log.remove(&target);
    let events = log.resign(id);
    assert!(events.iter().any(|event| matches!(event, ClusterEvent::Owner(change)
        if change.reason == OwnerReason::Resigned && change.to.as_ref() == Some(&standby))));
    assert_eq!(
        log.state.role(id, &from).map(|role| role != Role::Owner),
        Some(true),
        "it has the state, so it is the standby"
    );
    let again = tidemill_cluster::Resigned { partition: id, epoch, stamp: Default::default() };
    assert_eq!(log.append(Record::Resigned(again)), [], "of a former epoch");
    log.remove(&standby);
    let epoch = log.state.owner(id).unwrap().epoch;
    log.resign(id);
    let alone = log.state.owner(id).unwrap();
    assert!(alone.node == &from && alone.epoch > epoch, "the last member is its own successor");
}

#[test]
fn records_are_applied_once_and_in_order() {
    let mut state = State::default();
    let record = Record::Join(join("a", 1));
    assert!(state.apply(Offset(1), &record).unwrap_err().to_string().contains("expected offset 0"));
    state.apply(Offset(0), &record).unwrap();
    assert!(state.apply(Offset(0), &record).unwrap_err().to_string().contains("expected offset 1"));
}

fn rejected(log: &mut Log, record: Record) -> String {
    match log.append(record).as_slice() {
        [ClusterEvent::Rejected { reason }] => reason.clone(),
        other => panic!("{other:?}"),
    }
}
