//! Random messages against a model of the connection: queries, pipelines, portals, COPY, definitions under prepared
//! statements, and cancel requests that come while nothing runs or while a text is read. The model has the messages of
//! each answer, with their rows, completions, SQLSTATEs and descriptions. `RIALTO_SEED` runs a session again;
//! `RIALTO_TEST_SECONDS` says for how long new ones are tried.

mod message;
mod model;
mod statement;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rialto::io::Random;

use crate::common::*;
use crate::seeds::{for_a_while, patience};
use message::{Sent, Told, decode, encode};
use model::{Mode, Model};
use statement::{Kind, create};

const STATEMENTS: [&str; 3] = ["", "s", "r"];
const PORTALS: [&str; 3] = ["", "p", "q"];
/// The name of a statement whose text takes long to read.
const LONG: &str = "long";
const ARGUMENTS: [&str; 6] = ["1", "2", "3", "4", "17", "x"];

struct Draw {
    random: Random,
    /// The next key of a COPY, which no other statement inserts.
    next: i32,
}

impl Draw {
    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len() as u64) as usize]
    }

    fn name(&mut self) -> &'static str {
        self.one(&STATEMENTS)
    }

    fn portal(&mut self) -> &'static str {
        self.one(&PORTALS)
    }

    /// A statement for a query string.
    fn plain(&mut self, model: &Model) -> Kind {
        if let Some((shape, false)) = model.data.shaped
            && self.random.chance(1, 4)
        {
            return Kind::Fill(shape);
        }
        loop {
            let kind = Kind::any(&mut self.random);
            if kind.arguments() == 0 {
                return kind;
            }
        }
    }

    fn query(&mut self, model: &Model) -> Sent {
        if self.random.chance(1, 20) {
            return Sent::BadQuery;
        }
        if self.random.chance(1, 10) {
            return Sent::Query(Kind::reshape(&mut self.random));
        }
        if self.random.chance(2, 3) {
            return Sent::Query(vec![self.plain(model)]);
        }
        // The shape of the table after other statements of the string is not known here.
        let mut kinds = Vec::new();
        while kinds.len() < 2 {
            let kind = self.plain(model);
            if !matches!(kind, Kind::Copy | Kind::Empty | Kind::Fill(_)) {
                kinds.push(kind);
            }
        }
        Sent::Query(kinds)
    }

    /// The messages of a client for a statement, sent together.
    fn statement(&mut self) -> Vec<Sent> {
        let (name, portal, kind) = (self.name(), self.portal(), Kind::any(&mut self.random));
        let argument = (kind.arguments() > 0).then(|| self.one(&ARGUMENTS));
        let mut all =
            vec![Sent::Parse(name, kind), Sent::Bind(portal, name, argument, self.random.chance(1, 2))];
        if self.random.chance(1, 2) {
            all.push(Sent::DescribePortal(portal));
        }
        all.push(Sent::Execute(portal, self.random.below(4) as u32));
        all
    }

    /// Runs a statement that was prepared before.
    fn run(&mut self, model: &Model) -> Vec<Sent> {
        let (name, portal) = (self.name(), self.portal());
        let takes = model.statement(name).is_some_and(|kind| kind.arguments() > 0);
        let argument = takes.then(|| self.one(&ARGUMENTS));
        let bind = Sent::Bind(portal, name, argument, self.random.chance(1, 2));
        vec![Sent::ClosePortal(portal), bind, Sent::Execute(portal, self.random.below(3) as u32)]
    }

    fn any(&mut self, model: &Model) -> Vec<Sent> {
        if let Mode::Copy(..) = model.mode
            && self.random.chance(3, 4)
        {
            return vec![match self.random.below(12) {
                0 => Sent::Data(None),
                1 => Sent::Fail,
                2 | 3 => Sent::BadQuery,
                4..7 => Sent::Done,
                _ => {
                    self.next += 1;
                    Sent::Data(Some(self.next))
                }
            }];
        }
        if let Some(name) = model.newest_savepoint()
            && self.random.chance(1, 6)
        {
            // A portal that it closes cannot be used again.
            return vec![Sent::Query(vec![Kind::RollbackTo(name)]), Sent::Execute(self.portal(), 0)];
        }
        if let Some(portal) = model.suspended()
            && self.random.chance(1, 4)
        {
            return vec![Sent::Execute(portal, self.random.below(3) as u32)];
        }
        vec![match self.random.below(30) {
            0..7 => return self.statement(),
            7..11 => self.query(model),
            11 | 12 => Sent::Parse(self.name(), Kind::any(&mut self.random)),
            13..16 => {
                let argument = self.random.chance(1, 3).then(|| self.one(&ARGUMENTS));
                Sent::Bind(self.portal(), self.name(), argument, self.random.chance(1, 2))
            }
            16 => Sent::DescribeStatement(self.name()),
            17 | 18 => Sent::DescribePortal(self.portal()),
            19..22 => Sent::Execute(self.portal(), self.random.below(4) as u32),
            22 if self.random.chance(1, 2) => Sent::CloseStatement(self.name()),
            22 => Sent::ClosePortal(self.portal()),
            23 => Sent::Sync,
            24 => Sent::Flush,
            25 => [Sent::Done, Sent::Fail, Sent::Data(None)][self.random.below(3) as usize].clone(),
            _ => return self.run(model),
        }]
    }
}

