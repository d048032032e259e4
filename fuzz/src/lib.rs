//! The fuzz targets of all crates, for the programs of this package.

use rialto::fuzz::Target;

/// All targets.
pub fn targets() -> impl Iterator<Item = Target> {
    let kernel = rialto::fuzz::TARGETS.into_iter();
    kernel.chain(rialto_sql::fuzz::TARGETS).chain(rialto_server::fuzz::TARGETS)
}

/// The target of this name.
///
/// # Errors
/// Which names there are.
pub fn target(name: &str) -> Result<Target, String> {
    targets().find(|target| target.name == name).ok_or_else(|| {
        let names: Vec<&str> = targets().map(|target| target.name).collect();
        format!("\"{name}\" is no fuzz target; expected one of {}", names.join(", "))
    })
}
