//! [`Planning`]: whether actions of a phase run at the same time.

/// How threads that own executors ([`Executors::threads`](crate::Executors::threads)) run the actions of a phase (the DORA paper, appendix A.4). What a
/// flow means is the same: which action of a phase tells why a call failed, when several would have, may be another. A call that its caller runs
/// itself ([`HandOver::IfBusy`](crate::HandOver)) runs its actions in the flow's order, and is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planning {
    /// By how often they abort: one after the other, the most likely to abort first, where a tenth of what is run at the same
    /// time would be needless; at the same time again when it is less than a twentieth. What is chosen, and the counts that it
    /// is chosen by, are in [`Metrics::plans`](crate::Metrics::plans).
    #[default]
    Adaptive,
    /// At the same time.
    Parallel,
}
