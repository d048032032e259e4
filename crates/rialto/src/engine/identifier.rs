//! [`IdentifierPart`]: what an action's identifier is made of, and how it becomes the beginning of a key.

use std::cell::Cell;

use crate::error::{Error, Result};
use crate::row::{IntoKey, Key, KeyPart, KeyShape, Schema, Value, WhichIndex};

/// Where one part of an action's identifier comes from.
#[derive(Debug, Clone, Copy)]
pub enum IdentifierPart {
    /// It is the argument at this position, counted from 0.
    Argument(usize),
    /// It is the output at this position of those that earlier phases gave, counted from 0.
    Output(usize),
    /// It is worked out from the arguments.
    Computed(fn(&[Value]) -> Value),
}

impl IdentifierPart {
    /// The part, if it follows from the arguments alone.
    pub(crate) fn value(self, arguments: &[Value]) -> Option<Value> {
        match self {
            IdentifierPart::Argument(position) => Some(arguments[position].clone()),
            IdentifierPart::Output(_) => None,
            IdentifierPart::Computed(compute) => Some(compute(arguments)),
        }
    }

    /// Whether it is known before the flow begins.
    pub(crate) fn is_known(self) -> bool {
        !matches!(self, IdentifierPart::Output(_))
    }
}

/// What a phase's actions are identified by: the call's arguments, and what earlier phases gave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    pub arguments: &'a [Value],
    pub earlier: &'a [Value],
}

/// The parts of an identifier, with what they are taken from.
pub(super) struct Identifier<'a> {
    pub parts: &'a [IdentifierPart],
    pub given: Given<'a>,
    /// The part that was looked at last.
    at: Cell<usize>,
}

/// What an output that is missing is, until [`Identifier::problem`] says it in words.
const MISSING: Error = Error::Aborted { reason: std::borrow::Cow::Borrowed("an output is missing") };

impl<'a> Identifier<'a> {
    pub fn new(parts: &'a [IdentifierPart], given: Given<'a>) -> Identifier<'a> {
        Identifier { parts, given, at: Cell::new(0) }
    }

    /// Replaces `out` by what the keys of an index begin with that the identifier names; of the identity of a table
    /// without a primary key, by its first columns ([`Schema::append_column`]).
    ///
    /// # Errors
    /// In words, what is wrong with it.
    pub fn encode(&self, schema: &Schema, which: WhichIndex, out: &mut Key) -> Result<(), String> {
        let shape = schema.key_shape(which);
        let encoded = match shape.is_row_number() {
            false => self.encode_prefix_into(shape, out),
            true => {
                out.clear();
                self.each(|nth, value| schema.append_column(nth, value.borrow(), out))
            }
        };
        encoded.map_err(|error| self.problem(&error))
    }

    fn each(&self, mut take: impl FnMut(usize, &Value) -> Result<()>) -> Result<()> {
        let Given { arguments, earlier } = self.given;
        self.parts.iter().enumerate().try_for_each(|(nth, part)| {
            self.at.set(nth);
            match part {
                IdentifierPart::Argument(position) => take(nth, &arguments[*position]),
                IdentifierPart::Output(position) => match earlier.get(*position) {
                    Some(value) => take(nth, value),
                    None => Err(MISSING),
                },
                IdentifierPart::Computed(compute) => take(nth, &compute(arguments)),
            }
        })
    }

    #[cold]
    fn problem(&self, error: &Error) -> String {
        let nth = self.at.get();
        let Some(IdentifierPart::Output(position)) = self.parts.get(nth) else { return error.to_string() };
        let outputs = self.given.earlier;
        match outputs.get(*position) {
            None => format!(
                "part {} is output {position}, but earlier phases gave {}, counted from 0: give it, or leave the action \
                 out of such calls (Action::when_output)",
                nth + 1,
                outputs.len()
            ),
            Some(value) => {
                format!("part {} is output {position} of earlier phases, {value}: {error}", nth + 1)
            }
        }
    }
}

impl IntoKey for Identifier<'_> {
    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn append_parts(&self, shape: &KeyShape, out: &mut Key) -> Result<()> {
        self.each(|nth, value| value.append_part(shape, nth, out))
    }
}
