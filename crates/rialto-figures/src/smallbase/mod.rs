//! Smallbase's experiments (*Achieving Transaction Scaleup on Unix*, its section 5), on clusters whose nodes are processes of this
//! machine.
//!
//! - [`run`]: clusters of some sizes, measured; what they have in common;
//! - [`scaleup`]: cluster-t1 with the paper's figure 4, cluster-t2 with its figure 5; [`response`]: cluster-t3;
//! - [`scale`]: cluster-scale, a simulation of more nodes than the machine runs, which has to predict the measured ones first;
//! - [`nagle`]: cluster-nagle; [`costs`]: cluster-costs; [`scp`]: cluster-scp, which the paper did not run.

pub mod costs;
pub mod nagle;
pub mod response;
mod run;
pub mod scale;
pub mod scaleup;
pub mod scp;
