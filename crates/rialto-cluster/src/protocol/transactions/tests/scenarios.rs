//! Single participants and coordinators, message by message.

use std::time::Duration;

use super::model::{Answer, Bank, Op};
use crate::protocol::transactions::participant::EXPIRED_MAX;
use crate::protocol::transactions::{
    ASK_AFTER, ASK_ANEW, Access, Act, Action, Address, Body, BranchRef, Branches, CLOCK_MARGIN, Coordinator,
    CoordinatorEffect, Decision, Effect, HASTE, LIFETIME, Level, Lost, Message, Opened, Opening, Outcome,
    Pace, Participant, Place, Plan, Ran, Request, RowChange, SendQueue, Sender, Standing, Start, Step,
    SystemRows, TransactionId, Tries, UNDECIDED_FOR, Undecided, Verdict,
};
use crate::protocol::{NodeId, PartitionId};

const ID: TransactionId = TransactionId { node: NodeId(0), start: Start(1), number: 1 };
const DECIDING: PartitionId = PartitionId(0);
const OTHER: PartitionId = PartitionId(1);

fn branch(partition: PartitionId, opening: u64, access: Access) -> BranchRef {
    BranchRef { partition, opening: Opening(opening), access }
}

fn branches() -> Branches {
    let all = [branch(DECIDING, 3, Access::Writes), branch(OTHER, 3, Access::Writes)];
    Branches { deciding: DECIDING, all: all.into(), level: Level::Standby }
}

/// A participant whose steps the test takes.
struct Of(Participant<Bank>);

impl Of {
    fn open(partition: PartitionId, opening: u64, rows: &[RowChange<Bank>]) -> Of {
        let mut system = SystemRows::default();
        rows.iter().for_each(|row| system.apply(row));
        let opened = Opened { partition, opening: Opening(opening), rows: system };
        Of(Participant::open(opened, Duration::ZERO))
    }

    /// What it does, and says, in short.
    fn effects(&mut self) -> Vec<String> {
        let short = |effect: Effect<Bank>| match effect {
            Effect::Send(Message { body, .. }) => match body {
                Body::Decided(decision, _) => format!("decided {decision:?}"),
                Body::Confirmed(decision, _) => format!("confirmed {decision:?}"),
                Body::Standing(standing, _) => format!("standing {standing:?}"),
                Body::Ask(_) => "ask".to_owned(),
                body => format!("{body:?}"),
            },
            Effect::Write { rows, step, .. } => match &rows[..] {
                [RowChange::Bound(_, opening)] => format!("bound to {}, {step:?}", opening.0),
                [RowChange::Decision(_, decision, _)] => format!("decision {decision:?}, {step:?}"),
                rows => format!("{rows:?}"),
            },
            Effect::Abort { rows, .. } => format!("abort, {} rows", rows.len()),
            Effect::Commit { rows, .. } => format!("commit, {} rows", rows.len()),
            Effect::Begin { .. } => "begin".to_owned(),
            Effect::Run { .. } => "run".to_owned(),
            Effect::AwaitAnswer { level, .. } => format!("await {level:?}"),
            effect => format!("{effect:?}"),
        };
        self.0.take_effects().into_iter().map(short).collect()
    }

    fn hears(&mut self, from: Sender, body: Body<Bank>, ms: u64) -> Vec<String> {
        let to = match from {
            Sender::Partition(DECIDING, _) => OTHER,
            _ => DECIDING,
        };
        let message = Message { from, to: Address::Partition(to), transaction: ID, body };
        self.0.receive(message, Duration::from_millis(ms));
        self.effects()
    }

    fn step(&mut self, step: Step) -> Vec<String> {
        self.0.durable(ID, step, Duration::ZERO);
        self.effects()
    }
}

fn deciding(opening: u64) -> Sender {
    Sender::Partition(DECIDING, Opening(opening))
}

const COORDINATOR: Sender = Sender::Coordinator(NodeId(0));

/// The row of a forced loss, of openings up to this one.
fn lost(opening: u64) -> RowChange<Bank> {
    let last = Some(Opening(opening));
    RowChange::Lost(Lost { in_memories: last, on_disks: last })
}

#[test]
fn a_partition_hears_no_opening_of_another_one_before_the_last() {
    let mut of = Of::open(OTHER, 3, &[RowChange::Prepared(ID, branches())]);
    assert_eq!(of.hears(deciding(5), Body::NotYet, 0), [""; 0]);
    assert_eq!(of.hears(deciding(4), Body::Decided(Decision::Abort, branches()), 0), [""; 0]);
    assert_eq!(of.hears(deciding(5), Body::Decided(Decision::Commit, branches()), 0), ["commit, 3 rows"]);
}

