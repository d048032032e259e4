//! Processes of etcd, on free loopback ports, with data directories of their own.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rialto_cluster::control::{EtcdOptions, EtcdStore, EtcdTls};

/// The longest wait for something that has to come: longer than a machine stands still.
const PATIENCE: Duration = Duration::from_secs(100);

/// Whether etcd is installed. Where it is not, a test that needs it is left out, and says so; with `CI=true` it fails.
pub fn is_installed() -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "etcd is not installed (Debian: etcd-server), and CI=true is set"
    );
    println!("left out: etcd is not installed (Debian: etcd-server)");
    false
}

/// The members of one etcd.
pub struct Etcd {
    directory: PathBuf,
    members: Vec<Member>,
    certificates: Option<Certificates>,
    /// More of etcd's options.
    more: Vec<String>,
}

struct Member {
    child: Option<Child>,
    client_port: u16,
    peer_port: u16,
}

/// An authority, and the certificate with its key that an etcd shows.
pub struct Certificates {
    pub authority: String,
    pub certificate: String,
    pub key: String,
}

impl Etcd {
    /// Starts so many members, and does not wait for them.
    pub fn start(members: usize) -> Etcd {
        Etcd::start_with(members, None, &[])
    }

    /// The same with certificates: its clients have to show one, too.
    pub fn start_secure(members: usize, certificates: Certificates) -> Etcd {
        Etcd::start_with(members, Some(certificates), &[])
    }

    /// The same with more of etcd's options.
    pub fn start_with(members: usize, certificates: Option<Certificates>, more: &[&str]) -> Etcd {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("rialto-etcd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        // All are held at once, so that they differ.
        let ports: Vec<TcpListener> =
            (0..2 * members).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let port = |index: usize| ports[index].local_addr().expect("an address").port();
        let made =
            |index| Member { child: None, client_port: port(2 * index), peer_port: port(2 * index + 1) };
        let members: Vec<Member> = (0..members).map(made).collect();
        drop(ports);
        if let Some(certificates) = &certificates {
            for (name, text) in [
                ("authority.pem", &certificates.authority),
                ("certificate.pem", &certificates.certificate),
                ("key.pem", &certificates.key),
            ] {
                std::fs::write(directory.join(name), text).expect("a file");
            }
        }
        let more = more.iter().map(|&option| option.to_owned()).collect();
        let mut etcd = Etcd { directory, members, certificates, more };
        for index in 0..etcd.members.len() {
            etcd.start_member(index);
        }
        etcd
    }

    /// Starts a member, or starts it again with the data that it has.
    pub fn start_member(&mut self, index: usize) {
        let client = self.endpoint(index);
        let peer = |index: usize| format!("http://127.0.0.1:{}", self.members[index].peer_port);
        let all: Vec<String> =
            (0..self.members.len()).map(|index| format!("m{index}={}", peer(index))).collect();
        let log =
            File::options().append(true).create(true).open(self.directory.join(format!("m{index}.log")));
        let log = log.expect("a file");
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{index}"), "--data-dir"])
            .arg(self.directory.join(format!("m{index}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer(index), "--initial-advertise-peer-urls", &peer(index)])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
            .args(&self.more)
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a handle"))
            .stderr(log);
        if self.certificates.is_some() {
            command.arg("--client-cert-auth");
            let options = ["--trusted-ca-file", "--cert-file", "--key-file"];
            for (option, file) in options.into_iter().zip(["authority.pem", "certificate.pem", "key.pem"]) {
                command.arg(option).arg(self.directory.join(file));
            }
        }
        self.members[index].child = Some(command.spawn().expect("etcd starts"));
    }

    /// The address at which a member takes clients.
    pub fn endpoint(&self, index: usize) -> String {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.members[index].client_port)
    }

    /// How all members are reached.
    pub fn options(&self, tls: Option<EtcdTls>) -> EtcdOptions {
        EtcdOptions {
            endpoints: (0..self.members.len()).map(|index| self.endpoint(index)).collect(),
            prefix: "rialto/test/".to_owned(),
            call_max: Duration::from_secs(30),
            tls,
        }
    }

    /// A client of all members. It waits until one of them answers.
    pub fn client(&self) -> EtcdStore {
        patiently("etcd answers", || EtcdStore::connect(self.options(None)).ok())
    }

    /// Ends a member at once (SIGKILL).
    pub fn kill(&mut self, index: usize) {
        let mut child = self.members[index].child.take().expect("it runs");
        child.kill().expect("it is ended");
        child.wait().expect("it has ended");
    }

    /// Sends a member a signal, as `STOP`.
    pub fn signal(&self, index: usize, signal: &str) {
        let id = self.members[index].child.as_ref().expect("it runs").id();
        let sent =
            Command::new("kill").args([format!("-{signal}"), id.to_string()]).status().expect("kill is run");
        assert!(sent.success(), "{signal} is sent");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for child in self.members.iter_mut().filter_map(|member| member.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            println!("the logs of etcd are in {}", self.directory.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Tries until something is there.
pub fn patiently<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: this has not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}
