//! A server in this process, and programs and sockets that talk to it.
#![allow(dead_code, reason = "each test file uses its own part of this")]

pub mod progress;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rialto::io::{Disk, MemoryDisk};
use rialto::{Database, Options};
use rialto_server::{ServeOptions, Server};
use rialto_sql::partitions::Partitions;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Longer than any answer takes, however slow the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A server on a database in memory; it ends when this is dropped.
pub struct TestServer {
    pub address: SocketAddr,
    pub database: Database,
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<tokio::task::JoinHandle<Result<(), rialto_server::ServeError>>>,
}

impl TestServer {
    pub fn start() -> TestServer {
        TestServer::with(Options::default(), 20)
    }

    pub fn with(options: Options, max_connections: usize) -> TestServer {
        TestServer::on(MemoryDisk::new(), options, max_connections)
    }

    pub fn on(disk: Arc<dyn Disk>, options: Options, max_connections: usize) -> TestServer {
        let serve = ServeOptions { max_connections, ..ServeOptions::default() };
        TestServer::serving(disk, options, serve)
    }

    /// A server with these options; it picks its port.
    pub fn serving(disk: Arc<dyn Disk>, options: Options, serve: ServeOptions) -> TestServer {
        let database = Database::open_on(disk, options).expect("a new database opens");
        let runtime = rialto_server::runtime().expect("a runtime starts");
        let options = ServeOptions { listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))), ..serve };
        let server =
            runtime.block_on(Server::bind(database.clone(), &options)).expect("a free port is there");
        TestServer::run(server, database, runtime)
    }

    /// A server of sessions over partitions.
    pub fn over_partitions(partitions: Arc<dyn Partitions>) -> TestServer {
        let runtime = rialto_server::runtime().expect("a runtime starts");
        let options =
            ServeOptions { listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))), ..ServeOptions::default() };
        let database = partitions.catalog();
        let server = runtime.block_on(Server::bind_over_partitions(partitions, &options));
        TestServer::run(server.expect("a free port is there"), database, runtime)
    }

    fn run(server: Server, database: Database, runtime: Runtime) -> TestServer {
        let address = server.tcp().expect("it listens on TCP");
        let (stop, stopped) = oneshot::channel();
        let ended = runtime.spawn(server.run(async {
            let _ = stopped.await;
        }));
        TestServer { address, database, runtime: Some(runtime), stop: Some(stop), ended: Some(ended) }
    }

    /// Asks the server to end.
    pub fn ask_to_stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Waits until it has ended.
    pub fn wait(mut self) -> Result<(), rialto_server::ServeError> {
        self.ask_to_stop();
        let (runtime, ended) = (self.runtime.take().unwrap(), self.ended.take().unwrap());
        runtime.block_on(ended).expect("the server does not panic")
    }

    /// Runs psql with these commands, each its own string.
    pub fn psql(&self, commands: &[&str]) -> (String, String) {
        let mut psql = self.program("psql");
        psql.args(["-X", "-A", "-t", "-v", "VERBOSITY=verbose"]);
        for command in commands {
            psql.args(["-c", command]);
        }
        texts(psql.output().expect("psql runs"))
    }

    /// A client program with the server's address.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command
            .env("PGHOST", self.address.ip().to_string())
            .env("PGPORT", self.address.port().to_string())
            .env("PGUSER", "ann")
            .env("PGDATABASE", "bank")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("PGOPTIONS");
        command
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

pub fn texts(output: Output) -> (String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("programs print UTF-8");
    (text(output.stdout), text(output.stderr))
}

/// Whether a program is installed, which it has to be with `CI=true`.
pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "{program} is missing: install Debian's postgresql-client and postgresql-contrib"
        );
        println!("skipped: {program} is not installed");
    }
    found
}

/// One message from the server: its tag and its body.
pub type Message = (u8, Vec<u8>);