#[test]
fn a_branch_that_was_asked_waits_for_the_opening_that_asked_also_after_its_own_failover() {
    let mut of = Of::open(OTHER, 3, &[RowChange::Prepared(ID, branches())]);
    assert_eq!(of.hears(deciding(5), Body::Ask(branches()), 0), ["bound to 5, Bound(Opening(5))"]);
    // The answer waits for the row, and the coordinator does not reach it any more.
    assert_eq!(of.hears(deciding(5), Body::Ask(branches()), 0), [""; 0]);
    assert_eq!(of.hears(COORDINATOR, Body::Abort, 0), [""; 0]);
    assert_eq!(of.step(Step::Bound(Opening(5))), ["standing Prepared(Opening(5))"]);
    assert_eq!(of.hears(deciding(5), Body::Ask(branches()), 0), ["standing Prepared(Opening(5))"]);
    let rows = [RowChange::Prepared(ID, branches()), RowChange::Bound(ID, Opening(5))];
    let mut of = Of::open(OTHER, 4, &rows);
    assert_eq!(of.hears(COORDINATOR, Body::Abort, 0), [""; 0]);
    assert_eq!(of.hears(deciding(4), Body::Decided(Decision::Commit, branches()), 0), [""; 0]);
    // A later opening asks again; the answer to the earlier one is not the answer to it.
    assert_eq!(of.hears(deciding(6), Body::Ask(branches()), 0), ["bound to 6, Bound(Opening(6))"]);
    assert_eq!(of.step(Step::Bound(Opening(5))), [""; 0]);
    assert_eq!(of.hears(deciding(6), Body::Decided(Decision::Abort, branches()), 0), ["abort, 1 rows"]);
    // It has ended once nothing brings its vote back.
    assert_eq!(of.hears(deciding(6), Body::Ask(branches()), 0), [""; 0]);
    assert_eq!(of.step(Step::Aborted), ["standing Ended", "confirmed Abort"]);
    assert_eq!(of.hears(deciding(6), Body::Decided(Decision::Abort, branches()), 0), ["confirmed Abort"]);
}

#[test]
fn a_committed_branch_hears_that_its_decision_is_forgotten_from_the_opening_that_told_it_or_a_later_one() {
    let mut of = Of::open(OTHER, 3, &[RowChange::Prepared(ID, branches()), RowChange::Bound(ID, Opening(5))]);
    assert_eq!(of.hears(deciding(6), Body::Decided(Decision::Commit, branches()), 0), ["commit, 3 rows"]);
    assert_eq!(of.step(Step::Commit), ["confirmed Commit"]);
    let settled = format!("{:?}", [RowChange::<Bank>::Settled(ID)]);
    // The same before and after its own failover, which forgets what it has heard from which opening.
    let rows = [RowChange::Committed(ID, branches()), RowChange::Bound(ID, Opening(6))];
    let mut reopened = Of::open(OTHER, 4, &rows);
    assert_eq!(reopened.hears(deciding(5), Body::Forgotten, 0), [""; 0]);
    assert_eq!(reopened.hears(deciding(7), Body::Ask(branches()), 0), ["standing Committed"]);
    assert_eq!(reopened.hears(deciding(7), Body::Forgotten, 0), [settled.as_str()]);
    assert_eq!(of.hears(deciding(6), Body::Forgotten, 0), [settled.as_str()]);
    // What its own deciding branch has told needs no row more.
    let mut of = Of::open(OTHER, 3, &[RowChange::Prepared(ID, branches())]);
    assert_eq!(of.hears(deciding(3), Body::Decided(Decision::Commit, branches()), 0), ["commit, 2 rows"]);
    // With the commit the rows that bind it go.
    let mut rows = SystemRows::<Bank>::default();
    [RowChange::Committed(ID, branches()), RowChange::Bound(ID, Opening(6)), RowChange::Settled(ID)]
        .iter()
        .for_each(|row| rows.apply(row));
    assert!(rows.committed.is_empty() && rows.bound.is_empty());
}

