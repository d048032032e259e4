//! What is done about a difference.

use rialto::fault_injection;

use super::comparison::Found;
use super::report::Difference;
use super::walk::{Answered, NotSent, Sent, Walk};
use crate::protocol::replication::Member;

/// How many rows of the smallest range are shown.
const SHOW: u16 = 3;
/// How often a comparison is tried again where locks are not to be had.
const TRIES: usize = 20;

/// The two ends of a range.
type Ends = (Option<Vec<u8>>, Option<Vec<u8>>);

/// What replicas have found at one place says this.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// They have the same.
    Same,
    /// These replicas are wrong.
    Replicas(Vec<Member>),
    /// More standbys agree with this one than with the primary.
    Primary(Member),
}

impl Verdict {
    /// The primary has found this, and the others that. A learner is not asked which one is right.
    fn of(primary: &Found, answered: &Answered) -> Verdict {
        let of_standbys: Vec<&(Member, Found)> =
            answered.answers.iter().filter(|(member, _)| answered.standbys.contains(member)).collect();
        let agree =
            |with: &Found| of_standbys.iter().filter(|(_, found)| with.is_same(found) == Some(true)).count();
        let differing = answered.differing(primary);
        let most = of_standbys
            .iter()
            .filter(|(member, _)| differing.contains(member))
            .max_by_key(|(_, found)| agree(found));
        match most {
            Some((member, found))
                if agree(found) > 1 + agree(primary)
                    && !fault_injection::is_on("outvoted-primary-leads-on") =>
            {
                Verdict::Primary(*member)
            }
            _ if differing.is_empty() => Verdict::Same,
            _ => Verdict::Replicas(differing),
        }
    }
}

impl Walk<'_> {
    /// These replicas have something else in a range than the primary. The range is compared again: a difference that is not
    /// there any more is told, and nothing else is done. Then its first row is looked for, for the operator, and what is wrong
    /// is replaced.
    pub(super) fn look_at_difference(&mut self, first: &Sent, suspects: Vec<Member>) -> Result<(), NotSent> {
        let range = (first.comparison.after.clone(), first.comparison.to.clone());
        let compared = self.again(first, range.clone(), u64::MAX, 0);
        let (again, answered) = match compared {
            Ok(compared) => compared,
            Err(NotSent::Failed(why)) => {
                let action = format!("It could not be compared again ({why}): nothing is done until it is");
                self.tell_of(first, &suspects, (Vec::new(), Vec::new()), &action);
                return Err(NotSent::Failed(why));
            }
            Err(not) => return Err(not),
        };
        match Verdict::of(&again.found, &answered) {
            Verdict::Same => {
                let action = "Compared again, they are the same: nothing is done";
                self.tell_of(first, &suspects, (Vec::new(), Vec::new()), action);
                Ok(())
            }
            Verdict::Replicas(members) => {
                let rows = self.first_row(&again, range, members[0])?;
                self.tell_of(first, &members, rows, "The replica takes a new copy of the primary");
                for member in members {
                    self.replica.differs(member);
                    self.differing.push(member);
                }
                Ok(())
            }
            Verdict::Primary(member) => {
                let rows = self.first_row(&again, range, member)?;
                let to = self.name_of(member.node);
                let action = format!(
                    "More replicas agree with {to} than with the primary: {to} is to lead. The replica that leads now takes a \
                     new copy once it is compared with {to}"
                );
                self.tell_of(first, &answered.differing(&again.found), rows, &action);
                self.replica.switch_over(member.node);
                Err(NotSent::Over("the rest: another replica is to lead".to_owned()))
            }
        }
    }

    /// Compares a part of a range again, whatever locks others have.
    fn again(&self, of: &Sent, ends: Ends, rows_max: u64, show: u16) -> Result<(Sent, Answered), NotSent> {
        let mut refused = String::new();
        for _ in 0..TRIES {
            match self.send(&of.of, ends.clone(), rows_max, show)? {
                Ok(sent) => {
                    let answered = self.answered(&sent)?;
                    return Ok((sent, answered));
                }
                Err(error) => refused = error.to_string(),
            }
        }
        Err(NotSent::Failed(refused))
    }

    /// The rows of the smallest part of a range that the replica has otherwise, as the primary has them and as the replica does:
    /// the part before is halved as long as that is so.
    fn first_row(
        &self,
        whole: &Sent,
        mut ends: Ends,
        member: Member,
    ) -> Result<(Vec<String>, Vec<String>), NotSent> {
        let mut rows = whole.rows;
        while rows > 1 && !fault_injection::is_on("differences-not-narrowed") {
            let (part, answered) = match self.again(whole, ends.clone(), rows / 2, 0) {
                Ok(compared) => compared,
                // The larger part is shown.
                Err(NotSent::Failed(_)) => break,
                Err(not) => return Err(not),
            };
            let differs = answered.differing(&part.found).contains(&member);
            match differs {
                true => (ends.1, rows) = (part.comparison.to, part.rows),
                false if part.rows == 0 || part.last.is_none() => break,
                false => (ends.0, rows) = (part.last, rows.saturating_sub(part.rows)),
            }
        }
        let (sent, answered) = match self.again(whole, ends, u64::MAX, SHOW) {
            Ok(compared) => compared,
            Err(NotSent::Failed(_)) => return Ok((Vec::new(), Vec::new())),
            Err(not) => return Err(not),
        };
        let answer = answered.answers.into_iter().find(|(from, _)| *from == member);
        Ok((in_words(sent.found), answer.map_or_else(Vec::new, |(_, found)| in_words(found))))
    }

    fn tell_of(
        &mut self,
        first: &Sent,
        members: &[Member],
        (of_primary, of_replica): (Vec<String>, Vec<String>),
        action: &str,
    ) {
        for member in members {
            let difference = Difference {
                partition: self.report.partition,
                table: first.of.name.clone(),
                index: first.of.index.as_ref().map(|(_, name)| name.clone()),
                primary: self.name_of(first.comparison.by),
                replica: self.name_of(member.node),
                of_primary: of_primary.clone(),
                of_replica: of_replica.clone(),
                action: action.to_owned(),
            };
            self.tell(difference);
        }
    }
}

