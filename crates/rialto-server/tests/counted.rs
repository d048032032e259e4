//! The allocations of a server. A program of one test, because it counts the allocations of the whole process.
#![allow(unsafe_code, reason = "an allocator that counts")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;

/// All bytes that this process has allocated.
static ALL: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALL.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is the allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_text_behind_the_copies_of_a_query_string_is_kept_once() {
    const COPIES: usize = 500;
    let server = TestServer::start();
    let mut client = server.connect();
    client.run("create table t (a int primary key)");
    let copies: String =
        (0..COPIES).map(|copy| format!("copy t from stdin; /* {copy} é */ select {copy};")).collect();
    let sql = format!("{copies} select '{}'::int", "x".repeat(1 << 20));
    let data: Vec<Vec<u8>> = (0..COPIES).map(|copy| message(b'd', format!("{copy}\n").as_bytes())).collect();
    let messages = [query(&sql), data.join(&message(b'c', &[])[..]), message(b'c', &[])].concat();
    let before = ALL.load(Ordering::Relaxed);
    client.send(&messages);
    let answer = client.answer();
    let allocated = ALL.load(Ordering::Relaxed) - before;
    assert_eq!(tags(&answer), format!("{}EZ", "GCTDC".repeat(COPIES)));
    assert!(allocated < 100 << 20, "{allocated} bytes");
    // Places are counted from the start of the query string.
    let place = format!("P{}", copies.chars().count() + " select ".len() + 1);
    assert!(error_text(&answer).contains(&place), "{place}: {}", &error_text(&answer)[..200]);
    assert_eq!(
        rows(&client.run("select count(*) from t")),
        [[Some("0".to_string())]],
        "it was one transaction"
    );
}
