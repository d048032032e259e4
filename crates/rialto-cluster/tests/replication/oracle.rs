//! What has to hold, whatever happens.

use rialto::Lsn;
use rialto::log::{LogPoint, LogPosition};
use rialto_cluster::protocol::replication::{Configuration, LostBefore, Member};
use rialto_cluster::protocol::{Epoch, NodeId};

use crate::log::ModelLog;

/// A replica as the oracle sees it.
pub struct Seen<'n> {
    pub member: Member,
    pub log: &'n ModelLog,
    pub serves: bool,
    pub is_half: bool,
}

/// What was answered, and the configuration in force.
pub struct Oracle {
    /// What was answered at level 2 or 3, as the log's blocks.
    pub answered: Vec<u64>,
    /// How many of them were answered at level 3.
    pub answered_3: usize,
    answered_epoch: Epoch,
    /// The last epochs that began with a loss of memories, and by force.
    lost_before: LostBefore,
    pub in_force: Configuration,
    /// What was answered at level 1 or higher, as the log's blocks.
    answered_1: Vec<u64>,
    /// How many of them later primaries have lost, most in one failover. This is measured, and bounded by nothing.
    pub lost_at_level_1: usize,
    /// How many blocks were answered at which time: at level 2 or 3, and at any level. What was lost is taken back.
    history: Vec<(u64, usize, usize)>,
}

impl Oracle {
    pub fn new(first: Configuration) -> Oracle {
        Oracle {
            answered: Vec::new(),
            answered_3: 0,
            answered_epoch: Epoch(0),
            lost_before: LostBefore::default(),
            in_force: first,
            answered_1: Vec::new(),
            lost_at_level_1: 0,
            history: Vec::new(),
        }
    }

