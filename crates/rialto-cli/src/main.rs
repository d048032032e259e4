//! The `rialto` program.
fn main() {}
