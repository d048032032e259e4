//! [`Configuration`]: which replicas a partition has, and its bytes in the control store.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::control::Revision;
use crate::protocol::{Epoch, Life, NodeId};

/// The version of the bytes. A program refuses bytes of another one.
const VERSION: u8 = 2;

/// The most members that bytes may claim: a bound against damage.
const MEMBERS_MAX: usize = 1024;

/// A replica, by its node and the life in which it is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// The life that its replica had when this was written.
    pub life: Life,
}

/// Which replicas a partition has, and which one is primary. It is the value of one key of the control store and changes
/// only by a swap; each change raises the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The number of this configuration.
    pub epoch: Epoch,
    /// The node whose replica runs transactions. It is one of `in_sync`.
    pub primary: NodeId,
    /// The replicas that have everything that was answered at level 2 or 3, the primary among them.
    pub in_sync: Vec<Member>,
    /// The other replicas of the partition: they catch up. Their lives are those of the last time in which each was in
    /// sync, and decide nothing.
    pub learners: Vec<Member>,
    /// What may be lost of what was answered in earlier epochs.
    pub lost_before: LostBefore,
}

/// How a partition loses what was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// All memories were lost, and no disk: answers at level 3 are there.
    Memories,
    /// Force was used: disks, too, may have been lost.
    Disks,
}

/// The epochs below which answers may be lost in part, by their level; 0 where that has never happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBefore {
    /// Those at level 2. It is not below `disks`.
    pub memories: Epoch,
    /// Those at level 3.
    pub disks: Epoch,
}

/// Bytes that are no configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigurationError {
    /// They are of another version of this program, whose number this is.
    Version(u8),
    /// They are damaged, or cut off.
    Damaged,
    /// They are whole, but name a primary that is not in sync, or a node twice.
    Contradiction,
}

impl std::fmt::Display for ConfigurationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigurationError::Version(version) => {
                write!(f, "the configuration has version {version}; expected {VERSION}")
            }
            ConfigurationError::Damaged => f.write_str("the configuration's bytes are damaged"),
            ConfigurationError::Contradiction => {
                f.write_str("the configuration names a node twice, or a primary that is not in sync")
            }
        }
    }
}

impl std::error::Error for ConfigurationError {}

impl Configuration {
    /// The life in which a node's replica is in sync, if it is.
    pub fn life_in_sync(&self, node: NodeId) -> Option<Life> {
        self.in_sync.iter().find(|member| member.node == node).map(|member| member.life)
    }

    /// Whether this replica is in sync, in this life.
    pub fn is_in_sync(&self, member: Member) -> bool {
        self.in_sync.contains(&member)
    }

