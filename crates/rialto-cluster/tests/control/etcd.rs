//! The store in etcd, with real processes of etcd.

use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rialto_cluster::control::{
    Changed, ControlError, ControlStore, EtcdOptions, EtcdStore, EtcdTls, Swapped, VALUE_MAX,
};
use rialto_cluster::protocol::replication::StoreIdentity;

use crate::conformance::{all, done, identity, patience, value};
use crate::etcd_process::{Certificates, Etcd, is_installed, patiently};
use crate::proxy::{Passes, Proxy};

/// A short time for one call, for tests that wait until it is over.
const CALL_MAX: Duration = Duration::from_millis(500);

fn unavailable<T: std::fmt::Debug>(answer: Result<T, ControlError>) -> String {
    match answer {
        Err(ControlError::Unavailable(what)) => what,
        other => panic!("{other:?} instead of unavailable"),
    }
}

fn refused(options: EtcdOptions) -> String {
    match EtcdStore::connect(options) {
        Err(ControlError::Refused(what)) => what,
        Err(other) => panic!("{other} instead of refused"),
        Ok(_) => panic!("connected instead of refused"),
    }
}

#[test]
fn it_does_what_every_control_store_does() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start(1);
    let clients: Vec<EtcdStore> = (0..4).map(|_| etcd.client()).collect();
    all(&clients.iter().map(|client| client as &dyn ControlStore).collect::<Vec<_>>());

    // Clusters with other prefixes have other keys.
    let options = EtcdOptions { prefix: "rialto/".to_owned(), ..etcd.options(None) };
    let other = EtcdStore::connect(options).expect("etcd answers");
    assert!(value(&clients[0], "one").is_some());
    assert_eq!(value(&other, "one"), None);
    let listed = other.list("").expect("etcd answers");
    assert_eq!((listed.store, listed.keys), (None, Vec::new()));
    assert_ne!(identity(&other), identity(&clients[0]));
}

#[test]
fn what_was_done_is_there_after_etcd_was_killed_and_started_again() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::start(1);
    let store = etcd.client();
    let first = done(&store, "key", None, b"1");
    etcd.kill(0);
    let told =
        unavailable(EtcdStore::connect(EtcdOptions { call_max: CALL_MAX, ..etcd.options(None) }).map(drop));
    assert!(told.contains(&etcd.endpoint(0)), "{told}");
    etcd.start_member(0);
    // The client that was there before connects again by itself.
    assert_eq!(
        patiently("etcd answers again", || store.get("key").ok()).value.map(|found| found.revision),
        Some(first)
    );
    let second = done(&store, "key", Some(first), b"2");
    assert_eq!(value(&etcd.client(), "key"), Some((b"2".to_vec(), second)));
}

#[test]
fn a_stopped_etcd_is_unavailable_within_the_time_of_a_call() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start(1);
    let patient = etcd.client();
    let store =
        EtcdStore::connect(EtcdOptions { call_max: CALL_MAX, ..etcd.options(None) }).expect("etcd answers");
    let (now, first) = (identity(&store), done(&store, "key", None, b"1"));
    etcd.signal(0, "STOP");
    for what in ["swap", "get", "list", "watch"] {
        let began = Instant::now();
        let told = match what {
            "swap" => unavailable(store.swap(now, "key", Some(first), b"2")),
            "get" => unavailable(store.get("key")),
            "watch" => unavailable(store.changed_since("", first, Duration::ZERO)),
            _ => unavailable(store.list("")),
        };
        assert!(told.contains(&etcd.endpoint(0)) && told.contains("has not answered"), "{what}: {told}");
        let took = began.elapsed();
        assert!(took >= CALL_MAX, "{what} gave up after {took:?}");
        // Without a time of its own, a call would wait for as long as etcd is stopped.
        assert!(took < Duration::from_secs(60), "{what} took {took:?}");
    }
    etcd.signal(0, "CONT");
    // The swap may have been done after all: only a read tells.
    let (kept, revision) = value(&patient, "key").expect("a value");
    match kept.as_slice() {
        b"1" => assert_eq!(revision, first),
        b"2" => assert!(revision > first),
        other => panic!("{other:?} was never written"),
    }
}

