//! Runs a program that calls [`run`](super::run) under callgrind and strace, and holds its figures to their gates.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Kind, MARK};

/// What is counted for each transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// User instructions of all threads, by callgrind, at level 1 on the memory disk.
    Instructions,
    /// Allocations of all threads but for growth, at level 1 on the memory disk.
    Allocations,
    /// Allocations for what the database grows by (see [`rialto::growth`]), the memory disk's pages of the log among them.
    Growth,
    /// Bytes written to the log, at level 1 on the memory disk.
    LogBytes,
    /// System calls of all threads, by strace, at level 1 on files.
    SystemCalls,
    /// System calls of all threads, by strace, at level 3 on files.
    SystemCallsDurable,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 6] = [
        Measure::Instructions,
        Measure::Allocations,
        Measure::Growth,
        Measure::LogBytes,
        Measure::SystemCalls,
        Measure::SystemCallsDurable,
    ];

    /// Its name in a gate.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Instructions => "instructions",
            Measure::Allocations => "allocations",
            Measure::Growth => "growth-allocations",
            Measure::LogBytes => "log-bytes",
            Measure::SystemCalls => "system-calls",
            Measure::SystemCallsDurable => "system-calls-durable",
        }
    }
}

/// Figures by kind and measure, each for one transaction.
pub type Figures = BTreeMap<(Kind, Measure), f64>;

/// The most that a figure may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate {
    /// Of which kind.
    pub kind: Kind,
    /// Which figure.
    pub measure: Measure,
    /// The most that it may be.
    pub at_most: f64,
}

/// Reads gates: a line has a kind, a measure and the most that it may be; what follows a `#` is a comment.
///
/// # Errors
/// The line that is none, and what was expected.
pub fn read_gates(text: &str) -> Result<Vec<Gate>, String> {
    let lines = text.lines().enumerate().filter_map(|(number, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        (!line.is_empty()).then_some((number + 1, line))
    });
    lines.map(|(number, line)| gate(line).map_err(|problem| format!("line {number}: {problem}"))).collect()
}

fn gate(line: &str) -> Result<Gate, String> {
    let [kind, measure, at_most] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err(format!("expected a kind, a measure and a number, found \"{line}\""));
    };
    let named = Measure::ALL.into_iter().find(|candidate| candidate.name() == measure);
    let measure = named.ok_or_else(|| {
        let names = Measure::ALL.map(Measure::name).join(", ");
        format!("\"{measure}\" is not measured; what is: {names}")
    })?;
    let at_most = at_most.parse().map_err(|_| format!("\"{at_most}\" is no number"))?;
    Ok(Gate { kind: kind.parse()?, measure, at_most })
}

/// The gates that do not hold. A figure that was not counted holds none.
pub fn broken(gates: &[Gate], figures: &Figures) -> Vec<String> {
    let broken = gates.iter().filter_map(|gate| {
        let found = figures.get(&(gate.kind, gate.measure));
        let holds = found.is_some_and(|found| *found <= gate.at_most);
        let found = found.map_or_else(|| "not counted".to_owned(), |found| format!("{found:.3}"));
        (!holds).then(|| {
            let (kind, measure) = (gate.kind.name(), gate.measure.name());
            format!("gate: {kind} {measure} is {found} a transaction, at most {} allowed", gate.at_most)
        })
    });
    broken.collect()
}

/// A program to be run under tools: this one, with other arguments.
#[derive(Debug, Clone)]
pub struct Counted {
    /// The program.
    pub program: PathBuf,
    /// Where it and the tools may leave files.
    pub scratch: PathBuf,
    /// Transactions of each kind, unless they are large ([`Kind::transactions`]).
    pub transactions: u32,
}

impl Counted {
    /// Everything that is measured.
    ///
    /// # Errors
    /// A tool that is missing or failed, and what it said.
    pub fn figures(&self) -> Result<Figures, String> {
        let mut figures = Figures::new();
        self.own(&mut figures)?;
        self.instructions(&mut figures)?;
        self.system_calls("memory", Measure::SystemCalls, &mut figures)?;
        self.system_calls("disk", Measure::SystemCallsDurable, &mut figures)?;
        Ok(figures)
    }

    fn put(&self, figures: &mut Figures, kind: Kind, measure: Measure, count: u64) {
        figures.insert((kind, measure), count as f64 / f64::from(kind.transactions(self.transactions)));
    }

