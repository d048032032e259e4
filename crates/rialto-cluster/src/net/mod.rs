//! The connections between nodes.