#[test]
fn an_answer_to_an_earlier_opening_is_none_to_the_one_that_asks_now() {
    let other = Sender::Partition(OTHER, Opening(3));
    let mut of = Of::open(DECIDING, 6, &[lost(5)]);
    assert_eq!(of.hears(other, Body::Inquire(branches()), 0), ["ask"]);
    // Opening 5 may have told it a decision since, and lost that.
    assert_eq!(of.hears(other, Body::Standing(Standing::Prepared(Opening(5)), branches()), 0), [""; 0]);
    assert!(
        of.hears(other, Body::Standing(Standing::Prepared(Opening(6)), branches()), 0)[0]
            .starts_with("AskOperator")
    );
    // That it has ended, or has committed, is so whichever opening has asked.
    let mut of = Of::open(DECIDING, 6, &[lost(5)]);
    of.hears(other, Body::Inquire(branches()), 0);
    assert_eq!(of.hears(other, Body::Standing(Standing::Ended, branches()), 0), ["decision Abort, Rows"]);
}

#[test]
fn an_inquiry_ends_with_a_row_before_its_result_is_told() {
    let rows = [lost(3)];
    let other = Sender::Partition(OTHER, Opening(3));
    let mut of = Of::open(DECIDING, 4, &rows);
    assert_eq!(of.hears(other, Body::Inquire(branches()), 0), ["ask"]);
    // The coordinator has never asked for a decision. The branches are heard all the same, but no operator.
    assert_eq!(of.hears(COORDINATOR, Body::Abort, 0), [""; 0]);
    let standing = Body::Standing(Standing::Prepared(Opening(4)), branches());
    assert_eq!(of.hears(other, standing, 0), ["decision Abort, Rows"]);
    assert_eq!(of.hears(other, Body::Inquire(branches()), 0), [""; 0]);
    assert_eq!(of.step(Step::Rows), ["decided Abort"]);
    // A later opening tells the same, until the branch has confirmed.
    let mut of = Of::open(DECIDING, 5, &[lost(3), RowChange::Decision(ID, Decision::Abort, branches())]);
    assert_eq!(of.hears(other, Body::Inquire(branches()), 0), ["decided Abort"]);
    assert_eq!(
        of.hears(other, Body::Confirmed(Decision::Abort, branches()), 0),
        [format!("{:?}", [RowChange::<Bank>::Forgotten(ID)])]
    );
    // Without a question before: the same.
    let mut of = Of::open(DECIDING, 4, &rows);
    assert_eq!(of.hears(COORDINATOR, Body::Abort, 0), [""; 0]);
    assert_eq!(of.hears(other, Body::Inquire(branches()), 0), ["ask"]);
    let standing = Body::Standing(Standing::Prepared(Opening(4)), branches());
    assert_eq!(of.hears(other, standing, 0), ["decision Abort, Rows"]);
    // An operator may have said "commit" before a second loss: then a branch tells.
    let mut of = Of::open(DECIDING, 5, &[lost(4)]);
    assert_eq!(of.hears(COORDINATOR, Body::Abort, 0), [""; 0]);
    assert_eq!(of.hears(other, Body::Inquire(branches()), 0), ["ask"]);
    let committed = Body::Standing(Standing::Committed, branches());
    assert_eq!(of.hears(other, committed, 0), ["decision Commit, Rows"]);
    let mut of = Of::open(DECIDING, 4, &rows);
    of.hears(other, Body::Inquire(branches()), 0);
    let standing = Body::Standing(Standing::Prepared(Opening(4)), branches());
    // While a branch may still tell, an operator has no say.
    assert!(!of.0.operator_decides(ID, Decision::Abort) && of.0.undecided(Duration::ZERO).is_empty());
    assert!(of.hears(other, standing, 0)[0].starts_with("AskOperator"));
    let age = Duration::from_secs(7);
    let undecided = Undecided { id: ID, age, prepared: vec![OTHER], lost: Vec::new() };
    assert_eq!(of.0.undecided(age), [undecided]);
    // The branches are asked again now and then.
    of.0.tick(ASK_ANEW);
    assert_eq!(of.effects(), ["ask"]);
    of.0.tick(ASK_ANEW);
    assert_eq!(of.effects(), [""; 0]);
    assert!(of.0.operator_decides(ID, Decision::Commit));
    assert_eq!(of.effects(), ["decision Commit, Rows"]);
    // Once is enough.
    assert!(!of.0.operator_decides(ID, Decision::Abort) && of.0.undecided(age).is_empty());
    assert_eq!((of.effects().len(), of.0.remembers(ID)), (0, Some(Decision::Commit)));
}