    /// All its nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.in_sync.iter().chain(&self.learners).map(|member| member.node)
    }

    /// The replicas in sync but for the primary.
    pub fn standbys(&self) -> impl Iterator<Item = Member> {
        self.in_sync.iter().copied().filter(|member| member.node != self.primary)
    }

    /// Whether a node's replica is one of the partition's.
    pub fn has(&self, node: NodeId) -> bool {
        self.nodes().any(|other| other == node)
    }

    /// The next configuration, with the same members.
    pub fn again(&self) -> Configuration {
        Configuration { epoch: self.epoch.next(), ..self.clone() }
    }

    /// The next configuration, led by this replica, with exactly these others in sync; all the rest become learners.
    pub fn led_by(&self, primary: Member, others: &[Member]) -> Configuration {
        let mut in_sync = vec![primary];
        in_sync.extend(others.iter().copied().filter(|member| member.node != primary.node));
        let is_left = |member: &&Member| in_sync.iter().all(|other| other.node != member.node);
        let learners = self.in_sync.iter().chain(&self.learners).filter(is_left).copied().collect();
        let (epoch, lost_before) = (self.epoch.next(), self.lost_before);
        Configuration { epoch, primary: primary.node, in_sync, learners, lost_before }
    }

    /// This configuration, under which a part of what was answered before it may be lost.
    pub fn with_loss(self, loss: Loss) -> Configuration {
        let disks = match loss {
            Loss::Memories => self.lost_before.disks,
            Loss::Disks => self.epoch,
        };
        Configuration { lost_before: LostBefore { memories: self.epoch, disks }, ..self }
    }

    /// The next configuration, in which these nodes are not in sync any more.
    pub fn without(&self, nodes: &[NodeId]) -> Configuration {
        let (dropped, in_sync): (Vec<Member>, Vec<Member>) =
            self.in_sync.iter().partition(|member| nodes.contains(&member.node));
        let learners = self.learners.iter().copied().chain(dropped).collect();
        Configuration { in_sync, learners, ..self.again() }
    }

    /// The next configuration, in which the partition has one more learner.
    pub fn with_learner(&self, member: Member) -> Configuration {
        let mut next = self.again();
        next.learners.push(member);
        next
    }

    /// The next configuration, in which a node has no replica of the partition.
    pub fn without_replica(&self, node: NodeId) -> Configuration {
        let mut next = self.again();
        next.in_sync.retain(|member| member.node != node);
        next.learners.retain(|member| member.node != node);
        next
    }

    /// The next configuration, in which this learner is in sync, too.
    pub fn with(&self, member: Member) -> Configuration {
        let mut next = self.again();
        next.learners.retain(|learner| learner.node != member.node);
        next.in_sync.push(member);
        next
    }

    /// Its bytes: the version, the epoch, the epochs of `lost_before`, the primary, both lists with their lengths, and a checksum of all that.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.epoch.0.to_le_bytes());
        bytes.extend(self.lost_before.memories.0.to_le_bytes());
        bytes.extend(self.lost_before.disks.0.to_le_bytes());
        bytes.extend(self.primary.0.to_le_bytes());
        for members in [&self.in_sync, &self.learners] {
            bytes.extend((members.len() as u32).to_le_bytes());
            for member in members {
                bytes.extend(member.node.0.to_le_bytes());
                bytes.extend(member.life.0.to_le_bytes());
            }
        }
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// The configuration that has these bytes.
    ///
    /// # Errors
    /// See [`ConfigurationError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Configuration, ConfigurationError> {
        use ConfigurationError::{Contradiction, Damaged, Version};
        let version = *bytes.first().ok_or(Damaged)?;
        if version != VERSION {
            return Err(Version(version));
        }
        let (body, checksum) = bytes.split_last_chunk::<8>().ok_or(Damaged)?;
        if xxh3_64(body) != u64::from_le_bytes(*checksum) {
            return Err(Damaged);
        }
        let mut rest = Reader(body.get(1..).ok_or(Damaged)?);
        let epoch = Epoch(rest.long()?);
        let lost_before = LostBefore { memories: Epoch(rest.long()?), disks: Epoch(rest.long()?) };
        let primary = NodeId(rest.short()?);
        let (in_sync, learners) = (rest.members()?, rest.members()?);
        if !rest.0.is_empty() {
            return Err(Damaged);
        }
        let configuration = Configuration { epoch, primary, in_sync, learners, lost_before };
        match configuration.is_consistent() {
            true => Ok(configuration),
            false => Err(Contradiction),
        }
    }

    fn is_consistent(&self) -> bool {
        let mut nodes: Vec<NodeId> = self.nodes().collect();
        let members = nodes.len();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len() == members && self.life_in_sync(self.primary).is_some()
    }
}

/// What is left of the bytes.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn short(&mut self) -> Result<u32, ConfigurationError> {
        let (number, rest) = self.0.split_first_chunk::<4>().ok_or(ConfigurationError::Damaged)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*number))
    }

    fn long(&mut self) -> Result<u64, ConfigurationError> {
        let (number, rest) = self.0.split_first_chunk::<8>().ok_or(ConfigurationError::Damaged)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    fn members(&mut self) -> Result<Vec<Member>, ConfigurationError> {
        let length = self.short()? as usize;
        if length > MEMBERS_MAX {
            return Err(ConfigurationError::Damaged);
        }
        (0..length).map(|_| Ok(Member { node: NodeId(self.short()?), life: Life(self.long()?) })).collect()
    }
}

