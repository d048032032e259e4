//! The sockets that a server listens on: loopback, and a Unix socket file.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};

use crate::ServeError;

/// The listening sockets of a server.
pub(crate) struct Listeners {
    pub(crate) tcp: Option<TcpListener>,
    pub(crate) unix: Option<(UnixListener, SocketFile)>,
}

/// A socket file, which goes when the server ends.
pub(crate) struct SocketFile(PathBuf);

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = std::fs::remove_file(&self.0);
    }
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

/// Listens on `.s.PGSQL.PORT` in the directory; a file that a dead server left is replaced.
fn open_socket_file(directory: &Path, port: u16) -> Result<(UnixListener, SocketFile), ServeError> {
    let path = directory.join(format!(".s.PGSQL.{port}"));
    let place = path.display().to_string();
    let failed = |cause: io::Error| ServeError::Listen { place: place.clone(), cause };
    match UnixStream::connect(&path) {
        Ok(_) => {
            let cause = io::Error::new(io::ErrorKind::AddrInUse, "another server listens there");
            return Err(failed(cause));
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(&path).map_err(failed)?;
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    let path = std::path::absolute(&path).map_err(failed)?;
    Ok((listener, SocketFile(path)))
}
