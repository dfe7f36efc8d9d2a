//! Owners and standbys: shares, minimal moves, zones, the pace of moves.

use tidemill_cluster::{ClusterEvent, MoveReason, NodeName, OwnerReason, Record, Role, Timing};
use tidemill_types::{Offset, PartitionId};

use crate::log::{CLOCK_MS, Log, join, name};

fn moved(before: &[Option<NodeName>], after: &[Option<NodeName>]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

#[test]
fn a_node_that_joins_takes_its_share_and_nothing_else_moves() {
    for (nodes, partitions) in [(1, 16), (2, 16), (3, 16), (4, 64), (8, 64), (9, 100), (5, 3)] {
        let mut log = Log::settled(nodes, partitions, 0);
        let before = log.owners();
        log.join_in(nodes, partitions, 0);
        assert_eq!(log.owners(), before, "moves wait");
        log.settle();
        let after = log.owners();
        let newcomer = Some(name(&format!("node-{nodes}")));
        let share = partitions as usize / (nodes + 1);
        let moved = moved(&before, &after);
        assert!((share..=share + 1).contains(&moved), "{moved} of {partitions} moved to the {nodes}th node");
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || *after == newcomer));
        check_even(&log);
    }
}

#[test]
fn only_partitions_of_a_lost_node_move() {
    for (nodes, partitions, zones) in [(2, 16, 0), (3, 16, 0), (4, 64, 2), (5, 64, 0), (9, 100, 3)] {
        let mut log = Log::settled(nodes, partitions, zones);
        let (before, lost) = (log.owners(), name("node-1"));
        let standbys: Vec<_> = log.ids().map(|id| log.state.standby(id).cloned()).collect();
        log.remove(&lost);
        for (index, owner) in before.iter().enumerate().filter(|(_, owner)| **owner == Some(lost.clone())) {
            assert_eq!(log.owners()[index], standbys[index], "the standby takes over from {owner:?}");
        }
        log.settle();
        let stays = |(before, after): (&Option<NodeName>, &Option<NodeName>)| {
            before == after || *before == Some(lost.clone())
        };
        assert!(before.iter().zip(&log.owners()).all(stays), "{nodes} nodes, {partitions} partitions");
        check_even(&log);
    }
}

#[test]
fn a_node_that_restarts_finds_its_partitions() {
    let mut log = Log::settled(4, 32, 0);
    let before = log.owners();
    log.remove(&name("node-2"));
    let gone = log.owners();
    for id in log.ids() {
        assert_ne!(log.state.standby(id), log.state.owner(id).map(|owner| owner.node));
    }
    log.join_in(2, 32, 0);
    assert_eq!(log.owners(), gone, "moves wait");
    assert!(log.ids().all(|id| log.state.standby(id).is_some()), "missing standbys do not");
    log.settle();
    assert_eq!(log.owners(), before);
}

#[test]
fn loads_are_even_and_zones_are_kept_apart() {
    for (nodes, partitions, zones) in [(6, 16, 3), (6, 64, 2), (4, 256, 4), (7, 30, 2)] {
        let log = Log::settled(nodes, partitions, zones);
        check_even(&log);
        for id in log.ids() {
            let zone = |node: &NodeName| &log.state.members()[node].zone;
            let (owner, standby) = (log.state.owner(id).unwrap().node, log.state.standby(id).unwrap());
            assert_ne!(zone(owner), zone(standby), "partition {id} of {nodes} nodes in {zones} zones");
        }
    }
}

#[test]
fn owners_follow_weights() {
    let mut log = Log::new();
    for (index, weight) in [100, 100, 200].into_iter().enumerate() {
        let mut join = join(&format!("node-{index}"), 40);
        join.weight = weight;
        log.append(Record::Join(join));
    }
    log.settle();
    let owned: Vec<usize> = log.loads().into_iter().map(|(owned, _)| owned).collect();
    assert_eq!(owned, [10, 10, 20]);
}

