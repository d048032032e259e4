//! [`Planning`]: whether actions of a phase run at the same time.

/// How threads that own executors ([`Executors::threads`](crate::Executors::threads)) run the actions of a phase (the
/// DORA paper, appendix A.4). The meaning of a flow does not depend on it; only if several actions of a phase would
/// fail, the call may fail by another one of them. A call that its caller runs itself
/// ([`HandOver::IfBusy`](crate::HandOver)) runs its actions in the flow's order, and is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planning {
    /// Depends on how often they abort. A run of an action is needless if another action of its phase aborts the
    /// transaction. If a tenth or more of the runs would be needless with all actions running at the same time, the
    /// actions run one after the other, with the most likely to abort first. They run at the same time again when the
    /// share is below a twentieth. The plans, and the counts by which they are chosen, are in
    /// [`Metrics::plans`](crate::Metrics::plans).
    #[default]
    Adaptive,
    /// At the same time.
    Parallel,
}
