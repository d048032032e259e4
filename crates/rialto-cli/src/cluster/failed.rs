//! [`Failed`]: why a command failed.

use std::fmt::Display;
use std::io;
use std::path::Path;

use rialto_cluster::control::ControlError;
use rialto_cluster::node::{FactsError, NodeError};

/// Why a command failed, and the program's exit code.
#[derive(Debug)]
pub struct Failed {
    pub text: String,
    pub code: u8,
}

impl Failed {
    /// The command line makes no sense.
    pub fn usage(text: impl Display) -> Failed {
        Failed { text: text.to_string(), code: 2 }
    }

    /// A directory cannot be used, or the cluster is another one.
    pub fn unusable(text: impl Display) -> Failed {
        Failed { text: text.to_string(), code: 3 }
    }

    /// The machine or another program fails.
    pub fn failing(text: impl Display) -> Failed {
        Failed { text: text.to_string(), code: 4 }
    }

    /// An error of the file system.
    pub fn of_file(path: &Path, error: &io::Error) -> Failed {
        Failed::failing(format_args!("{}: {error}", path.display()))
    }
}

impl From<ControlError> for Failed {
    fn from(error: ControlError) -> Failed {
        Failed::failing(error)
    }
}

impl From<FactsError> for Failed {
    fn from(error: FactsError) -> Failed {
        match error {
            FactsError::Store(error) => error.into(),
            FactsError::Wrong(what) => Failed::usage(what),
            error => Failed::unusable(error),
        }
    }
}

impl From<NodeError> for Failed {
    fn from(error: NodeError) -> Failed {
        match error {
            NodeError::Facts(error) => error.into(),
            error @ (NodeError::NotANode { .. } | NodeError::Links(_) | NodeError::Directory(_)) => {
                Failed::unusable(error)
            }
            error => Failed::failing(error),
        }
    }
}
