//! A control store in etcd.
//!
//! One client holds a connection to each endpoint. A call asks the endpoint that answered last, then the others, each
//! with its share of the time that is left. A thread of its own does the waiting; the caller's thread needs no runtime.
//!
//! # A swap that is asked twice
//!
//! If an endpoint has not answered, the swap that it was asked for may have been done, or may be done later. The next
//! endpoint is asked nevertheless. If it answers *done*, the first request had not been done before it, and cannot be
//! done after it, as the key's revision is another one now. If it answers *lost*, the first request may be what changed
//! the key: the caller is told that the outcome is unknown.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, GetResponse, Identity,
    KeyValue, KvClient, ResponseHeader, TlsOptions, Txn, TxnOp,
};

use super::{ControlError, ControlStore, Revision, Swapped, Versioned};

/// The oldest etcd that is taken: major and minor version.
const LEAST: (u32, u32) = (3, 4);

/// The codes of gRPC by which a server says that it will never do this request: an argument is invalid, permission is
/// denied, a precondition fails, the call is not implemented, the client is not authenticated.
const REFUSALS: [i32; 5] = [3, 7, 9, 12, 16];

/// How an etcd is reached.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// Its members: `host:port`, or an address that begins with `http://` or `https://`. Several members of one etcd may
    /// be named; one that answers is enough.
    pub endpoints: Vec<String>,
    /// What is put before each key. It ends with `/`, so that no other cluster's prefix begins with it by accident.
    pub prefix: String,
    /// The most time that one call takes, over all endpoints.
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

/// A control store in etcd.
///
/// All endpoints have to be members of one etcd: the first answer says which one that is, and an answer of another one
/// is refused. An etcd that was restored from a backup may count as another one; the nodes connect to it again then.
pub struct EtcdStore {
    runtime: Option<tokio::runtime::Runtime>,
    shared: std::sync::Arc<Shared>,
}

/// What the tasks of calls use.
struct Shared {
    endpoints: Vec<Endpoint>,
    prefix: String,
    call_max: Duration,
    /// The endpoint that is asked first.
    preferred: AtomicUsize,
    /// The identity of the etcd, known since the first answer.
    cluster: OnceLock<u64>,
}

/// One member.
struct Endpoint {
    name: String,
    client: Client,
    /// Set once its version was found to be new enough.
    version: OnceLock<()>,
}

/// Why one endpoint gave no answer.
enum Failed {
    /// What was asked may have been done.
    Unknown(String),
    /// It answered that it will not.
    Refused(String),
}

/// What is asked of an endpoint.
#[derive(Clone)]
enum Request {
    Get(String),
    List(String),
    Swap {
        key: String,
        expected: Option<Revision>,
        value: Vec<u8>,
    },
    /// Only the version.
    Greet,
}

/// What an endpoint answers.
enum Answer {
    Found(Vec<(String, Versioned)>),
    Swapped(Swapped),
    Greeted,
}