#[test]
fn of_three_members_one_may_be_killed_or_stopped() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::start(3);
    drop(etcd.client());
    let options = EtcdOptions { call_max: Duration::from_secs(3), ..etcd.options(None) };
    let store = patiently("etcd answers", || EtcdStore::connect(options.clone()).ok());
    let now = patiently("the members agree", || store.identify(StoreIdentity::draw()).ok());
    let mut revision = patiently("the members agree", || match store.swap(now, "key", None, b"0") {
        Ok(Swapped::Done(revision)) => Some(revision),
        _ => value(&store, "key").map(|(_, revision)| revision),
    });
    for index in 0..3 {
        if index == 1 {
            etcd.signal(index, "STOP");
        } else {
            etcd.kill(index);
        }
        // A read shows what became of a swap whose outcome is unknown.
        revision =
            patiently("the others go on", || match store.swap(now, "key", Some(revision), &[index as u8]) {
                Ok(Swapped::Done(done)) => Some(done),
                _ => {
                    let found = store.get("key").ok()?.value?;
                    (found.value == [index as u8]).then_some(found.revision)
                }
            });
        assert_eq!(value(&store, "key"), Some((vec![index as u8], revision)));
        if index == 1 {
            etcd.signal(index, "CONT");
        } else {
            etcd.start_member(index);
        }
        // A client of this member alone: the member has caught up when it answers, as reads are linearizable.
        let options = EtcdOptions { endpoints: vec![etcd.endpoint(index)], ..etcd.options(None) };
        let alone = patiently("the member is back", || EtcdStore::connect(options.clone()).ok());
        let found = patiently("the member reads", || alone.get("key").ok());
        assert_eq!(found.value.map(|found| found.revision), Some(revision));
    }

    // One that is alone does not answer for all.
    etcd.kill(0);
    etcd.kill(1);
    let options = EtcdOptions { call_max: CALL_MAX, ..etcd.options(None) };
    let short = patiently("one member answers", || EtcdStore::connect(options.clone()).ok());
    unavailable(short.get("key"));
    unavailable(short.swap(now, "key", Some(revision), b"alone"));
}

/// The answer of the first endpoint is lost, after the swap was done; the second one then says that the key has changed.
/// A caller that heard *lost* would believe that its own swap was not done.
#[test]
fn a_swap_is_not_lost_to_itself() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start(1);
    let patient = etcd.client();
    let address = etcd.endpoint(0).replace("http://", "").parse().expect("an address");
    let proxy = Proxy::before(address);
    let endpoints = vec![proxy.address().to_string(), etcd.endpoint(0)];
    let options = EtcdOptions { endpoints, call_max: Duration::from_secs(4), ..etcd.options(None) };
    let store = EtcdStore::connect(options).expect("etcd answers");
    let (now, first) = (identity(&store), done(&store, "key", None, b"1"));
    proxy.pass(Passes::ToServer);
    let told = unavailable(store.swap(now, "key", Some(first), b"2"));
    assert!(told.contains("perhaps by or after the same request"), "{told}");
    let (kept, second) = value(&patient, "key").expect("a value");
    assert_eq!(kept, b"2");

    // The endpoint that answers is asked first from now on.
    assert_eq!(value(&store, "key"), Some((kept, second)));
    done(&store, "key", Some(second), b"3");
}

/// The connection leads to another etcd, which has the same identity in it, as after a restoration without a renewal. The
/// swap is done there, and the answer says that it is another etcd: that is no refusal. Reads are refused.
#[test]
fn a_swap_that_was_sent_is_not_refused_whatever_the_answer_is() {
    if !is_installed() {
        return;
    }
    let (one, two) = (Etcd::start(1), Etcd::start(1));
    let address = |etcd: &Etcd| etcd.endpoint(0).replace("http://", "").parse().expect("an address");
    let (patient, other) = (one.client(), two.client());
    let now = identity(&patient);
    assert_eq!(other.identify(now), Ok(now));
    let proxy = Proxy::before(address(&one));
    let options = EtcdOptions { endpoints: vec![proxy.address().to_string()], ..one.options(None) };
    let mut number = 0;
    patiently("the other etcd does it", || {
        number += 1;
        let key = format!("key{number}");
        proxy.lead_to(address(&one));
        let store = EtcdStore::connect(options.clone()).expect("etcd answers");
        proxy.lead_to(address(&two));
        proxy.pass(Passes::Cut);
        proxy.pass(Passes::Both);
        // By a connection that is made again, or not at all: one that is known to have failed is looked at first.
        let answer = store.swap(now, &key, None, b"done");
        assert_eq!(value(&patient, &key), None);
        let refused = store.get(&key);
        assert!(matches!(refused, Err(ControlError::Refused(what)) if what.contains("one etcd")));
        value(&other, &key).map(|_| unavailable(answer))
    });
}

/// An etcd that has no space left says so. That is no refusal either, and tells what to do.
#[test]
fn an_etcd_without_space_is_unavailable_for_swaps_and_says_why() {
    if !is_installed() {
        return;
    }
    let etcd = Etcd::start_with(1, None, &["--quota-backend-bytes", "1000000"]);
    let store = etcd.client();
    let now = identity(&store);
    let mut number = 0;
    let told = patiently("no space", || {
        number += 1;
        match store.swap(now, &format!("key{number}"), None, &vec![number as u8; VALUE_MAX]) {
            Ok(Swapped::Done(_)) => None,
            other => Some(unavailable(other)),
        }
    });
    assert!(told.contains("alarm disarm"), "{told}");
    assert!(value(&store, "key1").is_some(), "it is read nevertheless");
}