/// A socket that speaks the protocol in bytes.
pub struct Client {
    pub stream: TcpStream,
    pub process: u32,
    pub secret: u32,
    pub parameters: Vec<(String, String)>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        Client::connect_to(address, "bank")
    }

    /// As [`Client::connect`], to another database than `bank`.
    pub fn connect_to(address: SocketAddr, database: &str) -> Client {
        Client::try_connect_to(address, database).unwrap_or_else(|refused| panic!("at start-up: {refused}"))
    }

    /// As [`Client::connect`], to a server that may have ended.
    pub fn try_connect(address: SocketAddr) -> Option<Client> {
        Client::try_connect_to(address, "bank").ok()
    }

    fn try_connect_to(address: SocketAddr, database: &str) -> Result<Client, String> {
        let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
        let mut client = Client::over(stream);
        let mut body = 196_608u32.to_be_bytes().to_vec();
        body.extend_from_slice(&strings(&["user", "ann", "database", database, ""]));
        let packet = [&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat();
        if !client.try_send(&packet) {
            return Err("the server does not listen".to_owned());
        }
        loop {
            let (tag, body) = client.read().ok_or("the server does not answer")?;
            match tag {
                b'K' => {
                    client.process = u32::from_be_bytes(body[..4].try_into().unwrap());
                    client.secret = u32::from_be_bytes(body[4..].try_into().unwrap());
                }
                b'S' => {
                    let mut words =
                        body.split(|&byte| byte == 0).map(|word| String::from_utf8(word.to_vec()).unwrap());
                    client.parameters.push((words.next().unwrap(), words.next().unwrap()));
                }
                b'Z' => return Ok(client),
                b'R' => {}
                tag => return Err(format!("{} {}", tag as char, String::from_utf8_lossy(&body))),
            }
        }
    }

    /// A socket before its start-up packet.
    pub fn raw(address: SocketAddr) -> Client {
        Client::over(TcpStream::connect(address).expect("the server listens"))
    }

    fn over(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, process: 0, secret: 0, parameters: Vec::new() }
    }

    /// Waits at most this long for each answer.
    pub fn wait_at_most(&mut self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).unwrap();
    }

    /// Sends a cancel request, to a server that may have ended.
    pub fn cancel(address: SocketAddr, process: u32, secret: u32) {
        let request = [16, 80_877_102, process, secret].map(u32::to_be_bytes).concat();
        if let Ok(mut stream) = TcpStream::connect(address) {
            let _ = stream.write_all(&request);
        }
    }

    pub fn send_startup(&mut self, body: &[u8]) {
        let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
        packet.extend_from_slice(body);
        self.stream.write_all(&packet).unwrap();
    }

    pub fn send(&mut self, messages: &[u8]) {
        self.stream.write_all(messages).unwrap();
    }

    /// Sends to a server that may have closed the connection. Whether it has not.
    pub fn try_send(&mut self, messages: &[u8]) -> bool {
        self.stream.write_all(messages).is_ok()
    }

    pub fn read(&mut self) -> Option<Message> {
        message_of(&mut self.stream)
    }

    /// All messages up to ReadyForQuery, inclusive; or up to the end.
    pub fn answer(&mut self) -> Vec<Message> {
        answer_of(&mut self.stream)
    }

    pub fn query(&mut self, sql: &str) -> Vec<Message> {
        self.send(&query(sql));
        self.answer()
    }

    /// A query that has to succeed.
    pub fn run(&mut self, sql: &str) -> Vec<Message> {
        let answer = self.query(sql);
        assert_eq!(error_code(&answer), None, "{sql}: {}", error_text(&answer));
        assert!(
            tags(&answer).ends_with('Z'),
            "{sql}: the answer does not come, or the connection ends within it"
        );
        answer
    }
}

/// The next message; `None` at the end.
pub fn message_of(stream: &mut impl Read) -> Option<Message> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).ok()?;
    let mut body = vec![0; u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4];
    stream.read_exact(&mut body).ok()?;
    Some((head[0], body))
}

/// All messages up to ReadyForQuery, inclusive; or up to the end.
pub fn answer_of(stream: &mut impl Read) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some(message) = message_of(stream) {
        let last = message.0 == b'Z';
        messages.push(message);
        if last {
            break;
        }
    }
    messages
}

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

fn strings(words: &[&str]) -> Vec<u8> {
    words.iter().flat_map(|word| word.bytes().chain([0])).collect()
}

pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &strings(&[sql]))
}

