//! [`DeviceBytes`]: what this process has read from devices and written to them.

use std::io;

use serde::{Deserialize, Serialize};

/// Bytes, since a process began. Of files that are mapped or cached, a read counts when the device is asked, a write when a
/// page becomes dirty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBytes {
    /// Read from devices.
    #[serde(rename = "device_read_bytes")]
    pub read: u64,
    /// Written to them.
    #[serde(rename = "device_written_bytes")]
    pub written: u64,
}

impl DeviceBytes {
    /// Those of this process so far.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn here() -> io::Result<DeviceBytes> {
        let io = std::fs::read_to_string("/proc/self/io")?;
        DeviceBytes::of(&io)
            .ok_or_else(|| io::Error::other("/proc/self/io has no read_bytes and write_bytes"))
    }

    fn of(io: &str) -> Option<DeviceBytes> {
        let value = |name: &str| io.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
        Some(DeviceBytes { read: value("read_bytes:")?, written: value("write_bytes:")? })
    }

    /// Those since an earlier moment.
    pub fn since(self, earlier: DeviceBytes) -> DeviceBytes {
        DeviceBytes {
            read: self.read.saturating_sub(earlier.read),
            written: self.written.saturating_sub(earlier.written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_prints() {
        let io = "rchar: 1\nwchar: 2\nread_bytes: 8192\nwrite_bytes: 4096\ncancelled_write_bytes: 9\n";
        let found = DeviceBytes::of(io).unwrap();
        assert_eq!(found, DeviceBytes { read: 8_192, written: 4_096 });
        assert_eq!(DeviceBytes::of("rchar: 1\n"), None);
        let earlier = DeviceBytes { read: 92, written: 5_000 };
        assert_eq!(found.since(earlier), DeviceBytes { read: 8_100, written: 0 });
        DeviceBytes::here().unwrap();
    }
}
