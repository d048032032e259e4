//! [`Calls`]: a client's calls of a workload's procedures.

use rialto::row::Value;
use rialto::{Database, PreparedCall, Result, Sent, TxOptions};

/// One client's calls, each procedure found when it is called first.
#[derive(Debug, Default)]
pub struct Calls {
    /// By the procedure's position in its workload.
    prepared: Vec<Option<PreparedCall>>,
    /// The arguments of the next call.
    pub arguments: Vec<Value>,
}

impl Calls {
    /// Calls the procedure at a position of its workload, with the arguments that there are.
    ///
    /// # Errors
    /// As [`Database::call`].
    #[inline]
    pub fn call(
        &mut self,
        database: &Database,
        options: &TxOptions,
        (position, name): (usize, &str),
    ) -> Result<&[Value]> {
        let Calls { prepared, arguments } = self;
        find(prepared, database, options, position, name)?.call(arguments)
    }

    /// As [`Calls::call`], without waiting for anything.
    ///
    /// # Errors
    /// As [`Database::send_call`].
    #[inline]
    pub fn send(
        &mut self,
        database: &Database,
        options: &TxOptions,
        (position, name): (usize, &str),
    ) -> Result<Sent> {
        let Calls { prepared, arguments } = self;
        find(prepared, database, options, position, name)?.send(arguments)
    }
}

#[inline]
fn find<'a>(
    prepared: &'a mut Vec<Option<PreparedCall>>,
    database: &Database,
    options: &TxOptions,
    position: usize,
    name: &str,
) -> Result<&'a mut PreparedCall> {
    if prepared.len() <= position {
        prepared.resize_with(position + 1, || None);
    }
    match &mut prepared[position] {
        Some(call) => Ok(call),
        none => Ok(none.insert(database.prepare_call_with(options, name)?)),
    }
}
