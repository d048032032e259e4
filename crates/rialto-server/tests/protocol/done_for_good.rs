//! BACKUP, ARCHIVE LOG and ALTER SYSTEM in pipelines. A statement that no rollback undoes is refused behind another
//! statement. At the beginning of a pipeline it is done and stays done, whatever follows.

use std::path::{Path, PathBuf};

use crate::common::*;
use rialto::Options;
use rialto::backup::Archive;
use rialto::io::MemoryDisk;

/// A directory for backups, which is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }

    /// Whether a backup exists.
    fn has(&self, name: &str) -> bool {
        self.0.join(name).join("backup.rialto").exists()
    }

    fn backup(&self, kind: &str, name: &str) -> String {
        format!("backup {kind} to '{}'", self.0.join(name).display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server with an archive and an empty table.
fn server() -> (TestServer, Client) {
    let options = Options { archive: Some(Archive::on(MemoryDisk::new())), ..Options::default() };
    let server = TestServer::with(options, 4);
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    (server, client)
}

/// Sends the statements of one pipeline, up to its Sync. Gives the answer.
fn pipeline(client: &mut Client, statements: &[&str]) -> Vec<Message> {
    let messages = statements.iter().flat_map(|sql| [parse("", sql), bind("", "", &[]), execute("", 0)]);
    client.send(&messages.chain([sync()]).collect::<Vec<_>>().concat());
    client.answer()
}

/// The answer's tags but those of notices.
fn tags_of(answer: &[Message]) -> String {
    tags(answer).replace('N', "")
}

fn one(client: &mut Client, sql: &str) -> String {
    rows(&client.run(sql)).concat().into_iter().flatten().collect()
}

#[test]
fn in_the_middle_of_a_pipeline_they_are_refused_and_the_whole_is_rolled_back() {
    let directory = Directory::new("amid-a-pipeline");
    let (_server, mut client) = server();
    let statements = [
        directory.backup("", "full"),
        directory.backup("incremental", "increment"),
        "archive log".to_owned(),
        "alter system set rialto.raise_stalls = '7ms'".to_owned(),
        "alter system reset rialto.raise_stalls".to_owned(),
    ];
    client.run("alter system set rialto.raise_stalls = '5ms'");
    for sql in &statements {
        let answer = pipeline(&mut client, &["insert into t values (1)", sql, "insert into t values (2)"]);
        assert_eq!(tags_of(&answer), "12C12EZ", "{sql}: {}", error_text(&answer));
        assert_eq!(error_code(&answer).as_deref(), Some("25001"), "{sql}: {}", error_text(&answer));
        assert_eq!(state(&answer), 'I', "{sql}");
        assert_eq!(one(&mut client, "select count(*) from t"), "0", "{sql}");
        assert_eq!(one(&mut client, "show rialto.raise_stalls"), "5ms", "{sql}");
    }
    assert!(!directory.0.exists(), "nothing was written");
}

#[test]
fn at_the_beginning_of_a_pipeline_they_stay_done_whatever_fails_behind_them() {
    let directory = Directory::new("begins-a-pipeline");
    let (_server, mut client) = server();
    let full = directory.backup("", "full");
    let (set, archive) = ("alter system set rialto.raise_stalls = '7ms'", "archive log");
    for first in [&full, set, archive] {
        let answer = pipeline(&mut client, &[first, "insert into t values (1)", "select 1 / 0"]);
        assert_eq!(error_code(&answer).as_deref(), Some("22012"), "{first}: {}", error_text(&answer));
        assert_eq!(tags_of(&answer), "12C12CEZ", "{first}: {}", error_text(&answer));
        assert_eq!(
            one(&mut client, "select count(*) from t"),
            "0",
            "{first}: the insert is not its transaction's"
        );
    }
    assert!(directory.has("full"));
    assert_eq!(one(&mut client, "show rialto.raise_stalls"), "7ms");
    // Each of them ends its own transaction, so one may follow another, and no later statement undoes any of them.
    let increment = directory.backup("incremental", "increment");
    let again = "alter system set rialto.raise_stalls = '9ms'";
    let answer = pipeline(&mut client, &[archive, again, &increment, "insert into t values (1)", set]);
    assert_eq!(tags_of(&answer), "12C12C12C12C12EZ", "{}", error_text(&answer));
    assert_eq!(error_code(&answer).as_deref(), Some("25001"), "{}", error_text(&answer));
    assert!(directory.has("increment"));
    assert_eq!(one(&mut client, "show rialto.raise_stalls"), "9ms");
    assert_eq!(one(&mut client, "select count(*) from t"), "0");
}