#[test]
fn load_is_spread_thirty_seconds_after_the_last_change() {
    let mut log = Log::settled(2, 16, 0);
    log.join_in(2, 16, 0);
    let heartbeats = Timing::SMALL.settle_ms / Timing::SMALL.heartbeat_ms;
    let started = |events: &[ClusterEvent]| {
        events
            .iter()
            .filter(|e| matches!(e, ClusterEvent::MoveStarted { reason: MoveReason::Balance, .. }))
            .count()
    };
    for _ in 1..heartbeats {
        assert_eq!(started(&log.caught_up(&name("node-0"))), 0);
        assert_eq!(started(&log.caught_up(&name("node-2"))), 0);
    }
    assert_eq!(started(&log.caught_up(&name("node-1"))), 0, "none of them has sent as many");
    assert_eq!(started(&log.caught_up(&name("node-0"))), 1);
}

#[test]
fn the_follower_that_has_applied_most_becomes_the_owner() {
    let id = PartitionId(0);
    for (standby_applied, target_applied, target_wins) in [(10, 20, true), (20, 10, false), (7, 7, false)] {
        let mut log = Log::settled(3, 3, 0);
        let owner = log.state.owner(id).unwrap().node.clone();
        let standby = log.state.standby(id).unwrap().clone();
        let others = log.state.members().keys().find(|node| **node != owner && **node != standby);
        let target = others.unwrap().clone();
        log.append(Record::Move { partition: id, to: target.clone() });
        assert_eq!(log.state.role(id, &target), Some(Role::Warming));
        log.heartbeat(&standby, vec![(id, Offset(standby_applied))]);
        log.heartbeat(&target, vec![(id, Offset(target_applied))]);
        let events = log.remove(&owner);
        let next = if target_wins { &target } else { &standby };
        let change = events.iter().find_map(|event| match event {
            ClusterEvent::Owner(change) if change.partition == id => Some(change),
            _ => None,
        });
        let change = change.unwrap();
        assert_eq!((change.to.as_ref(), change.reason), (Some(next), OwnerReason::Removed));
        assert_eq!(change.epoch.next(), log.state.next());
        assert_eq!(log.state.owner(id).unwrap().epoch, change.epoch);
        assert_eq!(log.state.stamp_floor(id).ms(), CLOCK_MS + 1_250, "the reserve of the former owner");
    }
}

#[test]
fn a_standby_is_warming_until_it_has_caught_up() {
    let mut log = Log::new();
    log.append(Record::Join(join("a", 1)));
    log.append(Record::Join(join("b", 1)));
    let (id, a, b) = (PartitionId(0), name("a"), name("b"));
    assert_eq!(log.state.role(id, &b), Some(Role::Warming));
    assert_eq!(log.state.followed_needs().collect::<Vec<_>>(), [(id, None)], "b may need anything");
    log.heartbeat(&a, vec![(id, Offset(5_000))]);
    log.heartbeat(&b, vec![(id, Offset(3_999))]);
    assert_eq!(log.state.role(id, &b), Some(Role::Warming));
    assert_eq!(log.state.followed_needs().collect::<Vec<_>>(), [(id, Some(Offset(3_999)))]);
    log.heartbeat(&b, vec![(id, Offset(4_000))]);
    assert_eq!(log.state.role(id, &b), Some(Role::Standby));
    log.remove(&a);
    assert_eq!(log.state.role(id, &b), Some(Role::Owner));
    log.remove(&b);
    assert_eq!(log.state.owner(id), None);
    assert_eq!(log.state.followed_needs().count(), 0, "nobody follows it");
}

/// Checks that each member has its share, rounded up or down, as an owner; and as a standby within its zone, give or take one, as it cannot be
/// the standby of its own partitions.
fn check_even(log: &Log) {
    let (nodes, partitions) = (log.state.members().len(), log.state.partitions() as usize);
    let (floor, ceil) = (partitions / nodes, partitions.div_ceil(nodes));
    let loads = log.loads();
    assert!(loads.iter().all(|(owned, _)| (floor..=ceil).contains(owned)), "{loads:?}");
    for zone in log.state.members().values().map(|member| &member.zone) {
        let in_zone = log.state.members().values().zip(&loads).filter(|(member, _)| member.zone == *zone);
        let standbys: Vec<usize> = in_zone.map(|(_, (_, standbys))| *standbys).collect();
        let (least, most) = (standbys.iter().min().unwrap(), standbys.iter().max().unwrap());
        assert!(most - least <= 2, "standbys {standbys:?} in zone `{zone}`");
    }
}
