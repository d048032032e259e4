//! A private PostgreSQL for comparisons: its cluster lies in a temporary directory, listens on a free port of the
//! loopback address, and is removed at the end.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, PATIENCE, tags};

/// A running cluster.
pub struct Postgres {
    pub address: SocketAddr,
    directory: PathBuf,
    server: Child,
}

/// The directory of the newest version's programs: Debian keeps them out of the path, in a directory for each version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|entry| entry.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<_> =
        debian.chain(std::env::split_paths(&path)).filter(|bin| bin.join("initdb").exists()).collect();
    let version = |bin: &PathBuf| {
        bin.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok())
    };
    found.sort_by_key(version);
    found.pop()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program of PostgreSQL, which refuses to run as root.
fn program(bin: &Path, name: &str) -> Command {
    let mut command = match is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"])
                .arg(bin.join(name));
            command
        }
        false => Command::new(bin.join(name)),
    };
    command.current_dir("/").env("LC_ALL", "C.UTF-8").env("TZ", "UTC").stdin(Stdio::null());
    command
}

impl Postgres {
    /// A cluster with the database `bank` and the superuser `ann`; none where PostgreSQL is not installed, which fails
    /// with `CI=true`.
    pub fn start() -> Option<Postgres> {
        let Some(bin) = programs() else {
            let is_ci = std::env::var("CI").as_deref() == Ok("true");
            assert!(
                !is_ci,
                "PostgreSQL is missing: install Debian's postgresql-contrib, which needs its server"
            );
            println!("skipped: PostgreSQL is not installed");
            return None;
        };
        // Tests of one process run beside each other.
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("rialto-beside-postgres-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("a temporary directory");
        if is_root() {
            let given = Command::new("chown").arg("postgres").arg(&directory).status();
            assert!(given.expect("chown runs").success());
        }
        let cluster = directory.join("cluster");
        let made = program(&bin, "initdb")
            .args(["-U", "ann", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&cluster)
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
        let server = program(&bin, "postgres")
            .arg("-D")
            .arg(&cluster)
            .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-k"])
            .arg(&directory)
            .args(["-F", "-c", "timezone=UTC", "-c", "log_timezone=UTC"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("log")).expect("a log"))
            .spawn()
            .expect("postgres starts");
        let mut postgres = Postgres { address, directory, server };
        postgres.wait_until_ready();
        Client::connect_to(address, "postgres").run("create database bank");
        Some(postgres)
    }

    fn wait_until_ready(&mut self) {
        let began = Instant::now();
        loop {
            // It may listen before it takes sessions; then it answers with an error.
            let is_answered = TcpStream::connect(self.address).is_ok_and(|_| {
                let mut client = Client::raw(self.address);
                client.send_startup(b"\0\x03\0\0user\0ann\0database\0postgres\0\0");
                tags(&client.answer()).ends_with('Z')
            });
            if is_answered {
                return;
            }
            let log = || std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            let ended = self.server.try_wait().expect("it can be waited for");
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "PostgreSQL does not start: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Ends at once, with all its processes.
        let quit = Command::new("kill").args(["-QUIT", &self.server.id().to_string()]).status();
        if !quit.is_ok_and(|quit| quit.success()) {
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
