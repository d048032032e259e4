//! Statements that read and write no rows: blocks, settings, SHOW, VACUUM. Definitions are in `ddl`.

use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rialto::backup::{BytesDone, CopyObserver};
use rialto::row::Value;
use rialto::{BackupKind, BackupOptions, BackupReport, Error, GroupCommitDesign, MoveOptions};

use super::block::{Block, NamedSavepoint};
use super::cache::PlanCache;
use super::setting_store::SettingStore;
use super::settings;
use super::{Closing, Session, Tag};
use crate::bind::OutputColumn;
use crate::error::{Result, Severity, SqlError, SqlState};
use crate::parse::{Access, Discard, Modes, Name, SetScope, SetValue, Statement};
use crate::prepared::{Prepared, find_table};
use crate::run::RowSink;
use crate::values::SqlType;

/// How often a client is told how far its backup has come.
const TELL_EVERY: Duration = Duration::from_secs(10);

impl Session {
    pub(super) fn utility(
        &mut self,
        plan: &Prepared,
        statement: &Statement,
        sink: &mut dyn RowSink,
    ) -> Result<Tag> {
        match statement {
            Statement::Begin(command, modes) => {
                if self.block == Block::Explicit {
                    self.warn(SqlState::ActiveTransaction, "there is already a transaction in progress");
                }
                self.block = Block::Explicit;
                self.cancel.set_in_block(false);
                self.set_modes(*modes)?;
                Ok(Tag::Word(command))
            }
            Statement::Commit => {
                if self.block != Block::Explicit {
                    self.warn(SqlState::NoActiveTransaction, "there is no transaction in progress");
                }
                self.portals_closed = Some(0);
                if self.failed {
                    self.roll_back()?;
                    return Ok(Tag::Word("ROLLBACK"));
                }
                self.commit()?;
                Ok(Tag::Word("COMMIT"))
            }
            Statement::Rollback => {
                if self.block != Block::Explicit {
                    self.warn(SqlState::NoActiveTransaction, "there is no transaction in progress");
                }
                self.portals_closed = Some(0);
                self.roll_back()?;
                Ok(Tag::Word("ROLLBACK"))
            }
            Statement::Savepoint(name) => self.savepoint(name),
            Statement::Release(name) => {
                let at = self.find_savepoint(name, "RELEASE SAVEPOINT")?;
                let released: Vec<NamedSavepoint> = self.savepoints.drain(at..).collect();
                if let (Some(tx), Some(mark)) = (&mut self.tx, released[0].mark) {
                    tx.release_savepoint(mark)?;
                }
                Ok(Tag::Word("RELEASE"))
            }
            Statement::RollbackTo(name) => self.rollback_to(name),
            Statement::SetTransaction(modes) => {
                self.warn_outside_block("SET TRANSACTION");
                self.set_modes(*modes)?;
                Ok(Tag::Word("SET"))
            }
            Statement::SetSessionModes(modes) => {
                if let Some(access) = modes.access {
                    self.change_settings(|store| store.set_default_access(access))?;
                }
                Ok(Tag::Word("SET"))
            }
            Statement::Set(scope, name, value) => {
                if *scope == SetScope::Local {
                    self.warn_outside_block("SET LOCAL");
                }
                self.change_setting(*scope, name, value)?;
                self.check_replicas(&name.text)?;
                if *value != SetValue::Default {
                    self.tell_if_ignored(&name.text);
                }
                Ok(Tag::Word("SET"))
            }
            Statement::AlterSystem(name, value) => {
                self.refuse_in_block("ALTER SYSTEM")?;
                let by = settings::raised_stalls(name, value)?;
                self.database.raise_stalls(by)?;
                if !by.is_zero() {
                    self.tell_if_ignored(&name.text);
                }
                self.done_for_good("ALTER SYSTEM")
            }
            Statement::Backup { kind, to } => {
                self.refuse_in_block("BACKUP")?;
                if !Path::new(to).is_absolute() {
                    let message = format!(
                        "the directory of a backup, \"{to}\", is not an absolute path of the server's"
                    );
                    return Err(SqlError::new(SqlState::InvalidParameterValue, message));
                }
                let report = self.back_up(*kind, to, sink)?;
                self.notice(report.to_string());
                self.done_for_good("BACKUP")
            }
            // Other transactions use the table meanwhile: so it goes in transactions of its own.
            Statement::SetResidence { table, residence } if self.is_alone() && self.tx.is_none() => {
                let canceller = self.database.canceller();
                self.cancel.set(Some(canceller.clone()));
                let options = MoveOptions { transaction: self.choices(), canceller: Some(canceller) };
                // A request that came before the canceller existed has set the flag.
                let moved = self.cancel.check().and_then(|()| {
                    find_table(table, self.database.set_residence_with(&table.text, *residence, &options))
                });
                self.cancel.set(None);
                moved?;
                self.done_for_good("ALTER TABLE")
            }
            Statement::ArchiveLog => {
                self.refuse_in_block("ARCHIVE LOG")?;
                self.database.archive_log().map_err(|error| match error {
                    Error::Unsupported { .. } => {
                        SqlError::unsupported("ARCHIVE LOG without the server's --archive")
                    }
                    error => error.into(),
                })?;
                self.done_for_good("ARCHIVE LOG")
            }
            Statement::Reset(name) => {
                match name {
                    Some(name) => self.change_setting(SetScope::Session, name, &SetValue::Default)?,
                    None => self.change_settings(SettingStore::reset_all)?,
                }
                Ok(Tag::Word("RESET"))
            }
            Statement::Deallocate(name) => {
                let (closing, tag) = match name {
                    Some(name) => (Closing::Statement(name.text.clone()), "DEALLOCATE"),
                    None => (Closing::Statements, "DEALLOCATE ALL"),
                };
                self.closings.push(closing);
                Ok(Tag::Word(tag))
            }
            Statement::Close(name) => {
                let (closing, tag) = match name {
                    Some(name) => (Closing::Portal(name.text.clone()), "CLOSE CURSOR"),
                    None => (Closing::Portals, "CLOSE CURSOR ALL"),
                };
                self.closings.push(closing);
                Ok(Tag::Word(tag))
            }
            Statement::Discard(what) => self.discard(*what),
            Statement::Unlisten => Ok(Tag::Word("UNLISTEN")),
            Statement::Show(name) => {
                match name {
                    Some(name) if name.text == settings::COMMIT_POSITION => {
                        let position = self.commit_position()?;
                        sink.row(plan, &[Value::Text(position)])?;
                    }
                    Some(name) => sink.row(plan, &[Value::Text(self.show(&name.text))])?,
                    None => {
                        for name in settings::names() {
                            let values = [Value::Text(name.to_string()), Value::Text(self.show(name))];
                            sink.row(plan, &values)?;
                        }
                    }
                }
                Ok(Tag::Word("SHOW"))
            }
            Statement::Maintain { command, tables } => {
                self.find_to_tell(tables)?;
                let what = match *command {
                    "VACUUM" => {
                        "VACUUM has nothing to do: space of old rows is free as soon as they are gone"
                    }
                    _ => "ANALYZE has nothing to do: plans need no statistics",
                };
                self.notices.push((Severity::Notice, SqlError::new(SqlState::Success, what)));
                Ok(Tag::Word(command))
            }
            other => {
                self.begin()?;
                self.defined = true;
                self.define(other)
            }
        }
    }