fn in_words(found: Found) -> Vec<String> {
    match found {
        Found::Sum { shown, .. } => shown,
        Found::Missing(what) | Found::Unknown(what) => vec![what],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Life, NodeId};

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), life: Life(7) }
    }

    fn sum(sum: u128) -> Found {
        Found::Sum { rows: 1, sum, shown: Vec::new() }
    }

    /// The verdict on a primary that has 1, over two standbys and a learner, the node 9.
    fn verdict(answers: &[(u32, Found)]) -> Verdict {
        let answers = answers.iter().map(|(node, found)| (member(*node), found.clone())).collect();
        let answered = Answered { standbys: (1..=4).map(member).collect(), answers };
        Verdict::of(&sum(1), &answered)
    }

    #[test]
    fn the_primary_is_wrong_only_if_more_replicas_in_sync_agree_otherwise() {
        let unknown = Found::Unknown("a lock".to_owned());
        assert_eq!(verdict(&[]), Verdict::Same);
        assert_eq!(verdict(&[(1, sum(1)), (2, unknown.clone())]), Verdict::Same);
        assert_eq!(verdict(&[(1, sum(2))]), Verdict::Replicas(vec![member(1)]));
        assert_eq!(verdict(&[(1, sum(2)), (2, sum(1))]), Verdict::Replicas(vec![member(1)]));
        assert_eq!(verdict(&[(1, sum(2)), (2, sum(3))]), Verdict::Replicas(vec![member(1), member(2)]));
        assert_eq!(verdict(&[(1, sum(2)), (9, sum(2))]), Verdict::Replicas(vec![member(1), member(9)]));
        assert!(matches!(verdict(&[(1, sum(2)), (2, sum(2))]), Verdict::Primary(_)));
        assert!(matches!(verdict(&[(1, sum(2)), (2, sum(2)), (3, unknown)]), Verdict::Primary(_)));
        let split = [(1, sum(2)), (2, sum(2)), (3, sum(1))];
        assert_eq!(verdict(&split), Verdict::Replicas(vec![member(1), member(2)]));
    }
}
