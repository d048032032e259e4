//! The memory-resident store.
