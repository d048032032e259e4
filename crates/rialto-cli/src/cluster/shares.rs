//! [`Shares`]: how a node's bounds on memory and log are divided among its replicas.

use rialto::{Durability, Options};

use super::failed::Failed;

/// The bound on the logs of a node's replicas, in bytes, unless something else is asked for.
pub const LOG_BYTES: u64 = 4 << 30;
/// The least memory of a replica, in bytes.
const MEMORY_LEAST: u64 = 16 << 20;
/// The least log of a replica, in bytes.
const LOG_LEAST: u64 = 8 << 20;
/// The bytes of log that are gathered in memory: the most, and the least, a multiple of a page.
const BUFFER: (u64, u64) = (16 << 20, 256 << 10);

/// The bounds of each replica of a node.
///
/// The rule: a node's bounds are divided by the number of its replicas when it starts, or by the average number of a node's
/// replicas in this cluster if that is more. A replica that the node gets while it runs has the same bounds; at the next
/// start all are divided again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    pub memory_bytes: u64,
    pub log_bytes: u64,
}

/// How many replicas there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub here: u32,
    pub partitions: u32,
    /// Of each partition.
    pub replicas: u32,
    pub nodes: u32,
}

impl Counts {
    fn divisor(self) -> u64 {
        let all = u64::from(self.partitions) * u64::from(self.replicas);
        all.div_ceil(u64::from(self.nodes.max(1))).max(u64::from(self.here)).max(1)
    }
}

impl Shares {
    /// Divides a node's bounds.
    pub fn new(counts: Counts, memory_bytes: u64, log_bytes: u64) -> Result<Shares, Failed> {
        let divisor = counts.divisor();
        let shares = Shares { memory_bytes: memory_bytes / divisor, log_bytes: log_bytes / divisor };
        for (option, given, share, least) in [
            ("--memory-bytes", memory_bytes, shares.memory_bytes, MEMORY_LEAST),
            ("--log-bytes", log_bytes, shares.log_bytes, LOG_LEAST),
        ] {
            if share < least {
                return Err(Failed::usage(format_args!(
                    "{option} {given}: it is divided among {divisor} replicas, which gives each {share} bytes; each needs \
                     {least} at least"
                )));
            }
        }
        Ok(shares)
    }

    /// The options of each replica's database.
    pub fn options(self) -> Options {
        let buffer = (self.log_bytes / 8).clamp(BUFFER.1, BUFFER.0) & !4095;
        Options {
            // What is answered at which level, the cluster decides.
            durability: Durability::Memory,
            memory_bytes: self.memory_bytes,
            log_bytes_max: self.log_bytes,
            log_buffer_bytes: usize::try_from(buffer).expect("a few megabytes"),
            ..Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_divided_among_the_replicas_of_a_node() {
        let counts = Counts { here: 8, partitions: 12, replicas: 2, nodes: 3 };
        let shares = Shares::new(counts, 8 << 30, 4 << 30).unwrap();
        assert_eq!(shares, Shares { memory_bytes: 1 << 30, log_bytes: 512 << 20 });
        // After failures a node may have more of them than others; one that has just joined has none.
        let shares = |here| Shares::new(Counts { here, ..counts }, 8 << 30, 4 << 30).unwrap();
        assert_eq!((shares(16).log_bytes, shares(0).log_bytes), (256 << 20, 512 << 20));
        let refused = Shares::new(counts, 8 << 30, 8 << 20).unwrap_err();
        assert!(refused.text.contains("--log-bytes 8388608") && refused.code == 2, "{refused:?}");
        for log_bytes in [LOG_LEAST, 77_777_777, 4 << 30] {
            let options = Shares { memory_bytes: MEMORY_LEAST, log_bytes }.options();
            assert_eq!(options.log_buffer_bytes % 4096, 0);
        }
    }
}
