//! A process that has no thread left: what it has goes on, and what is new is turned away, or is an error.

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::thread::{JoinHandle, Thread};

use rialto_cluster::net::{Class, Failure, SendError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::nodes::{Node, connect};

/// Set in the process that runs the test's body: the limit is a process's.
const INSIDE: &str = "RIALTO_TEST_WITHOUT_THREADS";
const TEST: &str = "threads::a_node_without_threads_turns_connections_away_and_goes_on";

/// While it is there, no thread can start: there is no memory for its stack.
struct NoThreads {
    before: Rlimit,
    sleepers: Vec<JoinHandle<()>>,
}

impl NoThreads {
    fn new() -> NoThreads {
        let before = getrlimit(Resource::As);
        let status = std::fs::read_to_string("/proc/self/status").expect("the process's memory");
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
        let kib: u64 = size.and_then(|size| size.trim().parse().ok()).expect("a number");
        let bytes = (kib << 10) + (1 << 20);
        setrlimit(Resource::As, Rlimit { current: Some(bytes), maximum: before.maximum }).expect("a limit");
        // Stacks of threads that have ended are used again.
        let sleeper = || std::thread::Builder::new().spawn(std::thread::park).ok();
        NoThreads { before, sleepers: std::iter::from_fn(sleeper).collect() }
    }
}

impl Drop for NoThreads {
    fn drop(&mut self) {
        setrlimit(Resource::As, self.before).expect("the limit from before");
        self.sleepers.iter().map(JoinHandle::thread).for_each(Thread::unpark);
    }
}

#[test]
fn a_node_without_threads_turns_connections_away_and_goes_on() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let program = std::env::current_exe().expect("this program");
    let ran = Command::new(program).args(["--exact", TEST, "--nocapture"]).env(INSIDE, "1").output();
    let ran = ran.expect("a process");
    let told = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(ran.status.success() && told.contains("1 passed"), "{told}");
}

fn inside() {
    let [one, two, three] = [Node::new(1), Node::new(2), Node::new(3)];
    connect(&[&one, &two]);
    let no_threads = NoThreads::new();

    let mut stranger = TcpStream::connect(two.links.address()).expect("the kernel takes it");
    let why = two.recorder.wait_for_failure(|why| matches!(why, Failure::Busy(_)));
    assert!(why.to_string().contains("no thread"), "{why}");
    // An end, or a reset.
    let _ = stranger.read_to_end(&mut Vec::new());

    // The members are as before: neither is the new one there, nor is the old one gone.
    let told = two.links.set_members(&[three.member()]).expect_err("no thread");
    println!("{told}");
    assert_eq!(two.links.send(three.id, Class::Work, b"a"), Err(SendError::NotAMember));
    two.links.send(one.id, Class::Work, b"a").expect("the connection from before");
    one.recorder.wait_for_messages(two.id, 1);

    drop(no_threads);
    two.links.set_members(&[one.member(), three.member()]).expect("links");
    three.links.set_members(&[two.member()]).expect("links");
    three.wait_for_links(&two);
    two.wait_for_links(&three);
    two.links.send(three.id, Class::Work, b"b").expect("a connection");
    three.recorder.wait_for_messages(two.id, 1);
}
