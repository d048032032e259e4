//! The memory that reading a statement takes. A program of one test, because it counts the allocations of the whole
//! process. `RIALTO_SEED` runs a text again; `RIALTO_TEST_SECONDS` says for how long new ones are tried.
#![allow(unsafe_code, reason = "an allocator is unsafe to write")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rialto::io::Random;
use rialto_sql::parse::{READING_BYTES_MAX, parse, weigh};

/// The system's allocator, with a count of what is allocated, and the most of it.
struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTED: Counted = Counted;

/// The bytes of an allocation: a word before it, and a multiple of sixteen.
fn taken(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(32)
}

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor unwinds. An allocation
// that moves as it grows is counted twice meanwhile, as `GlobalAlloc::realloc` does it.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(taken(layout), Ordering::Relaxed) + taken(layout);
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is the inner allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(taken(layout), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The most bytes that reading a text takes, whether it is accepted or refused.
fn peak(sql: &str) -> usize {
    let cancel = Arc::default();
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let _ = parse(sql, &cancel);
    MOST.load(Ordering::Relaxed) - before
}

/// A beginning, a part that is repeated, and an end.
const NASTY: &[(&str, &str, &str)] = &[
    ("select f(1)", ",f(1)", ""),
    ("select f()", ",f()", ""),
    ("select 1", ",1", ""),
    ("select a", ",a", ""),
    ("select a a", ",a a", ""),
    ("select a.b", ",a.b", ""),
    ("select 1 in (1", ",1", ")"),
    ("select 1 in (1)", ",1 in(1)", ""),
    ("insert into t values(1)", ",(1)", ""),
    ("insert into t values(1,2)", ",(1,2)", ""),
    ("insert into t values(1,'x',3,4)", ",(1,'x',3,4)", ""),
    ("insert into t values(f(1))", ",(f(1))", ""),
    ("insert into t values('')", ",('')", ""),
    ("select case when 1 then 1", " when 1 then 1", " end"),
    ("select case 1 when 1 then 1 end", ",case 1 when 1 then 1 end", ""),
    ("select case when 1 then 1 end", ",case when 1 then 1 end", ""),
    ("select * from t", ",t", ""),
    ("select * from t", ",(t)", ""),
    ("select * from t", ",t t(a)", ""),
    ("select * from f(1)", ",f(1)", ""),
    ("select * from (select 1)", ",(select 1)", ""),
    ("select * from t", ",t join t on 1", ""),
    ("select (select 1)", ",(select 1)", ""),
    ("select (select)", ",(select)", ""),
    ("select exists(select 1)", ",exists(select 1)", ""),
    ("select array(select 1)", ",array(select 1)", ""),
    ("select 1 in (select 1)", ",1 in(select 1)", ""),
    ("select (values(1))", ",(values(1))", ""),
    ("select (table t)", ",(table t)", ""),
    ("create table t (a int", ",a int", ")"),
    ("create table t (a a", ",a a", ")"),
    ("create table t (a int null", ",a int null", ")"),
    ("create table t (a int check(1)", ",a int check(1)", ")"),
    ("create table t (a int primary key", ",a int unique", ")"),
    ("create table t (a int", " null", ")"),
    ("create table t (a int", " check(1)", ")"),
    ("create table t (a int", " references t", ")"),
    ("create table t (a int", " default 1", ")"),
    ("create table t (unique(a)", ",unique(a)", ")"),
    ("create table t (check(1)", ",check(1)", ")"),
    ("create table t (a enum('a')", ",a enum('a')", ")"),
    ("create table t (foreign key(a) references t(a)", ",foreign key(a) references t(a)", ")"),
    ("create table t (a numeric(1)", ",a numeric(1)", ")"),
    ("create table t (a x(1,1)", ",a x(1,1)", ")"),
    ("create table t (a int) with (a=1", ",a=1", ")"),
    ("create index i on t (a", ",a", ")"),
    ("create index i on t (f(a)", ",f(a)", ")"),
    ("update t set a=1", ",a=1", ""),
    ("update t set (a)=(1)", ",(a)=(1)", ""),
    ("select 1 order by 1", ",1", ""),
    ("select 1 group by 1", ",1", ""),
    ("select 1 group by (1)", ",(1)", ""),
    ("select 1 group by rollup(1)", ",rollup((1))", ""),
    ("select array[1]", ",array[1]", ""),
    ("select a[1]", ",a[1]", ""),
    ("select [1]", ",[1]", ""),
    ("select {a:1}", ",{a:1}", ""),
    ("select a:b", ",a:b", ""),
    ("select (1,1)", ",(1,1)", ""),
    ("select row(1)", ",row(1)", ""),
    ("select f(1) over()", ",f(1)over()", ""),
    ("select f(1) over(partition by 1 order by 1)", ",f(1)over(partition by 1 order by 1)", ""),
    ("select f(1) filter(where 1)", ",f(1)filter(where 1)", ""),
    ("select f(1) within group (order by 1)", ",f(1)within group(order by 1)", ""),
    ("select f(distinct 1 order by 1)", ",f(distinct 1 order by 1)", ""),
    ("with a as (select 1)", ",a as(select 1)", " select 1"),
    ("select 1 from t window a as ()", ",a as()", ""),
    ("select 1 from t window a as b", ",a as b", ""),
    ("select 1::int", ",1::int", ""),
    ("select int '1'", ",int '1'", ""),
    ("select cast(1 as int)", ",cast(1 as int)", ""),
    ("select extract(a from 1)", ",extract(a from 1)", ""),
    ("select interval '1' day", ",interval'1'day", ""),
    ("select substring(1 from 1 for 1)", ",substring(1 from 1 for 1)", ""),
    ("select trim(1)", ",trim(1)", ""),
    ("select overlay(1 placing 1 from 1)", ",overlay(1 placing 1 from 1)", ""),
    ("select position(1 in 1)", ",position(1 in 1)", ""),
    ("select -1", ",-1", ""),
    ("select - - 1", ",- - 1", ""),
    ("select not 1", ",not 1", ""),
    ("select 1+1", ",1+1", ""),
    ("select 1 between 1 and 1", ",1 between 1 and 1", ""),
    ("select 1 like 1", ",1 like 1", ""),
    ("select 1 is null", ",1 is null", ""),
    ("select 1 at time zone 1", ",1 at time zone 1", ""),
    ("select *", ",*", ""),
    ("select t.*", ",t.*", ""),
    ("delete from t", ",t", ""),
    ("insert into t(a", ",a", ") values (1)"),
    ("insert into t values(1) returning 1", ",1", ""),
    ("insert into t values(1) returning *", ",*", ""),
    ("insert into t(a) values(1) on conflict(a", ",a", ") do nothing"),
    ("grant select on t to a", ",a", ""),
    ("grant select(a)", ",select(a)", " on t to a"),
    ("drop table a", ",a", ""),
    ("truncate a", ",a", ""),
    ("drop table a.b", ",a.b", ""),
    ("lock table a", ",a", ""),
    ("alter table t add a int", ",add a int", ""),
    ("alter table t drop a", ",drop a", ""),
    ("alter table t add unique(a)", ",add unique(a)", ""),
    ("copy t from stdin with (a", ",null ''", ")"),
    ("explain (a", ",a", ") select 1"),
    ("call f(1", ",1", ")"),
    ("prepare a(int", ",int", ") as select 1"),
    ("execute a(1", ",1", ")"),
    ("create function f(a int", ",a int", ") returns int as 'a'"),
    ("create type a as (a int", ",a int", ")"),
    ("create type a as enum ('a'", ",'a'", ")"),
    ("create view v(a", ",a", ") as select 1"),
    ("create role a", ",a", ""),
    ("drop function f()", ",f()", ""),
    ("drop function f(int)", ",f(int)", ""),
    ("create trigger t before update of a", ",a", " on t execute function f()"),
    ("merge into t using t on 1 when matched then delete", " when matched then delete", ""),
    ("merge into t using t on 1 when matched then delete", " when not matched then insert values(1)", ""),
    ("merge into t using t on 1 when matched then update set a=1", " when matched then update set a=1", ""),
    ("alter sequence a increment 1", " ", ""),
    ("create sequence a", " cycle", ""),
    ("declare a cursor for select 1", ";declare b cursor for select 1", ""),
    ("create policy p on t to a", ",a", ""),
    ("comment on table t is 'a'", " ", ""),
    ("set a = 1", ",1", ""),
    ("set (a", ",a", ") = (1)"),
    ("show a", " a", ""),
    ("select 1 for update of t", " for update of t", ""),
    ("select xmlelement(name a", ",1", ")"),
    ("select json_object(1:1", ",1:1", ")"),
    ("select listagg(1,1) within group (order by 1)", ",1", ""),
    ("select grouping sets(1)", ",cube(1)", ""),
    ("select f(a=>1)", ",f(a=>1)", ""),
    ("select * from t tablesample a(1)", ",t tablesample a(1)", ""),
    ("select * from unnest(1)", ",unnest(1)", ""),
    ("select * from lateral f(1)", ",lateral f(1)", ""),
    (
        "select * from json_table('a','a' columns(a int path 'a'))",
        ",json_table('a','a' columns(a int path 'a'))",
        "",
    ),
    ("select * from t pivot(f(1) for a in (1))", ",t pivot(f(1) for a in (1))", ""),
    (
        "select * from t match_recognize(pattern(a) define a as 1)",
        ",t match_recognize(pattern(a) define a as 1)",
        "",
    ),
    ("select * from rows from (f(1))", ",rows from(f(1))", ""),
    (
        "select * from xmltable(1 passing 1 columns a int)",
        ",xmltable('a' passing a columns a int path 'a')",
        "",
    ),
    ("select * from t join t using(a)", ",t join t using(a)", ""),
    ("select * from t natural join t", ",t natural join t", ""),
    ("select * from t", ",t cross join t", ""),
    ("create table t (a int generated always as identity", ",a int generated always as identity", ")"),
    ("create table t (a int generated always as (1) stored", ",a int generated always as(1)stored", ")"),
    ("create table t (a int constraint a null", ",a int constraint a null", ")"),
    ("create table t (a int collate a", ",a int collate a", ")"),
    ("create table t (exclude using a (a with =)", ",exclude using a(a with =)", ")"),
    ("create table t (like a", ",like a", ")"),
    ("select /*a*/1", ",/*a*/1", ""),
    ("select 1", "\n", ""),
    ("select 1", "--\n", ""),
    ("select ''", ",''", ""),
    ("select $1", ",$1", ""),
    ("select E''", ",E''", ""),
    ("select $$$$", ",$$$$", ""),
    ("insert into t values (1)", " returning 1", ""),
    ("insert into t select 1 from values", ", (select 1, 1, 1, 1, 1, 1, 1)", ""),
    ("insert into values values (1)", ", (1, 2, 3, 4, 5)", ""),
    ("insert into t values (1)", ", ((select 1))", ""),
    ("select 1 in (select 1", ", 1", ")"),
    ("select 1 in ((select 1) union select 1", ", 1", ")"),
    ("select 1", " union select 1", ""),
    ("select 1", " union all (select 1)", ""),
    ("values (1)", ", (1)", ""),
    ("select 1 + 1", " + 1", ""),
    ("select a", " or a = 1", ""),
    ("select a", "::int", ""),
    ("select a", ".a", ""),
    ("select 'a'", "\n'a'", ""),
    ("explain select 1", ", f(1)", ""),
    ("explain insert into t values (1, 2)", ", (1, 2)", ""),
    ("insert into t values (1, 2, 3, 4, 5)", ", (1, 2, 3, 4, 5)", ""),
    ("insert into t values (1, 2, 3, 4, 5, 6, 7, 8, 9)", ", (1, 2, 3, 4, 5, 6, 7, 8, 9)", ""),
    ("insert into t values (null)", ", (null)", ""),
    ("insert into t values (date '2026-01-01')", ", (date '2026-01-01')", ""),
    ("insert into t values (1::int)", ", (1::int)", ""),
    ("drop table a", ", b", ""),
    ("select 1 from t order by a", ", a", ""),
    ("\"a\"", " \"a\"", ""),
    ("select é", ",é", ""),
    ("select 1 -- a\n", "-- a\n", ""),
    ("select a is null", " is null", ""),
    ("select 1 where a like 'b'", " and a like 'b'", ""),
    ("select not 1", " or not 1", ""),
    ("begin", " read only,", ""),
    ("copy t (", "a,", "a) from stdin"),
    ("set a = 1", ", 1", ""),
    ("select 'x'.'x'", ".'x'", ""),
    ("select 'x'", ".$1", ""),
    ("select 'x'.'x'", ",'x'.'x'", ""),
    ("select 'x'", " . 1", ""),
    ("select a", ".'x'", ""),
    ("select a.'x'", ",a.'x'", ""),
    ("select a1.5", ",a1.5", ""),
    ("select a.5", ".5", ""),
    ("select 'x'", ".5", ""),
    ("select 1 &>'f(1)", ",f(1)", ""),
    ("select a.f(1)", ",a.f(1)", ""),
    ("select 1 in ('x'", ".'x'", ")"),
    ("select 1 in ('x'", ".null", ")"),
    ("select 1 in (null.null", ",null.null", ")"),
    ("select 1 in ('x'.$1", ",'x'.$1", ")"),
    ("select 1 in ('x'.'x'.'x'.'x'.'x'.'x'", ",'x'.'x'.'x'.'x'.'x'.'x'", ")"),
    ("insert into t values ('x'.'x'", ",'x'.'x'", ")"),
    ("insert into t values ('x'.'x'", "),('x'.'x'", ")"),
    ("insert into t values (null.null", "),(null.null", ")"),
    ("insert into t values (a.'x'", "),(a.'x'", ")"),
    ("insert into t values ('x'.'x'.'x'.'x'.'x'.'x'", ",'x'.'x'.'x'.'x'.'x'.'x'", ")"),
    ("insert into t values (1.5)", ",(1.5)", ""),
];

/// Beginnings and ends of tokens, in places where one may be taken for a part of another.
const SOUP: &[&str] = &[
    "'", "''", "\"", "\\", "$", "$$", "$a$", "$1$", "E'", "x'", "U&'", "N'", "b'", "0x", "1e", ".", "--",
    "/*", "*/", "*", "<", "|", "&", "@", "\n", "\r", " ", ",", "(", ")", "é", "—", "_", ":", "?", "#", "~",
    "%", "[", "]", "{", "}", "&>", "&<", "?-|", "@-@", "^@", "&<|", "&>'", "&>\"", "f(1),", "isnull ",
    "values ", "in (", "null,", "insert ", "explain ",
];

/// A text weighs at least what reading it takes, even where little text makes a large tree.
#[test]
fn a_text_weighs_what_reading_it_takes() {
    // As much stack as sessions of a server have.
    let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(weigh_and_read);
    thread.unwrap().join().unwrap();
}

fn weigh_and_read() {
    let mut heaviest: f64 = 0.0;
    // Lists that have just grown, and lists that have not.
    for times in [0, 1, 3, 4, 5, 100, 513, 1_020, 4_100] {
        for (first, part, last) in NASTY {
            let sql = format!("{first}{}{last}", part.repeat(times));
            let (weight, peak) = (weigh(&sql) + (64 << 10), peak(&sql));
            heaviest = heaviest.max(peak as f64 / weight as f64);
            assert!(
                peak <= weight,
                "{peak} bytes for a weight of {weight}: {first}{part}... ({times}){last}"
            );
        }
    }
    println!("at most {heaviest:.2} of the weight");
    // Where many literals are usual, the weight is no more than a few times what reading takes, so that many literals
    // can be read.
    for (first, part) in [
        ("insert into t values (1)", ", (1)"),
        ("insert into t values (1, 'x')", ",\n(12345, 'x')"),
        ("insert into t values (1, 2, 3, 4, 5)", ",(1, 2, 3, null, '5')"),
        ("insert into t values (1.5, 2.25)", ",(1.5, 2.25)"),
        ("select 1 where 1 in (1", ", 2"),
        ("select 1 where 'a' in ('b'", ",'cdefgh'"),
    ] {
        let sql = format!("{first}{}{}", part.repeat(20_000), if first.ends_with(')') { "" } else { ")" });
        let (weight, peak) = (weigh(&sql), peak(&sql));
        println!("{first}{part}...: {} bytes of {} each", peak / 20_000, weight / 20_000);
        assert!(weight < 3 * peak, "{peak} bytes for a weight of {weight}: {first}{part}...");
    }
    // A text that would take more is refused before more than that is taken, in the middle of its tokens.
    for (first, part, last) in [
        ("select f(1)", ",f(1)", ""),
        ("select ", "- ", "1"),
        ("", ",", ""),
        ("select", " ", ""),
        ("", "\n", ""),
    ] {
        let sql = format!("{first}{}{last}", part.repeat((15 << 20) / part.len()));
        assert!(peak(&sql) < READING_BYTES_MAX, "{first}{part}...");
        let error = parse(&sql, &Arc::default()).unwrap_err();
        assert_eq!(error.sqlstate.code(), "54000", "{first}{part}...: {error}");
        assert!(error.message.contains("the limit is 1024 MiB"), "{error}");
    }
    // Random texts of these pieces.
    let base = Random::seed_from_environment();
    let until = Instant::now() + Random::test_time_from_environment();
    let parts: Vec<&str> = NASTY.iter().flat_map(|(first, part, last)| [*first, *part, *last]).collect();
    let mut seed = base;
    while seed == base || Instant::now() < until {
        let mut random = Random::new(seed);
        let [first, part, last] = [4, 4, 2].map(|most| soup(&mut random, most, &parts));
        let sql = format!("{first}{}{last}", part.repeat(100 + random.below(900) as usize));
        let (weight, peak) = (weigh(&sql) + (64 << 10), peak(&sql));
        heaviest = heaviest.max(peak as f64 / weight as f64);
        assert!(
            peak <= weight,
            "RIALTO_SEED={seed}: {peak} bytes for a weight of {weight}: {first:?} {part:?}... {last:?}"
        );
        seed = seed.wrapping_add(1);
    }
    println!("{} texts, at most {heaviest:.2} of the weight", seed.wrapping_sub(base));
}

/// A text of fewer than `most` parts: of these, of [`SOUP`], or of pieces of them, which begin and end in the middle of
/// tokens.
fn soup(random: &mut Random, most: u64, parts: &[&str]) -> String {
    let mut text = String::new();
    for _ in 0..random.below(most) {
        let from = if random.chance(1, 3) { SOUP } else { parts };
        let part = from[random.below(from.len() as u64) as usize];
        let bounds: Vec<usize> = part.char_indices().map(|(at, _)| at).chain([part.len()]).collect();
        let [from, to] = [(); 2].map(|()| bounds[random.below(bounds.len() as u64) as usize]);
        text.push_str(if from < to { &part[from..to] } else { part });
    }
    text
}
