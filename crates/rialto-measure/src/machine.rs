//! [`Machine`]: the machine that a run ran on.

use std::{fmt, fs};

use serde::Serialize;
use serde_json::Value as Json;

/// What a run ran on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name, as the kernel gives it.
    pub cpu: String,
    /// Cores that the process may use.
    pub cores: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's name and release.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = rustix::system::uname();
        let part = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Machine {
            cpu: cpu_name(&cpuinfo).unwrap_or_else(|| part(name.machine())),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            memory_bytes: memory("MemTotal").unwrap_or(0),
            kernel: format!("{} {}", part(name.sysname()), part(name.release())),
        }
    }

    /// For the result.
    ///
    /// # Panics
    /// Never: its names are texts.
    pub fn json(&self) -> Json {
        serde_json::to_value(self).expect("its names are texts")
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cpu, cores, memory_bytes, kernel } = self;
        let gib = *memory_bytes as f64 / (1u64 << 30) as f64;
        write!(f, "{cpu}, {cores} cores, {gib:.0} GiB, {kernel}")
    }
}

/// The bytes that the machine could still give to programs.
pub fn memory_available() -> Option<u64> {
    memory("MemAvailable")
}

fn memory(what: &str) -> Option<u64> {
    memory_in(&fs::read_to_string("/proc/meminfo").ok()?, what)
}

fn memory_in(meminfo: &str, what: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn cpu_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_prints() {
        assert_eq!(cpu_name("processor\t: 0\nmodel name\t: AMD EPYC\n"), Some("AMD EPYC".to_owned()));
        assert_eq!(cpu_name("no such line"), None);
        let meminfo = "MemTotal:       24 kB\nMemAvailable:   12 kB\n";
        assert_eq!((memory_in(meminfo, "MemTotal"), memory_in(meminfo, "MemFree")), (Some(24 * 1024), None));
    }

    #[test]
    fn knows_this_machine() {
        let machine = Machine::here();
        assert!(
            machine.cores > 0 && machine.memory_bytes > 0 && machine.kernel.starts_with("Linux"),
            "{machine:?}"
        );
    }
}
