//! The versions of one key, in the order of the lists in rows and graves.

use super::observed::{Values, Version};

/// One version of a key.
#[derive(Debug, Clone)]
pub struct Step {
    pub values: Option<Values>,
    /// None: from an earlier life.
    pub writer: Option<usize>,
}

/// All versions of a key, in order.
#[derive(Debug)]
pub struct Chain {
    pub order: Vec<Version>,
    /// The number of versions from an earlier life.
    pub base: usize,
    pub base_in_grave: usize,
    /// The state at the beginning, and after each later version.
    pub steps: Vec<Step>,
}

impl Chain {
    /// The step that leaves these versions.
    pub fn at(&self, versions: &[Version]) -> Option<usize> {
        let is_there = versions.len() >= self.base && self.order.get(..versions.len()) == Some(versions);
        is_there.then(|| versions.len() - self.base)
    }

    /// The removal that leaves these versions in the grave; none if the grave has them from an earlier life.
    pub fn grave_at(&self, versions: &[Version]) -> Result<Option<usize>, ()> {
        if versions.len() == self.base_in_grave && self.order.get(..versions.len()) == Some(versions) {
            return Ok(None);
        }
        self.at(versions).filter(|&at| at > 0 && self.steps[at].values.is_none()).map(Some).ok_or(())
    }

    /// The first removal after a step.
    pub fn removal_after(&self, at: usize) -> Option<usize> {
        (at + 1..self.steps.len()).find(|&later| self.steps[later].values.is_none())
    }
}
