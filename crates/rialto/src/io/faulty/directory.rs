//! The faulty disk's names: those that the running system sees, those on the device, and the changes between them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::super::Random;
use super::inode::{Fate, SharedInode};

type InodesByName = BTreeMap<String, Arc<SharedInode>>;

/// Names of files.
///
/// `current` is `durable` with all of `unsynced` applied, in order.
#[derive(Debug, Default)]
pub(super) struct Directory {
    current: InodesByName,
    durable: InodesByName,
    unsynced: Vec<DirectoryChange>,
    /// A sync has failed, so no later one succeeds.
    aborted: bool,
}

/// One atomic change of names.
#[derive(Debug, Clone)]
pub(super) enum DirectoryChange {
    Create { name: String, node: Arc<SharedInode> },
    Rename { from: String, to: String, node: Arc<SharedInode> },
    Remove { name: String, node: Arc<SharedInode> },
}

impl DirectoryChange {
    /// Applies the change if it is possible: a creation needs a free name, the others need their file under its name.
    /// It is not possible if an earlier change that it builds on was lost.
    fn apply(&self, names: &mut InodesByName) {
        let is = |names: &InodesByName, name: &str, node| {
            names.get(name).is_some_and(|found| Arc::ptr_eq(found, node))
        };
        match self {
            DirectoryChange::Create { name, node } => {
                names.entry(name.clone()).or_insert_with(|| node.clone());
            }
            DirectoryChange::Rename { from, to, node } => {
                if is(names, from, node) {
                    names.remove(from);
                    names.insert(to.clone(), node.clone());
                }
            }
            DirectoryChange::Remove { name, node } => {
                if is(names, name, node) {
                    names.remove(name);
                }
            }
        }
    }
}

impl Directory {
    pub(super) fn find(&self, name: &str) -> Option<Arc<SharedInode>> {
        self.current.get(name).cloned()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.current.keys()
    }

    /// The files that have a name on the device.
    pub(super) fn durable(&self) -> impl Iterator<Item = (&String, &Arc<SharedInode>)> {
        self.durable.iter()
    }

    /// The name that the running system knows a file by, if there is one.
    pub(super) fn name_of(&self, node: &Arc<SharedInode>) -> Option<&String> {
        self.current.iter().find(|(_, found)| Arc::ptr_eq(found, node)).map(|(name, _)| name)
    }

    /// The bytes that the files have blocks for.
    pub(super) fn reserved(&self) -> u64 {
        self.current.values().map(|node| node.lock().reserved()).sum()
    }

    pub(super) fn change(&mut self, change: DirectoryChange) {
        change.apply(&mut self.current);
        self.unsynced.push(change);
    }

    /// Makes the current names durable; `false` if an earlier sync has failed.
    pub(super) fn sync(&mut self) -> bool {
        if !self.aborted {
            for change in self.unsynced.drain(..) {
                change.apply(&mut self.durable);
            }
        }
        !self.aborted
    }

    /// From now on nothing becomes durable.
    pub(super) fn abort(&mut self) {
        self.aborted = true;
    }

    /// What a crashed machine finds; each file is its own survivor.
    pub(super) fn survivor(&self, random: &mut Random) -> Directory {
        let mut names = self.durable.clone();
        let fate = Fate::choose(random, self.unsynced.len());
        for (at, change) in self.unsynced.iter().enumerate() {
            if fate.keeps(at).unwrap_or_else(|| random.chance(1, 2)) {
                change.apply(&mut names);
            }
        }
        for node in names.values_mut() {
            let survivor = node.lock().survivor(random);
            *node = Arc::new(SharedInode::new(survivor));
        }
        Directory { current: names.clone(), durable: names, unsynced: Vec::new(), aborted: false }
    }

    /// What the next process of the same machine finds: the same files, as copies, so that this directory stays
    /// unchanged.
    pub(super) fn cloned(&self) -> Directory {
        let mut copies: HashMap<*const SharedInode, Arc<SharedInode>> = HashMap::new();
        let mut copy = |node: &Arc<SharedInode>| {
            copies
                .entry(Arc::as_ptr(node))
                .or_insert_with(|| Arc::new(SharedInode::new(node.lock().clone())))
                .clone()
        };
        let mut names =
            |names: &InodesByName| names.iter().map(|(name, node)| (name.clone(), copy(node))).collect();
        let (current, durable) = (names(&self.current), names(&self.durable));
        let mut unsynced = self.unsynced.clone();
        for change in &mut unsynced {
            let (DirectoryChange::Create { node, .. }
            | DirectoryChange::Rename { node, .. }
            | DirectoryChange::Remove { node, .. }) = change;
            *node = copy(node);
        }
        Directory { current, durable, unsynced, aborted: self.aborted }
    }
}
