//! Where a server listens, and where it refuses to. A program of its own, because it changes how many files the process
//! may open.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rialto::io::MemoryDisk;
use rialto::{Database, Options};
use rialto_server::{ServeError, ServeOptions, Server, runtime};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::oneshot;

/// A new directory for a test; its name is short, because a socket's path has to be.
fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("rialto-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn database() -> Database {
    Database::open_on(MemoryDisk::new(), Options::default()).unwrap()
}

fn bind(options: ServeOptions) -> Result<(), ServeError> {
    let runtime = runtime()?;
    runtime.block_on(Server::bind(database(), &options)).map(|_| ())
}

/// Sends a start-up packet and the end to a socket file. Gives the first byte of the answer.
fn say_hello(path: &Path) -> u8 {
    let mut stream = UnixStream::connect(path).unwrap();
    let body = b"\0\x03\0\0user\0ann\0\0";
    stream.write_all(&(body.len() as u32 + 4).to_be_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    byte[0]
}

#[test]
fn only_this_machine_is_served() {
    let error =
        bind(ServeOptions { listen: Some(([0, 0, 0, 0], 0).into()), ..Default::default() }).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().starts_with("--listen 0.0.0.0:0: only loopback addresses"), "{error}");
    let error = bind(ServeOptions { listen: None, ..Default::default() }).unwrap_err();
    assert!(matches!(error, ServeError::Nowhere), "{error}");
    let listen = Some(([127, 0, 0, 1], 0).into());
    let limit = getrlimit(Resource::Nofile);
    for max_connections in [0, 16_385] {
        let error = bind(ServeOptions { listen, max_connections, ..Default::default() }).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        match error {
            // The limit may have been lower before.
            ServeError::TooManyConnections { most, .. } => assert!(most < max_connections, "{limit:?}"),
            error => assert_eq!(
                error.to_string(),
                format!("--max-connections {max_connections}: expected 1 to 16384")
            ),
        }
    }
    let missing = Some(PathBuf::from("/no/such/directory"));
    let error = bind(ServeOptions { listen: None, socket_dir: missing, ..Default::default() }).unwrap_err();
    assert_eq!(error.exit_code(), 4);
    assert!(error.to_string().contains("/no/such/directory/.s.PGSQL.5432"), "{error}");
}

/// Clients never get the files that the database needs, nor the last ones.
#[test]
fn no_more_connections_are_allowed_than_can_be_open_beside_the_database() {
    let listen = Some(([127, 0, 0, 1], 0).into());
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.current.map(|limit| limit / 2), ..limit }).unwrap();
    bind(ServeOptions { listen, ..Default::default() }).unwrap();
    let limit = getrlimit(Resource::Nofile);
    assert_eq!(limit.current, limit.maximum, "it takes what it may have");
    let half = limit.current.map_or(usize::MAX, |limit| limit as usize / 2);
    for max_connections in [half, usize::MAX] {
        let error = bind(ServeOptions { listen, max_connections, ..Default::default() });
        match error {
            Err(error @ ServeError::TooManyConnections { most, .. }) => {
                assert_eq!(error.exit_code(), 2);
                assert!((1..half).contains(&most), "{error}");
            }
            other => assert!(limit.current.is_none(), "{max_connections}: {other:?}"),
        }
    }
}

#[test]
fn a_socket_file_is_served_replaced_and_removed() {
    let directory = directory("listen");
    let path = directory.join(".s.PGSQL.7777");
    // A killed server leaves a socket on which nothing listens.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let runtime = runtime().unwrap();
    let options = ServeOptions {
        listen: None,
        socket_dir: Some(directory.clone()),
        port: 7777,
        data_label: "here".to_string(),
        ..Default::default()
    };
    let server = runtime.block_on(Server::bind(database(), &options)).unwrap();
    assert_eq!(server.ready_line(), format!("ready tcp=none socket={} data=here", path.display()));
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = runtime.spawn(server.run(async {
        let _ = stopped.await;
    }));
    assert_eq!(say_hello(&path), b'R');
    let Err(error) = runtime.block_on(Server::bind(database(), &options)) else {
        panic!("two servers on one file")
    };
    assert!(error.to_string().contains("another server listens there"), "{error}");
    assert_eq!(say_hello(&path), b'R', "a refused server leaves the file alone");
    drop(stop);
    runtime.block_on(ended).unwrap().unwrap();
    assert!(!path.exists(), "the file goes with the server");
    std::fs::remove_dir_all(&directory).unwrap();
}

fn at(directory: &Path, port: u16) -> ServeOptions {
    ServeOptions { listen: None, socket_dir: Some(directory.to_path_buf()), port, ..Default::default() }
}

#[test]
fn a_server_removes_no_socket_file_but_its_own() {
    let directory = directory("own");
    let path = directory.join(".s.PGSQL.7777");
    let runtime = runtime().unwrap();
    let server = runtime.block_on(Server::bind(database(), &at(&directory, 7777))).unwrap();
    // Another program takes the name while the server runs.
    std::fs::remove_file(&path).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(UnixStream::connect(&path).is_ok(), "the other's socket is there");
    drop(other);
    // The name is locked from before the look at its file to the server's end: even without the file it is in use.
    let server = runtime.block_on(Server::bind(database(), &at(&directory, 7777))).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = bind(at(&directory, 7777)).unwrap_err();
    assert!(error.to_string().contains("another server listens there"), "{error}");
    bind(at(&directory, 7778)).unwrap();
    drop(server);
    bind(at(&directory, 7777)).unwrap();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "nothing is left behind");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let directory = directory("file");
    let path = directory.join(".s.PGSQL.7777");
    std::fs::write(&path, "precious").unwrap();
    let error = bind(at(&directory, 7777)).unwrap_err();
    assert_eq!(error.exit_code(), 4);
    assert!(error.to_string().contains("no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_path_too_long_for_a_socket_is_refused_by_its_length() {
    let directory = directory("long");
    let long = directory.join("x".repeat(107 - directory.as_os_str().len() - "//.s.PGSQL.7777".len()));
    std::fs::create_dir_all(&long).unwrap();
    bind(at(&long, 7777)).unwrap();
    let longer = long.with_file_name(format!("{}y", long.file_name().unwrap().display()));
    std::fs::create_dir_all(&longer).unwrap();
    let error = bind(at(&longer, 7777)).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("108 bytes"), "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
}
