//! What is done about a difference.

use std::time::Instant;

use rialto::fault_injection;

use super::comparison::Found;
use super::report::Difference;
use super::summing::{Answered, NotSent, ROWS_MAX, Sent};
use super::verdict::Verdict;
use super::walk::Walk;
use crate::protocol::replication::Member;

/// How many rows of the smallest range are shown.
const SHOW: u16 = 3;
/// How many times a comparison is tried again if locks cannot be had.
const TRIES: usize = 20;
/// How many times a difference is compared again until the replica has answered.
const AGAIN: usize = 2;
/// The most rows of a second comparison: what has come into the range since, too. No scan of so many locks the whole table.
const AGAIN_ROWS_MAX: u64 = 3 * ROWS_MAX;

/// The two ends of a range.
type Ends = (Option<Vec<u8>>, Option<Vec<u8>>);
/// Rows in words: those of the primary, and of a replica.
type Rows = (Vec<String>, Vec<String>);

/// A difference that was found twice, and is told and acted on at the end of the walk.
pub struct Proven {
    member: Member,
    difference: Difference,
}

impl Walk<'_> {
    /// These replicas have something else in a range than the primary. The range is compared again: what is the same by then, or
    /// does not answer, is told, and nothing else is done. Of what differs again the first row is looked for, for the operator.
    pub(super) fn look_at_difference(&mut self, first: &Sent, suspects: &[Member]) {
        let range = (first.comparison.after.clone(), first.comparison.to.clone());
        let mut compared = None;
        for _ in 0..AGAIN {
            match self.again(first, range.clone(), AGAIN_ROWS_MAX, 0) {
                Ok((again, answered)) => {
                    let verdict = Verdict::of(&again.found, &answered, suspects);
                    let is_over = verdict.unknown.is_empty();
                    compared = Some((again, verdict));
                    if is_over {
                        break;
                    }
                }
                Err(not) => {
                    let why = match not {
                        NotSent::Over(why) | NotSent::Failed(why) => why,
                        NotSent::Gone => "the table was changed meanwhile".to_owned(),
                    };
                    let action =
                        format!("They could not be compared again ({why}): nothing is done until they are");
                    return self.tell_of(first, suspects, &action, true);
                }
            }
        }
        let Some((again, verdict)) = compared else { return };
        self.tell_of(first, &verdict.same, "Compared again, they are the same: nothing is done", false);
        let action = "The replica has not answered the second comparison: nothing is done until it does";
        self.tell_of(first, &verdict.unknown, action, true);
        self.is_outvoted |= verdict.is_outvoted;
        for member in verdict.differing {
            self.proven_at.get_or_insert_with(Instant::now);
            let rows = self.first_row(&again, range.clone(), member);
            let difference = self.difference(first, member, rows);
            self.proven.push(Proven { member, difference });
        }
    }

    /// Tells what was proven, and has replicas that differ take new copies: unless more replicas agree with each other than with
    /// the primary, which may then be the one that is wrong.
    pub(super) fn act(&mut self) {
        let goes_on = self.lead.goes_on();
        let mut told = Vec::new();
        for Proven { member, mut difference } in std::mem::take(&mut self.proven) {
            difference.action = if !goes_on {
                "Nothing is done, since the primary does not lead any more: the next one compares again"
                    .to_owned()
            } else if self.is_outvoted && !fault_injection::is_on("outvoted-primary-believed") {
                format!(
                    "More replicas agree with each other than with the primary, so nothing is done: choose whether {} is to \
                     lead (rialto cluster switchover), or {0} is to take a new copy",
                    difference.replica
                )
            } else if !self.is_member(member) {
                "Nothing is done, since the replica has started again meanwhile: it is compared again"
                    .to_owned()
            } else {
                if !told.contains(&member) {
                    told.push(member);
                }
                "The replica takes a new copy of the primary".to_owned()
            };
            self.tell(difference);
        }
        for member in told {
            self.replica.differs(member);
        }
    }

    /// Compares a part of a range again, and tries again while others have locks in it.
    fn again(&self, of: &Sent, ends: Ends, rows_max: u64, show: u16) -> Result<(Sent, Answered), NotSent> {
        self.again_by(of, ends, (rows_max, show), None)
    }

    /// The same; only this replica is waited for, if one is named.
    fn again_by(
        &self,
        of: &Sent,
        ends: Ends,
        (rows_max, show): (u64, u16),
        member: Option<Member>,
    ) -> Result<(Sent, Answered), NotSent> {
        let mut refused = String::new();
        for _ in 0..TRIES {
            match self.send(&of.of, ends.clone(), rows_max, show)? {
                Ok(sent) => {
                    let answered = self.answered(&sent, member.map(|member| member.node))?;
                    return Ok((sent, answered));
                }
                Err(error) => refused = error.to_string(),
            }
        }
        Err(NotSent::Failed(refused))
    }

    /// The rows of the smallest part of a range that the replica has otherwise: the part before is halved as long as
    /// that is so. If that cannot be found, the larger part is shown, or none.
    fn first_row(&self, whole: &Sent, mut ends: Ends, member: Member) -> Rows {
        let mut rows = whole.rows;
        while rows > 1 && !fault_injection::is_on("differences-not-narrowed") {
            let Ok((part, answered)) = self.again_by(whole, ends.clone(), (rows / 2, 0), Some(member)) else {
                break;
            };
            match answered.differing(&part.found).contains(&member) {
                true => (ends.1, rows) = (part.comparison.to, part.rows),
                false if part.rows == 0 || part.last.is_none() => break,
                false => (ends.0, rows) = (part.last, rows.saturating_sub(part.rows)),
            }
        }
        let Ok((sent, answered)) = self.again_by(whole, ends, (AGAIN_ROWS_MAX, SHOW), Some(member)) else {
            return Rows::default();
        };
        let answer = answered.answers.into_iter().find(|(from, _)| *from == member);
        (in_words(sent.found), answer.map_or_else(Vec::new, |(_, found)| in_words(found)))
    }

    fn difference(&self, first: &Sent, member: Member, (of_primary, of_replica): Rows) -> Difference {
        Difference {
            partition: self.report.partition,
            table: first.of.name.clone(),
            index: first.of.index.as_ref().map(|(_, name)| name.clone()),
            primary: self.parts.name_of(first.comparison.by),
            replica: self.parts.name_of(member.node),
            of_primary,
            of_replica,
            action: String::new(),
            is_open: true,
        }
    }

    fn tell_of(&mut self, first: &Sent, members: &[Member], action: &str, is_open: bool) {
        for member in members {
            let difference = self.difference(first, *member, Rows::default());
            self.tell(Difference { action: action.to_owned(), is_open, ..difference });
        }
    }

    fn tell(&mut self, difference: Difference) {
        self.comparisons.found(difference.clone());
        self.report.differences.push(difference);
    }
}

fn in_words(found: Found) -> Vec<String> {
    match found {
        Found::Sum { shown, .. } => shown,
        Found::Missing(what) | Found::Unknown(what) | Found::Damaged(what) => vec![what],
    }
}
