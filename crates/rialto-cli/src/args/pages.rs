//! The pages of disk-resident tables.

use clap::Args;
use rialto::Options;

use super::{LockGrainName, TwoStageName};

/// The sizes that pages may have, in bytes.
const SIZES: [usize; 5] = [4_096, 8_192, 16_384, 32_768, 65_536];

/// The memory for pages of disk-resident tables.
#[derive(Debug, Clone, Copy, Args)]
pub struct CacheArgs {
    /// The bytes that pages of disk-resident tables take in memory, at least 4194304 [default: 268435456]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(4 << 20..))]
    cache_bytes: Option<u64>,
}

impl CacheArgs {
    /// The bytes.
    pub fn bytes(&self) -> u64 {
        self.cache_bytes.unwrap_or_else(|| Options::default().cache_bytes)
    }

    /// Whether they are on the command line.
    pub fn is_given(&self) -> bool {
        self.cache_bytes.is_some()
    }
}

/// The pages of disk-resident tables.
#[derive(Debug, Clone, Copy, Args)]
pub struct PageArgs {
    #[command(flatten)]
    cache: CacheArgs,
    /// The bytes of a page of disk-resident tables, in a database that has none yet [default: 4096]
    #[arg(long, value_name = "4096|8192|16384|32768|65536", value_parser = page_bytes)]
    page_bytes: Option<usize>,
    /// How transactions read pages that are not in memory [default: htste]
    #[arg(long, value_enum)]
    pub two_stage: Option<TwoStageName>,
    /// With --locks central: how much a lock on a row of a disk-resident table locks [default: record]
    #[arg(long, value_enum)]
    pub lock_grain: Option<LockGrainName>,
}

impl PageArgs {
    /// The options that are given.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        let options = [
            (self.cache.is_given(), "--cache-bytes"),
            (self.page_bytes.is_some(), "--page-bytes"),
            (self.two_stage.is_some(), "--two-stage"),
            (self.lock_grain.is_some(), "--lock-grain"),
        ];
        options.into_iter().filter(|(given, _)| *given).map(|(_, option)| option)
    }

    /// Other options with these.
    pub fn in_options(self, options: Options) -> Options {
        Options {
            cache_bytes: self.cache.cache_bytes.unwrap_or(options.cache_bytes),
            page_bytes: self.page_bytes.unwrap_or(options.page_bytes),
            two_stage: self.two_stage.map_or(options.two_stage, Into::into),
            lock_grain: self.lock_grain.map_or(options.lock_grain, Into::into),
            ..options
        }
    }
}

fn page_bytes(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| SIZES.contains(size));
    size.ok_or_else(|| "expected 4096, 8192, 16384, 32768 or 65536".to_owned())
}
