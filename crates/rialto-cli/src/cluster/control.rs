//! The control store of a cluster: how the command line names it, and how it is reached.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rialto_cluster::control::{ControlError, EtcdOptions, EtcdStore, EtcdTls};

use super::failed::Failed;
use super::files::{self, Readers};

/// The most time that one call of the control store takes.
const CALL_MAX: Duration = Duration::from_secs(2);

/// The names of the files in a node's directory, in the order of [`TlsArgs`].
const FILES: [&str; 3] = ["control-authority.pem", "control-certificate.pem", "control-key.pem"];

/// How the control store is reached by TLS.
#[derive(Debug, Clone, Args)]
pub struct TlsArgs {
    /// The certificate, in PEM, of the authority that has signed those of etcd, for endpoints that begin with https; it is
    /// copied into each node's directory
    #[arg(long, value_name = "FILE")]
    control_authority: Option<PathBuf>,
    /// This cluster's certificate for etcd, in PEM, if etcd asks for one
    #[arg(long, value_name = "FILE", requires_all = ["control_authority", "control_key"])]
    control_certificate: Option<PathBuf>,
    /// The private key of --control-certificate
    #[arg(long, value_name = "FILE", requires = "control_certificate")]
    control_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Plain connections.
    pub fn none() -> TlsArgs {
        TlsArgs { control_authority: None, control_certificate: None, control_key: None }
    }

    /// Those of a node whose directory this is.
    pub fn in_directory(directory: &Path) -> TlsArgs {
        let found = |file: &str| Some(directory.join(file)).filter(|path| path.exists());
        let [control_authority, control_certificate, control_key] = FILES.map(found);
        TlsArgs { control_authority, control_certificate, control_key }
    }

    /// What the files have.
    pub fn read(&self) -> Result<Option<EtcdTls>, Failed> {
        read([&self.control_authority, &self.control_certificate, &self.control_key].map(Option::as_deref))
    }

    /// Copies the files into a node's directory.
    pub fn copy_to(&self, directory: &Path) -> Result<(), Failed> {
        let given = [&self.control_authority, &self.control_certificate, &self.control_key];
        for (from, to) in given.into_iter().zip(FILES) {
            let Some(from) = from else { continue };
            let text = files::read(from)?.ok_or_else(|| missing(from))?;
            files::write(&directory.join(to), &text, Readers::Owner)?;
        }
        Ok(())
    }
}

fn missing(file: &Path) -> Failed {
    Failed::usage(format_args!("{}: there is no such file", file.display()))
}

fn read(paths: [Option<&Path>; 3]) -> Result<Option<EtcdTls>, Failed> {
    let text = |path: &Path| files::read(path)?.map(String::into_bytes).ok_or_else(|| missing(path));
    let [Some(authority), certificate, key] = paths else { return Ok(None) };
    let client = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((text(certificate)?, text(key)?)),
        _ => None,
    };
    Ok(Some(EtcdTls { authority: text(authority)?, client, server_name: None }))
}

/// The certificates in a node's directory, if there are some.
pub fn tls_in(directory: &Path) -> Result<Option<EtcdTls>, Failed> {
    let paths = FILES.map(|file| directory.join(file));
    let found: Vec<Option<&Path>> =
        paths.iter().map(|path| path.exists().then_some(path.as_path())).collect();
    read([found[0], found[1], found[2]])
}

/// Connects to the control store.
pub fn connect(endpoints: &[String], prefix: &str, tls: Option<EtcdTls>) -> Result<EtcdStore, ControlError> {
    let (endpoints, prefix) = (endpoints.to_vec(), prefix.to_owned());
    EtcdStore::connect(EtcdOptions { endpoints, prefix, call_max: CALL_MAX, tls })
}