/// The number of a control store that was never restored, or of its restoration: it is another one after each. A restored
/// store has forgotten changes, so it is another store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoreIdentity(pub u64);

/// A configuration that was in force, and where the control store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The store.
    pub store: StoreIdentity,
    /// The write that put it there.
    pub revision: Revision,
    /// The configuration.
    pub configuration: Configuration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node: u32, life: u64) -> Member {
        Member { node: NodeId(node), life: Life(life) }
    }

    fn three() -> Configuration {
        let in_sync = vec![member(1, 11), member(2, 12)];
        let (epoch, lost_before) = (Epoch(7), LostBefore { memories: Epoch(4), disks: Epoch(2) });
        Configuration { epoch, primary: NodeId(1), in_sync, learners: vec![member(3, 13)], lost_before }
    }

    #[test]
    fn bytes_are_the_configuration_or_an_error() {
        let bytes = three().to_bytes();
        assert_eq!(Configuration::from_bytes(&bytes), Ok(three()));
        for length in 0..bytes.len() {
            assert!(Configuration::from_bytes(&bytes[..length]).is_err(), "{length} bytes");
        }
        for at in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert!(Configuration::from_bytes(&damaged).is_err(), "bit {at}");
        }
        let mut foreign = three();
        foreign.primary = NodeId(3);
        let contradiction = Err(ConfigurationError::Contradiction);
        assert_eq!(Configuration::from_bytes(&foreign.to_bytes()), contradiction);
        foreign.primary = NodeId(1);
        foreign.learners.push(member(2, 5));
        assert_eq!(Configuration::from_bytes(&foreign.to_bytes()), contradiction);
    }

    #[test]
    fn each_change_raises_the_epoch_and_loses_no_node() {
        let before = three();
        let changes = [
            before.again(),
            before.without(&[NodeId(2)]),
            before.with(member(3, 99)),
            before.led_by(member(2, 12), &[]),
            before.led_by(member(2, 12), &[member(1, 11)]),
            before.led_by(member(1, 19), &[]).with_loss(Loss::Memories),
            before.led_by(member(1, 19), &[]).with_loss(Loss::Disks),
        ];
        for after in changes {
            assert_eq!(after.epoch, Epoch(8));
            assert!(after.is_consistent(), "{after:?}");
            let mut nodes: Vec<_> = after.nodes().collect();
            nodes.sort_unstable();
            assert_eq!(nodes, [NodeId(1), NodeId(2), NodeId(3)]);
        }
    }

    #[test]
    fn a_loss_of_memories_is_none_of_disks() {
        let lost_before = |memories, disks| LostBefore { memories: Epoch(memories), disks: Epoch(disks) };
        let before = three();
        assert_eq!(before.again().lost_before, lost_before(4, 2));
        assert_eq!(before.led_by(member(2, 12), &[]).lost_before, lost_before(4, 2));
        assert_eq!(before.again().with_loss(Loss::Memories).lost_before, lost_before(8, 2));
        assert_eq!(before.again().with_loss(Loss::Disks).lost_before, lost_before(8, 8));
    }

    #[test]
    fn replicas_come_and_go() {
        let four = three().with_learner(member(4, 14));
        assert!(four.is_consistent() && four.has(NodeId(4)));
        assert_eq!((four.epoch, four.learners.len()), (Epoch(8), 2));
        for node in [2, 3, 4] {
            let after = four.without_replica(NodeId(node));
            assert!(after.is_consistent() && !after.has(NodeId(node)), "{after:?}");
            assert_eq!((after.epoch, after.nodes().count()), (Epoch(9), 3));
        }
    }
}
