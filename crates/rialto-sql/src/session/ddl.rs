//! CREATE, DROP, TRUNCATE and ALTER.

use rialto::row::WhichIndex;
use rialto::{Error, TableDef};

use super::{Session, Tag};
use crate::bind::column_positions;
use crate::error::{Result, Severity, SqlError, SqlState};
use crate::parse::{self, Name, Placing, Statement};
use crate::partitions::{check_index, choose_placement, forget_placement};
use crate::prepared::find_table;

impl Session {
    /// Runs a statement that changes tables or indexes, in the open transaction. From its first lookup on each name
    /// means the same.
    pub(super) fn define(&mut self, statement: &Statement) -> Result<Tag> {
        self.tx.as_mut().expect("the transaction has begun").lock_definitions()?;
        let tag = match statement {
            Statement::Truncate(names) => {
                let tx = self.tx.as_mut().expect("the transaction has begun");
                for name in names {
                    self.cancel.check()?;
                    let table = find_table(name, tx.table(&name.text))?;
                    tx.truncate(&table)?;
                }
                "TRUNCATE TABLE"
            }
            Statement::DropTable { names, if_exists } => {
                for name in names {
                    self.cancel.check()?;
                    let tx = self.tx.as_mut().expect("the transaction has begun");
                    match tx.table(&name.text).map(|_| ()) {
                        Ok(()) => {
                            tx.drop_table(&name.text)?;
                            if self.is_branch {
                                forget_placement(tx, &name.text)?;
                            }
                        }
                        Err(Error::NoSuchTable { .. }) => {
                            self.absent("table", name, *if_exists, SqlState::UndefinedTable)?
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                "DROP TABLE"
            }
            Statement::DropIndex { names, if_exists } => {
                for name in names {
                    self.cancel.check()?;
                    let tx = self.tx.as_mut().expect("the transaction has begun");
                    match tx.drop_index(&name.text) {
                        Err(Error::NoSuchIndex { .. }) => {
                            self.absent("index", name, *if_exists, SqlState::UndefinedObject)?
                        }
                        other => other?,
                    }
                }
                "DROP INDEX"
            }
            Statement::AddPrimaryKey { table, columns } => {
                let tx = self.tx.as_mut().expect("the transaction has begun");
                let found = find_table(table, tx.table(&table.text))?;
                if found.schema().primary_key().is_some() {
                    let message =
                        format!("multiple primary keys for table \"{}\" are not allowed", table.text);
                    return Err(SqlError::new(SqlState::InvalidDefinition, message).at(table.position));
                }
                let positions = column_positions(&found.schema(), columns)?;
                if self.is_branch {
                    check_index(tx, &found.schema(), &positions, WhichIndex::Primary)?;
                }
                tx.add_primary_key(&table.text, &texts(columns)).map_err(not_built)?;
                "ALTER TABLE"
            }
            Statement::SetResidence { table, residence } => {
                let tx = self.tx.as_mut().expect("the transaction has begun");
                find_table(table, tx.table(&table.text))?;
                tx.set_residence(&table.text, *residence)?;
                "ALTER TABLE"
            }
            Statement::CreateTable(table) => {
                self.create_table(table)?;
                "CREATE TABLE"
            }
            Statement::CreateIndex(index) => {
                self.create_index(index)?;
                "CREATE INDEX"
            }
            _ => return Err(SqlError::new(SqlState::Internal, "the statement defines nothing")),
        };
        Ok(Tag::Word(tag))
    }

    fn absent(&mut self, what: &str, name: &Name, if_exists: bool, sqlstate: SqlState) -> Result<()> {
        if if_exists {
            self.notice(format!("{what} \"{}\" does not exist, skipping", name.text));
            return Ok(());
        }
        let message = format!("{what} \"{}\" does not exist", name.text);
        Err(SqlError::new(sqlstate, message))
    }

    pub(super) fn notice(&mut self, message: String) {
        self.notices.push((Severity::Notice, SqlError::new(SqlState::Success, message)));
    }

    fn create_table(&mut self, table: &parse::CreateTable) -> Result<()> {
        let name = &table.name;
        let definition = TableDef {
            name: name.text.clone(),
            columns: table.columns.clone(),
            primary_key: table
                .primary_key
                .as_ref()
                .map(|key| key.iter().map(|column| column.text.clone()).collect()),
            indexes: Vec::new(),
            fill_percent: table.fill_percent,
            residence: table.residence,
        };
        let definition =
            table.unique.iter().map(|columns| texts(columns)).fold(definition, |table, columns| {
                let index = format!("{}_{}_key", name.text, columns.join("_"));
                table.with_index(index, &columns, true)
            });
        if let Some(placing) = &table.placing
            && !self.is_branch
        {
            let option = match placing {
                Placing::By(_) => "partition_by",
                Placing::Replicated => "replicated",
            };
            let what = format!("storage option {option} without partitions");
            return Err(SqlError::unsupported(what).hint("docs/partitions.md says what it is for."));
        }
        let tx = self.tx.as_mut().expect("the transaction has begun");
        match tx.create_table(&definition) {
            Ok(created) if self.is_branch => choose_placement(tx, &created.schema(), table.placing.as_ref()),
            Err(Error::NameTaken { name: ref taken }) if table.if_not_exists && *taken == name.text => {
                self.notice(format!("relation \"{}\" already exists, skipping", name.text));
                Ok(())
            }
            Err(Error::NameTaken { name }) => Err(taken(&name)),
            other => Ok(other.map(drop)?),
        }
    }

    fn create_index(&mut self, index: &parse::CreateIndex) -> Result<()> {
        let tx = self.tx.as_mut().expect("the transaction has begun");
        let table = find_table(&index.table, tx.table(&index.table.text))?;
        let positions = column_positions(&table.schema(), &index.columns)?;
        if index.unique && self.is_branch {
            check_index(tx, &table.schema(), &positions, WhichIndex::Secondary(0))?;
        }
        parse::check_index_count(table.schema().indexes().len() + 1, index.table.position)?;
        let columns = texts(&index.columns);
        if let Some(name) = &index.name {
            return match tx.create_index(&index.table.text, &name.text, &columns, index.unique) {
                Err(Error::NameTaken { .. }) if index.if_not_exists => {
                    self.notice(format!("relation \"{}\" already exists, skipping", name.text));
                    Ok(())
                }
                Err(Error::NameTaken { .. }) => Err(taken(&name.text)),
                other => other.map_err(not_built),
            };
        }
        // A free name, made as in PostgreSQL.
        for number in 0.. {
            let suffix = if number == 0 { String::new() } else { number.to_string() };
            let name = format!("{}_{}_idx{suffix}", index.table.text, columns.join("_"));
            match tx.create_index(&index.table.text, &name, &columns, index.unique) {
                Err(Error::NameTaken { .. }) => {}
                other => return other.map_err(not_built),
            }
        }
        unreachable!("some name is free")
    }
}

fn texts(names: &[Name]) -> Vec<&str> {
    names.iter().map(|name| name.text.as_str()).collect()
}

/// The error of rows that keep an index from being built, in PostgreSQL's words.
fn not_built(error: Error) -> SqlError {
    let message = match &error {
        Error::DuplicateKey { index, .. } => format!("could not create unique index \"{index}\""),
        Error::NotNull { table, column } => {
            format!("column \"{column}\" of relation \"{table}\" contains null values")
        }
        _ => return error.into(),
    };
    let detail = match &error {
        Error::DuplicateKey { key, .. } => Some(format!("Key {key} is duplicated.")),
        _ => None,
    };
    SqlError { message, detail, ..SqlError::from(error) }
}

fn taken(name: &str) -> SqlError {
    let message = format!("relation \"{name}\" already exists");
    SqlError::new(SqlState::DuplicateTable, message)
}
