//! [`IdentifierPart`]: the parts of an action's identifier, and their encoding as a prefix of a key.

use crate::error::{Error, Result};
use crate::row::{Key, KeyPart, KeyShape, Schema, Value, WhichIndex};

/// Where one part of an action's identifier comes from.
#[derive(Debug, Clone, Copy)]
pub enum IdentifierPart {
    /// It is the argument at this position, counted from 0.
    Argument(usize),
    /// It is the output at this position of those that earlier phases gave, counted from 0.
    Output(usize),
    /// It is computed from the arguments.
    Computed(fn(&[Value]) -> Value),
}

impl IdentifierPart {
    /// The value of the part, if it follows from the arguments alone.
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

/// The values that a phase's actions are identified by: the call's arguments, and the outputs of earlier phases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    pub arguments: &'a [Value],
    pub earlier: &'a [Value],
}

/// Replaces `out` by the prefix of an index's keys that these parts name; for the identity of a table without a
/// primary key, by its first columns ([`Schema::append_column`]).
///
/// # Errors What is wrong with the identifier, in words.
#[inline]
pub(super) fn encode(
    parts: &[IdentifierPart],
    given: Given<'_>,
    schema: &Schema,
    which: WhichIndex,
    out: &mut Key,
) -> Result<(), String> {
    let shape = schema.key_shape(which);
    out.clear();
    if let [IdentifierPart::Argument(position)] = parts
        && !shape.is_row_number()
        && let Ok(()) = given.arguments[*position].append_part(shape, 0, out)
    {
        return shape.check_length(out).map_err(|error| error.to_string());
    }
    for (nth, part) in parts.iter().enumerate() {
        let appended = match part {
            IdentifierPart::Argument(position) => {
                append(&given.arguments[*position], schema, shape, nth, out)
            }
            IdentifierPart::Output(position) => match given.earlier.get(*position) {
                Some(value) => append(value, schema, shape, nth, out),
                None => return Err(missing(nth, *position, given)),
            },
            IdentifierPart::Computed(compute) => append(&compute(given.arguments), schema, shape, nth, out),
        };
        appended.map_err(|error| problem(nth, *part, given, &error))?;
    }
    shape.check_length(out).map_err(|error| error.to_string())
}

#[inline]
fn append(value: &Value, schema: &Schema, shape: &KeyShape, nth: usize, out: &mut Key) -> Result<()> {
    if shape.is_row_number() {
        return schema.append_column(nth, value.borrow(), out);
    }
    if nth >= shape.columns().len() {
        return Err(shape.wrong_columns(nth + 1));
    }
    value.append_part(shape, nth, out)
}

#[cold]
fn missing(nth: usize, position: usize, given: Given<'_>) -> String {
    format!(
        "part {} is output {position}, but earlier phases gave {}, counted from 0: give it, or leave the action out of such \
         calls (Action::when_output)",
        nth + 1,
        given.earlier.len()
    )
}

#[cold]
fn problem(nth: usize, part: IdentifierPart, given: Given<'_>, error: &Error) -> String {
    match part {
        IdentifierPart::Output(position) => {
            let value = &given.earlier[position];
            format!("part {} is output {position} of earlier phases, {value}: {error}", nth + 1)
        }
        _ => error.to_string(),
    }
}
