//! [`Comparisons`]: the comparisons of a node: those that it makes as primary, and what it is answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

use super::comparison::Found;
use super::message::Compared;
use super::report::{ComparisonReport, ComparisonStatus, Difference, LastComparison, PartitionComparison};
use super::walk::{Pace, Walk};
use crate::node::random::random_number;
use crate::node::replica::{HostedReplica, Lead};
use crate::node::running::Parts;
use crate::protocol::replication::Member;
use crate::protocol::{Epoch, NodeId, PartitionId};

/// How often the thread looks whether a partition is due.
const POLL: Duration = Duration::from_millis(200);
/// The longest time from when a partition begins to be led here to its first comparison.
const FIRST_WITHIN: Duration = Duration::from_secs(60);
/// The longest time between two comparisons of a partition.
const EVERY_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How many differences are kept for the operator.
const DIFFERENCES_MAX: usize = 20;

/// The comparisons of a node.
pub struct Comparisons {
    state: Mutex<State>,
    /// Told of answers, requests and the end.
    changed: Condvar,
    last: AtomicU64,
}

#[derive(Default)]
struct State {
    /// What was answered to comparisons whose answers are awaited.
    awaited: BTreeMap<(PartitionId, u64), Awaited>,
    status: ComparisonStatus,
    is_asked: bool,
    differences: VecDeque<Difference>,
    /// What was compared last of the partitions that are led here.
    last: BTreeMap<PartitionId, LastComparison>,
    is_closed: bool,
}

struct Awaited {
    epoch: Epoch,
    answers: Vec<(Member, Found)>,
}

/// When partitions are due, since they are led here in this epoch.
type Due = BTreeMap<PartitionId, (Epoch, Instant)>;

impl Default for Comparisons {
    fn default() -> Comparisons {
        // Another process's numbers do not come again.
        let last = AtomicU64::new(random_number() >> 16);
        Comparisons { state: Mutex::default(), changed: Condvar::new(), last }
    }
}

impl Comparisons {
    /// A number that no other comparison of this node has.
    pub(super) fn next_number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An answer has come.
    pub fn received(&self, from: NodeId, answer: Compared) {
        let Compared { partition, epoch, number, from: member, found } = answer;
        let mut state = self.state.lock();
        let Some(awaited) = state.awaited.get_mut(&(partition, number)) else { return };
        let is_new = awaited.answers.iter().all(|(other, _)| *other != member);
        if member.node == from && awaited.epoch == epoch && is_new {
            awaited.answers.push((member, found));
            self.changed.notify_all();
        }
    }

    /// From now on answers to this comparison are kept.
    pub(super) fn await_answers(&self, partition: PartitionId, number: u64, epoch: Epoch) {
        let awaited = Awaited { epoch, answers: Vec::new() };
        self.state.lock().awaited.insert((partition, number), awaited);
    }

    /// What was answered by now.
    pub(super) fn answers(&self, partition: PartitionId, number: u64) -> Vec<(Member, Found)> {
        let state = self.state.lock();
        state.awaited.get(&(partition, number)).map_or_else(Vec::new, |awaited| awaited.answers.clone())
    }

    /// Answers to it are not kept any more.
    pub(super) fn forget(&self, partition: PartitionId, number: u64) {
        self.state.lock().awaited.remove(&(partition, number));
    }

