//! Message servers inside bodies that the answering executor may run: they wait for nothing there.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::in_time;
use rialto::io::MemoryDisk;
use rialto::row::{ColumnType, Value};
use rialto::{
    Checkpointing, Database, Durability, Engine, Error, Flow, MessageServer, Options, Outputs, Procedure,
    Result, TransactionServer, TransactionServerOptions,
};

/// Longer than any of this takes, so that a wait for the own thread is found to hang.
const LIMIT: Duration = Duration::from_secs(60);
/// The length of the request queue.
const QUEUE: usize = 4;

/// Puts a request that does nothing on the queue.
type Put = dyn Fn(&mut MessageServer) -> Result<()> + Send;
type InBody = fn(&mut MessageServer, &Put, &mut Outputs) -> Result<()>;

/// Runs it in a body that a transaction server executes, with another message server of the same server. Gives the
/// outcome of the body, and that message server.
fn in_a_body(engine: Engine, run: InBody) -> (Result<Vec<Value>>, MessageServer) {
    let options = Options {
        memory_bytes: 64 << 20,
        checkpoint: Checkpointing::None,
        durability: Durability::Memory,
        engine,
        ..Options::default()
    };
    let db = Database::open_on(MemoryDisk::new(), options).unwrap();
    db.register(Procedure::new("inner", [], Flow::of(|_, _, _| Ok(())))).unwrap();
    let (give, given): (Sender<(MessageServer, Box<Put>)>, Receiver<_>) = channel();
    let given = Mutex::new(given);
    let back: Arc<Mutex<Option<MessageServer>>> = Arc::default();
    let own = back.clone();
    let outer = Flow::of(move |_, _, outputs| {
        let (mut asks, put) = given.lock().unwrap().recv().expect("one is given");
        let outcome = run(&mut asks, &*put, outputs);
        *own.lock().unwrap() = Some(asks);
        outcome
    });
    db.register(Procedure::new("outer", [ColumnType::Int4], outer)).unwrap();
    let server_options = TransactionServerOptions { queue: QUEUE, ..Default::default() };
    let server = TransactionServer::start(&db, &server_options).unwrap();
    let procedure = |name| server.procedure(name).unwrap();
    let inner = procedure("inner");
    let put = move |asks: &mut MessageServer| {
        let request = asks.request(&inner);
        asks.put(request)
    };
    give.send((server.message_server(), Box::new(put))).unwrap();
    let mut message_server = server.message_server();
    let mut request = message_server.request(&procedure("outer"));
    request.push(1);
    message_server.put(request).unwrap();
    let response = message_server.take().expect("a request has a response");
    let outcome = response.outcome().clone().map(|()| response.outputs().to_vec());
    // The requests of the body have run by the time at which it is closed.
    server.close();
    let asks = back.lock().unwrap().take().expect("the body has put it back");
    (outcome, asks)
}

/// Runs it so on both engines.
fn in_bodies(run: InBody, expected: &Result<Vec<Value>>, responses: usize) {
    for engine in [Engine::thin(), Engine::data_oriented()] {
        let expected = expected.clone();
        in_time(LIMIT, move || {
            let (outcome, mut asks) = in_a_body(engine, run);
            assert_eq!(outcome, expected, "{engine}");
            assert_eq!(asks.outstanding(), responses, "{engine}");
            while let Some(response) = asks.take() {
                assert_eq!(response.outcome(), &Ok(()), "{engine}");
            }
            assert_eq!(asks.outstanding(), 0, "{engine}");
        });
    }
}

#[test]
fn a_response_that_has_not_come_is_not_waited_for() {
    let takes: InBody = |asks, put, outputs| {
        put(asks)?;
        outputs.push(asks.take().is_some());
        asks.wait();
        outputs.push(asks.take().is_some());
        Ok(())
    };
    in_bodies(takes, &Ok(vec![Value::Bool(false), Value::Bool(false)]), 1);
}

#[test]
fn room_in_a_full_queue_is_not_waited_for() {
    let fills: InBody = |asks, put, _| {
        (0..QUEUE).try_for_each(|_| put(asks))?;
        let refused = put(asks);
        asks.wait();
        refused
    };
    in_bodies(fills, &Err(Error::Nested), QUEUE);
}
