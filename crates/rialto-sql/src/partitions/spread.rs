//! [`Spread`]: rows on their way to the partitions in which they are to lie.

use std::sync::Arc;

use rialto::row::{RowView, Schema, Value, encode};

use super::branch::home;
use super::known::KnownTable;
use super::message::{Answer, EncodedRows, Insert, PartitionNumber, Reply, Work};
use super::over::{Header, Over, unexpected};
use super::placement::Placement;
use super::wire::Cause;
use crate::error::{Result, SqlError};

/// Rows are sent when they have so many bytes in all.
const BATCH_BYTES: usize = 1 << 20;

/// An error, and which of the rows since the last [`Spread::send`] it is about, from 0.
pub(crate) struct NotInserted {
    pub(crate) error: Box<SqlError>,
    pub(crate) row: Option<usize>,
}

impl From<SqlError> for NotInserted {
    fn from(error: SqlError) -> NotInserted {
        NotInserted { error: Box::new(error), row: None }
    }
}

/// The rows for one partition, and their numbers among all rows.
#[derive(Default)]
struct Batch {
    rows: EncodedRows,
    numbers: Vec<u32>,
}

/// Rows that wait until there are enough of them to send.
pub(crate) struct Spread {
    table: String,
    known: Arc<KnownTable>,
    schema: Arc<Schema>,
    count: u32,
    /// For rows without a key.
    nearest: PartitionNumber,
    /// By partition. Of a replicated table only the first one is used.
    batches: Vec<Batch>,
    waiting: usize,
    bytes: usize,
    /// Whether rows were sent.
    has_sent: bool,
    encoded: Vec<u8>,
}

impl Spread {
    pub(crate) fn new(table: String, schema: Arc<Schema>, known: Arc<KnownTable>, over: &Over) -> Spread {
        let count = over.count();
        let batches = (0..count).map(|_| Batch::default()).collect();
        let nearest = over.handiest();
        let (waiting, bytes, has_sent, encoded) = (0, 0, false, Vec::new());
        Spread { table, known, schema, count, nearest, batches, waiting, bytes, has_sent, encoded }
    }

    /// Adds a row. It is checked against its columns, and by its partition later.
    pub(crate) fn push(&mut self, values: &[Value]) -> Result<()> {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        encode(&self.schema, values, &mut encoded)?;
        self.push_encoded(&encoded);
        self.encoded = encoded;
        Ok(())
    }

    /// Adds a row that is encoded.
    pub(crate) fn push_encoded(&mut self, row: &[u8]) {
        let partition = match &self.known.placement {
            Placement::Replicated => PartitionNumber::FIRST,
            Placement::Anywhere => self.nearest,
            Placement::By(routing) => home(&RowView::new(&self.schema, row), routing, self.count),
        };
        let batch = &mut self.batches[partition.0 as usize];
        batch.rows.push(row);
        batch.numbers.push(self.waiting as u32);
        self.waiting += 1;
        self.bytes += row.len() + size_of::<u32>();
    }

    /// Whether it is time to send the rows.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    /// Sends all rows that wait. `is_end` says that no more come.
    pub(crate) fn send(&mut self, over: &mut Over, header: &Header, is_end: bool) -> Result<(), NotInserted> {
        let is_first = !std::mem::replace(&mut self.has_sent, true);
        (self.waiting, self.bytes) = (0, 0);
        let mut works = Vec::new();
        let mut numbers = Vec::new();
        for (partition, batch) in self.batches.iter_mut().enumerate() {
            let Batch { rows, numbers: of_batch } = std::mem::take(batch);
            if rows.is_empty() {
                continue;
            }
            let insert = Insert { table: self.table.clone(), expects: self.known.digest, rows };
            works.push((PartitionNumber(partition as u32), Work::Insert(insert)));
            numbers.push(of_batch);
        }
        if works.is_empty() {
            return Ok(());
        }
        if self.known.placement == Placement::Replicated && self.count > 1 {
            return self.send_to_all(over, header, works.swap_remove(0).1, &numbers[0]);
        }
        let then_commit = header.is_last && is_first && is_end && works.len() == 1 && !over.is_open();
        judge(over.run(header, works, then_commit)?, |reply, row| numbers[reply].get(row).copied())
    }

    /// Sends rows to all partitions, to the first one before the others.
    fn send_to_all(
        &self,
        over: &mut Over,
        header: &Header,
        work: Work,
        numbers: &[u32],
    ) -> Result<(), NotInserted> {
        let number = |_: usize, row: usize| numbers.get(row).copied();
        judge(over.run(header, vec![(PartitionNumber::FIRST, work.clone())], false)?, number)?;
        let others = over.all().into_iter().skip(1).map(|partition| (partition, work.clone()));
        let others = others.collect();
        judge(over.run(header, others, false)?, number)
    }
}

/// The error of the first row that has one: rows are told of in the order in which they were given.
fn judge(replies: Vec<Reply>, number: impl Fn(usize, usize) -> Option<u32>) -> Result<(), NotInserted> {
    let mut first: Option<(u64, NotInserted)> = None;
    for (at, reply) in replies.into_iter().enumerate() {
        let told = match reply.answer {
            Ok(Answer::Done { .. }) => continue,
            Ok(_) => return Err(unexpected().into()),
            Err(told) => told,
        };
        let row = told.row.and_then(|row| number(at, row as usize));
        // An error that is about no row comes first, and before it that of an outdated definition.
        let order = match (told.cause, row) {
            (Cause::Stale, _) => 0,
            (_, None) => 1,
            (_, Some(row)) => 2 + u64::from(row),
        };
        if first.as_ref().is_none_or(|(before, _)| order < *before) {
            first =
                Some((order, NotInserted { error: Box::new(told.into()), row: row.map(|row| row as usize) }));
        }
    }
    first.map_or(Ok(()), |(_, not_inserted)| Err(not_inserted))
}
