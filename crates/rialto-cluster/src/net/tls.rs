//! Encrypted connections: TLS 1.3, with a certificate on both sides.
//!
//! One authority signs the certificates of a cluster's nodes, and nothing else: a certificate of it is what makes a
//! connection one of the cluster. Each is made for its node's name. The connecting node compares the name of the node
//! that it means to reach; the other node compares the name that the hello says.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::stream::{Socket, Stream};

/// A node's certificates.
#[derive(Clone)]
pub struct Tls {
    connecting: Arc<ClientConfig>,
    accepting: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    /// The private key is never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Why certificates are of no use.
#[derive(Debug)]
pub struct TlsError {
    file: PathBuf,
    what: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

impl std::error::Error for TlsError {}

impl Tls {
    /// The certificates in three files in PEM: that of the cluster's authority, this node's own one (with those between
    /// it and the authority's, if there are any), and this node's private key.
    ///
    /// # Errors
    /// The file that cannot be read, or has no certificate or key in it, or does not fit the others.
    pub fn from_files(authority: &Path, certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let wrong =
            |file: &Path, what: &dyn fmt::Display| TlsError { file: file.to_owned(), what: what.to_string() };
        let mut roots = RootCertStore::empty();
        for found in certificates(authority)? {
            roots.add(found).map_err(|error| wrong(authority, &error))?;
        }
        let roots = Arc::new(roots);
        let own = certificates(certificate)?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| wrong(key, &format_args!("no private key in PEM is there: {error}")))?;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| wrong(authority, &error))?;
        let mut accepting = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| wrong(certificate, &error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(own.clone(), private.clone_key())
            .map_err(|error| wrong(key, &error))?;
        // Connections are permanent; a ticket to resume one would only be bytes that a writer has to look at.
        accepting.send_tls13_tickets = 0;
        let connecting = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| wrong(certificate, &error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(own, private)
            .map_err(|error| wrong(key, &error))?;
        Ok(Tls { connecting: Arc::new(connecting), accepting: Arc::new(accepting) })
    }

    /// Encrypts a connection that this node has made to the node of a name.
    pub(super) fn connect(&self, socket: Socket, name: &str) -> io::Result<Stream> {
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let mut connection =
            ClientConnection::new(Arc::clone(&self.connecting), name).map_err(io::Error::other)?;
        // All that is queued is encrypted, and goes by one write.
        connection.set_buffer_limit(None);
        Ok(Stream::Connected(Box::new(StreamOwned::new(connection, socket))))
    }

    /// Encrypts a connection that another node has made.
    pub(super) fn accept(&self, socket: Socket) -> io::Result<Stream> {
        let connection = ServerConnection::new(Arc::clone(&self.accepting)).map_err(io::Error::other)?;
        Ok(Stream::Accepted(Box::new(StreamOwned::new(connection, socket))))
    }
}

/// Whether a certificate was made for a name.
pub(super) fn is_made_for(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let Ok(name) = ServerName::try_from(name) else { return false };
    ParsedCertificate::try_from(certificate).is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |what: String| TlsError { file: file.to_owned(), what };
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| wrong(format!("no certificates in PEM are there: {error}")))?;
    if found.is_empty() {
        return Err(wrong("no certificate is in it".to_owned()));
    }
    Ok(found)
}
