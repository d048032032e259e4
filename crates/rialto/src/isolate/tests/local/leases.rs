//! Leases of executors and of readers.

use super::*;

/// L12: an owner that finds a table out has put back those that it took before it waits for that one.
#[test]
fn a_wait_for_a_table_to_begin_a_lease_holds_no_other_table() {
    let manager = manager();
    manager.route(INDEX, Some(RoutingRule::new(vec![Key::from(&b"m"[..])], vec![0, 1])));
    let only = |key| [(SpanRef::point(key).to_owned(), RecordMode::Exclusive)];
    let mut runner = manager.begin().unwrap();
    assert!(lease(&manager, &mut runner, &only(b"x")));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut waiter = manager.begin().unwrap();
            // The wait for the table may end before the runner does.
            lease(&manager, &mut waiter, &[only(b"a"), only(b"x")].concat());
            manager.end(waiter);
        });
        while manager.found_out() == 0 {
            thread::yield_now();
        }
        let mut other = manager.begin().unwrap();
        assert!(lease(&manager, &mut other, &only(b"b")));
        assert_eq!(manager.found_out(), 1, "it had to wait for a waiter");
        manager.end(other);
        manager.end(runner);
    });
    assert_eq!(manager.locks_now(), 0);
}

/// At the read-only executor transactions that only read do not block each other. One may write if there is at most
/// one other reader, and only what that one has not read.
#[test]
fn readers_block_only_writers() {
    let manager = manager();
    manager.place_read_only(INDEX);
    let of = |key, mode| [(SpanRef::point(key).to_owned(), mode)];
    let (read, written) = (RecordMode::Shared, RecordMode::Exclusive);
    let [mut one, mut other, mut third] = [0, 1, 2].map(|_| manager.begin().unwrap());
    for owner in [&mut one, &mut other] {
        assert!(lease(&manager, owner, &of(b"a", read)));
        assert!(lease(&manager, owner, &of(b"b", read)), "it reads more");
        assert_eq!(lock(&manager, owner, SpanRef::point(b"c"), read), Ok(Acquired::New));
    }
    // Neither does a shared lock block a lease that reads, nor the reverse.
    assert_eq!(lock(&manager, &mut third, SpanRef::point(b"a"), read), Ok(Acquired::New));
    assert!(lease(&manager, &mut other, &of(b"d", read)), "what is entered is no exclusive lock");
    // While several readers are there no transaction can write, not even another key, and neither can one of the
    // readers.
    assert_eq!(lock(&manager, &mut third, SpanRef::point(b"z"), written), Err(LockError::WouldWait));
    assert_eq!(lock(&manager, &mut one, SpanRef::point(b"e"), written), Err(LockError::WouldWait));
    manager.release_all(&mut third);
    manager.release_all(&mut other);
    assert_eq!(lock(&manager, &mut third, SpanRef::point(b"b"), written), Err(LockError::WouldWait));
    assert_eq!(lock(&manager, &mut third, SpanRef::point(b"z"), written), Ok(Acquired::New));
    // A key that is written cannot be read.
    assert!(!lease(&manager, &mut other, &of(b"z", read)));
    assert!(lease(&manager, &mut other, &of(b"y", read)));
    manager.release_all(&mut third);
    manager.release_all(&mut one);
    // The only reader can write.
    assert!(lease(&manager, &mut other, &of(b"y", written)));
    manager.return_lease(&mut other);
    assert_eq!(lock(&manager, &mut third, SpanRef::point(b"y"), read), Err(LockError::WouldWait));
    [one, other, third].into_iter().for_each(|owner| manager.end(owner));
    assert_eq!(manager.locks_now(), 0);
}

/// A lease takes new row numbers of an executor that it has: it needs no further table, and other transactions find
/// the number locked there.
#[test]
fn new_row_numbers_are_taken_where_the_lease_is() {
    const ROWS: IndexId = IndexId(INDEX.0 + 1);
    let manager = manager();
    manager.route(INDEX, Some(RoutingRule::new(vec![Key::from(&b"m"[..])], vec![0, 1])));
    let [mut runner, mut other] = [0, 1].map(|_| manager.begin().unwrap());
    let begin = |owner: &mut Owner, key: &[u8]| {
        assert!(lease(&manager, owner, &[(SpanRef::point(key).to_owned(), RecordMode::Exclusive)]));
    };
    assert_eq!(manager.numbers_of_lease(&mut runner, ROWS), None, "there is no lease");
    begin(&mut runner, b"a");
    assert_eq!(manager.numbers_of_lease(&mut runner, ROWS), None, "the numbers are not shared out");
    manager.release_all(&mut runner);
    manager.route(ROWS, Some(RoutingRule::numbers(EXECUTORS)));
    for (key, executor) in [(b"a", 0), (b"x", 1)] {
        begin(&mut runner, key);
        let share = manager.numbers_of_lease(&mut runner, ROWS).unwrap();
        assert_eq!(share, NumberShare { executor, among: EXECUTORS });
        let numbers = RowNumbers::new(1 << 16);
        let number = NumbersAtHand::default().take(&numbers, Some(share)).to_be_bytes();
        let span = SpanRef::point(&number);
        let taken = manager.local(&mut runner, ROWS, span, RecordMode::Exclusive, &refusing());
        assert_eq!(taken, Ok(Acquired::New));
        for span in [span, SpanRef::all()] {
            let asked = manager.local(&mut other, ROWS, span, RecordMode::Shared, &refusing());
            assert_eq!(asked, Err(LockError::WouldWait));
        }
        assert!(runner.holds_lease(), "it has asked for no other table");
        manager.return_lease(&mut runner);
        assert_eq!(manager.locks_now(), 2);
        for span in [span, SpanRef::all()] {
            let asked = manager.local(&mut other, ROWS, span, RecordMode::Shared, &refusing());
            assert_eq!(asked, Err(LockError::WouldWait));
        }
        manager.release_all(&mut runner);
        manager.release_all(&mut other);
    }
    // A rule may use fewer executors than there are.
    manager.route(ROWS, Some(RoutingRule::numbers(1)));
    begin(&mut runner, b"x");
    assert_eq!(manager.numbers_of_lease(&mut runner, ROWS), None);
    [runner, other].into_iter().for_each(|owner| manager.end(owner));
    assert_eq!(manager.locks_now(), 0);
}