/// The partitions of other branches may have forced losses meanwhile. The operator sees which; once no branch is left that waits,
/// there is nothing to be decided.
#[test]
fn an_inquiry_for_which_no_branch_waits_any_more_needs_no_operator() {
    const THIRD: PartitionId = PartitionId(2);
    let all = [DECIDING, OTHER, THIRD].map(|of| branch(of, 3, Access::Writes));
    let branches = || Branches { deciding: DECIDING, all: all.into(), level: Level::Standby };
    let mut of = Of::open(DECIDING, 4, &[lost(3)]);
    let [other, third] = [OTHER, THIRD].map(|of| Sender::Partition(of, Opening(3)));
    assert_eq!(of.hears(other, Body::Inquire(branches()), 0), ["ask", "ask"]);
    of.hears(other, Body::Standing(Standing::Prepared(Opening(4)), branches()), 0);
    assert!(of.hears(third, Body::Standing(Standing::Lost, branches()), 0)[0].starts_with("AskOperator"));
    let undecided = Undecided { id: ID, age: Duration::ZERO, prepared: vec![OTHER], lost: vec![THIRD] };
    assert_eq!(of.0.undecided(Duration::ZERO), [undecided]);
    let ended = of.hears(other, Body::Standing(Standing::Lost, branches()), 0);
    assert_eq!(ended, ["decision Abort, Rows"]);
    assert!(of.0.undecided(Duration::ZERO).is_empty());
}

/// What was on disks is there after a loss of memories: a decision that is not on record was never told.
#[test]
fn a_loss_of_memories_leaves_no_question_about_what_was_on_disks() {
    let rows = [RowChange::Lost(Lost { in_memories: Some(Opening(3)), on_disks: Some(Opening(1)) })];
    let other = Sender::Partition(OTHER, Opening(3));
    let on_disks = || Branches { level: Level::Disk, ..branches() };
    let mut of = Of::open(DECIDING, 4, &rows);
    assert_eq!(of.hears(other, Body::Inquire(on_disks()), 0), ["decided Abort"]);
    let mut of = Of::open(DECIDING, 4, &rows);
    assert_eq!(of.hears(other, Body::Inquire(branches()), 0), ["ask"]);
    // A branch that is not there has never voted, or has ended.
    let mut of = Of::open(OTHER, 4, &rows);
    assert_eq!(of.hears(deciding(4), Body::Ask(on_disks()), 0), ["standing Ended"]);
    let mut of = Of::open(OTHER, 4, &rows);
    assert_eq!(of.hears(deciding(4), Body::Ask(branches()), 0), ["standing Lost"]);
    // A later loss of disks is one of memories, too; neither takes the other back.
    let mut of = Of::open(DECIDING, 5, &[lost(4), rows[0].clone()]);
    assert_eq!(of.hears(other, Body::Inquire(on_disks()), 0), ["ask"]);
}

/// A decision may be forgotten while its client has not heard of it.
#[test]
fn a_late_question_about_a_forgotten_decision_has_no_client_told_of_an_abort() {
    let mut of = Of::open(DECIDING, 4, &[]);
    let other = Sender::Partition(OTHER, Opening(3));
    assert_eq!(of.hears(other, Body::Inquire(branches()), 0), ["decided Abort"]);
    let verdict = Verdict::Commit(Answer::default());
    let decide = Body::Decide { branches: branches(), request: None, verdict };
    assert_eq!(of.hears(COORDINATOR, decide, 0), [format!("{:?}", Body::Outcome::<Bank>(Outcome::Unknown))]);
}

#[test]
fn a_branch_confirms_a_commit_only_if_it_knows_of_it() {
    let commit = || Body::Decided(Decision::Commit, branches());
    // By a later opening of the deciding partition it has aborted, and another one of its own has forgotten that.
    let mut of = Of::open(OTHER, 4, &[]);
    assert_eq!(of.hears(deciding(3), commit(), 0), ["confirmed Abort"]);
    let mut of = Of::open(OTHER, 4, &[RowChange::Committed(ID, branches())]);
    assert_eq!(of.hears(deciding(3), commit(), 0), ["confirmed Commit"]);
}

#[test]
fn after_a_loss_no_client_is_told_of_a_commit_that_others_decided() {
    let verdict = Verdict::Commit(Answer::default());
    let decide = Body::Decide { branches: branches(), request: None, verdict };
    let decision = RowChange::Decision(ID, Decision::Commit, branches());
    let mut of = Of::open(DECIDING, 4, &[lost(3), decision.clone()]);
    let unknown = [format!("{:?}", Body::Outcome::<Bank>(Outcome::Unknown))];
    assert_eq!(of.hears(COORDINATOR, decide.clone(), 0), unknown);
    // Without a loss it is its own.
    let mut of = Of::open(DECIDING, 4, &[decision]);
    assert!(of.hears(COORDINATOR, decide, 0)[0].contains("Answered"));
}

