//! How an etcd is reached.

use std::time::Duration;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

/// The least time between two probes of a connection: an etcd ends a connection that is probed more often than every 5 s
/// (`--grpc-keepalive-min-time`).
const PROBE_MIN: Duration = Duration::from_secs(6);

/// How an etcd is reached.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// Its members: `host:port`, or an address that begins with `http://` or `https://`. Several members of one etcd may
    /// be named; one that answers is enough.
    pub endpoints: Vec<String>,
    /// What is put before each key. It ends with `/`, so that no other cluster's prefix begins with it by accident.
    pub prefix: String,
    /// The most time that one call takes, over all endpoints. A connection whose other end is gone is noticed within it.
    pub call_max: Duration,
    /// The certificates for `https`; without them, the connections are plain.
    pub tls: Option<EtcdTls>,
}

/// The certificates of the connections to an etcd, each in PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// The certificate of the authority that has signed those of etcd.
    pub authority: Vec<u8>,
    /// This client's certificate and private key, if etcd asks for one.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that etcd's certificate has to be made for, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for EtcdTls {
    /// Names what there is; the private key is never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdTls").field("has_client", &self.client.is_some()).finish_non_exhaustive()
    }
}

pub(super) fn connect_options(call_max: Duration, tls: Option<&EtcdTls>) -> ConnectOptions {
    // A member that has lost its leader says so at once.
    // A connection is probed while a call waits for its answer, and only then: etcd ends one that is probed at rest.
    let options = ConnectOptions::new()
        .with_connect_timeout(call_max)
        .with_require_leader(true)
        .with_keep_alive((call_max / 8).max(PROBE_MIN), call_max / 8)
        .with_keep_alive_while_idle(false);
    let Some(tls) = tls else { return options };
    let mut made = TlsOptions::new().ca_certificate(Certificate::from_pem(&tls.authority));
    if let Some((certificate, key)) = &tls.client {
        made = made.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &tls.server_name {
        made = made.domain_name(name);
    }
    options.with_tls(made)
}
