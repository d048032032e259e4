//! [`SettingStore`]: a session's settings, and the changes that its transaction has made.
//!
//! Invariant: a change is in force at once. A rollback of the block undoes it, and so does a rollback to a savepoint
//! that is older than the change. A change by SET LOCAL ends with the block, however the block ends. All settings
//! follow these rules, the transaction's access mode too.

use std::sync::Arc;

use rialto::fault_injection;

use super::settings::{self, Settings};
use crate::error::Result;
use crate::parse::{Access, Name, SetScope, SetValue};

/// The settings at one moment.
#[derive(Clone)]
pub(super) struct SettingMark {
    /// In force now.
    current: Arc<Settings>,
    /// In force once the block has committed: `current` without the changes by SET LOCAL.
    kept: Arc<Settings>,
    /// The transaction's access mode, `transaction_read_only`.
    access: Access,
}

/// A session's settings.
pub(super) struct SettingStore {
    now: SettingMark,
    /// As they were before the block's first change; `None` if the block has changed none.
    before: Option<Arc<Settings>>,
    /// As the start-up packet left them: the values of RESET and TO DEFAULT.
    start: Arc<Settings>,
}

impl Default for SettingStore {
    fn default() -> SettingStore {
        let start = Arc::<Settings>::default();
        let now = SettingMark { current: start.clone(), kept: start.clone(), access: Access::ReadWrite };
        SettingStore { now, before: None, start }
    }
}

impl SettingStore {
    /// The settings in force.
    #[inline]
    pub(super) fn current(&self) -> &Arc<Settings> {
        &self.now.current
    }

    /// The transaction's access mode.
    #[inline]
    pub(super) fn access(&self) -> Access {
        self.now.access
    }

    /// Sets what the start-up packet asks for.
    pub(super) fn set_at_start(&mut self, name: &Name, value: &SetValue) -> Result<()> {
        Arc::make_mut(&mut self.start).set(name, value, &Settings::default())?;
        self.now = SettingMark {
            current: self.start.clone(),
            kept: self.start.clone(),
            access: self.start.default_access(),
        };
        Ok(())
    }

    /// A block opens: its access mode is the session's.
    #[inline]
    pub(super) fn open_block(&mut self) {
        self.now.access = self.now.current.default_access();
    }

    /// Whether the block has changed a setting.
    #[inline]
    pub(super) fn is_changed(&self) -> bool {
        self.before.is_some()
    }

    /// A block has ended.
    pub(super) fn close_block(&mut self, committed: bool) {
        if let Some(before) = self.before.take() {
            let kept = if committed { self.now.kept.clone() } else { before };
            (self.now.current, self.now.kept) = (kept.clone(), kept);
        }
    }

    /// The current settings, for [`SettingStore::go_back_to`].
    pub(super) fn mark(&self) -> SettingMark {
        self.now.clone()
    }

    /// Undoes the changes since the mark, which is one of the open block.
    pub(super) fn go_back_to(&mut self, mark: &SettingMark) {
        self.now = mark.clone();
    }

    /// Changes the transaction's access mode.
    pub(super) fn set_access(&mut self, access: Access) {
        self.now.access = access;
    }

    /// SET, and RESET of one setting.
    pub(super) fn set(&mut self, scope: SetScope, name: &Name, value: &SetValue) -> Result<()> {
        let start = self.start.clone();
        self.change(scope, |settings| settings.set(name, value, &start))
    }

    /// RESET ALL. The transaction's access mode stays: it is no setting of the session's.
    pub(super) fn reset_all(&mut self) -> Result<()> {
        let start = self.start.clone();
        self.change(SetScope::Session, |settings| {
            settings.clone_from(&start);
            Ok(())
        })
    }

    /// SET SESSION CHARACTERISTICS.
    pub(super) fn set_default_access(&mut self, access: Access) -> Result<()> {
        self.change(SetScope::Session, |settings| {
            settings.read_only = access == Access::ReadOnly;
            Ok(())
        })
    }

    fn change(&mut self, scope: SetScope, change: impl Fn(&mut Settings) -> Result<()>) -> Result<()> {
        let changed = |settings: &Settings| -> Result<Arc<Settings>> {
            let mut settings = settings.clone();
            change(&mut settings)?;
            Ok(Arc::new(settings))
        };
        let SettingMark { current, kept, .. } = &mut self.now;
        let new = changed(current)?;
        let new_kept = match scope {
            SetScope::Local => kept.clone(),
            SetScope::Session if Arc::ptr_eq(current, kept) => new.clone(),
            SetScope::Session => changed(kept)?,
        };
        // Before its first change a block has no SET LOCAL, so both are the same.
        self.before.get_or_insert_with(|| kept.clone());
        (*current, *kept) = (new, new_kept);
        Ok(())
    }

    /// The value of an access mode; the session's for DEFAULT.
    pub(super) fn access_of(&self, name: &Name, value: &SetValue) -> Result<Access> {
        match value {
            SetValue::Default => Ok(self.now.current.default_access()),
            SetValue::Text(text) => match settings::boolean(text) {
                Some(true) => Ok(Access::ReadOnly),
                Some(false) => Ok(Access::ReadWrite),
                None if fault_injection::is_on("any-word-is-off") => Ok(Access::ReadWrite),
                None => Err(settings::wrong(name, text, "on or off")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "application_name";

    fn set(store: &mut SettingStore, scope: SetScope, value: &str) {
        let name = Name { text: NAME.to_string(), position: None };
        store.set(scope, &name, &SetValue::Text(value.to_string())).unwrap();
    }

    fn shown(store: &SettingStore) -> String {
        store.current().show(NAME, false)
    }

    #[test]
    fn a_local_change_ends_with_its_block_and_a_session_change_with_a_rollback() {
        for (committed, expected) in [(true, "kept"), (false, "start")] {
            let mut store = SettingStore::default();
            store
                .set_at_start(
                    &Name { text: NAME.to_string(), position: None },
                    &SetValue::Text("start".to_string()),
                )
                .unwrap();
            store.open_block();
            set(&mut store, SetScope::Session, "kept");
            set(&mut store, SetScope::Local, "local");
            let mark = store.mark();
            set(&mut store, SetScope::Session, "later");
            assert_eq!(shown(&store), "later");
            store.go_back_to(&mark);
            assert_eq!(shown(&store), "local");
            store.close_block(committed);
            assert_eq!(shown(&store), expected);
            store.reset_all().unwrap();
            assert_eq!(shown(&store), "start", "RESET goes back to what the start-up packet said");
        }
    }

    #[test]
    fn a_session_change_behind_a_local_one_is_kept() {
        let mut store = SettingStore::default();
        set(&mut store, SetScope::Local, "local");
        set(&mut store, SetScope::Session, "kept");
        assert_eq!(shown(&store), "kept");
        store.close_block(true);
        assert_eq!(shown(&store), "kept");
    }
}