impl EtcdStore {
    /// Connects to an etcd, and compares its version with the least one, 3.4.
    ///
    /// # Blocking
    /// It returns within [`EtcdOptions::call_max`].
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the options make no sense, if an endpoint's version is too old, or if the endpoints are
    /// members of several etcds; [`ControlError::Unavailable`] if no endpoint has answered. An endpoint that does not
    /// answer is no error if another one does: it is looked at before its first use.
    pub fn connect(options: EtcdOptions) -> Result<EtcdStore, ControlError> {
        let EtcdOptions { endpoints, prefix, call_max, tls } = options;
        if endpoints.is_empty() {
            return Err(ControlError::Refused("no endpoint of etcd is named; name one at least".to_owned()));
        }
        if !prefix.ends_with('/') {
            return Err(ControlError::Refused(format!(
                "the prefix {prefix:?} of etcd's keys does not end with /"
            )));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("rialto-etcd")
            .enable_all()
            .build()
            .map_err(|error| {
                ControlError::Unavailable(format!("no thread for etcd's connections: {error}"))
            })?;
        let mut connected = Vec::with_capacity(endpoints.len());
        for name in endpoints {
            // It connects at the first request.
            let made =
                runtime.block_on(Client::connect([&name], Some(connect_options(call_max, tls.as_ref()))));
            let client = made.map_err(|error| {
                ControlError::Refused(format!(
                    "the endpoint {name} of etcd cannot be used: {}",
                    describe(&error)
                ))
            })?;
            connected.push(Endpoint { name, client, version: OnceLock::new() });
        }
        let shared = Shared {
            endpoints: connected,
            prefix,
            call_max,
            preferred: AtomicUsize::new(0),
            cluster: OnceLock::new(),
        };
        let store = EtcdStore { runtime: Some(runtime), shared: std::sync::Arc::new(shared) };
        store.greet_all()?;
        Ok(store)
    }

    /// Asks every endpoint for its version, all at once.
    fn greet_all(&self) -> Result<(), ControlError> {
        let (sender, answers) = std::sync::mpsc::channel();
        for index in 0..self.shared.endpoints.len() {
            let (shared, sender) = (std::sync::Arc::clone(&self.shared), sender.clone());
            self.runtime().spawn(async move {
                let answer = shared.ask_for(index, Request::Greet, shared.call_max).await;
                // The receiver waits for all of them.
                let _ = sender.send((index, answer.map(drop)));
            });
        }
        drop(sender);
        let (mut reached, mut told) = (None, String::new());
        for (index, answer) in answers {
            match answer {
                Ok(()) => reached = reached.min(Some(index)).or(Some(index)),
                Err(Failed::Refused(what)) => return Err(ControlError::Refused(what)),
                Err(Failed::Unknown(what)) => append(&mut told, &what),
            }
        }
        let Some(index) = reached else {
            return Err(ControlError::Unavailable(format!("{told}; start etcd, or name other endpoints")));
        };
        self.shared.preferred.store(index, Ordering::Relaxed);
        Ok(())
    }

    fn runtime(&self) -> &tokio::runtime::Runtime {
        self.runtime.as_ref().expect("it is there until the store is dropped")
    }

    /// Has a request answered, and waits for it.
    fn call(&self, request: Request) -> Result<Answer, ControlError> {
        let (sender, answer) = std::sync::mpsc::sync_channel(1);
        let shared = std::sync::Arc::clone(&self.shared);
        self.runtime().spawn(async move {
            // The receiver waits for it.
            let _ = sender.send(shared.ask(request).await);
        });
        answer
            .recv()
            .unwrap_or_else(|_| Err(ControlError::Unavailable("etcd's client has stopped".to_owned())))
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // It does not wait, and may be called from a thread of another runtime.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    /// Asks the endpoints in turn, until one answers.
    async fn ask(&self, request: Request) -> Result<Answer, ControlError> {
        let until = Instant::now() + self.call_max;
        let (first, count) = (self.preferred.load(Ordering::Relaxed), self.endpoints.len());
        let mut told = String::new();
        for asked in 0..count {
            let index = (first + asked) % count;
            let share = until.saturating_duration_since(Instant::now()) / (count - asked) as u32;
            match self.ask_for(index, request.clone(), share).await {
                Ok(Answer::Swapped(Swapped::Lost)) if !told.is_empty() => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Err(ControlError::Unavailable(format!(
                        "{told}; {} answers that the key has changed, perhaps by the same request",
                        self.endpoints[index].name
                    )));
                }
                Ok(answer) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(Failed::Refused(what)) if told.is_empty() => return Err(ControlError::Refused(what)),
                Err(Failed::Refused(what)) => {
                    append(&mut told, &what);
                    return Err(ControlError::Unavailable(told));
                }
                Err(Failed::Unknown(what)) => append(&mut told, &what),
            }
        }
        Err(ControlError::Unavailable(format!(
            "{told}; see whether most of etcd's members run and reach each other"
        )))
    }

    /// Asks one endpoint, for so long at most.
    async fn ask_for(&self, index: usize, request: Request, share: Duration) -> Result<Answer, Failed> {
        let endpoint = &self.endpoints[index];
        match tokio::time::timeout(share, self.ask_one(endpoint, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failed::Unknown(format!("{} has not answered for {share:.1?}", endpoint.name))),
        }
    }

    async fn ask_one(&self, endpoint: &Endpoint, request: Request) -> Result<Answer, Failed> {
        if endpoint.version.get().is_none() {
            let status = endpoint.client.maintenance_client().status().await;
            let status = status.map_err(|error| endpoint.failed(&error))?;
            self.check_cluster(endpoint, status.header())?;
            check_version(&endpoint.name, status.version())?;
            endpoint.version.get_or_init(|| ());
        }
        let mut client = endpoint.client.kv_client();
        match request {
            Request::Greet => Ok(Answer::Greeted),
            Request::Get(key) => {
                let got = client.get(format!("{}{key}", self.prefix), None).await;
                self.found(endpoint, got)
            }
            Request::List(prefix) => {
                let options = GetOptions::new().with_prefix();
                let got = client.get(format!("{}{prefix}", self.prefix), Some(options)).await;
                self.found(endpoint, got)
            }
            Request::Swap { key, expected, value } => {
                self.swap(endpoint, client, format!("{}{key}", self.prefix), expected, value).await
            }
        }
    }

    async fn swap(
        &self,
        endpoint: &Endpoint,
        mut client: KvClient,
        key: String,
        expected: Option<Revision>,
        value: Vec<u8>,
    ) -> Result<Answer, Failed> {
        // A key without a value has revision 0.
        let expected = i64::try_from(expected.map_or(0, |revision| revision.0))
            .map_err(|_| Failed::Refused(format!("{expected:?} is no revision of etcd")))?;
        let swap = Txn::new()
            .when([Compare::mod_revision(key.as_str(), CompareOp::Equal, expected)])
            .and_then([TxnOp::put(key, value, None)]);
        let done = client.txn(swap).await.map_err(|error| endpoint.failed(&error))?;
        self.check_cluster(endpoint, done.header())?;
        if !done.succeeded() {
            return Ok(Answer::Swapped(Swapped::Lost));
        }
        // The header's revision is the transaction's own.
        let revision = done.header().map_or(0, ResponseHeader::revision);
        Ok(Answer::Swapped(Swapped::Done(endpoint.revision(revision)?)))
    }

    fn found(&self, endpoint: &Endpoint, got: Result<GetResponse, Error>) -> Result<Answer, Failed> {
        let mut got = got.map_err(|error| endpoint.failed(&error))?;
        self.check_cluster(endpoint, got.header())?;
        let keys = got.take_kvs().into_iter().map(|found| self.key_value(endpoint, found));
        Ok(Answer::Found(keys.collect::<Result<_, _>>()?))
    }

    fn key_value(&self, endpoint: &Endpoint, found: KeyValue) -> Result<(String, Versioned), Failed> {
        let revision = endpoint.revision(found.mod_revision())?;
        let (key, value) = found.into_key_value();
        let inside =
            String::from_utf8(key).ok().and_then(|key| key.strip_prefix(&self.prefix).map(str::to_owned));
        let key = inside.ok_or_else(|| {
            Failed::Refused(format!("{} has a key below {} that is no text", endpoint.name, self.prefix))
        })?;
        Ok((key, Versioned { value, revision }))
    }

    /// All endpoints are of one etcd: two of them would be two truths.
    fn check_cluster(&self, endpoint: &Endpoint, header: Option<&ResponseHeader>) -> Result<(), Failed> {
        let theirs = header.map_or(0, ResponseHeader::cluster_id);
        let ours = *self.cluster.get_or_init(|| theirs);
        if ours == theirs {
            return Ok(());
        }
        Err(Failed::Refused(format!(
            "{} belongs to the etcd {theirs:x}, and this node talks with the etcd {ours:x}; name endpoints of one etcd \
             only, and start the node again if etcd was restored",
            endpoint.name
        )))
    }
}

impl Endpoint {
    fn failed(&self, error: &Error) -> Failed {
        let what = format!("{}: {}", self.name, describe(error));
        let Error::GRpcStatus(status) = error else { return Failed::Unknown(what) };
        if status.message().contains("database space exceeded") {
            Failed::Refused(format!(
                "{what}; compact and defragment it, then disarm its alarm (etcdctl alarm disarm)"
            ))
        } else if REFUSALS.contains(&(status.code() as i32)) {
            Failed::Refused(what)
        } else {
            Failed::Unknown(what)
        }
    }