    /// After each step.
    pub fn check(&self, replicas: &[Seen<'_>]) {
        let serving = replicas.iter().filter(|replica| replica.serves).count();
        assert!(serving <= 1, "C1: {serving} replicas serve");
        for replica in replicas.iter().filter(|replica| self.in_force.is_in_sync(replica.member)) {
            let has = replica.log.has(&self.answered);
            assert!(has, "C3: {} is in sync, and lacks what was answered", replica.member.node);
            assert!(!replica.is_half, "C3: {} is in sync amid a copy", replica.member.node);
        }
        if let [alone] = self.in_force.in_sync.as_slice() {
            let replica = replicas.iter().find(|replica| replica.member.node == alone.node);
            let Seen { log, is_half, .. } = replica.expect("a replica in sync");
            assert!(!is_half, "C3: {} is alone in sync amid a copy", alone.node);
            assert!(log.disk_has(&self.answered), "C3: the disk of {} lacks what was answered", alone.node);
        }
    }

    /// A replica answers transactions up to a place.
    pub fn answer(&mut self, node: NodeId, epoch: Epoch, log: &ModelLog, place: usize, level: u8) {
        assert!(epoch >= self.answered_epoch, "C1: {node} answers in {epoch}, after {}", self.answered_epoch);
        self.answered_epoch = epoch;
        if place > self.answered_1.len() {
            self.answered_1 = log.blocks[..place].to_vec();
        }
        if level == 1 {
            return;
        }
        assert!(log.has(&self.answered), "C3: {node} answers, and lacks what was answered");
        if place > self.answered.len() {
            self.answered.extend_from_slice(&log.blocks[self.answered.len()..place]);
        }
        if level == 3 {
            assert!(place <= log.on_disk, "level 3 before the disk");
            self.answered_3 = self.answered_3.max(place);
        }
    }

    /// Notes the time of what was answered now.
    pub fn note(&mut self, time: u64) {
        let now = (self.answered.len(), self.answered_1.len());
        if self.history.last().is_none_or(|last| (last.1, last.2) != now) {
            self.history.push((time, now.0, now.1));
        }
    }

    /// What was lost was not answered.
    fn forget_lost(&mut self) {
        let (all, all_1) = (self.answered.len(), self.answered_1.len());
        for (_, answered, answered_1) in &mut self.history {
            (*answered, *answered_1) = ((*answered).min(all), (*answered_1).min(all_1));
        }
    }

    /// The tables of a replica that follows are said to be as old as a moment: they have all that was answered before it.
    pub fn is_as_old_as(&self, node: NodeId, log: &ModelLog, asked: u64) {
        let before = self.history.iter().rev().find(|(time, ..)| *time < asked);
        let (_, answered, answered_1) = before.copied().unwrap_or_default();
        let tables = ModelLog { blocks: log.blocks[..log.redone].to_vec(), ..ModelLog::default() };
        let has = tables.has(&self.answered[..answered]);
        assert!(
            has,
            "C1: the tables of {node} lack what was answered before a moment that they are said to be as old as"
        );
        assert!(tables.has(&self.answered_1[..answered_1]), "the same at level 1, at {node}");
    }

    /// The end of what is answered.
    pub fn answered_to(&self) -> LogPoint {
        LogPoint {
            lsn: Lsn(self.answered.len() as u64),
            position: LogPosition(self.answered.len() as u64),
            checksum: self.answered.last().copied().unwrap_or(0),
        }
    }

    /// A read is answered that saw a log up to a place, and began when so much was answered.
    pub fn read(&self, node: NodeId, epoch: Epoch, log: &ModelLog, place: usize, answered: LogPoint) {
        assert!(epoch >= self.answered_epoch, "C1: {node} reads in {epoch}, after {}", self.answered_epoch);
        let has = place as u64 >= answered.position.0 && log.goes_through(answered);
        assert!(has, "C1: a read at {node} lacks what was answered before it began");
    }

    /// A configuration gets into force.
    pub fn configured(&mut self, next: &Configuration, replicas: &[Seen<'_>], is_forced: bool) {
        let before = std::mem::replace(&mut self.in_force, next.clone());
        let lives = |member: &Member| replicas.iter().any(|replica| replica.member == *member);
        let find = |node: NodeId| replicas.iter().find(|replica| replica.member.node == node);
        let primary = find(next.primary).expect("a replica of the partition");
        if is_forced {
            let kept = primary.log.common(&self.answered);
            self.answered.truncate(kept);
            self.answered_3 = self.answered_3.min(kept);
            self.lost_before = LostBefore { memories: next.epoch, disks: next.epoch };
            return self.forget_lost();
        }
        assert!(next.epoch > before.epoch, "the epoch goes back");
        let is_another_life = before.life_in_sync(next.primary) != next.life_in_sync(next.primary);
        if is_another_life {
            assert!(before.primary == next.primary, "C4: {} was not in sync", next.primary);
            let live: Vec<_> = before.in_sync.iter().filter(|member| lives(member)).collect();
            assert!(live.is_empty(), "C4: {} goes on while {live:?} live", next.primary);
            if before.in_sync.len() > 1 {
                // All memories are lost; level 2 promised no more.
                let kept = primary.log.common(&self.answered).min(primary.log.on_disk);
                assert!(kept >= self.answered_3, "the disk of {} lacks an answer at level 3", next.primary);
                self.answered.truncate(kept);
                self.lost_before.memories = next.epoch;
                self.forget_lost();
            }
        } else if lives(&Member {
            node: next.primary,
            life: next.life_in_sync(next.primary).expect("a life"),
        }) {
            for standby in before.in_sync.iter().filter(|member| lives(member)).filter_map(|m| find(m.node)) {
                let redone = &standby.log.blocks[..standby.log.redone];
                assert!(primary.log.has(redone), "C5: {} has redone what is lost", standby.member.node);
            }
        }
    }

    /// A replica begins to lead.
    pub fn leads(&mut self, node: NodeId, epoch: Epoch, log: &ModelLog, lost_before: LostBefore) {
        // One that leads too late leads in vain: it gets no promise.
        if epoch < self.in_force.epoch {
            return;
        }
        let kept = log.common(&self.answered_1);
        self.lost_at_level_1 = self.lost_at_level_1.max(self.answered_1.len() - kept);
        self.answered_1.truncate(kept);
        self.forget_lost();
        assert!(log.has(&self.answered), "C3: {node} leads, and lacks what was answered");
        assert!(log.len() >= self.answered_3);
        assert_eq!(lost_before, self.lost_before, "C4: {node} leads, and does not know of a loss");
    }
}