#[test]
fn a_deciding_branch_has_its_time_from_the_first_question_on() {
    let mut of = Of::open(DECIDING, 3, &[]);
    let action = vec![Op::Read(0)];
    let act = Act {
        opening: Opening(3),
        low: 1,
        deciding: DECIDING,
        request: None,
        level: Level::Standby,
        sequence: 0,
        action,
        vote: None,
    };
    assert_eq!(of.hears(COORDINATOR, Body::Act(act), 0), ["begin", "run"]);
    let ran = Ran { reply: Answer::default(), access: Access::Reads, has_failed: false, is_passing: false };
    of.0.ran(ID, 0, Some(ran), Duration::ZERO);
    of.effects();
    let other = Sender::Partition(OTHER, Opening(3));
    let time = UNDECIDED_FOR.as_millis() as u64;
    let asks = |of: &mut Of, at| of.hears(other, Body::Inquire(branches()), at);
    assert_eq!(asks(&mut of, 10 * time), ["NotYet"]);
    assert_eq!(asks(&mut of, 11 * time - 1), ["NotYet"]);
    assert_eq!(asks(&mut of, 11 * time), ["abort, 0 rows", "decided Abort"]);
}

#[test]
fn what_is_in_doubt_while_votes_are_held_up_is_asked_for_and_given_up_sooner() {
    let at = Duration::from_millis(1_000_000);
    let mut of = Of::open(OTHER, 3, &[RowChange::Prepared(ID, branches())]);
    let asks = |of: &mut Of, at: Duration| {
        of.0.tick(at);
        !of.effects().is_empty()
    };
    assert!(asks(&mut of, at), "at its opening");
    assert!(!asks(&mut of, at + ASK_AFTER / HASTE));
    of.0.hurry(true, at + ASK_AFTER / HASTE);
    assert!(asks(&mut of, at + 2 * ASK_AFTER / HASTE));
    assert!(asks(&mut of, at + 3 * ASK_AFTER / HASTE));
    of.0.hurry(false, at + 3 * ASK_AFTER / HASTE);
    assert!(asks(&mut of, at + 4 * ASK_AFTER / HASTE));
    assert!(!asks(&mut of, at + 5 * ASK_AFTER / HASTE));

    let mut of = Of::open(DECIDING, 3, &[]);
    let action = vec![Op::Read(0)];
    let act = Act {
        opening: Opening(3),
        low: 1,
        deciding: DECIDING,
        request: None,
        sequence: 0,
        level: Level::Standby,
        action,
        vote: None,
    };
    of.hears(COORDINATOR, Body::Act(act), 0);
    let ran = Ran { reply: Answer::default(), access: Access::Reads, has_failed: false, is_passing: false };
    of.0.ran(ID, 0, Some(ran), Duration::ZERO);
    of.effects();
    of.0.hurry(true, Duration::ZERO);
    let other = Sender::Partition(OTHER, Opening(3));
    let time = UNDECIDED_FOR.as_millis() as u64 / u64::from(HASTE);
    assert_eq!(of.hears(other, Body::Inquire(branches()), time), ["NotYet"]);
    assert_eq!(of.hears(other, Body::Inquire(branches()), 2 * time), ["abort, 0 rows", "decided Abort"]);
}

#[test]
fn a_deposed_primary_forgets_nothing_that_its_successor_has_told() {
    let mut of = Of::open(DECIDING, 3, &[]);
    let action = vec![Op::Add(0, 1)];
    let act = Act {
        opening: Opening(3),
        low: 1,
        deciding: DECIDING,
        request: None,
        level: Level::Standby,
        sequence: 0,
        action,
        vote: None,
    };
    of.hears(COORDINATOR, Body::Act(act), 0);
    of.0.ran(
        ID,
        0,
        Some(Ran { reply: Answer::default(), access: Access::Writes, has_failed: false, is_passing: false }),
        Duration::ZERO,
    );
    let verdict = Verdict::Commit(Answer::default());
    of.hears(COORDINATOR, Body::Decide { branches: branches(), request: None, verdict }, 0);
    of.0.reserved(ID, true, Duration::ZERO);
    assert_eq!(of.effects(), ["commit, 1 rows"]);
    // The commit is durable, which only the next opening knows. That one has told the branch.
    let other = Sender::Partition(OTHER, Opening(3));
    assert_eq!(of.hears(other, Body::Confirmed(Decision::Commit, branches()), 0), [""; 0]);
    // It knows nothing of branches under later openings.
    let later = |deciding, of| {
        let all = [branch(DECIDING, deciding, Access::Writes), branch(OTHER, of, Access::Writes)];
        Branches { all: all.into(), ..branches() }
    };
    let id = TransactionId { number: 2, ..ID };
    let says = |from, to, body| {
        let mut of = Of::open(to, 3, &[]);
        of.0.receive(Message { from, to: Address::Partition(to), transaction: id, body }, Duration::ZERO);
        of.effects()
    };
    assert_eq!(says(other, DECIDING, Body::Inquire(later(3, 3))), ["decided Abort"]);
    assert_eq!(says(other, DECIDING, Body::Inquire(later(4, 3))), [""; 0]);
    assert_eq!(says(other, DECIDING, Body::Confirmed(Decision::Commit, later(4, 3))), [""; 0]);
    assert_eq!(says(deciding(4), OTHER, Body::Decided(Decision::Commit, later(4, 4))), [""; 0]);
    assert_eq!(says(deciding(4), OTHER, Body::Ask(later(4, 4))), [""; 0]);
}

