//! Mistakes of operators: each is refused by name, and the cluster goes on.

use std::fs;
use std::path::Path;

use crate::bank::Bank;
use crate::cluster::Cluster;
use crate::common::{Directory, text};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for file in ["node.json", "authority.pem", "node.pem", "node.key"] {
        fs::copy(from.join(file), to.join(file)).expect("a file of a node");
    }
}

fn replace(directory: &Path, from: &str, to: &str) {
    let path = directory.join("node.json");
    let text = fs::read_to_string(&path).expect("a node's file");
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).expect("a node's file");
}

#[test]
fn wrong_files_and_a_second_node_of_a_name_are_refused_by_name() {
    let Some(mut cluster) = Cluster::start("namespaces-mistakes", |_| ()) else { return };
    let bank = Bank::begin(&cluster, "standby", 3.0);
    let elsewhere = Directory::new("namespaces-elsewhere");
    let (c, machine) = (cluster.directory(2), "c");

    // Another node of the same name, from another directory; and one in the same directory.
    let second = elsewhere.path().join("second");
    copy(&c, &second);
    let id = fs::read_to_string(c.join("node.json")).expect("a node's file");
    let id =
        id.split('"').skip_while(|word| *word != "cluster").nth(2).expect("the cluster's number").to_owned();
    replace(&second, &cluster.sql()[2], "127.0.0.1:1999");
    let (said, code) = cluster.node_in(machine, &second);
    assert!(code != Some(0) && said.contains("--new-directory"), "{said}");
    let (said, code) = cluster.node_in(machine, &c);
    assert!(code != Some(0) && said.contains("runs this node"), "{said}");

    // The file of a node of another cluster, of another prefix, and one that makes no sense.
    cluster.end_node(2);
    for (from, to, why) in [
        (&*id, "0123456789abcdef0123456789abcdef", "is a node of another cluster"),
        ("rialto/", "others/", "the control store has no cluster under this prefix"),
        ("\"name\"", "\"nmae\"", "node.json"),
    ] {
        let wrong = elsewhere.path().join(format!("wrong-{}", to.len()));
        copy(&c, &wrong);
        replace(&wrong, from, to);
        let (said, code) = cluster.node_in(machine, &wrong);
        assert!(code != Some(0) && said.contains(why), "{why}: {said}");
    }
    // Another cluster is not made over this one.
    let again = cluster.command(&["status"]);
    assert!(again.status.success(), "{}", text(&again));
    cluster.start_node(2);
    let found = bank.judge("mistakes of operators");
    assert!(found.committed > 0, "{found:?}");
    cluster.wait_until_whole();
}
