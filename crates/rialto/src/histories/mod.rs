//! Random transactions and calls, recorded as a history, and whether each copy and each backup that is made meanwhile
//! is a state of that history.
//!
//! [`load`] runs the transactions and notes what each saw and did; [`told`] takes the same from the outputs of calls.
//! [`history`] is the checker: whether a history is serializable, and whether some rows are a state of it;
//! [`hand_made`] tests the checker with histories made by hand. [`copies`] is the test that combines these; [`in_pages`]
//! has histories of a disk-resident table.

mod copies;
mod hand_made;
mod history;
mod in_pages;
mod load;
mod told;