/// A writer waits for the readers that are there, and readers that come later wait for the writer.
#[test]
fn readers_that_come_and_go_do_not_keep_a_writer_out() {
    let manager = manager();
    manager.place_read_only(INDEX);
    let written = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..3u8 {
            let (manager, written) = (&manager, &written);
            scope.spawn(move || {
                let spans = [(SpanRef::point(&[reader]).to_owned(), RecordMode::Shared)];
                while !written.load(Ordering::SeqCst) {
                    // One begins before the one before it ends.
                    let [mut one, mut other] = [0, 1].map(|_| manager.begin().unwrap());
                    lease(manager, &mut one, &spans);
                    thread::yield_now();
                    lease(manager, &mut other, &spans);
                    manager.end(one);
                    thread::yield_now();
                    manager.end(other);
                }
            });
        }
        let mut writer = manager.begin().unwrap();
        for _ in 0..100 {
            manager
                .local(&mut writer, INDEX, SpanRef::point(b"z"), RecordMode::Exclusive, &patient())
                .unwrap();
            manager.release_all(&mut writer);
            // Others may be faster each time, until the lease gives up.
            lease(&manager, &mut writer, &[(SpanRef::all().to_owned(), RecordMode::Exclusive)]);
            manager.release_all(&mut writer);
        }
        manager.end(writer);
        written.store(true, Ordering::SeqCst);
    });
    assert_eq!(manager.locks_now(), 0);
}

/// A reader is admitted beside anything that the present readers allow: shared locks that are entered, and a held
/// latch. If it waited until there were no readers, all readers would queue.
#[test]
fn readers_do_not_wait_for_readers() {
    let manager = manager();
    manager.place_read_only(INDEX);
    let readers = (0..).find(|executor| manager.is_read_only_executor(*executor)).unwrap();
    let spans = [(SpanRef::point(b"a").to_owned(), RecordMode::Shared)];
    let [mut reader, mut other, mut locker] = [0, 1, 2].map(|_| manager.begin().unwrap());
    assert!(lease(&manager, &mut reader, &spans));
    assert_eq!(lock(&manager, &mut locker, SpanRef::point(b"b"), RecordMode::Shared), Ok(Acquired::New));
    let look = manager.local.lock(readers);
    assert!(lease(&manager, &mut other, &spans));
    drop(look);
    // If exclusive locks may be entered, a new reader has to look for them, and waits until the latch is free. It
    // does not wait for the readers.
    [locker, other, reader].into_iter().for_each(|owner| manager.end(owner));
    let [mut reader, mut writer] = [0, 1].map(|_| manager.begin().unwrap());
    assert_eq!(lock(&manager, &mut writer, SpanRef::point(b"z"), RecordMode::Exclusive), Ok(Acquired::New));
    assert!(lease(&manager, &mut reader, &spans));
    for _ in 0..20 {
        let look = manager.local.lock(readers);
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = manager.begin().unwrap();
                begun.store(true, Ordering::SeqCst);
                // The main thread may be delayed before it frees the latch.
                let asked = Instant::now();
                while !lease(&manager, &mut other, &spans) {
                    assert!(asked.elapsed() < Duration::from_secs(60), "it waits until there are no readers");
                }
                manager.end(other);
            });
            while !begun.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_micros(200));
            drop(look);
        });
    }
    [reader, writer].into_iter().for_each(|owner| manager.end(owner));
    assert_eq!(manager.locks_now(), 0);
}

