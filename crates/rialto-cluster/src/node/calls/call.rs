//! [`Call`]: what a program asks for.

use std::sync::Arc;
use std::time::Duration;

use rialto::row::Value;

use crate::protocol::transactions::{Level, Request};

/// How durable a call's effects are before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallLevel {
    /// Level 1: in the primary's memory that outlives its process. A failover may lose the newest ones. A call over
    /// several partitions has level 2 at least.
    Memory,
    /// Level 2: in the memory of every standby that is in sync, too.
    #[default]
    Standby,
    /// Level 3: also on the primary's disk.
    Disk,
}

impl CallLevel {
    pub(in crate::node) fn of_protocol(self) -> Level {
        match self {
            CallLevel::Memory => Level::Memory,
            CallLevel::Standby => Level::Standby,
            CallLevel::Disk => Level::Disk,
        }
    }
}

/// A call of a procedure: its name, keys and arguments.
#[derive(Debug, Clone)]
pub struct Call {
    pub(in crate::node) procedure: Arc<str>,
    pub(in crate::node) version: Option<u32>,
    pub(in crate::node) keys: Vec<Vec<Value>>,
    pub(in crate::node) arguments: Vec<u8>,
    pub(in crate::node) level: CallLevel,
    pub(in crate::node) request: Option<Request>,
    pub(in crate::node) is_again: bool,
    pub(in crate::node) patience: Duration,
}

/// How long a call is tried, unless it says otherwise.
const PATIENCE: Duration = Duration::from_secs(20);

impl Call {
    /// A call of the highest version of a procedure that the node has, without keys, at level 2.
    pub fn new(procedure: impl Into<Arc<str>>, arguments: impl Into<Vec<u8>>) -> Call {
        Call {
            procedure: procedure.into(),
            version: None,
            keys: Vec::new(),
            arguments: arguments.into(),
            level: CallLevel::default(),
            request: None,
            is_again: false,
            patience: PATIENCE,
        }
    }

    /// The same call with one more key: values of a table's routing columns, in their order and of their types. The
    /// actions of this key run in the partition that the rows with these values lie in.
    #[must_use]
    pub fn key(mut self, values: impl IntoIterator<Item = Value>) -> Call {
        self.keys.push(values.into_iter().collect());
        self
    }

    /// The same call of this version of the procedure.
    #[must_use]
    pub fn version(mut self, version: u32) -> Call {
        self.version = Some(version);
        self
    }

    /// The same call at another level.
    #[must_use]
    pub fn level(mut self, level: CallLevel) -> Call {
        self.level = level;
        self
    }

    /// The same call with a number, so that it runs at most once, however often it is sent: see
    /// [`CallNumbers`](super::CallNumbers).
    #[must_use]
    pub fn numbered(mut self, request: Request) -> Call {
        self.request = Some(request);
        self
    }

    /// The same call, which may have been sent before under its number, from this program or another one. Its level is
    /// that of its first sending; a higher one has no effect on what has run over several partitions.
    #[must_use]
    pub fn again(mut self) -> Call {
        self.is_again = true;
        self
    }

    /// The same call, which is tried for this long (20 seconds otherwise): while a partition has no primary, after a
    /// deadlock, and with a number also while its outcome is not known. A try that runs is waited for 10 seconds
    /// longer; then it is cancelled.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Call {
        self.patience = patience;
        self
    }

    /// The arguments, for a program that uses a call again and again.
    pub fn arguments_mut(&mut self) -> &mut Vec<u8> {
        &mut self.arguments
    }

    /// The keys, each with its values, for a program that uses a call again and again.
    pub fn keys_mut(&mut self) -> &mut [Vec<Value>] {
        &mut self.keys
    }
}
