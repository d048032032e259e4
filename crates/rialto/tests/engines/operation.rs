//! [`Operation`]: what an action does to a row, to its savepoints or to its transaction.

use rialto::io::Random;
use rialto::row::Value;
use rialto::{Durability, Error, LockPolicy, Outputs, Result, Savepoint, Table, Transaction, TxOptions};

/// The output of an action for an operation after whose error it goes on: for lack of memory, for a write set that is
/// too large, or for another error.
pub const NO_MEMORY: i32 = -1;
pub const TOO_LARGE: i32 = -2;
pub const CAUGHT: i32 = -3;

/// An operation on the row with an action's first argument and, if that is the action's whole identifier, `b`.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    pub what: What,
    pub b: i32,
    pub u: Option<i32>,
    pub n: i32,
    pub length: usize,
    /// Goes on after an error.
    pub caught: bool,
    /// Is rolled back to a savepoint.
    pub undone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    Insert,
    /// Sets all columns outside of keys.
    Update,
    /// Sets a column that only the other index has.
    SetN,
    Delete,
    Read,
    /// Moves the row to another key: with the same first column, or with this one.
    Move(Option<i32>),
    /// Fails.
    Abort,
    /// Fails if the first argument is lower.
    AbortBelow(i32),
    /// Chooses something for the transaction.
    Choose(Choice),
    /// Cancels the transaction, and does not report it.
    Cancel,
    /// Makes a savepoint.
    Save,
    /// Rolls back to the last savepoint, or to one this many before it.
    TakeBack(usize),
    /// Forgets the last savepoint.
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// The level of the commit, and how locks are waited for.
    Durability(Durability),
    /// Whether the transaction may write from here on.
    ReadOnly(bool),
}

impl What {
    /// Whether it is about savepoints.
    pub fn is_step(self) -> bool {
        matches!(self, What::Save | What::TakeBack(_) | What::Release)
    }

    /// Whether it is a write of a row.
    pub fn writes(self) -> bool {
        matches!(self, What::Insert | What::Update | What::SetN | What::Delete | What::Move(_))
    }
}

/// A few operations. Some have savepoints that span others, caught errors among them.
pub fn any_operations(random: &mut Random) -> Vec<Operation> {
    if random.chance(3, 4) {
        return (0..1 + random.below(3)).map(|_| any_operation(random)).collect();
    }
    let any = |random: &mut Random, nth: u64| {
        let what = match random.below(6) {
            _ if nth == 0 => What::Save,
            0 => What::Save,
            1 => What::TakeBack(random.below(3) as usize),
            2 => What::Release,
            _ => return any_operation(random),
        };
        Operation { what, undone: false, ..any_operation(random) }
    };
    (0..3 + random.below(5)).map(|nth| any(random, nth)).collect()
}

fn any_operation(random: &mut Random) -> Operation {
    Operation {
        what: match random.below(20) {
            0..7 => What::Insert,
            7..11 => What::Update,
            11..12 => What::SetN,
            12..15 => What::Delete,
            15..16 => What::Read,
            16..18 => What::Move(random.chance(1, 2).then(|| random.below(8) as i32)),
            18 => What::Choose(match random.below(8) {
                0..3 => Choice::Durability(Durability::Memory),
                3..6 => Choice::Durability(Durability::Disk),
                6 => Choice::ReadOnly(true),
                _ => Choice::ReadOnly(false),
            }),
            _ => match random.chance(1, 4) {
                true => What::Abort,
                false => What::Read,
            },
        },
        b: random.below(3) as i32,
        u: random.chance(7, 8).then(|| random.below(16) as i32),
        n: random.below(16) as i32,
        length: random.below(80) as usize,
        caught: random.chance(9, 10),
        undone: random.chance(1, 8),
    }
}

/// Runs operations one after the other, each on the row of its key.
pub fn run_all<'a>(
    operations: impl Iterator<Item = (&'a Operation, (i32, i32))>,
    tx: &mut Transaction,
    table: &Table,
    outputs: &mut Outputs,
) -> Result<()> {
    let mut savepoints = Vec::new();
    for (operation, key) in operations {
        if operation.what.is_step() {
            operation.step(tx, &mut savepoints)?;
        } else {
            operation.run(tx, table, key, outputs)?;
        }
    }
    Ok(())
}

impl Operation {
    fn step(&self, tx: &mut Transaction, savepoints: &mut Vec<Savepoint>) -> Result<()> {
        match self.what {
            What::TakeBack(before) if before < savepoints.len() => {
                savepoints.truncate(savepoints.len() - before);
                tx.rollback_to(savepoints.last().expect("it is there"))
            }
            What::Release => savepoints.pop().map_or(Ok(()), |last| tx.release_savepoint(last)),
            What::Save => {
                savepoints.push(tx.savepoint());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn run(&self, tx: &mut Transaction, table: &Table, key: (i32, i32), outputs: &mut Outputs) -> Result<()> {
        let savepoint = self.undone.then(|| tx.savepoint());
        let outcome = self.do_it(tx, table, key, outputs);
        if let Some(savepoint) = savepoint {
            tx.rollback_to(&savepoint)?;
        }
        let caught = match outcome {
            Err(Error::MemoryLimit { .. }) if self.caught => NO_MEMORY,
            Err(Error::WriteSetTooLarge { .. }) if self.caught => TOO_LARGE,
            Err(Error::DuplicateKey { .. } | Error::Aborted { .. } | Error::ReadOnly) if self.caught => {
                CAUGHT
            }
            outcome => return outcome,
        };
        outputs.push(caught);
        Ok(())
    }

    fn do_it(
        &self,
        tx: &mut Transaction,
        table: &Table,
        (a, b): (i32, i32),
        outputs: &mut Outputs,
    ) -> Result<()> {
        let text = || Value::Text("x".repeat(self.length));
        let u = self.u.map_or(Value::Null, Value::Int4);
        let found = match self.what {
            What::Insert => {
                tx.insert(table, &[a.into(), b.into(), u, self.n.into(), text()])?;
                true
            }
            What::Update => tx.update(table, (a, b), &[(2, u), (3, self.n.into()), (4, text())])?,
            What::SetN => tx.update(table, (a, b), &[(3, self.n.into())])?,
            What::Delete => tx.delete(table, (a, b))?,
            What::Move(None) => tx.update(table, (a, b), &[(1, self.b.into()), (2, u)])?,
            What::Move(Some(to)) => {
                tx.update(table, (a, b), &[(0, to.into()), (1, self.b.into()), (2, u)])?
            }
            What::AbortBelow(bound) if a >= bound => true,
            What::Abort | What::AbortBelow(_) => return Err(Error::aborted("as the plan says")),
            What::Choose(Choice::Durability(durability)) => {
                tx.set_durability(durability);
                tx.set_lock_policy(LockPolicy::Wait);
                true
            }
            What::Cancel => {
                tx.canceller().cancel();
                true
            }
            What::Choose(Choice::ReadOnly(read_only)) => {
                tx.choose(&TxOptions { read_only, ..TxOptions::default() })?;
                true
            }
            What::Read => {
                let n = tx.look(table, (a, b), |row| row.get_i32(3))?.transpose()?;
                outputs.push(n);
                n.is_some()
            }
            What::Save | What::TakeBack(_) | What::Release => unreachable!("they are about no row"),
        };
        outputs.push(i32::from(found));
        Ok(())
    }
}
