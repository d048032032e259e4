//! [`Addresses`]: where the nodes of the cluster take clients, as far as it is known.

use std::sync::{Mutex, MutexGuard};

/// The addresses of nodes. They are only added, so that a position stays that of the same node.
pub struct Addresses(Mutex<Vec<String>>);

impl Addresses {
    /// Those that the command line has, at least one.
    pub fn new(given: Vec<String>) -> Addresses {
        let addresses = Addresses(Mutex::default());
        addresses.add(given);
        addresses
    }

    /// All, in the order in which they became known.
    pub fn all(&self) -> Vec<String> {
        self.known().clone()
    }

    /// One of them: positions go round.
    pub fn at(&self, position: usize) -> String {
        let known = self.known();
        known[position % known.len()].clone()
    }

    /// A node has told of all nodes, by `SHOW rialto.nodes`. A server of one database tells of none.
    pub fn learn(&self, nodes: &str) {
        self.add(nodes.split(',').filter(|node| !node.is_empty()).map(str::to_owned));
    }

    fn add(&self, more: impl IntoIterator<Item = String>) {
        let mut known = self.known();
        for address in more {
            if !known.contains(&address) {
                known.push(address);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().expect("no thread panics while it has the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_learned_once() {
        let addresses = Addresses::new(vec!["a:1".to_owned(), "a:1".to_owned()]);
        addresses.learn("");
        assert_eq!(addresses.all(), ["a:1"]);
        addresses.learn("b:2,a:1,c:3");
        assert_eq!(addresses.all(), ["a:1", "b:2", "c:3"]);
        assert_eq!([0, 1, 5].map(|position| addresses.at(position)), ["a:1", "b:2", "c:3"]);
    }
}
