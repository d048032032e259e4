//! The names that the kernel knows, by their inode numbers.

use std::collections::HashMap;

/// The number of the directory itself.
pub const ROOT: u64 = 1;

/// Inode numbers of names. A number belongs to a file for ever: a rename moves it to the new name, a removal leaves it
/// without a name.
#[derive(Debug)]
pub struct Names {
    numbers: HashMap<String, u64>,
    names: HashMap<u64, String>,
    last: u64,
}

impl Names {
    pub fn new() -> Names {
        Names { numbers: HashMap::new(), names: HashMap::new(), last: ROOT }
    }

    /// The number of a file that exists under this name.
    pub fn number(&mut self, name: &str) -> u64 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.last += 1;
        self.numbers.insert(name.to_owned(), self.last);
        self.names.insert(self.last, name.to_owned());
        self.last
    }

    /// The name that the file has now, if it has one.
    pub fn name(&self, number: u64) -> Option<String> {
        self.names.get(&number).cloned()
    }

    pub fn remove(&mut self, name: &str) {
        if let Some(number) = self.numbers.remove(name) {
            self.names.remove(&number);
        }
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        if from == to {
            return;
        }
        let number = self.number(from);
        self.remove(to);
        self.numbers.remove(from);
        self.numbers.insert(to.to_owned(), number);
        self.names.insert(number, to.to_owned());
    }
}
