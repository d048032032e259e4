//! One of the kernel's fuzz targets under libFuzzer: `RIALTO_FUZZ_TARGET` names it.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use rialto::fuzz::{TARGETS, Target};

fn target() -> Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    *TARGET.get_or_init(|| {
        let name = std::env::var("RIALTO_FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|(other, _, _)| *other == name);
        let names: Vec<&str> = TARGETS.iter().map(|(name, _, _)| *name).collect();
        found.unwrap_or_else(|| panic!("RIALTO_FUZZ_TARGET is \"{name}\"; expected one of {names:?}")).1
    })
}

fuzz_target!(|data: &[u8]| target()(data));
