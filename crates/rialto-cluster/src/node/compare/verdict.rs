//! [`Verdict`]: what a second comparison says of a difference.

use rialto::fault_injection;

use super::comparison::Found;
use super::summing::Answered;
use crate::protocol::replication::Member;

/// What the second comparison of a range says of the replicas that have differed in the first one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// These differ again.
    pub differing: Vec<Member>,
    /// These have said that they have the same.
    pub same: Vec<Member>,
    /// Of these nothing is known.
    pub unknown: Vec<Member>,
    /// Whether more standbys agree with one another than replicas have what the primary has. A learner has no vote.
    pub is_outvoted: bool,
}

impl Verdict {
    /// The primary has found this, and the others that.
    pub fn of(primary: &Found, answered: &Answered, suspects: &[Member]) -> Verdict {
        let mut verdict = Verdict::default();
        let once = fault_injection::is_on("one-difference-counts");
        for member in if once { answered.differing(primary) } else { suspects.to_vec() } {
            let answer = answered.answers.iter().find(|(from, _)| *from == member);
            match answer.and_then(|(_, found)| primary.is_same(found)) {
                Some(false) => verdict.differing.push(member),
                None if !fault_injection::is_on("silence-counts-as-the-same") => verdict.unknown.push(member),
                Some(true) | None => verdict.same.push(member),
            }
        }
        let of_standbys = || answered.answers.iter().filter(|(member, _)| answered.standbys.contains(member));
        let agree =
            |with: &Found| of_standbys().filter(|(_, found)| with.is_same(found) == Some(true)).count();
        verdict.is_outvoted = of_standbys()
            .any(|(_, found)| primary.is_same(found) == Some(false) && agree(found) > 1 + agree(primary));
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Life, NodeId};

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), life: Life(7) }
    }

    fn members(nodes: &[u32]) -> Vec<Member> {
        nodes.iter().copied().map(member).collect()
    }

    fn sum(sum: u128) -> Found {
        Found::Sum { rows: 1, sum, shown: Vec::new() }
    }

    /// The verdict on suspects of a primary that has 1, over standbys and a learner, the node 9.
    fn verdict(suspects: &[u32], answers: &[(u32, Found)]) -> Verdict {
        let answers = answers.iter().map(|(node, found)| (member(*node), found.clone())).collect();
        let answered = Answered { standbys: members(&[1, 2, 3, 4]), answers };
        Verdict::of(&sum(1), &answered, &members(suspects))
    }

    #[test]
    fn a_replica_is_the_same_only_if_it_says_so_and_differs_only_if_it_has_before() {
        let unknown = Found::Unknown("a lock".to_owned());
        let of = |differing: &[u32], same: &[u32], unknown: &[u32]| Verdict {
            differing: members(differing),
            same: members(same),
            unknown: members(unknown),
            is_outvoted: false,
        };
        assert_eq!(verdict(&[1], &[]), of(&[], &[], &[1]));
        assert_eq!(verdict(&[1], &[(1, unknown.clone()), (2, sum(1))]), of(&[], &[], &[1]));
        assert_eq!(verdict(&[1], &[(1, sum(1))]), of(&[], &[1], &[]));
        assert_eq!(verdict(&[1], &[(1, sum(2))]), of(&[1], &[], &[]));
        assert_eq!(verdict(&[1], &[(2, sum(2))]), of(&[], &[], &[1]));
        assert_eq!(verdict(&[1], &[(1, sum(1)), (2, sum(2))]), of(&[], &[1], &[]));
        assert_eq!(verdict(&[1, 2], &[(1, sum(2)), (3, sum(1))]), of(&[1], &[], &[2]));
        assert_eq!(verdict(&[1, 9], &[(1, sum(2)), (9, sum(2))]), of(&[1, 9], &[], &[]));
        let damaged = Found::Damaged("no UTF-8".to_owned());
        assert_eq!(verdict(&[1, 2], &[(1, damaged.clone()), (2, damaged)]), of(&[1, 2], &[], &[]));
    }

    #[test]
    fn a_primary_is_outvoted_if_more_replicas_in_sync_agree_otherwise() {
        let outvoted = |answers: &[(u32, Found)]| verdict(&[1], answers).is_outvoted;
        assert!(!outvoted(&[(1, sum(2))]));
        assert!(!outvoted(&[(1, sum(2)), (2, sum(3))]));
        assert!(!outvoted(&[(1, sum(2)), (9, sum(2))]));
        assert!(!outvoted(&[(1, sum(2)), (2, sum(2)), (3, sum(1))]));
        assert!(outvoted(&[(1, sum(2)), (2, sum(2))]));
        assert!(outvoted(&[(1, sum(2)), (2, sum(2)), (3, Found::Unknown("a lock".to_owned()))]));
    }
}
