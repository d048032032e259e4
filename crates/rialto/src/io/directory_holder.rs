//! [`DirectoryHolder`]: which process has a data directory open, as far as the directory tells.
//!
//! A process that has locked a directory writes a *mark* into the file `lock`: its number, when it began, under which
//! boot, in which namespace of numbers, and where it serves the database, if it does. It removes the mark before it unlocks the directory. The mark
//! decides nothing: only the lock does. So a mark that is missing, old, or cut has no other effect than that the holder
//! is not named.
//!
//! Invariant: a process is named only if it is alive and is the one that wrote the mark. The system uses numbers of
//! processes again, therefore the mark has the time at which the process began, in the kernel's ticks since the boot.
//! Each container has a namespace of numbers of its own, in which the same number is another process, and two
//! containers can begin in the same tick; so the mark has the namespace, and a process of another one is not named. A
//! process that died leaves its mark; until the next holder has written its own, nothing is named.

use std::fmt;
use std::fs;
use std::io;

/// The longest mark, in bytes.
pub(super) const MARK_BYTES_MAX: usize = 1_024;
/// The longest command line that is told, in characters.
const COMMAND_MAX: usize = 200;

/// A process that has a data directory open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryHolder {
    /// The number of the process.
    pub process: u32,
    /// Its command line; empty if that cannot be read.
    pub command: String,
    /// The address at which it serves the database, if it does.
    pub address: Option<String>,
}

/// When a process began, in ticks since the boot; `None` if there is no such process, or if it has ended and waits to be
/// reaped.
fn began(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program comes before, in parentheses, and may have any characters.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The namespace of the numbers of processes that this process sees; `-` if the system does not tell.
fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").ok();
    link.and_then(|link| link.into_os_string().into_string().ok()).unwrap_or_else(|| "-".to_owned())
}

/// The mark of this process. An address with control characters is left out.
pub(super) fn mark(boot: u128, address: Option<&str>) -> String {
    let process = std::process::id();
    let began = began(process).unwrap_or_default();
    let address = address.filter(|address| is_one_line(address)).unwrap_or_default();
    format!("{process} {began} {boot:032x} {}\n{address}\n", namespace())
}

/// Whether the text can be told as it is: a lock file may have any bytes.
fn is_one_line(text: &str) -> bool {
    !text.contains(char::is_control)
}

impl DirectoryHolder {
    /// The process that wrote this mark, if it is alive.
    pub(super) fn of_mark(mark: &str, boot: u128) -> Option<DirectoryHolder> {
        // A mark that is cut ends in no line break: the rest of its address would be a wrong one.
        let (first, address) = mark.strip_suffix('\n')?.split_once('\n')?;
        let mut words = first.split(' ');
        let (process, started) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let marked_boot = u128::from_str_radix(words.next()?, 16).ok()?;
        if marked_boot != boot || words.next()? != namespace() || began(process)? != started {
            return None;
        }
        if !is_one_line(address) {
            return None;
        }
        let address = Some(address).filter(|address| !address.is_empty()).map(str::to_owned);
        Some(DirectoryHolder { process, command: command(process), address })
    }

    /// The error of a lock that another open file has; it names the holder if that is known.
    pub(super) fn error(holder: Option<DirectoryHolder>) -> io::Error {
        match holder {
            Some(holder) => io::Error::new(io::ErrorKind::WouldBlock, holder),
            None => io::ErrorKind::WouldBlock.into(),
        }
    }

    /// The holder in the middle of a sentence.
    pub(crate) fn name(holder: Option<&DirectoryHolder>) -> String {
        holder.map_or_else(|| "another process".to_owned(), DirectoryHolder::to_string)
    }

    /// What to do about a directory that this process holds, or that an unknown one holds.
    pub(crate) fn advice(holder: Option<&DirectoryHolder>) -> String {
        match holder {
            None => "another process: a database can be open once; wait until that process ends, or stop it"
                .to_owned(),
            Some(holder) if holder.process == std::process::id() => {
                format!("this {holder}: a database can be open once in it, and handles of it can be cloned")
            }
            Some(holder @ DirectoryHolder { address: Some(address), .. }) => {
                format!("{holder}: connect to {address} with SQL, or stop that process")
            }
            Some(holder) => {
                format!("{holder}: a database can be open once; wait until that process ends, or stop it")
            }
        }
    }
}

impl fmt::Display for DirectoryHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.process)?;
        if !self.command.is_empty() {
            write!(f, " ({})", self.command)?;
        }
        match &self.address {
            Some(address) => write!(f, ", which serves it at {address}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for DirectoryHolder {}

/// The command line of a process, on one line.
fn command(process: u32) -> String {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let words =
        text.split(|letter: char| letter == '\0' || letter.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(COMMAND_MAX) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_mark_names_its_process_while_that_lives() {
        let own = mark(7, Some("127.0.0.1:5432"));
        let holder = DirectoryHolder::of_mark(&own, 7).expect("this process lives");
        assert_eq!((holder.process, holder.address.as_deref()), (std::process::id(), Some("127.0.0.1:5432")));
        assert!(holder.command.contains("rialto"), "{holder}");
        assert_eq!(DirectoryHolder::of_mark(&mark(7, None), 7).expect("so it is").address, None);
        for (what, text, boot) in [
            ("of an earlier boot", own.as_str(), 8),
            ("of a process that had this number before", &own.replacen(' ', " 1", 1), 7),
            ("empty", "", 7),
            ("of another namespace", &own.replacen("pid:[", "pid:[1", 1), 7),
            ("cut", &own[..own.len() / 4], 7),
            ("cut in its address", &own[..own.len() - 3], 7),
            ("cut before its last byte", &own[..own.len() - 1], 7),
            ("with a control character", &own.replacen("127", "\u{1b}[2J127", 1), 7),
            ("foreign", "pid 12", 7),
        ] {
            assert_eq!(DirectoryHolder::of_mark(text, boot), None, "{what}");
        }
    }

    #[test]
    fn an_address_that_is_not_one_line_is_left_out() {
        for address in ["127.0.0.1:1\nx", "127.0.0.1:1\rx"] {
            assert_eq!(DirectoryHolder::of_mark(&mark(7, Some(address)), 7).expect("it lives").address, None);
        }
    }

    #[test]
    fn a_process_that_has_ended_is_not_named() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let began = began(child.id()).expect("it lives");
        let mark = format!("{} {began} 7 {}\n\n", child.id(), namespace());
        let named = DirectoryHolder::of_mark(&mark, 7);
        assert!(named.is_some_and(|holder| holder.process == child.id()));
        child.kill().unwrap();
        // Until it is reaped its number is in use, and it holds nothing.
        while super::began(child.id()).is_some() {
            std::thread::yield_now();
        }
        assert_eq!(DirectoryHolder::of_mark(&mark, 7), None);
        child.wait().unwrap();
        assert_eq!(DirectoryHolder::of_mark(&mark, 7), None);
    }
}