    fn revision(&self, revision: i64) -> Result<Revision, Failed> {
        match u64::try_from(revision) {
            Ok(revision) if revision > 0 => Ok(Revision(revision)),
            _ => Err(Failed::Refused(format!("{} says that {revision} is a key's revision", self.name))),
        }
    }
}

impl ControlStore for EtcdStore {
    fn get(&self, key: &str) -> Result<Option<Versioned>, ControlError> {
        match self.call(Request::Get(key.to_owned()))? {
            Answer::Found(mut found) => Ok(found.pop().map(|(_, versioned)| versioned)),
            Answer::Swapped(_) | Answer::Greeted => unreachable!("a read is answered with keys"),
        }
    }

    fn swap(&self, key: &str, expected: Option<Revision>, value: &[u8]) -> Result<Swapped, ControlError> {
        match self.call(Request::Swap { key: key.to_owned(), expected, value: value.to_vec() })? {
            Answer::Swapped(swapped) => Ok(swapped),
            Answer::Found(_) | Answer::Greeted => unreachable!("a swap is answered with its outcome"),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>, ControlError> {
        match self.call(Request::List(prefix.to_owned()))? {
            Answer::Found(found) => Ok(found),
            Answer::Swapped(_) | Answer::Greeted => unreachable!("a list is answered with keys"),
        }
    }
}

fn connect_options(call_max: Duration, tls: Option<&EtcdTls>) -> ConnectOptions {
    // A member that has lost its leader says so at once.
    let options = ConnectOptions::new().with_connect_timeout(call_max).with_require_leader(true);
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

fn check_version(name: &str, version: &str) -> Result<(), Failed> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let found = numbers.next().flatten().zip(numbers.next().flatten());
    if found.is_some_and(|found| found >= LEAST) {
        return Ok(());
    }
    let (major, minor) = LEAST;
    Err(Failed::Refused(format!(
        "{name} is etcd {version:?}; {major}.{minor} is the oldest one that is supported: upgrade it"
    )))
}

/// An error, with what has caused it.
fn describe(error: &Error) -> String {
    let mut told = String::new();
    let mut cause: Option<&dyn std::error::Error> = match error {
        Error::GRpcStatus(status) => {
            told.push_str(status.message());
            std::error::Error::source(status)
        }
        Error::TransportError(error) => Some(error),
        other => {
            let _ = write!(told, "{other}");
            None
        }
    };
    while let Some(error) = cause {
        let text = error.to_string();
        if !told.contains(&text) {
            append(&mut told, &text);
        }
        cause = error.source();
    }
    told
}

fn append(told: &mut String, what: &str) {
    if !told.is_empty() {
        told.push_str("; ");
    }
    told.push_str(what);
}

#[cfg(test)]
mod tests {
    use super::{Failed, check_version};

    #[test]
    fn an_etcd_before_3_4_is_refused_by_name() {
        for taken in ["3.4.0", "3.4.23", "3.5.12", "3.10.1", "4.0.0-rc.1", "3.6.0-alpha.0"] {
            assert!(check_version("here", taken).is_ok(), "{taken}");
        }
        for old in ["3.3.27", "2.3.8", "3", "", "three.five", "3.x"] {
            let Err(Failed::Refused(told)) = check_version("http://here:2379", old) else {
                panic!("{old} is taken")
            };
            assert!(
                told.contains("http://here:2379") && told.contains(old) && told.contains("3.4"),
                "{told}"
            );
        }
    }
}
