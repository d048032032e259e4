//! [`NodeFile`]: the file `node.json` of a node's directory.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rialto_cluster::net::{Security, Tls};
use serde::{Deserialize, Serialize};

use super::failed::Failed;
use super::files::{self, Readers};

/// The file's name.
const FILE: &str = "node.json";

/// How nodes talk to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Links {
    /// By mutual TLS, with certificates of an authority that is made for the cluster
    Tls,
    /// Without encryption, and between loopback addresses only
    PlainOnLoopback,
    /// Without encryption, to any address: each machine in the network can read and change what nodes send
    PlainAnywhere,
}

/// What a node's directory says of the node. The control store has the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    /// The node's name.
    pub name: String,
    /// The cluster's number, in hexadecimal digits.
    pub cluster: String,
    /// The endpoints of the control store.
    pub control: Vec<String>,
    /// What is before each key of the cluster there.
    pub prefix: String,
    /// Where other nodes reach it: `HOST:PORT`.
    pub address: String,
    /// Where clients reach it: `HOST:PORT`.
    pub sql: String,
    /// How nodes talk to each other.
    pub links: Links,
}

/// The certificate of the cluster's authority, in a node's directory.
pub fn authority_file(directory: &Path) -> PathBuf {
    directory.join("authority.pem")
}

/// The node's own certificate, and its private key.
pub fn certificate_files(directory: &Path) -> [PathBuf; 2] {
    [directory.join("node.pem"), directory.join("node.key")]
}

impl NodeFile {
    /// The file in a node's directory.
    pub fn read(directory: &Path) -> Result<NodeFile, Failed> {
        NodeFile::find(directory)?.ok_or_else(|| {
            Failed::unusable(format_args!(
                "{} is no node's directory: it has no file {FILE}. `rialto cluster init` makes them",
                directory.display()
            ))
        })
    }

    /// The file in a directory; none if there is no such file.
    pub fn find(directory: &Path) -> Result<Option<NodeFile>, Failed> {
        let path = directory.join(FILE);
        let Some(text) = files::read(&path)? else { return Ok(None) };
        let parsed = serde_json::from_str(&text);
        parsed.map(Some).map_err(|error| Failed::unusable(format_args!("{}: {error}", path.display())))
    }

    /// The nodes that have their directories in this one, in the order of their names; or the one whose directory it
    /// is.
    pub fn all(data: &Path) -> Result<Vec<(PathBuf, NodeFile)>, Failed> {
        if let Some(node) = NodeFile::find(data)? {
            return Ok(vec![(data.to_owned(), node)]);
        }
        let entries = fs::read_dir(data).map_err(|error| {
            Failed::unusable(format_args!("{}: {error}; expected the directory of a cluster", data.display()))
        })?;
        let mut found = Vec::new();
        for entry in entries {
            let directory = entry.map_err(|error| Failed::of_file(data, &error))?.path();
            if directory.is_dir()
                && let Some(node) = NodeFile::find(&directory)?
            {
                found.push((directory, node));
            }
        }
        found.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
        let Some((_, first)) = found.first() else {
            return Err(Failed::unusable(format_args!(
                "{} has no node's directory in it; expected the directory of a cluster",
                data.display()
            )));
        };
        match found.iter().find(|(_, node)| node.cluster != first.cluster) {
            Some((_, other)) => Err(Failed::unusable(format_args!(
                "{}: {} and {} are nodes of two clusters",
                data.display(),
                first.name,
                other.name
            ))),
            None => Ok(found),
        }
    }

    /// Writes the file.
    pub fn write(&self, directory: &Path) -> Result<(), Failed> {
        let text = serde_json::to_string_pretty(self).expect("the file has texts and numbers");
        files::write(&directory.join(FILE), &(text + "\n"), Readers::Owner)
    }

    /// How the node's links are protected.
    pub fn security(&self, directory: &Path) -> Result<Security, Failed> {
        match self.links {
            Links::PlainOnLoopback => Ok(Security::PlainOnLoopback),
            Links::PlainAnywhere => Ok(Security::PlainAnywhere),
            Links::Tls => {
                let [certificate, key] = certificate_files(directory);
                let tls = Tls::from_files(&authority_file(directory), &certificate, &key);
                tls.map(Security::Tls).map_err(Failed::unusable)
            }
        }
    }
}