    /// Takes a backup on a thread of its own, and tells the client meanwhile how far it has come: at the start, and then
    /// every [`TELL_EVERY`].
    fn back_up(&self, kind: BackupKind, to: &str, sink: &mut dyn RowSink) -> Result<BackupReport> {
        let (tell, told) = channel();
        let observer = CopyObserver::new(move |bytes| {
            // After the client has gone, the receiver has gone, too.
            let _ = tell.send(bytes);
        });
        let options = BackupOptions {
            kind,
            cancelled: Some(self.cancel.flag()),
            observer: Some(observer),
            ..BackupOptions::default()
        };
        let database = &self.database;
        thread::scope(|scope| {
            let copy = || database.backup(to, options);
            let copying = thread::Builder::new()
                .name("backup".to_owned())
                .spawn_scoped(scope, copy)
                .map_err(|error| {
                    let message = format!("a thread for the backup could not be started: {error}");
                    SqlError::new(SqlState::OutOfMemory, message)
                })?;
            let notices = self.settings.current().notices;
            let mut next = Instant::now();
            for BytesDone { done, total } in told {
                let is_end = total == Some(done);
                if is_end || !notices || Instant::now() < next {
                    continue;
                }
                next = Instant::now() + TELL_EVERY;
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                let of = total.map_or(String::new(), |total| format!(" of {:.1}", mib(total)));
                let message = format!("backed up {:.1}{of} MiB", mib(done));
                // A client that has gone does not end its backup: then, too, nothing is told any more.
                if sink.tell(&SqlError::new(SqlState::Success, message)).is_err() {
                    break;
                }
            }
            copying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(SqlError::from)
        })
    }

