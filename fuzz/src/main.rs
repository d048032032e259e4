//! One of the fuzz targets under libFuzzer: `RIALTO_FUZZ_TARGET` names it.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use rialto::fuzz::Target;

fn target() -> &'static Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("RIALTO_FUZZ_TARGET").unwrap_or_default();
        rialto_fuzz::target(&name).unwrap_or_else(|error| panic!("RIALTO_FUZZ_TARGET: {error}"))
    })
}

fuzz_target!(|data: &[u8]| (target().check)(data));
