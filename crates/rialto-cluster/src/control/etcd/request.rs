//! What is asked of one member of an etcd, and what it answers.
//!
//! Below the prefix, `identity` has the store's identity, and `keys/` is put before each key.

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, KvClient, ResponseHeader, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};

use super::Shared;
use super::endpoint::{Connection, Endpoint, Failed, check_version};
use crate::control::{Changed, Found, KEY_MAX, Listed, Renewed, Revision, Swapped, VALUE_MAX, Versioned};
use crate::protocol::replication::StoreIdentity;

/// The most keys in one answer to a list.
const PAGE: usize = 64;

/// The longest answer, in bytes: a page of the longest keys and values, and twice that for what is around them.
const ANSWER_MAX: usize = 2 * PAGE * (KEY_MAX + VALUE_MAX);

/// What is asked of an endpoint.
#[derive(Clone)]
pub(super) enum Request {
    /// Only the version.
    Greet,
    Identify(StoreIdentity),
    Renew {
        from: StoreIdentity,
        to: StoreIdentity,
    },
    Get(String),
    List(String),
    Swap {
        store: StoreIdentity,
        key: String,
        expected: Option<Revision>,
        value: Vec<u8>,
    },
    /// Whether a key below a prefix is newer.
    LookSince(String, Revision),
}

/// What an endpoint answers.
pub(super) enum Answer {
    Greeted,
    Identified(StoreIdentity),
    Renewed(Renewed),
    Found(Found),
    Listed(Listed),
    Swapped(Swapped),
    /// Whether there was a newer write, and the newest write of the store.
    Looked(Changed, Revision),
}

impl Shared {
    pub(super) async fn ask_one(
        &self,
        endpoint: &Endpoint,
        connection: &Connection,
        request: Request,
    ) -> Result<Answer, Failed> {
        if connection.version.get().is_none() {
            let status = connection.client.maintenance_client().status().await;
            let status = status.map_err(|error| endpoint.failed(&error))?;
            self.check_cluster(endpoint, status.header())?;
            check_version(&endpoint.name, status.version())?;
            connection.version.get_or_init(|| ());
        }
        let client = connection.client.kv_client().max_decoding_message_size(ANSWER_MAX);
        let asked = Asked { shared: self, endpoint, client };
        match request {
            Request::Greet => Ok(Answer::Greeted),
            Request::Identify(new) => asked.identify(new).await.map(Answer::Identified),
            Request::Renew { from, to } => asked.renew(from, to).await.map(Answer::Renewed),
            Request::Get(key) => asked.get(&key).await.map(Answer::Found),
            Request::List(prefix) => asked.list(&prefix).await.map(Answer::Listed),
            Request::Swap { store, key, expected, value } => {
                asked.swap(store, &key, expected, value).await.map(Answer::Swapped)
            }
            Request::LookSince(prefix, since) => asked.look(&prefix, since).await,
        }
    }

    fn identity_key(&self) -> String {
        format!("{}identity", self.prefix)
    }

