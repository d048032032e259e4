//! The handshake: two nodes say what they are, and each decides whether it talks with the other one.
//!
//! The connecting node sends a [`Hello`] by a frame of the kind `Hello`. The other node answers with its own one by a
//! frame of the kind `Welcome`, or with a [`Refusal`]. The connecting node may still refuse what was answered. Therefore
//! both nodes name the same reason.
//!
//! # Versions
//!
//! A hello's first bytes are the same in all versions: the cluster, the node, its versions. A node of another version is
//! refused by its version, and not for bytes that make no sense. Later fields may follow in later versions.

use std::fmt;

use crate::protocol::{Life, NodeId};

/// The versions of messages that a node knows, and the version of its cluster's features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The oldest version of messages that it reads.
    pub oldest: u16,
    /// The newest version of messages that it reads.
    pub newest: u16,
    /// The feature level of the cluster, as far as this node has heard. It is raised last in a rolling upgrade.
    pub feature_level: u32,
}

/// What two nodes have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// The version of messages: the newest that both know.
    pub version: u16,
    /// The lower one of both feature levels.
    pub feature_level: u32,
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The cluster that it belongs to: a random number, drawn when the cluster was made.
    pub cluster: u128,
    /// The node.
    pub node: NodeId,
    /// The versions that it knows.
    pub versions: Versions,
    /// The node that it means to talk with.
    pub to: NodeId,
    /// Another number each time that what this node had only in memory is lost.
    pub life: Life,
    /// The node's name.
    pub name: String,
}

/// Why a node does not talk with another one. The text says it from the refusing node's side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The other node belongs to another cluster.
    OtherCluster(String),
    /// No version of messages is known to both.
    Version(String),
    /// The other node is no member of the cluster, or is not the one that it says it is.
    NotAMember(String),
    /// The connection has reached another node than the one that it was made for.
    OtherNode(String),
    /// Its certificate was made for another name.
    Certificate(String),
    /// What it has sent makes no sense.
    Garbled(String),
}

impl Refusal {
    fn number(&self) -> u8 {
        match self {
            Refusal::OtherCluster(_) => 1,
            Refusal::Version(_) => 2,
            Refusal::NotAMember(_) => 3,
            Refusal::OtherNode(_) => 4,
            Refusal::Certificate(_) => 5,
            Refusal::Garbled(_) => 6,
        }
    }

    fn text(&self) -> &str {
        match self {
            Refusal::OtherCluster(text)
            | Refusal::Version(text)
            | Refusal::NotAMember(text)
            | Refusal::OtherNode(text)
            | Refusal::Certificate(text)
            | Refusal::Garbled(text) => text,
        }
    }