pub fn parse(name: &str, sql: &str) -> Vec<u8> {
    let mut body = strings(&[name, sql]);
    body.extend_from_slice(&[0, 0]);
    message(b'P', &body)
}

/// Bind with text arguments and text results.
pub fn bind(portal: &str, statement: &str, arguments: &[&str]) -> Vec<u8> {
    let mut body = strings(&[portal, statement]);
    body.extend_from_slice(&[0, 0]);
    body.extend_from_slice(&(arguments.len() as u16).to_be_bytes());
    for argument in arguments {
        body.extend_from_slice(&(argument.len() as u32).to_be_bytes());
        body.extend_from_slice(argument.as_bytes());
    }
    body.extend_from_slice(&[0, 0]);
    message(b'B', &body)
}

pub fn describe(kind: u8, name: &str) -> Vec<u8> {
    let mut body = vec![kind];
    body.extend_from_slice(&strings(&[name]));
    message(b'D', &body)
}

pub fn execute(portal: &str, max_rows: u32) -> Vec<u8> {
    let mut body = strings(&[portal]);
    body.extend_from_slice(&max_rows.to_be_bytes());
    message(b'E', &body)
}

pub fn sync() -> Vec<u8> {
    message(b'S', &[])
}

/// The tags of messages, as text.
pub fn tags(messages: &[Message]) -> String {
    messages.iter().map(|(tag, _)| *tag as char).collect()
}

/// SQLSTATEs that clients of this process have received.
static HEARD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Whether a client of this process has received this SQLSTATE.
pub fn has_heard(code: &str) -> bool {
    HEARD.lock().unwrap().contains(code)
}

/// The SQLSTATE of the first error.
pub fn error_code(messages: &[Message]) -> Option<String> {
    let (_, body) = messages.iter().find(|(tag, _)| *tag == b'E')?;
    let field = body.split(|&byte| byte == 0).find(|field| field.first() == Some(&b'C'))?;
    let code = String::from_utf8(field[1..].to_vec()).unwrap();
    HEARD.lock().unwrap().insert(code.clone());
    Some(code)
}

pub fn error_text(messages: &[Message]) -> String {
    let errors = messages.iter().filter(|(tag, _)| *tag == b'E');
    errors.map(|(_, body)| String::from_utf8_lossy(body).replace('\0', " ")).collect()
}

/// A field of the first error, by its letter.
pub fn error_field(messages: &[Message], letter: u8) -> Option<String> {
    let (_, body) = messages.iter().find(|(tag, _)| *tag == b'E')?;
    let field = body.split(|&byte| byte == 0).find(|field| field.first() == Some(&letter))?;
    Some(String::from_utf8(field[1..].to_vec()).unwrap())
}

/// The answer to a COPY from the client with these data.
pub fn copy_in(client: &mut Client, sql: &str, data: &[u8]) -> Vec<Message> {
    client.send(&query(sql));
    let mut answer = vec![client.read().expect("an answer begins")];
    if answer[0].0 == b'G' {
        client.send(&[message(b'd', data), message(b'c', b"")].concat());
    }
    answer.extend(client.answer());
    answer
}

/// The data of a COPY to the client, which has to succeed.
pub fn copy_out(client: &mut Client, sql: &str) -> Vec<u8> {
    client.run(sql).into_iter().filter(|(tag, _)| *tag == b'd').flat_map(|(_, body)| body).collect()
}

/// The rows, values as text.
pub fn rows(messages: &[Message]) -> Vec<Vec<Option<String>>> {
    let read = |body: &[u8]| {
        let mut at = 2;
        let mut values = Vec::new();
        while at < body.len() {
            let length = i32::from_be_bytes(body[at..at + 4].try_into().unwrap());
            at += 4;
            values.push((length >= 0).then(|| {
                let value = &body[at..at + length as usize];
                at += length as usize;
                String::from_utf8(value.to_vec()).unwrap()
            }));
        }
        values
    };
    messages.iter().filter(|(tag, _)| *tag == b'D').map(|(_, body)| read(body)).collect()
}

/// The state in the last ReadyForQuery.
pub fn state(messages: &[Message]) -> char {
    messages.iter().rfind(|(tag, _)| *tag == b'Z').map_or('?', |(_, body)| body[0] as char)
}
