//! A second session, which changes tables while a statement of the first session is under way: after its plan is made,
//! or after its first look at the table, whose lock the statement then waits for.

use std::time::Duration;

use rialto::row::Value;
use rialto_sql::{Session, SqlError};

use super::{Client, run};

impl Client {
    /// A few definitions of an existing table that succeed, for the other session to run in one transaction beside the
    /// next statement. The statement sees the table as it is after them. The first session is in no block.
    pub fn draw_beside(&mut self) {
        let name = self.any_name();
        if !self.tables.contains_key(name) {
            return self.define();
        }
        let mut definitions = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let (sql, comes) = self.definition(name);
            if let Ok((tables, _)) = comes {
                self.committed.clone_from(&tables);
                self.tables = tables;
                self.story.push(format!("beside the next: {sql}"));
                definitions.push(sql);
            }
        }
        self.definitions_beside += definitions.len() as u64;
        self.beside = definitions;
        if self.random.chance(1, 2) {
            self.select(name)
        } else {
            self.change_rows_of(name)
        }
        assert!(self.beside.is_empty(), "the statement has taken them along");
    }

    /// Runs a statement, with the definitions beside it.
    pub fn run(&mut self, sql: &str, is_shared: bool) -> Result<Vec<Vec<Value>>, SqlError> {
        let definitions = std::mem::take(&mut self.beside);
        let define = |other: &mut Session| definitions.iter().for_each(|sql| sure(other, sql));
        let Client { session, other, random, .. } = self;
        if definitions.is_empty() || random.chance(1, 3) {
            return run(session, sql, is_shared, || define(other));
        }
        sure(other, "begin");
        define(other);
        let pause = Duration::from_micros(random.below(1_500));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(pause);
                sure(other, "commit");
            });
            run(session, sql, is_shared, || ())
        })
    }
}

/// Runs a statement that has to succeed.
fn sure(session: &mut Session, sql: &str) {
    if let Err(error) = run(session, sql, false, || ()) {
        panic!("{sql}: {error}");
    }
}