/// As above, with readers that overlap and whose bodies take far longer than one try for the table: once a writer
/// waits, hardly any reader begins another lease before it.
#[test]
fn long_readers_that_follow_each_other_do_not_keep_a_writer_out() {
    // At most five times six leases were about to begin. If readers were kept out by chance alone, some hundreds
    // would begin. The same happens when the writer's thread does not run for a while, so one success in several
    // tries is enough.
    const TRIES: usize = 8;
    let tries: Vec<u64> =
        (0..TRIES).map(|_| begun_while_a_writer_waits()).take_while(|begun| *begun > 150).collect();
    println!("too many in {tries:?}");
    assert!(tries.len() < TRIES, "{tries:?} leases were begun before a writer that waited");
}

/// How many leases readers begin while a writer waits, in five rounds.
fn begun_while_a_writer_waits() -> u64 {
    let manager = manager();
    manager.place_read_only(INDEX);
    let (written, waits, begun) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for reader in 0..6u8 {
            let (manager, written, waits, begun) = (&manager, &written, &waits, &begun);
            scope.spawn(move || {
                let spans = [(SpanRef::point(&[reader]).to_owned(), RecordMode::Shared)];
                while !written.load(Ordering::SeqCst) {
                    let mut one = manager.begin().unwrap();
                    if lease(manager, &mut one, &spans) && waits.load(Ordering::SeqCst) {
                        begun.fetch_add(1, Ordering::SeqCst);
                    }
                    thread::sleep(Duration::from_millis(15 + u64::from(reader)));
                    manager.end(one);
                }
            });
        }
        let mut writer = manager.begin().unwrap();
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(50));
            waits.store(true, Ordering::SeqCst);
            let key = SpanRef::point(b"z");
            manager.local(&mut writer, INDEX, key, RecordMode::Exclusive, &patient()).unwrap();
            waits.store(false, Ordering::SeqCst);
            manager.release_all(&mut writer);
        }
        manager.end(writer);
        written.store(true, Ordering::SeqCst);
    });
    assert_eq!(manager.locks_now(), 0);
    begun.into_inner()
}

/// L13: under a lease the executors hold the intentions.
#[test]
fn a_table_is_used_under_a_lease_without_a_lock_on_it() {
    let manager = manager();
    let (one, same_cell) = (TableId(1), TableId(17));
    let mut runner = manager.begin().unwrap();
    assert!(!manager.use_under_lease(&mut runner, one, LockMode::IntentShared), "it is under no lease");
    let spans = [(SpanRef::point(b"a").to_owned(), RecordMode::Exclusive)];
    assert!(lease(&manager, &mut runner, &spans));
    assert!(manager.use_under_lease(&mut runner, one, LockMode::IntentShared));
    assert!(manager.use_under_lease(&mut runner, one, LockMode::IntentExclusive));
    assert!(
        !manager.use_under_lease(&mut runner, same_cell, LockMode::IntentShared),
        "both would need one cell"
    );
    // If it is entered without the lease, it does not take the other one's cell.
    manager.table(&mut runner, same_cell, LockMode::IntentShared, &patient()).unwrap();
    assert_eq!(runner.mode_of(one), Some(LockMode::IntentExclusive));
    let whole = |table, mode| {
        let mut other = manager.begin().unwrap();
        let outcome = manager.table(&mut other, table, mode, &refusing());
        manager.end(other);
        outcome
    };
    assert_eq!(whole(one, LockMode::Shared), Err(LockError::WouldWait));
    manager.return_lease(&mut runner);
    assert_eq!(whole(one, LockMode::Shared), Err(LockError::WouldWait));
    assert_eq!(whole(same_cell, LockMode::Exclusive), Err(LockError::WouldWait));
    assert_eq!(whole(one, LockMode::IntentShared), Ok(Acquired::New));
    manager.end(runner);
    let before = manager.counters().higher;
    let mut runner = manager.begin().unwrap();
    assert!(
        lease(&manager, &mut runner, &spans)
            && manager.use_under_lease(&mut runner, one, LockMode::IntentShared)
    );
    manager.end(runner);
    assert_eq!(manager.counters().higher, before, "a lease locks no table");

    // An owner of the whole table keeps leases off it.
    let mut holder = manager.begin().unwrap();
    manager.table(&mut holder, one, LockMode::Shared, &refusing()).unwrap();
    let mut runner = manager.begin().unwrap();
    assert!(lease(&manager, &mut runner, &spans));
    assert!(!manager.use_under_lease(&mut runner, one, LockMode::IntentShared));
    manager.end(runner);
    manager.end(holder);

    // An intention that was entered before is not lost to a lease that would need its cell.
    let mut runner = manager.begin().unwrap();
    manager.table(&mut runner, same_cell, LockMode::IntentExclusive, &refusing()).unwrap();
    assert!(lease(&manager, &mut runner, &spans));
    assert!(!manager.use_under_lease(&mut runner, one, LockMode::IntentShared));
    assert!(manager.use_under_lease(&mut runner, same_cell, LockMode::IntentShared), "it is entered");
    manager.return_lease(&mut runner);
    assert_eq!(whole(same_cell, LockMode::Shared), Err(LockError::WouldWait));
    manager.end(runner);
    assert_eq!(manager.locks_now(), 0);
}