    /// Waits for news, for at most this time; false once the node ends.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_closed {
            self.changed.wait_for(&mut state, time);
        }
        !state.is_closed
    }

    /// Rests, for at most this time: it ends sooner if `is_over` says so.
    pub(super) fn rest(&self, time: Duration, is_over: impl Fn() -> bool) {
        let until = Instant::now() + time;
        while !is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.wait(left.min(POLL)) {
                return;
            }
        }
    }

    /// Whether the node ends.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Whether an operator waits for a comparison.
    pub(super) fn is_asked(&self) -> bool {
        self.state.lock().is_asked
    }

    /// A comparison of all partitions that are led here begins soon. Gives its number.
    ///
    /// # Errors
    /// In words: another one has not ended.
    pub fn begin(&self) -> Result<u64, String> {
        let mut state = self.state.lock();
        if let ComparisonStatus::Runs { .. } = state.status {
            return Err("a comparison runs already".to_owned());
        }
        let comparison = self.next_number();
        (state.status, state.is_asked) = (ComparisonStatus::Runs { comparison }, true);
        self.changed.notify_all();
        Ok(comparison)
    }

    /// The progress of the last one.
    pub fn status(&self) -> ComparisonStatus {
        self.state.lock().status.clone()
    }

    /// What differs in the partitions that are led here, the newest last: at most twenty. One goes once its partition is compared
    /// again as a whole and is the same, or is led here no more.
    pub fn differences(&self) -> Vec<Difference> {
        self.state.lock().differences.iter().cloned().collect()
    }

    /// What was compared last of each partition that is led here.
    pub fn last(&self) -> Vec<LastComparison> {
        self.state.lock().last.values().cloned().collect()
    }

    pub(super) fn found(&self, difference: Difference) {
        let mut state = self.state.lock();
        if state.differences.len() >= DIFFERENCES_MAX {
            state.differences.pop_front();
        }
        state.differences.push_back(difference);
    }

    /// The node ends.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Compares a partition, and keeps what was found.
    fn compare(&self, parts: &Parts, replica: &HostedReplica, lead: Lead, pace: Pace) -> PartitionComparison {
        let partition = replica.partition();
        let before = self.state.lock().differences.iter().filter(|of| of.partition == partition.0).count();
        let compared = Walk::new(self, parts, replica, lead, pace).run();
        let ended_at = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let mut state = self.state.lock();
        if compared.is_clean() {
            // What this comparison itself has told stays until the next one.
            let mut old = before;
            state.differences.retain(|of| {
                let goes = of.partition == partition.0 && old > 0;
                old -= usize::from(goes);
                !goes
            });
        }
        state.last.insert(partition, LastComparison { ended_at, found: compared.clone() });
        compared
    }

    /// Forgets what was found in partitions that are led here no more.
    fn forget_others(&self, parts: &Parts) {
        let replicas = parts.replicas();
        let led: BTreeSet<PartitionId> =
            replicas.iter().filter(|of| of.lead().is_some()).map(|of| of.partition()).collect();
        let mut state = self.state.lock();
        state.differences.retain(|of| led.contains(&PartitionId(of.partition)));
        state.last.retain(|partition, _| led.contains(partition));
    }

    /// Compares what is led here: all at an operator's request, and each partition once in this time. It is the body of
    /// a thread.
    pub fn run(&self, parts: &Parts, every: Option<Duration>) {
        let mut due = Due::new();
        let every = every.map(|every| every.min(EVERY_MAX));
        while self.wait(POLL) {
            self.forget_others(parts);
            let asked = match self.status() {
                ComparisonStatus::Runs { comparison } if self.is_asked() => Some(comparison),
                _ => None,
            };
            if let Some(comparison) = asked {
                self.state.lock().is_asked = false;
                let partitions = self.compare_all(parts);
                self.state.lock().status =
                    ComparisonStatus::Done(ComparisonReport { comparison, partitions });
            } else if let Some(every) = every {
                self.compare_due(parts, every, &mut due);
            }
        }
    }

    fn compare_all(&self, parts: &Parts) -> Vec<PartitionComparison> {
        let mut compared = Vec::new();
        for replica in parts.replicas() {
            let status = replica.status();
            let is_to_lead = status.configuration.is_some_and(|known| known.primary == parts.me);
            match replica.lead() {
                Some(lead) => compared.push(self.compare(parts, &replica, lead, Pace::Full)),
                None if is_to_lead => compared.push(PartitionComparison {
                    partition: replica.partition().0,
                    left_out: vec!["its primary does not serve at the moment".to_owned()],
                    ..PartitionComparison::default()
                }),
                None => {}
            }
        }
        compared
    }

    /// Compares the first partition that is due.
    fn compare_due(&self, parts: &Parts, every: Duration, due: &mut Due) {
        let mut led = Due::new();
        for replica in parts.replicas() {
            let Some(lead) = replica.lead() else { continue };
            let (partition, epoch) = (replica.partition(), lead.epoch());
            let before = due.get(&partition).filter(|(of, _)| *of == epoch);
            let at = before.map_or_else(|| Instant::now() + every.min(FIRST_WITHIN), |(_, at)| *at);
            led.insert(partition, (epoch, at));
            if at <= Instant::now() && !self.is_asked() {
                led.insert(partition, (epoch, Instant::now() + every));
                self.compare(parts, &replica, lead, Pace::Gentle);
            }
        }
        *due = led;
    }
}