#[test]
fn heartbeats_take_the_place_of_one_another_in_a_queue() {
    let mut queue = SendQueue::<Bank>::new(1);
    for low in 1..100 {
        let transaction = TransactionId { number: low, ..ID };
        let (from, to, body) = (COORDINATOR, Address::Partition(OTHER), Body::Low { low, older: Vec::new() });
        queue.push(Message { from, to, transaction, body }).unwrap();
    }
    assert_eq!(queue.reserved(), 1);
    assert!(matches!(queue.pop().unwrap().body, Body::Low { low: 99, .. }));
}

/// A coordinator of statements, and what it sends.
struct Statements(Coordinator<Bank>);

impl Statements {
    fn begin(level: Level) -> Statements {
        let plan = Plan {
            request: None,
            deciding: DECIDING,
            level,
            pace: Pace::Statements,
            branches: vec![branch(DECIDING, 3, Access::Reads)],
            tries: Tries::First,
            local: Vec::new(),
        };
        Statements(Coordinator::new(ID, plan, Duration::ZERO))
    }

    /// Runs a statement in a partition.
    fn statement(&mut self, partition: PartitionId, sequence: u32, access: Access) {
        self.0.phase(vec![Action { partition, action: Vec::new(), place: Place::Open }], 1);
        assert_eq!(self.sent().len(), 1);
        let reply = Some(Answer::default());
        self.hears(partition, Body::Reply { sequence, reply, access, votes: false });
        assert!(matches!(self.0.take_effects()[..], [CoordinatorEffect::Rendezvous(_)]));
    }

    fn hears(&mut self, partition: PartitionId, body: Body<Bank>) {
        let from = Sender::Partition(partition, Opening(3));
        self.0.receive(Message { from, to: Address::Coordinator(NodeId(0)), transaction: ID, body });
    }

    fn sent(&mut self) -> Vec<String> {
        let sent = self.0.take_effects().into_iter().map(|effect| match effect {
            CoordinatorEffect::Send(message) => match message.body {
                Body::Act(_) => "act".to_owned(),
                Body::Prepare { branches, .. } => {
                    format!("prepare {} {:?}", branches.all.len(), branches.level)
                }
                Body::Decide { branches, .. } => {
                    format!("decide {} {:?}", branches.all.len(), branches.level)
                }
                Body::Confirm { level, .. } => format!("confirm {level:?}"),
                body => format!("{body:?}"),
            },
            CoordinatorEffect::Done(outcome) => format!("done {}", matches!(outcome, Outcome::Answered(_))),
            CoordinatorEffect::Rendezvous(_) => unreachable!("no statement runs"),
        });
        sent.collect()
    }
}

#[test]
fn statements_in_one_partition_commit_without_a_vote_at_whichever_level() {
    let late = Duration::from_secs(3600);
    let mut of = Statements::begin(Level::Memory);
    of.statement(DECIDING, 0, Access::Reads);
    of.statement(DECIDING, 1, Access::Writes);
    // The client may think for as long as it likes.
    of.0.tick(late);
    of.0.commit(Answer::default(), late);
    assert_eq!(of.sent(), ["decide 1 Memory"]);
    of.hears(DECIDING, Body::Outcome(Outcome::Answered(Answer::default())));
    assert_eq!(of.sent(), ["done true"]);
    // One that has only read has no decision.
    let mut of = Statements::begin(Level::Memory);
    of.statement(DECIDING, 0, Access::Reads);
    of.0.commit(Answer::default(), late);
    assert_eq!(of.sent(), ["confirm Memory"]);
    of.hears(DECIDING, Body::StillHeld);
    assert_eq!(of.sent(), ["done true"]);
}

