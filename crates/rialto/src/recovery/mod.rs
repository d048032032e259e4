//! Recovery.
pub(crate) mod load;
mod progress;
pub(crate) use progress::Progress;