    fn own(&self, figures: &mut Figures) -> Result<(), String> {
        let text = self.child(&mut Command::new(&self.program), &["memory"])?;
        for (kind, [allocations, growth, log_bytes]) in read_windows(&text)? {
            self.put(figures, kind, Measure::Allocations, allocations);
            self.put(figures, kind, Measure::Growth, growth);
            self.put(figures, kind, Measure::LogBytes, log_bytes);
        }
        Ok(())
    }

    fn instructions(&self, figures: &mut Figures) -> Result<(), String> {
        let out = self.scratch.join("callgrind");
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--tool=callgrind", "--dump-before=*steady_window_mark*"]);
        command.arg(format!("--callgrind-out-file={}", out.display())).arg(&self.program);
        self.child(&mut command, &["memory"])?;
        // Callgrind dumps, and begins anew, at each mark: an even dump is a window.
        for (position, kind) in Kind::ALL.into_iter().enumerate() {
            let path = format!("{}.{}", out.display(), 2 * position + 2);
            let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
            let count = read_dump(&text).ok_or_else(|| format!("{path}: it has no line \"summary:\""))?;
            self.put(figures, kind, Measure::Instructions, count);
        }
        Ok(())
    }

    fn system_calls(&self, durability: &str, measure: Measure, figures: &mut Figures) -> Result<(), String> {
        let (trace, data) = (self.scratch.join("trace"), self.scratch.join(format!("data-{durability}")));
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o"]).arg(&trace).arg(&self.program);
        let data = data.to_str().ok_or("the scratch directory's name is not UTF-8")?;
        self.child(&mut command, &[durability, data])?;
        let text = fs::read(&trace).map_err(|error| format!("{}: {error}", trace.display()))?;
        let text = String::from_utf8_lossy(&text);
        for (kind, calls) in read_trace(&text)? {
            let names: Vec<_> = calls.iter().map(|(name, count)| format!("{name} {count}")).collect();
            eprintln!(
                "  {} system calls in {} {} transactions at level {}: {}",
                calls.values().sum::<u64>(),
                kind.transactions(self.transactions),
                kind.name(),
                if durability == "memory" { 1 } else { 3 },
                if names.is_empty() { "-".to_owned() } else { names.join(", ") }
            );
            self.put(figures, kind, measure, calls.values().sum());
        }
        Ok(())
    }

    /// Runs the program and gives what it wrote.
    fn child(&self, command: &mut Command, arguments: &[&str]) -> Result<String, String> {
        let tool = command.get_program().to_string_lossy().into_owned();
        command.args(["run", &self.transactions.to_string()]).args(arguments).stdin(Stdio::null());
        // The allocator gives memory back by its own clock: dozens of calls of madvise that fall into any window at all.
        command.env("MIMALLOC_PURGE_DELAY", "-1");
        let output = command.output().map_err(|error| {
            format!("{tool} does not start ({error}): install Debian's packages valgrind and strace")
        })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        Err(format!("{tool} failed ({}): {text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

impl fmt::Display for super::Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let (allocations, growth) = (count(self.allocations), count(self.growth));
        write!(f, "window {} {allocations} {growth} {}", self.kind.name(), self.log_bytes)
    }
}

/// What a run printed of its windows: kind; allocations, those of growth, log bytes.
fn read_windows(text: &str) -> Result<Vec<(Kind, [u64; 3])>, String> {
    let windows: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("window ")?.split_whitespace();
            let kind = words.next()?.parse().ok()?;
            let mut count = || words.next()?.parse().ok();
            Some((kind, [count()?, count()?, count()?]))
        })
        .collect();
    if windows.len() == Kind::ALL.len() {
        return Ok(windows);
    }
    Err(format!("expected {} windows with allocations and log bytes, found: {text}", Kind::ALL.len()))
}

