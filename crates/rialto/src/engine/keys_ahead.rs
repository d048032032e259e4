//! [`KeysAhead`]: keys of several calls, looked up together before the first of the calls runs.
//!
//! A client with several calls to make has the arguments of all of them. So the keys that their first phases name by
//! arguments are known before any transaction begins. The keys of a *window* of calls are looked up side by side, so
//! that their look-ups wait for memory together ([`Storage::prefetch_each`]). Then the calls of the window run one by
//! one, each in a transaction of its own, which is given what was found for the keys of that call.
//!
//! Nothing is locked and no row is read before the calls run. What was found counts for a call only if the index's leaf
//! is unchanged when the call looks the key up ([`Prefetched`]): another call of the window may have changed it, or
//! another thread.

use std::sync::Arc;

use smallvec::SmallVec;

use super::action::ActionTarget;
use super::binding::Binding;
use super::identifier::Given;
use super::phase::PREFETCH_FROM;
use super::prepared::Prepared;
use crate::row::{Key, Value};
use crate::store::{Prefetched, Storage, TOGETHER, TableVersion};

/// What was found of the keys of a window of calls.
#[derive(Default)]
pub(crate) struct KeysAhead {
    /// Of each call in the window. Those behind it are empty.
    calls: Vec<Prefetched>,
    /// Scratch.
    keys: Vec<Key>,
}

/// An action whose key follows from the arguments, in an index so large that lookups wait for memory.
struct KnownKey<'p> {
    target: &'p ActionTarget,
    binding: &'p Binding,
    version: Arc<TableVersion>,
}

impl KeysAhead {
    /// Looks up the keys of a window, the first of these calls. Returns how many calls the window has; all of them if
    /// no key is looked up.
    pub fn fetch(&mut self, storage: &Storage, procedure: &Prepared, calls: &[impl AsRef<[Value]>]) -> usize {
        self.calls.iter_mut().for_each(Prefetched::clear);
        let known = if calls.len() > 1 { known_keys(procedure) } else { SmallVec::new() };
        if known.is_empty() {
            return calls.len();
        }
        let window = calls.len().min(TOGETHER / known.len());
        if self.calls.len() < window {
            self.calls.resize_with(window, Prefetched::default);
        }
        let KeysAhead { calls: found_of, keys } = self;
        // The call and the action of each key.
        let mut named: SmallVec<[(usize, usize); TOGETHER]> = SmallVec::new();
        keys.resize_with(TOGETHER, Key::new);
        for (call, arguments) in calls[..window].iter().enumerate() {
            // The call itself returns the error.
            let Ok(arguments) = procedure.check(arguments.as_ref()) else { continue };
            let given = Given { arguments: &arguments, earlier: &[] };
            for (action, KnownKey { target, binding, .. }) in known.iter().enumerate() {
                if binding.key_prefix(target, given, &mut keys[named.len()]).is_ok() {
                    named.push((call, action));
                }
            }
        }
        let lookups = named.iter().zip(&*keys).map(|(&(_, action), key)| {
            let KnownKey { binding, version, .. } = &known[action];
            (&version.store, binding.which, key)
        });
        storage.prefetch_each(lookups, |nth, leaf, found| found_of[named[nth].0].keep(leaf, found));
        // The tables are not locked. A version is retired before its indexes are discarded, whose nodes other indexes
        // may have had by now.
        if known.iter().any(|known| known.version.is_retired()) {
            found_of.iter_mut().for_each(Prefetched::clear);
        }
        window
    }

    /// What was found for the call at this position in the window.
    #[inline]
    pub fn of_call(&mut self, nth: usize) -> Option<&mut Prefetched> {
        self.calls.get_mut(nth).filter(|found| !found.is_empty())
    }
}

/// The keys that the first phase names by arguments. A large phase looks its keys up itself.
fn known_keys(procedure: &Prepared) -> SmallVec<[KnownKey<'_>; PREFETCH_FROM]> {
    let phase = procedure.flow().phases().first().filter(|phase| phase.len() < PREFETCH_FROM);
    let Some(phase) = phase else { return SmallVec::new() };
    let known = phase.iter().zip(procedure.bindings.of_phase(0)).filter_map(|(action, binding)| {
        let (target, binding) = (action.target.as_ref()?, binding.as_ref()?);
        // Functions of the user's run in the call only.
        if action.body.is_none() || action.has_functions() || !binding.is_point {
            return None;
        }
        let version = binding.table.version();
        let is_far = binding.is_by(&version) && version.store.is_far(binding.which);
        is_far.then_some(KnownKey { target, binding, version })
    });
    known.collect()
}