#[test]
fn branches_join_as_statements_need_them_and_vote_as_they_have_written() {
    let mut of = Statements::begin(Level::Memory);
    of.statement(DECIDING, 0, Access::Reads);
    of.0.join(branch(OTHER, 3, Access::Reads));
    of.0.join(branch(PartitionId(2), 3, Access::Reads));
    of.statement(OTHER, 0, Access::Writes);
    of.statement(PartitionId(2), 0, Access::Reads);
    of.statement(OTHER, 1, Access::Reads);
    of.0.commit(Answer::default(), Duration::ZERO);
    assert_eq!(of.sent(), ["prepare 3 Standby", "confirm Standby"]);
    of.hears(OTHER, Body::Voted);
    assert_eq!(of.sent(), [""; 0]);
    of.hears(PartitionId(2), Body::StillHeld);
    assert_eq!(of.sent(), ["decide 3 Standby"]);
}

#[test]
fn a_rollback_or_a_lost_branch_ends_a_transaction_between_its_statements() {
    let mut of = Statements::begin(Level::Memory);
    of.statement(DECIDING, 0, Access::Writes);
    of.0.give_up();
    assert_eq!(of.sent(), ["Abort", "done false"]);
    let mut of = Statements::begin(Level::Memory);
    of.statement(DECIDING, 0, Access::Writes);
    of.0.connection_ended(OTHER);
    assert!(!of.0.is_done());
    of.0.connection_ended(DECIDING);
    assert_eq!(of.sent(), ["Abort", "done false"]);
}

#[test]
fn a_branch_whose_last_action_has_failed_does_not_vote() {
    for has_failed in [false, true] {
        let mut of = Of::open(OTHER, 3, &[]);
        let action = vec![Op::Add(0, 1)];
        let act = Act {
            opening: Opening(3),
            low: 1,
            deciding: DECIDING,
            request: None,
            level: Level::Standby,
            sequence: 0,
            action,
            vote: Some(branches()),
        };
        of.hears(COORDINATOR, Body::Act(act), 0);
        let ran = Ran { reply: Answer::default(), access: Access::Writes, has_failed, is_passing: false };
        of.0.ran(ID, 0, Some(ran), Duration::ZERO);
        let effects = of.effects();
        assert_eq!(effects.len(), 1);
        let expected = if has_failed { "Reply" } else { "Reserve" };
        assert!(effects[0].starts_with(expected), "{effects:?}");
        // It is open until its coordinator ends it.
        assert_eq!(of.hears(COORDINATOR, Body::Abort, 0), ["abort, 0 rows"]);
    }
}

#[test]
fn a_branch_that_has_written_is_not_confirmed() {
    let mut of = Of::open(DECIDING, 3, &[]);
    let action = vec![Op::Add(0, 1)];
    let act = Act {
        opening: Opening(3),
        low: 1,
        deciding: DECIDING,
        request: None,
        level: Level::Standby,
        sequence: 0,
        action,
        vote: None,
    };
    of.hears(COORDINATOR, Body::Act(act), 0);
    of.0.ran(
        ID,
        0,
        Some(Ran { reply: Answer::default(), access: Access::Writes, has_failed: false, is_passing: false }),
        Duration::ZERO,
    );
    of.effects();
    let confirm = Body::Confirm { opening: Opening(3), level: Level::Standby };
    assert_eq!(of.hears(COORDINATOR, confirm, 0), ["abort, 0 rows", "NoBranch"]);
}

/// A call of one partition with a number, at a level.
fn numbered(request: Request, level: Level) -> Body<Bank> {
    Body::Call { opening: Opening(3), low: 1, request: Some(request), level, action: vec![Op::Add(0, 1)] }
}

/// Has a participant hear a call, and gives what it does.
fn calls(of: &mut Of, number: u64, body: Body<Bank>, now: Duration) -> Vec<String> {
    let (transaction, to) = (TransactionId { number, ..ID }, Address::Partition(DECIDING));
    of.0.receive(Message { from: COORDINATOR, to, transaction, body }, now);
    of.effects()
}

