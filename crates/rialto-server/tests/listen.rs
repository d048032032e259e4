//! Where a server listens, and where it refuses to.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rialto::io::MemoryDisk;
use rialto::{Database, Options};
use rialto_server::{ServeError, ServeOptions, Server, runtime};
use tokio::sync::oneshot;

/// A new directory of its own for a test; short, because a socket's path has to be.
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

/// Speaks to a socket file: start-up, then the end; the first byte of the answer.
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
    let error = bind(ServeOptions { listen, max_connections: 0, ..Default::default() }).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let missing = Some(PathBuf::from("/no/such/directory"));
    let error = bind(ServeOptions { listen: None, socket_dir: missing, ..Default::default() }).unwrap_err();
    assert_eq!(error.exit_code(), 4);
    assert!(error.to_string().contains("/no/such/directory/.s.PGSQL.5432"), "{error}");
}

#[test]
fn a_socket_file_is_served_replaced_and_removed() {
    let directory = directory("listen");
    let path = directory.join(".s.PGSQL.7777");
    // What a server leaves that was killed: a socket that nobody listens on.
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
