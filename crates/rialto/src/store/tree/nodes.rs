//! [`Nodes`]: where the nodes of trees are. The code of the tree is the same wherever that is.

use super::Leaf;
use super::node::{LatchedNode, Node};

/// A node, and its number: what a [`Leaf`](super::Leaf) remembers of it.
pub type Numbered<'n, const W: usize> = (u32, &'n Node<W>);

/// Where nodes with bodies of `W` words are. A tree names its nodes by *identifiers*; an entry of an inner node has its
/// child's.
///
/// Invariant: the memory of a node is only ever a node, and its version never goes back. So a reader that comes too
/// late reads an old node or another one, and its validation fails.
pub trait Nodes<const W: usize>: Send + Sync {
    /// Why a node that exists cannot be reached at once.
    type Missing;
    /// Why there is no further node.
    type Full;
    /// Held while several nodes are changed together.
    type Restructuring<'n>
    where
        Self: 'n;

    /// The node of this identifier, if it can be reached at once.
    fn at_hand(&self, id: u32) -> Option<Numbered<'_, W>>;

    /// The same. `Ok(None)`: no node has this identifier, which an unvalidated parent may name.
    fn reach(&self, id: u32) -> Result<Option<Numbered<'_, W>>, Self::Missing>;

    /// The cause of a missing child, once it is known which node names the child, in which version.
    fn missing_under(missing: Self::Missing, parent: Leaf) -> Self::Missing;

    /// Whether the node has this identifier. True may be wrong if the node's version, which was read before, is not the
    /// same any more.
    fn is(&self, node: &Node<W>, id: u32) -> bool;

    /// The node of this number, whatever it is by now. `None`: there is no such number.
    fn numbered(&self, number: u32) -> Option<&Node<W>>;

    /// Notes a use of a node to which no descent has led.
    fn note_use(&self, node: &Node<W>);

    /// A latched node is about to be changed. An error if what the change needs is not there.
    fn before_change(&self, node: &LatchedNode<'_, W>) -> Result<(), Self::Full>;

    /// Called before the first of several nodes is latched that are changed together: a split or a merge, which a look at all
    /// nodes sees wholly or not at all.
    fn begin_restructuring(&self) -> Self::Restructuring<'_>;

    /// A new node, latched, and its identifier.
    fn allocate(&self) -> Result<(u32, LatchedNode<'_, W>), Self::Full>;

    /// Takes back a node that no entry leads to any more.
    fn free(&self, id: u32, node: LatchedNode<'_, W>);

    /// Takes back all nodes of the tree of this root, which is not used any more. Gives the nodes that it could not reach: what
    /// is below them is not taken back yet, and is a tree of its own.
    fn free_tree(&self, root: u32) -> Vec<u32>;

    /// The same tree is dropped, and has not been freed.
    fn drop_tree(&self, root: u32);
}

/// Why an operation on a tree has not been done. The tree is as it was, or has the same entries in other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped<M, F> {
    /// A node cannot be reached at once.
    Missing(M),
    /// There is no further node.
    Full(F),
}

/// Why an operation on a tree of these nodes has not been done.
pub type StoppedIn<N, const W: usize> = Stopped<<N as Nodes<W>>::Missing, <N as Nodes<W>>::Full>;
