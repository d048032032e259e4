//! Nodes with certificates: each shows its own, made by the cluster's authority for its name.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rialto_cluster::net::{Class, Failure, Refusal, Security, Tls};

use crate::nodes::{Node, connect, send};

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        Authority(
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority"),
        )
    }

    /// The certificates of a node: its own is made for a name, and it trusts an authority.
    pub fn tls(&self, made_for: &str, trusted: &Authority) -> Tls {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([made_for.to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        let files = Files::new();
        let paths = [
            files.write("authority.pem", &trusted.0.pem()),
            files.write("node.pem", &certificate.pem()),
            files.write("node.key", &key.serialize_pem()),
        ];
        Tls::from_files(&paths[0], &paths[1], &paths[2]).expect("certificates")
    }
}

struct Files(PathBuf);

impl Files {
    fn new() -> Files {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("rialto-certificates-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        Files(directory)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn node(number: u32, tls: Tls) -> Node {
    Node::with(number, |options| options.security = Security::Tls(tls))
}

fn meet(one: &Node, two: &Node) {
    one.links.set_members(&[two.member()]).expect("links");
    two.links.set_members(&[one.member()]).expect("links");
}

#[test]
fn nodes_with_certificates_talk() {
    const EACH: u64 = 500;
    let authority = Authority::new("the cluster");
    let nodes: Vec<Node> =
        (1..=3).map(|number| node(number, authority.tls(&format!("node{number}"), &authority))).collect();
    let nodes: Vec<&Node> = nodes.iter().collect();
    connect(&nodes);
    for number in 0..EACH {
        // Now and then far more than a record of TLS has.
        let mut payload = number.to_le_bytes().to_vec();
        payload.resize(if number % 50 == 0 { 60_000 } else { 20 }, 7);
        for from in &nodes {
            for to in nodes.iter().filter(|to| to.id != from.id) {
                send(from, to.id, Class::Work, &payload);
            }
        }
    }
    for to in &nodes {
        for from in nodes.iter().filter(|from| from.id != to.id) {
            let came = to.recorder.wait_for_messages(from.id, EACH as usize);
            let numbers =
                came.iter().map(|payload| u64::from_le_bytes(payload[..8].try_into().expect("a number")));
            assert!(numbers.eq(0..EACH));
        }
        assert_eq!(to.links.connections(), 4);
    }
}

#[test]
fn a_node_whose_certificate_another_authority_has_made_is_refused_on_both_sides() {
    let (ours, theirs) = (Authority::new("the cluster"), Authority::new("another"));
    // It trusts the cluster's authority, and is not trusted.
    let (one, two) = (node(1, theirs.tls("node1", &ours)), node(2, ours.tls("node2", &ours)));
    meet(&one, &two);
    for node in [&one, &two] {
        let why = node.recorder.wait_for_failure(|why| {
            why.to_string().to_lowercase().contains("certificate") || why.to_string().contains("UnknownCA")
        });
        assert!(matches!(why, Failure::Unreachable(_)), "{why:?}");
    }
    // The other way round.
    let (one, two) = (node(1, ours.tls("node1", &theirs)), node(2, ours.tls("node2", &ours)));
    meet(&one, &two);
    for node in [&one, &two] {
        node.recorder.wait_for_failure(|why| {
            why.to_string().to_lowercase().contains("certificate") || why.to_string().contains("UnknownCA")
        });
    }
}

#[test]
fn a_node_that_shows_the_certificate_of_another_one_is_refused_on_both_sides() {
    let authority = Authority::new("the cluster");
    // It connects as node 1, with the certificate of node 3.
    let (one, two) =
        (node(1, authority.tls("node3", &authority)), node(2, authority.tls("node2", &authority)));
    meet(&one, &two);
    let ours =
        two.recorder.wait_for_failure(|why| matches!(why, Failure::RefusedByUs(Refusal::Certificate(_))));
    let theirs =
        one.recorder.wait_for_failure(|why| matches!(why, Failure::RefusedByThem(Refusal::Certificate(_))));
    for told in [ours.to_string(), theirs.to_string()] {
        assert!(told.contains("node1") && told.contains("node2"), "{told}");
    }
    // And it is connected to as node 1.
    two.recorder.wait_for_failure(|why| why.to_string().contains("not valid for name"));
}

#[test]
fn a_plain_node_and_one_with_certificates_do_not_talk() {
    let authority = Authority::new("the cluster");
    let (plain, secure) = (Node::new(1), node(2, authority.tls("node2", &authority)));
    meet(&plain, &secure);
    for node in [&plain, &secure] {
        node.recorder.wait_for_failure(|_| true);
    }
    assert!(plain.links.send(secure.id, Class::Work, b"a").is_err());
    assert!(secure.links.send(plain.id, Class::Work, b"a").is_err());
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let files = Files::new();
    let (empty, missing) = (files.write("empty.pem", ""), files.0.join("missing.pem"));
    for file in [&empty, &missing] {
        let told = Tls::from_files(file, file, file).expect_err("no certificates").to_string();
        assert!(told.contains(&file.display().to_string()), "{told}");
    }
}
