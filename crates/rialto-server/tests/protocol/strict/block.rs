//! A client's transaction block as a script's session.

use super::line::{Answer, Line, Refused, Way};
use super::observed::{Key, ROWS, Row, Version};
use super::scans::RangeScan;
use super::script::{Put, Session};
use super::statements::{Statement, count, graves_of, rows_of};

/// A client in a transaction block.
pub struct Block<'a> {
    pub line: &'a mut Line,
    way: Way,
    savepoints: usize,
    /// Whether portals outlive their Sync, as in a block.
    keeps_portals: bool,
}

impl<'a> Block<'a> {
    pub fn new(line: &'a mut Line, way: Way) -> Block<'a> {
        Block { line, way, savepoints: 0, keeps_portals: true }
    }

    /// Statements outside a block: each is a transaction.
    pub fn without_begin(line: &'a mut Line, way: Way) -> Block<'a> {
        Block { keeps_portals: false, ..Block::new(line, way) }
    }

    fn statement(&mut self, statement: &Statement) -> Answer {
        self.line.statement(self.way, statement)
    }

    /// A statement that may find its key in use: behind a savepoint, so that the block goes on.
    fn put(&mut self, statement: &Statement) -> Result<Put, Refused> {
        self.line.run("savepoint try")?;
        match self.statement(statement) {
            Ok(answer) => {
                self.line.run("release savepoint try")?;
                Ok(if count(&answer) == 1 { Put::Done } else { Put::Missing })
            }
            Err(Refused::Error { code, text }) if code == "23505" => {
                self.line.run("rollback to savepoint try")?;
                self.line.run("release savepoint try")?;
                Ok(if text.contains("by_tag") { Put::TagTaken } else { Put::KeyTaken })
            }
            Err(refused) => Err(refused),
        }
    }
}

impl Session for Block<'_> {
    type Error = Refused;

    fn get(&mut self, key: Key, to_change: bool) -> Result<Option<Row>, Refused> {
        let answer = self.statement(&Statement::get(key, to_change))?;
        Ok(rows_of(&answer).pop().map(|(_, row)| row))
    }

    fn grave(&mut self, key: Key) -> Result<Vec<Version>, Refused> {
        let mut graves = self.graves(key.table, key.id, key.id)?;
        Ok(graves.pop().expect("each key has a grave").1)
    }

    fn graves(&mut self, table: usize, low: i32, high: i32) -> Result<Vec<(i32, Vec<Version>)>, Refused> {
        self.statement(&Statement::graves(table, low, high)).map(|answer| graves_of(&answer))
    }

    fn scan(&mut self, scan: &RangeScan) -> Result<Vec<(i32, Row)>, Refused> {
        let statement = Statement::scan(scan);
        let answer = match self.keeps_portals && scan.breaks && self.way != Way::Simple {
            true => self.line.in_pieces(&statement, scan.limit.map_or(100, |limit| limit as u32 / 2 + 1)),
            false => self.statement(&statement),
        };
        answer.map(|answer| rows_of(&answer))
    }

    fn insert(&mut self, key: Key, row: &Row) -> Result<Put, Refused> {
        self.put(&Statement::insert(key, row))
    }

    fn update(&mut self, key: Key, row: &Row) -> Result<Put, Refused> {
        self.put(&Statement::update(key, row))
    }

    fn rename(&mut self, from: Key, to: Key, row: &Row) -> Result<Put, Refused> {
        self.put(&Statement::rename(from, to, row))
    }

    fn delete(&mut self, key: Key) -> Result<bool, Refused> {
        Ok(count(&self.statement(&Statement::delete(key))?) == 1)
    }

    fn bury(&mut self, key: Key, versions: &[Version]) -> Result<(), Refused> {
        let answer = self.statement(&Statement::bury(key, versions))?;
        assert_eq!(count(&answer), 1, "{key:?} has a grave");
        Ok(())
    }

    fn truncate(&mut self, table: usize) -> Result<(), Refused> {
        self.line.run(&format!("truncate {}", ROWS[table])).map(drop)
    }

    fn savepoint(&mut self) -> Result<(), Refused> {
        self.savepoints += 1;
        self.line.run(&format!("savepoint s{}", self.savepoints)).map(drop)
    }

    fn roll_back(&mut self) -> Result<(), Refused> {
        self.line.run(&format!("rollback to savepoint s{}", self.savepoints))?;
        self.release()
    }

    fn release(&mut self) -> Result<(), Refused> {
        self.savepoints -= 1;
        self.line.run(&format!("release savepoint s{}", self.savepoints + 1)).map(drop)
    }

    fn may_go_on(&self, refused: &Refused) -> bool {
        // The lock was not granted in time, or the statement was cancelled.
        refused.is("55P03") || refused.is("57014")
    }
}
