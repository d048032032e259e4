//! [`TableAge`]: the age of the tables of a replica that follows.

use std::collections::BTreeSet;

use rialto::Lsn;
use rialto::fault_injection;

use crate::protocol::Moment;

/// The most ends of the primary's log, and the most places of clients, that are waited for at a time. The nearest ones
/// stay.
const ENDS_MAX: usize = 64;

/// An end of the primary's log that the tables are to have.
#[derive(Debug)]
struct End {
    /// When the primary was asked for it, on the clock of this node.
    asked_at: Option<Moment>,
    place: Lsn,
    /// Once everything up to the place is redone: those of the transactions that were prepared then, and have not ended since.
    undecided: Option<BTreeSet<String>>,
}

impl End {
    fn is_reached(&mut self, redone: Lsn, prepared: &BTreeSet<String>) -> bool {
        if redone < self.place {
            return false;
        }
        let undecided = self.undecided.get_or_insert_with(|| prepared.clone());
        undecided.retain(|name| prepared.contains(name));
        undecided.is_empty() || fault_injection::is_on("undecided-transactions-left-out")
    }
}

/// How old the tables of a replica are.
///
/// Everything that was answered before the primary was asked for the end of its log has written in this partition before that end:
/// its commit, or *Prepared*, if it is of several partitions, and decided elsewhere. So the tables have all of it once they have
/// everything up to that end, and each transaction that was prepared by then has ended.
#[derive(Debug, Default)]
pub struct TableAge {
    /// The tables have everything that was answered before this moment.
    as_of: Option<Moment>,
    /// They have everything that was answered and lies at or before this place.
    has_to: Lsn,
    ends: Vec<End>,
}

impl TableAge {
    /// The primary's log ended there when it was asked.
    pub fn end_known(&mut self, asked_at: Option<Moment>, place: Lsn) {
        let is_alike = |end: &End| end.asked_at.is_some() == asked_at.is_some();
        if self.ends.iter().filter(|end| is_alike(end)).count() >= ENDS_MAX {
            // A place that is far away makes room: a client may have made it up.
            let alike = self.ends.iter().enumerate().filter(|(_, end)| is_alike(end));
            let (farthest, _) = alike.max_by_key(|(_, end)| end.place).expect("there are some");
            if self.ends[farthest].place <= place {
                return;
            }
            self.ends.remove(farthest);
        }
        self.ends.push(End { asked_at, place, undecided: None });
    }

    /// The tables are to have everything up to this place.
    pub fn wait_for(&mut self, place: Lsn) {
        let is_known = |end: &End| end.asked_at.is_none() && end.place == place;
        if !self.ends.iter().any(is_known) {
            self.end_known(None, place);
        }
    }

    /// Whether something may be found out now.
    pub fn is_due(&self, redone: Lsn) -> bool {
        self.ends.iter().any(|end| end.place <= redone)
    }

    /// Everything up to this place is in the tables, and afterwards they had these prepared transactions.
    pub fn redone(&mut self, redone: Lsn, prepared: &BTreeSet<String>) {
        let (as_of, has_to) = (&mut self.as_of, &mut self.has_to);
        self.ends.retain_mut(|end| {
            let is_reached = end.is_reached(redone, prepared);
            if is_reached {
                *as_of = (*as_of).max(end.asked_at);
                *has_to = (*has_to).max(end.place);
            }
            !is_reached
        });
    }

    /// They have everything that was answered before this moment.
    pub fn as_of(&self) -> Option<Moment> {
        self.as_of
    }

    /// Whether they have everything that was answered and lies at or before this place.
    pub fn has(&self, place: Lsn) -> bool {
        self.has_to >= place
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn tables_are_as_old_as_the_question_whose_end_they_have() {
        let mut age = TableAge::default();
        age.end_known(Some(at(10)), Lsn(100));
        age.end_known(Some(at(20)), Lsn(200));
        assert!(!age.is_due(Lsn(99)));
        age.redone(Lsn(99), &names(&[]));
        assert_eq!((age.as_of(), age.has(Lsn(1))), (None, false));
        age.redone(Lsn(150), &names(&[]));
        assert_eq!((age.as_of(), age.has(Lsn(100)), age.has(Lsn(101))), (Some(at(10)), true, false));
        age.redone(Lsn(250), &names(&[]));
        assert_eq!(age.as_of(), Some(at(20)));
        // An older question that is answered late takes nothing back.
        age.end_known(Some(at(15)), Lsn(180));
        age.redone(Lsn(250), &names(&[]));
        assert_eq!((age.as_of(), age.has(Lsn(200))), (Some(at(20)), true));
    }

    #[test]
    fn what_was_prepared_by_then_has_to_have_ended() {
        let mut age = TableAge::default();
        age.end_known(Some(at(10)), Lsn(100));
        age.redone(Lsn(100), &names(&["a", "b"]));
        age.redone(Lsn(110), &names(&["b", "c"]));
        assert_eq!(age.as_of(), None);
        // Those that were prepared later do not count.
        age.redone(Lsn(120), &names(&["c"]));
        assert_eq!(age.as_of(), Some(at(10)));
    }

    #[test]
    fn a_place_is_waited_for_once() {
        let mut age = TableAge::default();
        (0..1000).for_each(|_| age.wait_for(Lsn(100)));
        age.end_known(Some(at(10)), Lsn(90));
        age.redone(Lsn(100), &names(&[]));
        assert_eq!((age.as_of(), age.has(Lsn(100)), age.ends.len()), (Some(at(10)), true, 0));
    }

    #[test]
    fn places_that_never_come_leave_room_for_others() {
        let mut age = TableAge::default();
        (0..1000).for_each(|more| age.wait_for(Lsn(1 << 40 | more)));
        age.wait_for(Lsn(100));
        (0..1000).for_each(|more| age.end_known(Some(at(10 + more)), Lsn(100 + more)));
        age.redone(Lsn(100), &names(&[]));
        assert_eq!((age.as_of(), age.has(Lsn(100))), (Some(at(10)), true));
        assert!(age.ends.len() <= 2 * ENDS_MAX);
    }
}