/// The instructions of a dump of callgrind.
fn read_dump(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("summary:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// System calls by name.
type Calls = BTreeMap<String, u64>;

/// How often each system call was made in each window of strace's output.
fn read_trace(text: &str) -> Result<Vec<(Kind, Calls)>, String> {
    let mut windows = Vec::new();
    let mut open: Option<(Kind, Calls)> = None;
    for line in text.lines() {
        if let Some((_, mark)) = line.split_once(MARK) {
            let mut mark = mark.split(['/', '"']);
            let kind: Kind = mark.next().unwrap_or_default().parse()?;
            open = match (mark.next(), open) {
                (Some("begin"), None) => Some((kind, Calls::new())),
                (Some("end"), Some((begun, calls))) if begun == kind => {
                    windows.push((kind, calls));
                    None
                }
                _ => return Err(format!("a mark of a window is out of order: {line}")),
            };
            continue;
        }
        // "PID name(arguments) = result"; the second half of an interrupted line begins with "<...".
        if let Some((_, calls)) = &mut open
            && let Some((_, call)) = line.split_once(char::is_whitespace)
            && let Some((name, _)) = call.trim_start().split_once('(')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    match (open, windows.len() == Kind::ALL.len()) {
        (None, true) => Ok(windows),
        _ => Err(format!("expected {} whole windows in strace's output", Kind::ALL.len())),
    }
}

/// The figures as a table.
pub fn table(figures: &Figures) -> String {
    let mut text = format!("{:8}", "");
    Measure::ALL.iter().for_each(|measure| text += &format!(" {:>20}", measure.name()));
    for kind in Kind::ALL {
        text += &format!("\n{:8}", kind.name());
        for measure in Measure::ALL {
            let figure = figures.get(&(kind, measure));
            text += &figure.map_or_else(|| format!(" {:>20}", "-"), |figure| format!(" {figure:>20.3}"));
        }
    }
    text
}

/// A directory for scratch files that goes with the value.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one below `parent`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn below(parent: &Path) -> Result<Scratch, String> {
        let path = parent.join(format!("rialto-steady-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Scratch(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_hold_what_is_counted_and_nothing_else() {
        let gates =
            read_gates("# comment\n tpcb instructions 2000 # was 1900\n\nread allocations 0.5\n").unwrap();
        assert_eq!(gates.len(), 2);
        let mut figures = Figures::from([((Kind::Tpcb, Measure::Instructions), 2000.0)]);
        let missing = broken(&gates, &figures);
        assert!(missing.len() == 1 && missing[0].contains("read allocations is not counted"), "{missing:?}");
        figures.insert((Kind::Read, Measure::Allocations), 0.25);
        assert_eq!(broken(&gates, &figures), Vec::<String>::new());
        figures.insert((Kind::Tpcb, Measure::Instructions), 2000.5);
        let more = broken(&gates, &figures);
        assert!(more.len() == 1 && more[0].contains("tpcb instructions is 2000.500"), "{more:?}");
    }

    #[test]
    fn a_line_that_is_no_gate_is_named() {
        for (text, named) in [
            ("tpcb instructions", "line 1"),
            ("\ntpch instructions 1", "line 2: \"tpch\""),
            ("tpcb misses 1", "log-bytes"),
            ("tpcb instructions many", "\"many\""),
        ] {
            let problem = read_gates(text).unwrap_err();
            assert!(problem.contains(named), "{text}: {problem}");
        }
    }

    #[test]
    fn reads_what_the_tools_write() {
        assert_eq!(read_dump("version: 1\nevents: Ir\nsummary: 4012345\n\nfn=(1) main\n"), Some(4_012_345));
        assert_eq!(read_dump("version: 1\n"), None);
        let mark = |kind: Kind, edge| {
            format!("7 statx(AT_FDCWD, \"{MARK}{}/{edge}\", 0) = -1 ENOENT\n", kind.name())
        };
        let mut trace = "7 openat(AT_FDCWD, \"x\") = 3\n".to_owned();
        for kind in Kind::ALL {
            trace += &mark(kind, "begin");
            trace += "7 pwrite64(3, \"(\"..., 4096, 0) = 4096\n8  futex(0x1, FUTEX_WAIT <unfinished ...>\n";
            trace +=
                "7 fdatasync(3) = 0\n8  <... futex resumed>) = 0\n7 --- SIGCHLD {si_signo=SIGCHLD} ---\n";
            trace += &mark(kind, "end");
        }
        let windows = read_trace(&trace).unwrap();
        assert_eq!(windows.len(), Kind::ALL.len());
        let calls: Vec<_> = windows[3].1.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(calls, [("fdatasync", 1), ("futex", 1), ("pwrite64", 1)]);
        let cut = &trace[..trace.len() - 10];
        assert!(read_trace(&cut[..cut.rfind(MARK).unwrap()]).is_err());
    }

    #[test]
    fn windows_without_counts_are_an_error() {
        let line = |kind: Kind| format!("window {} 3 7 400\n", kind.name());
        let text: String = Kind::ALL.into_iter().map(line).collect();
        assert_eq!(read_windows(&text).unwrap()[0], (Kind::Tpcb, [3, 7, 400]));
        assert!(read_windows(&text.replace(" 7 ", " - ")).is_err());
    }
}
