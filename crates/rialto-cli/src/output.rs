//! The program's output: results on stdout, everything else on stderr. The reader of either may be gone
//! (`rialto inspect DIR | head -1`). The program then ends as it would have, and prints nothing more.

use std::fmt;
use std::io::{self, ErrorKind, Stdout, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use rialto::OpenError;

/// Standard output. Once its reader has gone, output is discarded without an error.
pub struct Results {
    out: Stdout,
    is_read: bool,
}

impl Results {
    pub fn new() -> Results {
        Results { out: io::stdout(), is_read: true }
    }

    /// Writes, as long as there is a reader; `instead` is the result without one.
    fn while_read<T>(
        &mut self,
        instead: T,
        write: impl FnOnce(&mut Stdout) -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.is_read {
            return Ok(instead);
        }
        match write(&mut self.out) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_read = false;
                Ok(instead)
            }
            written => written,
        }
    }
}

impl Write for Results {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.while_read(bytes.len(), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.while_read((), |out| out.flush())
    }
}

/// Prints a result, and gives the exit code: this one, or 4 if the output fails.
pub fn print(result: impl fmt::Display, code: ExitCode) -> ExitCode {
    let mut out = Results::new();
    match writeln!(out, "{result}").and_then(|()| out.flush()) {
        Ok(()) => code,
        Err(error) => fail(format_args!("standard output: {error}"), 4),
    }
}

/// Whether a line that is rewritten stands on stderr, without its end.
static STANDS: Mutex<bool> = Mutex::new(false);

/// Prints a line on stderr, below one that is rewritten.
pub fn tell(text: impl fmt::Display) {
    let mut stands = STANDS.lock().unwrap_or_else(PoisonError::into_inner);
    let end = if std::mem::take(&mut *stands) { "\n" } else { "" };
    // No output is left for this error.
    let _ = writeln!(io::stderr(), "{end}{text}");
}

/// Prints a text on stderr that may be a line to be rewritten: such a text has no end of a line.
pub fn rewrite(text: &str) {
    let mut stands = STANDS.lock().unwrap_or_else(PoisonError::into_inner);
    *stands = !text.ends_with('\n');
    // No output is left for this error.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Why a database does not open, with the program's option in place of the library's.
pub fn cannot_open(error: &OpenError) -> String {
    match error {
        OpenError::Memory { limit } => {
            format!("the database does not fit into --memory-bytes ({limit} bytes): give more")
        }
        error => error.to_string(),
    }
}

/// Prints an error on stderr, and gives its exit code.
pub fn fail(error: impl fmt::Display, code: u8) -> ExitCode {
    tell(format_args!("error: {error}"));
    ExitCode::from(code)
}