    fn discard(&mut self, what: Discard) -> Result<Tag> {
        match what {
            Discard::All => {
                self.refuse_in_block("DISCARD ALL")?;
                self.change_settings(SettingStore::reset_all)?;
                self.forget_plans();
                let tag = self.done_for_good("DISCARD ALL")?;
                self.closings.extend([Closing::Portals, Closing::Statements]);
                Ok(tag)
            }
            Discard::Plans => {
                self.forget_plans();
                Ok(Tag::Word("DISCARD PLANS"))
            }
            Discard::Sequences => Ok(Tag::Word("DISCARD SEQUENCES")),
            Discard::Temp => Ok(Tag::Word("DISCARD TEMP")),
        }
    }

    fn forget_plans(&mut self) {
        (self.cache, self.lifted) = (PlanCache::default(), PlanCache::default());
    }

    fn refuse_in_block(&self, command: &str) -> Result<()> {
        if !self.is_alone() {
            let message = format!("{command} cannot run inside a transaction block");
            return Err(SqlError::new(SqlState::ActiveTransaction, message));
        }
        Ok(())
    }

    /// Ends the implicit block of a statement that no rollback undoes, once it is done; the statement is alone in its
    /// block. So neither a cancel request that comes from here on, nor a later statement of its pipeline, turns its
    /// answer into an error.
    fn done_for_good(&mut self, command: &'static str) -> Result<Tag> {
        self.commit()?;
        Ok(Tag::Word(command))
    }

    /// Warns that a command is in force for its own statement only; in a query string, to the end of the string or of
    /// the block.
    fn warn_outside_block(&mut self, command: &str) {
        if self.block != Block::Explicit && !self.cancel.is_in_string() {
            let message = format!("{command} can only be used in transaction blocks");
            self.warn(SqlState::NoActiveTransaction, &message);
        }
    }

    fn warn(&mut self, sqlstate: SqlState, message: &str) {
        self.notices.push((Severity::Warning, SqlError::new(sqlstate, message)));
    }

    fn set_modes(&mut self, modes: Modes) -> Result<()> {
        // Every isolation level is serializable, so only the access mode changes anything.
        match modes.access {
            Some(access) => self.set_access(access),
            None => Ok(()),
        }
    }

    /// Changes the transaction's access mode. As in PostgreSQL, it may become read-only at any time, but read-write
    /// only before its first query.
    fn set_access(&mut self, access: Access) -> Result<()> {
        let has_begun = self.tx.is_some() || self.over.as_ref().is_some_and(|over| over.is_open());
        if has_begun && access == Access::ReadWrite && self.settings.access() == Access::ReadOnly {
            let message = "transaction read-write mode must be set before any query";
            return Err(SqlError::new(SqlState::ActiveTransaction, message));
        }
        self.change_settings(|store| {
            store.set_access(access);
            Ok(())
        })
    }