/// A link is cut without a word: a connection is there, and nothing comes by it any more. Calls go by another one, and a
/// client that waits for changes hears of them.
#[test]
fn a_connection_that_is_silent_is_replaced() {
    if !is_installed() {
        return;
    }
    let call_max = 2 * CALL_MAX;
    let etcd = Etcd::start(1);
    let patient = etcd.client();
    let address = etcd.endpoint(0).replace("http://", "").parse().expect("an address");
    let proxy = Proxy::before(address);
    let endpoints = vec![proxy.address().to_string()];
    let options = EtcdOptions { endpoints, call_max, ..etcd.options(None) };
    let store = patiently("etcd answers", || EtcdStore::connect(options.clone()).ok());
    let mut revision = done(&patient, "key", None, b"0");
    for round in 1..4 {
        assert_eq!(
            patiently("a read", || store.get("key").ok()).value.map(|found| found.revision),
            Some(revision)
        );
        proxy.freeze();
        // One call notices it; a few may be late for other reasons.
        let found = (0..4).find_map(|_| store.get("key").ok()).expect("a read by another connection");
        assert_eq!(found.value.map(|found| found.revision), Some(revision));

        std::thread::scope(|scope| {
            let (sender, heard) = std::sync::mpsc::channel();
            let (store, patient, proxy) = (&store, &patient, &proxy);
            let since = revision;
            scope.spawn(move || {
                // An error comes before the patience ends.
                let wait = || store.changed_since("key", since, 2 * patience());
                let changed = std::iter::repeat_with(wait).find_map(Result::ok);
                sender.send(changed).expect("the test waits");
            });
            // While it watches, most likely.
            std::thread::sleep(call_max / 4);
            proxy.freeze();
            revision = done(patient, "key", Some(revision), &[round]);
            assert_eq!(heard.recv_timeout(patience()), Ok(Some(Changed::Yes)), "round {round}");
        });
    }
}

#[test]
fn endpoints_of_two_etcds_are_refused() {
    if !is_installed() {
        return;
    }
    let (one, two) = (Etcd::start(1), Etcd::start(1));
    drop((one.client(), two.client()));
    let endpoints = vec![one.endpoint(0), two.endpoint(0)];
    let told = refused(EtcdOptions { endpoints, ..one.options(None) });
    assert!(told.contains("name endpoints of one etcd only"), "{told}");
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    let options = |endpoints: &[&str], prefix: &str| EtcdOptions {
        endpoints: endpoints.iter().map(|&name| name.to_owned()).collect(),
        prefix: prefix.to_owned(),
        call_max: CALL_MAX,
        tls: None,
    };
    assert!(refused(options(&[], "rialto/")).contains("no endpoint"));
    assert!(refused(options(&["127.0.0.1:1"], "rialto")).contains("does not end with /"));
    let told = refused(options(&["http://not an address"], "rialto/"));
    assert!(told.contains("http://not an address"), "{told}");
}

#[test]
fn certificates_are_asked_for_on_both_sides() {
    if !is_installed() {
        return;
    }
    let authority = |name: &str| {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
    };
    let sign = |by: &CertifiedIssuer<'_, KeyPair>| {
        let key = KeyPair::generate().expect("a key");
        let params =
            CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).expect("parameters");
        (params.signed_by(&key, by).expect("a certificate").pem(), key.serialize_pem())
    };
    let (ours, theirs) = (authority("ours"), authority("another"));
    let (certificate, key) = sign(&ours);
    let etcd = Etcd::start_secure(1, Certificates { authority: ours.pem(), certificate, key });
    let tls =
        |trusted: &CertifiedIssuer<'_, KeyPair>, shown: Option<&CertifiedIssuer<'_, KeyPair>>| EtcdTls {
            authority: trusted.pem().into_bytes(),
            client: shown.map(|by| {
                let (certificate, key) = sign(by);
                (certificate.into_bytes(), key.into_bytes())
            }),
            server_name: None,
        };
    let store =
        patiently("etcd answers", || EtcdStore::connect(etcd.options(Some(tls(&ours, Some(&ours))))).ok());
    done(&store, "key", None, b"secret");
    for wrong in [tls(&theirs, Some(&ours)), tls(&ours, None), tls(&ours, Some(&theirs))] {
        let options = EtcdOptions { call_max: Duration::from_secs(3), ..etcd.options(Some(wrong)) };
        let told = unavailable(EtcdStore::connect(options).map(drop));
        assert!(told.contains(&etcd.endpoint(0)), "{told}");
        println!("{told}");
    }
}
