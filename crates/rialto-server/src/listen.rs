//! The sockets that a server listens on: loopback, and a Unix socket file.

use std::fs::{File, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};

use crate::ServeError;

/// The longest path of a socket that the system takes (`sun_path`, less its end).
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The listening sockets of a server.
pub(crate) struct Listeners {
    pub(crate) tcp: Option<TcpListener>,
    pub(crate) unix: Option<(UnixListener, SocketFile)>,
}

/// A socket file, which is removed when the server ends.
///
/// Invariant: a server removes a socket file only while it holds the lock of that name, and at its end only the file
/// that it has bound itself. So no server takes the file of another, even if they begin or end at the same time.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The device and the inode of the socket.
    bound: (u64, u64),
    /// Held to the end; dropped last.
    _lock: NameLock,
}

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If it is gone already, nothing is left to do.
        if identity(&self.path).is_ok_and(|found| found == self.bound) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The device and the inode of a file. A link is not followed.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// The lock of a socket file's name: a file beside it, locked for as long as a server uses the name.
struct NameLock {
    path: PathBuf,
    file: File,
}

impl NameLock {
    /// Takes the lock; an error of kind `AddrInUse` if another server has it.
    fn take(socket: &Path) -> io::Result<NameLock> {
        let mut name = socket.as_os_str().to_owned();
        name.push(".rialto-lock");
        let path = PathBuf::from(name);
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(in_use()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // A server that ends removes the file that it has locked. A lock on a removed file locks nothing.
            let locked = file.metadata()?;
            if identity(&path).is_ok_and(|found| found == (locked.dev(), locked.ino())) {
                return Ok(NameLock { path, file });
            }
        }
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")
}

impl Listeners {
    pub(crate) async fn open(
        listen: Option<SocketAddr>,
        directory: Option<&Path>,
        port: u16,
    ) -> Result<Listeners, ServeError> {
        if listen.is_none() && directory.is_none() {
            return Err(ServeError::Nowhere);
        }
        let tcp = match listen {
            None => None,
            Some(address) if !address.ip().is_loopback() => return Err(ServeError::NotLoopback { address }),
            Some(address) => {
                let bound = TcpListener::bind(address).await;
                Some(bound.map_err(|cause| ServeError::Listen { place: address.to_string(), cause })?)
            }
        };
        let unix = match directory {
            None => None,
            Some(directory) => Some(open_socket_file(directory, port)?),
        };
        Ok(Listeners { tcp, unix })
    }
}

/// Listens on `.s.PGSQL.PORT` in the directory. A socket that a dead server has left is replaced.
fn open_socket_file(directory: &Path, port: u16) -> Result<(UnixListener, SocketFile), ServeError> {
    let path = directory.join(format!(".s.PGSQL.{port}"));
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(ServeError::SocketPathTooLong { path, bytes });
    }
    let place = path.display().to_string();
    let failed = |cause: io::Error| ServeError::Listen { place: place.clone(), cause };
    let lock = NameLock::take(&path).map_err(failed)?;
    match UnixStream::connect(&path) {
        Ok(_) => return Err(failed(in_use())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // A file that is no socket refuses connections, too.
            let found = std::fs::symlink_metadata(&path).map_err(failed)?;
            if !found.file_type().is_socket() {
                let cause = io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket");
                return Err(failed(cause));
            }
            std::fs::remove_file(&path).map_err(failed)?;
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    let path = std::path::absolute(&path).map_err(failed)?;
    let bound = identity(&path).map_err(failed)?;
    Ok((listener, SocketFile { path, bound, _lock: lock }))
}