    /// A key, or a prefix of keys, as etcd has it.
    pub(super) fn path(&self, key: &str) -> String {
        format!("{}keys/{key}", self.prefix)
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

/// An endpoint while it is asked something.
struct Asked<'s> {
    shared: &'s Shared,
    endpoint: &'s Endpoint,
    client: KvClient,
}

impl Asked<'_> {
    async fn identify(mut self, new: StoreIdentity) -> Result<StoreIdentity, Failed> {
        let key = self.shared.identity_key();
        let make = Txn::new()
            .when([Compare::version(key.as_str(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.as_str(), text_of(new), None)])
            .or_else([TxnOp::get(key, None)]);
        let done = self.change(make).await?;
        if done.succeeded() {
            return Ok(new);
        }
        self.identity_in(&done).map_err(Failed::after_sending)?.ok_or_else(|| {
            Failed::Unknown(format!("{} says that it has an identity, and shows none", self.endpoint.name))
        })
    }

    async fn renew(mut self, from: StoreIdentity, to: StoreIdentity) -> Result<Renewed, Failed> {
        let key = self.shared.identity_key();
        let renew = Txn::new()
            .when([Compare::value(key.as_str(), CompareOp::Equal, text_of(from))])
            .and_then([TxnOp::put(key.as_str(), text_of(to), None)])
            .or_else([TxnOp::get(key, None)]);
        let done = self.change(renew).await?;
        // An earlier request of the same call may have renewed it.
        let is_done = done.succeeded() || self.identity_in(&done).map_err(Failed::after_sending)? == Some(to);
        Ok(if is_done { Renewed::Done } else { Renewed::AnotherStore })
    }

    async fn swap(
        mut self,
        store: StoreIdentity,
        key: &str,
        expected: Option<Revision>,
        value: Vec<u8>,
    ) -> Result<Swapped, Failed> {
        // A key without a value has revision 0.
        let expected = i64::try_from(expected.map_or(0, |revision| revision.0))
            .map_err(|_| Failed::Refused(format!("{expected:?} is no revision of etcd")))?;
        let (identity, path) = (self.shared.identity_key(), self.shared.path(key));
        let mut compares = vec![Compare::mod_revision(path.as_str(), CompareOp::Equal, expected)];
        if !rialto::fault_injection::is_on("swap-in-any-store") {
            compares.push(Compare::value(identity.as_str(), CompareOp::Equal, text_of(store)));
        }
        let swap = Txn::new()
            .when(compares)
            .and_then([TxnOp::put(path, value, None)])
            .or_else([TxnOp::get(identity, None)]);
        let done = self.change(swap).await?;
        if !done.succeeded() {
            let now = self.identity_in(&done).map_err(Failed::after_sending)?;
            return Ok(if now == Some(store) { Swapped::Lost } else { Swapped::AnotherStore });
        }
        // The header's revision is the transaction's own.
        let revision = done.header().map_or(0, ResponseHeader::revision);
        self.endpoint.revision(revision).map(Swapped::Done).map_err(Failed::after_sending)
    }

    /// Sends what may change something. From here on, no error is a refusal.
    async fn change(&mut self, change: Txn) -> Result<TxnResponse, Failed> {
        let done =
            self.client.txn(change).await.map_err(|error| self.endpoint.failed(&error).after_sending())?;
        self.shared.check_cluster(self.endpoint, done.header()).map_err(Failed::after_sending)?;
        Ok(done)
    }

    /// Reads at one moment.
    async fn read(&mut self, reads: Vec<TxnOp>) -> Result<TxnResponse, Failed> {
        let done = self.client.txn(Txn::new().and_then(reads)).await;
        let done = done.map_err(|error| self.endpoint.failed(&error))?;
        self.shared.check_cluster(self.endpoint, done.header())?;
        Ok(done)
    }

    async fn get(mut self, key: &str) -> Result<Found, Failed> {
        let reads = [self.shared.identity_key(), self.shared.path(key)];
        let read = self.read(reads.map(|key| TxnOp::get(key, None)).into()).await?;
        let value = self.keys_in(&read, 1)?.pop().map(|(_, versioned)| versioned);
        Ok(Found { store: self.identity_in(&read)?, value })
    }

    /// Reads a page after the other, all as of the first one's moment.
    async fn list(mut self, prefix: &str) -> Result<Listed, Failed> {
        let first = self.shared.path(prefix);
        let end = end_of_prefix(&first);
        let page = || GetOptions::new().with_range(end.as_slice()).with_limit(PAGE as i64);
        let reads =
            vec![TxnOp::get(self.shared.identity_key(), None), TxnOp::get(first.as_str(), Some(page()))];
        let read = self.read(reads).await?;
        let moment = read.header().map_or(0, ResponseHeader::revision);
        let mut keys = self.keys_in(&read, 1)?;
        let listed =
            Listed { store: self.identity_in(&read)?, newest: self.newest(moment)?, keys: Vec::new() };
        let mut is_more = responses(&read).nth(1).is_some_and(|got| got.more());
        while let (true, Some((last, _))) = (is_more, keys.last()) {
            // The least key after it.
            let next = format!("{}\0", self.shared.path(last));
            let got = self.client.get(next, Some(page().with_revision(moment))).await;
            let got = got.map_err(|error| self.endpoint.failed(&error))?;
            self.shared.check_cluster(self.endpoint, got.header())?;
            is_more = got.more();
            keys.extend(self.keys(&got)?);
        }
        Ok(Listed { keys, ..listed })
    }

    async fn look(mut self, prefix: &str, since: Revision) -> Result<Answer, Failed> {
        let refused = |_| Failed::Refused(format!("{since:?} is no revision of etcd"));
        let least =
            i64::try_from(since.0).ok().and_then(|since| since.checked_add(1)).ok_or(()).map_err(refused)?;
        let options =
            GetOptions::new().with_prefix().with_keys_only().with_limit(1).with_min_mod_revision(least);
        let got = self.client.get(self.shared.path(prefix), Some(options)).await;
        let got = got.map_err(|error| self.endpoint.failed(&error))?;
        self.shared.check_cluster(self.endpoint, got.header())?;
        let newest = self.newest(got.header().map_or(0, ResponseHeader::revision))?;
        let has_changed = !got.kvs().is_empty() || newest < since;
        Ok(Answer::Looked(if has_changed { Changed::Yes } else { Changed::No }, newest))
    }

    fn newest(&self, revision: i64) -> Result<Revision, Failed> {
        self.endpoint.revision(revision)
    }

    /// The identity that the first read of a transaction has found.
    fn identity_in(&self, read: &TxnResponse) -> Result<Option<StoreIdentity>, Failed> {
        let found = responses(read).next();
        let Some(found) = found.as_ref().and_then(|got| got.kvs().first()) else { return Ok(None) };
        let number = std::str::from_utf8(found.value()).ok();
        let number = number.and_then(|text| u64::from_str_radix(text, 16).ok());
        let number = number.ok_or_else(|| {
            let (name, key) = (&self.endpoint.name, self.shared.identity_key());
            Failed::Refused(format!("{name} has a value of {key} that is no identity"))
        })?;
        Ok(Some(StoreIdentity(number)))
    }

    /// The keys that the read of this index in a transaction has found.
    fn keys_in(&self, read: &TxnResponse, index: usize) -> Result<Vec<(String, Versioned)>, Failed> {
        responses(read).nth(index).map_or_else(|| Ok(Vec::new()), |got| self.keys(&got))
    }

    fn keys(&self, got: &GetResponse) -> Result<Vec<(String, Versioned)>, Failed> {
        got.kvs().iter().map(|found| self.key_value(found)).collect()
    }

    fn key_value(&self, found: &KeyValue) -> Result<(String, Versioned), Failed> {
        let revision = self.endpoint.revision(found.mod_revision())?;
        let keys = self.shared.path("");
        let inside = std::str::from_utf8(found.key()).ok().and_then(|key| key.strip_prefix(&keys));
        let key = inside.ok_or_else(|| {
            Failed::Refused(format!("{} has a key below {keys} that is no text", self.endpoint.name))
        })?;
        Ok((key.to_owned(), Versioned { value: found.value().to_vec(), revision }))
    }
}

/// The answers of a transaction's reads, in order.
fn responses(read: &TxnResponse) -> impl Iterator<Item = GetResponse> {
    read.op_responses().into_iter().filter_map(|response| match response {
        TxnOpResponse::Get(got) => Some(got),
        _ => None,
    })
}

fn text_of(identity: StoreIdentity) -> String {
    format!("{:016x}", identity.0)
}

/// The least key after all keys with a prefix. The prefix is text and ends with no byte 0xff.
fn end_of_prefix(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