/// Sends a cancel request. The server has handled it when this returns.
fn cancel(server: SocketAddr, process: u32, secret: u32) {
    let mut canceller = Client::raw(server);
    canceller.send_startup(&[80_877_102, process, secret].map(u32::to_be_bytes).concat());
    assert!(canceller.read().is_none(), "the end says that it was done");
}

/// If this many texts in a row are not cancelled, with requests during the whole reading of each, requests have no
/// effect.
const UNHEARD_MAX: u64 = 8;

/// Texts that take long to read, with cancel requests beside them.
#[derive(Default)]
struct LongTexts {
    sent: u64,
    cancelled: u64,
    unheard_in_a_row: u64,
}

impl LongTexts {
    /// Sends a text, and cancel requests until it is answered. Gives the answer, and whether the text was cancelled:
    /// the client cannot know that beforehand, because a request that comes before the server begins to read does
    /// nothing.
    fn send(&mut self, server: SocketAddr, client: &mut Client, random: &mut Random) -> (Vec<Told>, bool) {
        // The session has seen none of them before.
        let items: Vec<String> = (0..20_000 + random.below(20_000)).map(|nth| nth.to_string()).collect();
        let text = format!("select {} in ({})", random.below(1 << 30), items.join(","));
        let (process, secret) = (client.process, client.secret);
        let (over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
        let (answer, beside) = std::thread::scope(|scope| {
            let cancels = scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    cancel(server, process, secret);
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            });
            let before = taken.load(Ordering::SeqCst);
            client.send(&[parse(LONG, &text), sync()].concat());
            let answer = client.answer();
            let beside = taken.load(Ordering::SeqCst) - before;
            over.store(true, Ordering::SeqCst);
            cancels.join().unwrap();
            (answer, beside)
        });
        let is_cancelled = error_code(&answer).as_deref() == Some("57014");
        self.sent += 1;
        self.cancelled += u64::from(is_cancelled);
        match is_cancelled {
            true => self.unheard_in_a_row = 0,
            // The first request may have come before the text.
            false => self.unheard_in_a_row += u64::from(beside > 2),
        }
        (answer.iter().map(decode).collect(), is_cancelled)
    }
}

/// Runs one session. Gives the number of messages sent.
fn session(server: &TestServer, seed: u64, texts: &mut LongTexts) -> u64 {
    let mut other = server.connect();
    let data = create(&mut |sql| drop(other.run(sql)));
    let mut client = server.connect();
    client.wait_at_most(patience());
    let mut draw = Draw { random: Random::new(seed), next: 1_000 };
    let (mut model, mut story, mut messages) = (Model::new(data), Vec::new(), 0);
    for _ in 0..40 {
        if draw.random.chance(1, 6) {
            cancel(server.address, client.process, client.secret);
            story.push("a cancel request".to_owned());
        }
        if !model.has_failed() && draw.random.chance(1, 30) {
            let (found, is_cancelled) = texts.send(server.address, &mut client, &mut draw.random);
            story.push(format!("a long text, cancelled: {is_cancelled}"));
            model.take_long_text(is_cancelled);
            let last = &story[story.len().saturating_sub(60)..];
            assert_eq!(found, std::mem::take(&mut model.told), "RIALTO_SEED={seed}: {last:#?}");
            let unheard = texts.unheard_in_a_row;
            assert!(
                unheard < UNHEARD_MAX,
                "RIALTO_SEED={seed}: no request has ended one of {unheard} long texts"
            );
        }
        let mut bytes = Vec::new();
        let mut send = |model: &mut Model, sent: Sent| {
            story.push(format!("{sent:?}"));
            bytes.extend(encode(&sent));
            model.take(&sent);
            messages += 1;
        };
        if model.statement(LONG).is_some() {
            send(&mut model, Sent::CloseStatement(LONG));
        }
        for _ in 0..1 + draw.random.below(8) {
            for sent in draw.any(&model) {
                send(&mut model, sent);
            }
        }
        if let Mode::Copy(..) = model.mode {
            send(&mut model, Sent::Done);
        }
        send(&mut model, Sent::Sync);
        client.send(&bytes);
        let expected = std::mem::take(&mut model.told);
        let answers = expected.iter().filter(|told| matches!(told, Told::Ready(_))).count();
        let found: Vec<Told> = (0..answers).flat_map(|_| client.answer()).map(|one| decode(&one)).collect();
        let last = &story[story.len().saturating_sub(60)..];
        assert_eq!(found, expected, "RIALTO_SEED={seed}: {last:#?}");
        if model.is_idle() && draw.random.chance(1, 4) {
            let found = rows(&other.run("select a from t order by a"));
            let expected: Vec<_> = model.data.keys.iter().map(|key| vec![Some(key.to_string())]).collect();
            assert_eq!(found, expected, "RIALTO_SEED={seed}: {last:#?}");
        }
    }
    messages
}

#[test]
fn messages_are_answered_as_the_model_answers_them() {
    let server = TestServer::start();
    let (mut messages, mut texts) = (0, LongTexts::default());
    let (seed, sessions) = for_a_while(|seed| messages += session(&server, seed, &mut texts));
    let LongTexts { sent, cancelled, .. } = texts;
    println!(
        "tally: messages against a model, {sessions} sessions, {messages} messages, {cancelled} of {sent} long texts cancelled, RIALTO_SEED={seed}"
    );
}