    /// The bytes of a frame of the kind `Refusal`.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.number()];
        bytes.extend_from_slice(self.text().as_bytes());
        bytes
    }

    /// The refusal of which these are the bytes. A number that this node does not know is kept as text.
    pub fn decode(bytes: &[u8]) -> Refusal {
        let (number, text) = bytes.split_first().map_or((0, &[][..]), |(&number, text)| (number, text));
        let text = String::from_utf8_lossy(text).into_owned();
        match number {
            1 => Refusal::OtherCluster(text),
            2 => Refusal::Version(text),
            3 => Refusal::NotAMember(text),
            4 => Refusal::OtherNode(text),
            5 => Refusal::Certificate(text),
            _ => Refusal::Garbled(text),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Bytes of a hello before the name.
const FIXED: usize = 16 + 4 + 2 + 2 + 4 + 4 + 8 + 2;
/// The longest name of a node, in bytes.
pub const NAME_MAX: usize = 253;

impl Hello {
    /// The bytes of a frame of the kind `Hello` or `Welcome`.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED + self.name.len());
        bytes.extend_from_slice(&self.cluster.to_le_bytes());
        bytes.extend_from_slice(&self.node.0.to_le_bytes());
        bytes.extend_from_slice(&self.versions.oldest.to_le_bytes());
        bytes.extend_from_slice(&self.versions.newest.to_le_bytes());
        bytes.extend_from_slice(&self.versions.feature_level.to_le_bytes());
        bytes.extend_from_slice(&self.to.0.to_le_bytes());
        bytes.extend_from_slice(&self.life.0.to_le_bytes());
        bytes.extend_from_slice(&(self.name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    /// The hello of which these are the bytes. Bytes after it belong to a later version, and are passed over.
    ///
    /// # Errors
    /// [`Refusal::Garbled`] if they are too few, or if the name is no name.
    pub fn decode(bytes: &[u8]) -> Result<Hello, Refusal> {
        let garbled = || Refusal::Garbled("a hello that makes no sense".to_owned());
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>().ok_or_else(garbled)?;
        let mut fields = Fields(fixed);
        let cluster = u128::from_le_bytes(fields.take());
        let node = NodeId(u32::from_le_bytes(fields.take()));
        let versions = Versions {
            oldest: u16::from_le_bytes(fields.take()),
            newest: u16::from_le_bytes(fields.take()),
            feature_level: u32::from_le_bytes(fields.take()),
        };
        let to = NodeId(u32::from_le_bytes(fields.take()));
        let life = Life(u64::from_le_bytes(fields.take()));
        let length = usize::from(u16::from_le_bytes(fields.take()));
        let name = rest.get(..length).and_then(|name| std::str::from_utf8(name).ok()).ok_or_else(garbled)?;
        if !is_a_name(name) {
            return Err(garbled());
        }
        Ok(Hello { cluster, node, versions, to, life, name: name.to_owned() })
    }

    /// Compares the hello of another node with this node's own one.
    ///
    /// # Errors
    /// [`Refusal::OtherCluster`], [`Refusal::Version`], or [`Refusal::OtherNode`] if it was not meant for this node.
    pub fn agree(&self, theirs: &Hello) -> Result<Agreed, Refusal> {
        let (us, them) = (&self.name, &theirs.name);
        if theirs.cluster != self.cluster && !rialto::fault_injection::is_on("hello-of-any-cluster") {
            return Err(Refusal::OtherCluster(format!(
                "node {us:?} belongs to the cluster {:032x}, and node {them:?} to the cluster {:032x}",
                self.cluster, theirs.cluster
            )));
        }
        let (ours, known) = (self.versions, theirs.versions);
        let version = ours.newest.min(known.newest);
        if version < ours.oldest.max(known.oldest) {
            return Err(Refusal::Version(format!(
                "node {us:?} knows the versions {} to {} of messages, and node {them:?} the versions {} to {}; upgrade \
                 the older one",
                ours.oldest, ours.newest, known.oldest, known.newest
            )));
        }
        if theirs.to != self.node {
            return Err(Refusal::OtherNode(format!(
                "node {us:?} is {}, and node {them:?} means to talk with {}; compare the addresses of the nodes",
                self.node, theirs.to
            )));
        }
        Ok(Agreed { version, feature_level: ours.feature_level.min(known.feature_level) })
    }
}

/// Whether a text may be the name of a node: a name as that of a host, which a certificate may be made for.
pub fn is_a_name(name: &str) -> bool {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_inside)
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let (taken, rest) = self.0.split_first_chunk().expect("the fixed fields have this length");
        self.0 = rest;
        *taken
    }
}

#[cfg(test)]
mod tests {
    use rialto::io::Random;

    use super::{Hello, Refusal, Versions};
    use crate::protocol::{Life, NodeId};

    fn hello() -> Hello {
        Hello {
            cluster: u128::MAX / 7,
            node: NodeId(1),
            versions: Versions { oldest: 3, newest: 5, feature_level: 8 },
            to: NodeId(2),
            life: Life(u64::MAX / 5),
            name: "one".to_owned(),
        }
    }

    fn other() -> Hello {
        Hello { node: NodeId(2), to: NodeId(1), name: "two".to_owned(), ..hello() }
    }

    #[test]
    fn a_hello_is_what_was_sent_and_later_fields_are_passed_over() {
        let mut bytes = hello().encode();
        assert_eq!(Hello::decode(&bytes), Ok(hello()));
        bytes.extend_from_slice(b"of a later version");
        assert_eq!(Hello::decode(&bytes), Ok(hello()));
    }

    #[test]
    fn bytes_that_are_cut_or_changed_are_no_panic() {
        let bytes = hello().encode();
        for length in 0..bytes.len() {
            assert!(matches!(Hello::decode(&bytes[..length]), Err(Refusal::Garbled(_))), "{length} bytes");
        }
        let seed = Random::seed_from_environment();
        println!("RIALTO_SEED={seed}");
        let mut random = Random::new(seed);
        for _ in 0..10_000 {
            let mut changed = bytes.clone();
            let at = random.next() as usize % changed.len();
            changed[at] = random.next() as u8;
            let _ = Hello::decode(&changed);
            let _ = Refusal::decode(&changed);
        }
    }

    #[test]
    fn neighbouring_versions_talk_at_the_lower_one_s_level() {
        let newer = Versions { oldest: 4, newest: 9, feature_level: 7 };
        let agreed = hello().agree(&Hello { versions: newer, ..other() }).expect("they talk");
        assert_eq!((agreed.version, agreed.feature_level), (5, 7));
        for (oldest, newest) in [(6, 9), (1, 2)] {
            let theirs = Hello { versions: Versions { oldest, newest, feature_level: 8 }, ..other() };
            assert!(matches!(hello().agree(&theirs), Err(Refusal::Version(_))));
            assert!(matches!(theirs.agree(&hello()), Err(Refusal::Version(_))));
        }
    }

    #[test]
    fn another_cluster_and_another_node_are_refused_by_name_and_so_told() {
        let stranger = hello().agree(&Hello { cluster: 1, ..other() }).expect_err("another cluster");
        assert!(
            matches!(&stranger, Refusal::OtherCluster(text) if text.contains("two") && text.contains("one"))
        );
        let astray = hello().agree(&Hello { to: NodeId(7), ..other() }).expect_err("another node");
        assert!(matches!(&astray, Refusal::OtherNode(text) if text.contains("node 7")));
        for refusal in [stranger, astray, Refusal::Certificate("c".into()), Refusal::NotAMember("n".into())] {
            assert_eq!(Refusal::decode(&refusal.encode()), refusal);
        }
    }

    #[test]
    fn names_are_names_of_hosts() {
        for name in ["a", "node-1", "node1.example.org"] {
            assert!(super::is_a_name(name));
        }
        for name in ["", "a b", "n\u{e9}", "a/b", "a\n", &"x".repeat(254)] {
            assert!(!super::is_a_name(name));
        }
    }
}
