//! An operator on one node's machine asks nodes on others.

use std::path::PathBuf;
use std::sync::Arc;

use rialto_cluster::node::Node;
use rialto_cluster::node::admin::{AdminAnswer, AdminRequest, AdminSocket, Reached, ask};

use crate::cluster::{Cluster, Directory, patience, soon};

/// A node with its admin socket, taken from the cluster.
struct Operated {
    number: usize,
    node: Arc<Node>,
    socket: AdminSocket,
    directory: Directory,
}

impl Operated {
    fn new(cluster: &mut Cluster, number: usize) -> Operated {
        let node = Arc::new(cluster.nodes[number].take().unwrap());
        let directory = Directory::new(&format!("relayed-{number}"));
        let socket = AdminSocket::open(directory.path(), node.clone()).unwrap();
        Operated { number, node, socket, directory }
    }

    fn ask(&self, request: &AdminRequest) -> AdminAnswer {
        match ask(self.directory.path(), request, patience()).unwrap() {
            Reached::Answered { answer, .. } => answer,
            reached => panic!("{reached:?}"),
        }
    }

    /// Asks another node through this one.
    fn ask_at(&self, node: u32, request: AdminRequest) -> AdminAnswer {
        self.ask(&AdminRequest::At { node, request: Box::new(request) })
    }

    fn all(&self) -> Vec<u32> {
        let AdminAnswer::StatusOfAll(reports) = self.ask(&AdminRequest::StatusOfAll) else {
            panic!("all reports")
        };
        reports.iter().map(|report| report.node).collect()
    }

    /// Closes the socket, and gives the node back.
    fn end(self, cluster: &mut Cluster) {
        drop(self.socket);
        cluster.nodes[self.number] = Arc::into_inner(self.node);
    }
}

#[test]
fn a_node_of_another_machine_is_asked_through_one_of_this_machine() {
    let mut cluster = Cluster::new("relayed", 3, 3, 2);
    (0..3).for_each(|partition| cluster.in_sync(partition, 2));
    cluster.change_primary(1, 1);
    let here = Operated::new(&mut cluster, 0);
    let other = Operated::new(&mut cluster, 1);
    soon("both answer", || here.all() == [0, 1]);
    soon("in the other direction, too", || other.all() == [1, 0]);

    // Itself, the other one, and one that has no admin socket.
    for node in [0, 1] {
        let AdminAnswer::Status(report) = here.ask_at(node, AdminRequest::Status) else { panic!("a status") };
        assert_eq!(report.node, node);
    }
    let unreached = |node| match here.ask_at(node, AdminRequest::Status) {
        AdminAnswer::Unreached(why) => why,
        answer => panic!("{answer:?}"),
    };
    assert!(unreached(2).contains("has not answered within"), "{}", unreached(2));
    assert!(unreached(7).contains("no member"), "{}", unreached(7));

    // What the other node is to do.
    let changes = here.ask_at(1, AdminRequest::Switchover { partition: 1, to: 2 });
    assert_eq!(changes, AdminAnswer::Begun);
    soon("the other replica leads", || {
        let AdminAnswer::Status(report) = here.ask_at(1, AdminRequest::Status) else { panic!("a status") };
        let replica = report.replicas.iter().find(|replica| replica.partition == 1).unwrap();
        replica.configuration.as_ref().is_some_and(|configuration| configuration.primary == 2)
    });
    // What it does only for an operator of its own machine.
    let status = || Box::new(AdminRequest::Status);
    for request in [
        AdminRequest::Backup { to: PathBuf::from("/backup") },
        AdminRequest::BackupStatus,
        AdminRequest::StatusOfAll,
        AdminRequest::At { node: 0, request: status() },
    ] {
        let AdminAnswer::Refused(why) = here.ask_at(1, request) else { panic!("it is refused") };
        assert!(why.contains("on its own machine"), "{why}");
    }
    // An answer of several pieces.
    let transaction = "x".repeat(50_000);
    let AdminAnswer::Refused(why) = here.ask_at(1, AdminRequest::Knows { transaction: transaction.clone() })
    else {
        panic!("it is refused")
    };
    assert!(why.starts_with(&transaction), "{} bytes", why.len());

    // Without its socket the other node answers nothing.
    other.end(&mut cluster);
    assert_eq!(here.all(), [0]);
    assert!(unreached(1).contains("has not answered within"), "{}", unreached(1));
    cluster.stop(1);
    soon("the connection has ended", || unreached(1).contains("no connection"));
    here.end(&mut cluster);
}