    fn change_setting(&mut self, scope: SetScope, name: &Name, value: &SetValue) -> Result<()> {
        if name.text == "transaction_read_only" {
            // This setting is the transaction's own, however it is set.
            let access = self.settings.access_of(name, value)?;
            return self.set_access(access);
        }
        self.change_settings(|store| store.set(scope, name, value))
    }

    /// Refuses what a setting says of replicas where there are none, and positions that are of no log of this cluster.
    ///
    /// # Errors
    /// 0A000; 22023.
    pub(super) fn check_replicas(&self, name: &str) -> Result<()> {
        let settings = self.settings.current();
        let after =
            Some(&settings.read_after).filter(|after| name == settings::READ_AFTER && !after.is_empty());
        if after.is_none() && (name != settings::READ_STALENESS || settings.read_staleness.is_none()) {
            return Ok(());
        }
        let partitions = self.over.as_ref().map(|over| &over.partitions);
        let Some((partitions, cluster)) = partitions.and_then(|all| Some((all, all.cluster()?))) else {
            return Err(SqlError::unsupported(format!(
                "{name} in a session without a cluster, which has no replicas,"
            )));
        };
        let Some(after) = after else { return Ok(()) };
        let count = partitions.count();
        let wrong = match after.iter().find(|position| position.partition.0 >= count) {
            _ if after.cluster() != cluster => {
                format!("a position of the cluster {}, and this is {cluster}", after.cluster())
            }
            Some(position) => {
                format!("a position of partition {}, and there are {count}", position.partition.0)
            }
            None => return Ok(()),
        };
        let hint = "A position is of the cluster whose SHOW rialto.commit_position told it; one that was restored from a backup is \
                    another one. RESET rialto.read_after.";
        Err(SqlError::new(SqlState::InvalidParameterValue, format!("{name} is {wrong}")).hint(hint))
    }

    /// Tells the client that the database's group commit design ignores a wait. The value stays set: the database may
    /// be opened with another design.
    fn tell_if_ignored(&mut self, name: &str) {
        let design = self.database.group_commit();
        let honours: fn(GroupCommitDesign) -> bool = match name {
            "rialto.commit_stall" => GroupCommitDesign::honours_stall,
            "rialto.willing_to_wait" => GroupCommitDesign::honours_willing_to_wait,
            settings::RAISE_STALLS => GroupCommitDesign::honours_raised_stalls,
            _ => return,
        };
        if !honours(design) {
            let others = GroupCommitDesign::ALL.into_iter().filter(|design| honours(*design));
            let others: Vec<&str> = others.map(GroupCommitDesign::name).collect();
            self.notice(format!(
                "{name} has no effect with the group commit design {design}; it has with {}",
                others.join(", ")
            ));
        }
    }
}

/// The columns of SHOW.
pub(crate) fn show_columns(name: Option<&Name>) -> Result<Vec<OutputColumn>> {
    let column = |name: &str| OutputColumn { name: name.to_string(), sql_type: SqlType::Text };
    match name {
        Some(name) => {
            settings::check_name(name)?;
            Ok(vec![column(&name.text)])
        }
        None => Ok(vec![column("name"), column("setting")]),
    }
}

#[cfg(test)]
mod tests {
    use rialto::io::MemoryDisk;
    use rialto::{Database, Options};

    use super::*;

    /// Also those of a start-up packet: none is shown that does nothing.
    #[test]
    fn settings_of_replicas_are_refused_without_a_cluster() {
        let options = Options { memory_bytes: 64 << 20, ..Options::default() };
        let database = Database::open_on(MemoryDisk::new(), options).unwrap();
        for (name, value, is_refused) in [
            ("rialto.read_staleness", "1s", true),
            ("rialto.read_staleness", "off", false),
            ("rialto.read_after", "a7:0.1.1", true),
            ("rialto.read_after", "", false),
        ] {
            let mut session = Session::new(database.clone(), "ann", "bank");
            let code = session.set(name, value).err().map(|error| error.sqlstate.code().to_owned());
            assert_eq!(code, is_refused.then(|| "0A000".to_owned()), "{name} = {value}");
        }
    }
}