#[test]
fn a_request_is_answered_from_its_row_at_the_level_that_it_is_sent_again_at() {
    let request = Request { session: 9, number: 1, issued: Duration::ZERO };
    let mut of = Of::open(DECIDING, 3, &[]);
    assert_eq!(calls(&mut of, 1, numbered(request, Level::Memory), Duration::ZERO), ["begin", "run"]);
    let ran = Ran { reply: Answer::default(), access: Access::Writes, has_failed: false, is_passing: false };
    of.0.ran(ID, 0, Some(ran), Duration::ZERO);
    of.0.reserved(ID, true, Duration::ZERO);
    of.effects();
    assert!(of.step(Step::Commit)[0].starts_with("Outcome(Answered"));
    for (number, level) in [(2, Level::Disk), (3, Level::Standby), (4, Level::Memory)] {
        let again = calls(&mut of, number, numbered(request, level), Duration::ZERO);
        assert_eq!(again, [format!("await {level:?}")]);
        of.0.durable(TransactionId { number, ..ID }, Step::Answer, Duration::ZERO);
        let answered = of.effects();
        assert!(answered.len() == 1 && answered[0].starts_with("Outcome(Answered"), "{answered:?}");
    }
    // Over several partitions, too, and for a decision that an earlier opening was asked for.
    let act = Act {
        opening: Opening(3),
        low: 1,
        deciding: DECIDING,
        request: Some(request),
        level: Level::Disk,
        sequence: 0,
        action: vec![Op::Add(0, 1)],
        vote: None,
    };
    assert_eq!(calls(&mut of, 5, Body::Act(act), Duration::ZERO), ["await Disk"]);
    let (branches, verdict) = (branches(), Verdict::Commit(Answer::default()));
    let decide = Body::Decide { branches, request: Some(request), verdict };
    assert_eq!(calls(&mut of, 6, decide, Duration::ZERO), ["await Standby"]);
}

#[test]
fn answers_that_expire_together_go_some_at_a_time() {
    let count = EXPIRED_MAX as u64 + 10;
    let answer = |session| {
        RowChange::Answer(Request { session, number: 3, issued: Duration::ZERO }, Answer::default())
    };
    let rows: Vec<_> = (0..count).map(answer).collect();
    let mut of = Of::open(DECIDING, 3, &rows);
    let late = LIFETIME + CLOCK_MARGIN + Duration::from_secs(1);
    let written = |of: &mut Of| -> Vec<usize> {
        of.0.tick(late);
        let rows = |effect| match effect {
            Effect::Write { rows, step: Step::Expired, .. } => {
                assert!(rows.iter().all(|row| matches!(row, RowChange::Expired { number: 3, .. })));
                rows.len()
            }
            effect => panic!("{effect:?}"),
        };
        of.0.take_effects().into_iter().map(rows).collect()
    };
    assert_eq!(written(&mut of), [EXPIRED_MAX]);
    assert_eq!(written(&mut of), [0; 0], "they are being removed");
    of.step(Step::Expired);
    assert_eq!(written(&mut of), [10]);
    of.step(Step::Expired);
    assert_eq!(written(&mut of), [0; 0]);
}

#[test]
fn a_late_removal_leaves_the_answer_of_a_later_request() {
    let answer =
        |number| RowChange::Answer(Request { session: 9, number, issued: Duration::ZERO }, Answer::default());
    let mut rows = SystemRows::<Bank>::default();
    rows.apply(&answer(2));
    rows.apply(&RowChange::Expired { session: 9, number: 1 });
    assert_eq!(rows.answers.len(), 1);
    rows.apply(&RowChange::Expired { session: 9, number: 2 });
    assert_eq!(rows.answers.len(), 0);
}

#[test]
fn requests_of_clocks_that_are_far_ahead_do_not_run() {
    let mut of = Of::open(DECIDING, 3, &[]);
    let now = Duration::from_secs(1_000_000);
    let issued = |issued| numbered(Request { session: 9, number: 1, issued }, Level::Memory);
    for (number, ahead) in [(1, CLOCK_MARGIN + Duration::from_secs(1)), (2, Duration::MAX - now)] {
        assert_eq!(calls(&mut of, number, issued(now + ahead), now), ["Outcome(TooOld)"]);
    }
    assert_eq!(calls(&mut of, 3, issued(now + CLOCK_MARGIN), now), ["begin", "run"]);
}

#[test]
fn a_reply_that_passes_is_no_answer_for_good() {
    let request = Request { session: 9, number: 1, issued: Duration::ZERO };
    let mut of = Of::open(DECIDING, 3, &[]);
    let call = || numbered(request, Level::Memory);
    assert_eq!(calls(&mut of, 1, call(), Duration::ZERO), ["begin", "run"]);
    // Another sending waits for it.
    assert_eq!(calls(&mut of, 2, call(), Duration::ZERO), [""; 0]);
    let ran = Ran { reply: Answer::default(), access: Access::Reads, has_failed: true, is_passing: true };
    of.0.ran(ID, 0, Some(ran), Duration::ZERO);
    let effects = of.effects();
    assert_eq!(effects[..3], ["abort, 0 rows", "begin", "run"]);
    assert!(effects.len() == 4 && effects[3].starts_with("Outcome(Answered"), "{effects:?}");
}
