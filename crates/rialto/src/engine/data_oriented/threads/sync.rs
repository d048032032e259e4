//! What the rendezvous point is built on, behind one door: the model compiles the same source against a primitive whose
//! every step a model checker schedules.

pub(super) use parking_lot::Mutex;
