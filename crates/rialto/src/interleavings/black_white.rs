//! Commits on both sides of a black/white sweep that is held between two segments.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::consistent::{Found, backup_alone};
use super::hooked::{About, HookedDisk};
use super::*;
use crate::backup::BackupKind;
use crate::commit::CommitBarrier;
use crate::engine::run::run_once;
use crate::io::MemoryDisk;
use crate::store::Paint;
use crate::store::memory::SEGMENT_BYTES;
use crate::txn::runs::{Run, Runs};
use crate::txn::sweep_side::{BEFORE_SETTLING, IGNORES_READS};
use crate::{Action, Engine, Error, Executors, Logging, Procedure, STRADDLING_RETRIES_MAX};

/// A sweep that stops before it writes the segment of one row, with a paint that the test knows: the row and those
/// before it are black, rows behind it are white.
pub(super) struct Held {
    disk: Arc<HookedDisk>,
    memory: Arc<dyn Disk>,
    pub db: Database,
    pub table: Table,
    open: Arc<AtomicBool>,
}

pub(super) const BLACK: i32 = 1;
const ALSO_BLACK: i32 = 9;
const AT: i32 = 18;
pub(super) const WHITE: i32 = 30;
pub(super) const ALSO_WHITE: i32 = 40;

impl Held {
    /// Runs `test` while the sweep is held, and lets the sweep go on when the test is over. The checkpoint has to
    /// succeed then, or when the test has let it go on. Returns what the copy alone has of the table, by row.
    pub fn sweep(checkpoint: Checkpointing, options: Options, test: impl FnOnce(&Held)) -> (Held, Found) {
        let memory: Arc<dyn Disk> = MemoryDisk::new();
        let disk = HookedDisk::new(memory.clone());
        let (db, table) = filled_with(disk.clone(), options);
        // All segments are dirty, so all are white when the sweep begins.
        db.transact(|tx| (0..ROWS).try_for_each(|id| set_n(tx, &table, id, 1))).unwrap();
        db.set_checkpoint(checkpoint).unwrap();
        let (held, open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let at = u64::from(record_of(&table, AT).segment().0) * SEGMENT_BYTES as u64;
        disk.before({
            let (held, open) = (held.clone(), open.clone());
            move |file: &str, about: About| {
                if file.starts_with("backup") && about == About::Write(at) {
                    held.store(true, Ordering::SeqCst);
                    until("the test lets the sweep go on", || open.load(Ordering::SeqCst));
                }
            }
        });
        let this = Held { disk, memory, db, table, open };
        let sequence = std::thread::scope(|scope| {
            let sweep = scope.spawn(|| this.db.checkpoint().unwrap());
            until("the sweep is there", || held.load(Ordering::SeqCst));
            test(&this);
            this.go_on();
            sweep.join().unwrap().sequence
        });
        assert!(sequence > 1);
        this.disk.unhook();
        let [found] = backup_alone(&this.memory, ["t"]);
        (this, found)
    }

    pub fn go_on(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    /// Writes `n` to these rows, in a closure that runs again.
    pub fn write(&self, rows: &[i32], n: i64) -> u32 {
        let mut runs = 0;
        self.db
            .transact_with(&level_1(), |tx| {
                runs += 1;
                rows.iter().try_for_each(|&id| set_n(tx, &self.table, id, n))
            })
            .unwrap();
        runs
    }

    pub fn restarts(&self) -> u64 {
        self.db.metrics().aborted_straddling
    }
}

/// Whether one run of this transaction straddles the sweep and is aborted; otherwise it commits.
pub(super) fn straddles(db: &Database, mut body: impl FnMut(&mut Transaction) -> Result<()>) -> bool {
    match run_once(db.core(), &level_1(), &mut Runs::new(), &mut body) {
        Run::Placed((), mut committed) => {
            committed.wait_here().unwrap();
            false
        }
        Run::Again(_) => true,
        Run::Failed(_, _) => panic!("the transaction fails"),
    }
}

/// The engine cannot run the transaction of a handle again: its commit waits until the sweep has copied the white
/// segments that it touched.
#[test]
fn the_commit_of_a_handle_that_straddles_the_sweep_waits_for_it() {
    for options in engines() {
        let (held, found) = Held::sweep(tcbw(), options, |held| {
            let (db, table) = (&held.db, &held.table);
            std::thread::scope(|scope| {
                let handle = scope.spawn(|| {
                    let mut handle = db.begin().unwrap();
                    set_n(&mut handle, table, BLACK, 4).unwrap();
                    set_n(&mut handle, table, WHITE, 4).unwrap();
                    handle.commit()
                });
                let painting = db.core().storage.painting();
                until("the sweep is asked for the white segment", || painting.is_pressed());
                assert!(!handle.is_finished(), "it waits, with its locks");
                held.go_on();
                assert_eq!(handle.join().unwrap(), Ok(()));
            });
            assert_eq!(held.restarts(), 0);
        });
        assert_eq!((found[&BLACK].0, found[&WHITE].0), (1, 1), "it is black in the end");
        let all = rows(&held.db);
        assert_eq!((n_of(&all, BLACK), n_of(&all, WHITE)), (4, 4));
    }
}

/// A handle began before reads were noted, on an engine that keeps no locks in records. Its segments are not known, so
/// it counts as on both sides as long as the sweep lasts. Its commit waits for the end of the sweep, even if everything
/// that it has touched is copied.
#[test]
fn the_commit_of_a_handle_of_which_not_all_is_known_outlasts_the_sweep() {
    for engine in [Engine::central(), Engine::data_oriented()] {
        let (held, found) = Held::sweep(tcbw(), Options { engine, ..options() }, |held| {
            let (db, table) = (&held.db, &held.table);
            let painting = db.core().storage.painting();
            painting.note_reads(false);
            let mut handle = db.begin().unwrap();
            painting.note_reads(true);
            set_n(&mut handle, table, BLACK, 4).unwrap();
            std::thread::scope(|scope| {
                let commit = scope.spawn(|| handle.commit());
                until("the sweep is to hurry", || painting.is_pressed());
                assert_eq!((held.write(&[ALSO_BLACK], 3), held.write(&[WHITE], 3)), (1, 1), "others go on");
                assert!(!commit.is_finished(), "{engine}: it waits, with its locks");
                held.go_on();
                assert_eq!(commit.join().unwrap(), Ok(()), "{engine}");
            });
            assert_eq!(held.restarts(), 0);
        });
        assert_eq!((found[&BLACK].0, found[&ALSO_BLACK].0, found[&WHITE].0), (1, 1, 3), "{engine}");
        assert_eq!(n_of(&rows(&held.db), BLACK), 4, "{engine}");
    }
}

/// This wait ends as other waits of a commit do, and the transaction leaves nothing behind: neither its locks nor its
/// side of the sweep.
#[test]
fn a_handle_that_waits_for_the_sweep_can_be_cancelled_and_has_its_time_limit() {
    for options in engines() {
        // So all of these share one context.
        let options = Options { transactions_max: 1, ..options };
        let (_, found) = Held::sweep(tcbw(), options, |held| {
            let (db, table) = (&held.db, &held.table);
            let painting = db.core().storage.painting();
            let limit = Duration::from_millis(50);
            for timeout in [None, Some(limit)] {
                let mut handle = db.begin_with(&TxOptions { timeout, ..level_1() }).unwrap();
                set_n(&mut handle, table, BLACK, 4).unwrap();
                set_n(&mut handle, table, WHITE, 4).unwrap();
                let canceller = handle.canceller();
                let ended = std::thread::scope(|scope| {
                    let commit = scope.spawn(|| handle.commit());
                    if timeout.is_none() {
                        until("the sweep is asked for the white segment", || painting.is_pressed());
                        canceller.cancel();
                    }
                    commit.join().unwrap()
                });
                let expected =
                    if timeout.is_none() { Error::Cancelled } else { Error::Timeout { limit_ms: 50 } };
                assert_eq!(ended, Err(expected));
                // Each is on one side, and meets no lock.
                assert_eq!((held.write(&[BLACK], 2), held.write(&[WHITE], 2)), (1, 1));
            }
            // The context of a handle that would have waited now belongs to a closure, which does not wait.
            assert!(straddles(db, |tx| {
                set_n(tx, table, BLACK, 5)?;
                set_n(tx, table, WHITE, 5)
            }));
        });
        assert_eq!((found[&BLACK].0, found[&WHITE].0), (1, 2));
    }
}

/// The time-out of a lock applies to each wait at a closed barrier, and not to the wait for a sweep between two of
/// these. Otherwise a commit that met a closed barrier before the sweep, and meets one after it, would fail at once
/// there.
#[test]
fn a_wait_for_a_sweep_counts_for_no_time_out_of_a_closed_barrier() {
    const LIMIT: Duration = Duration::from_secs(1);
    Held::sweep(tcbw(), options(), |held| {
        let (db, table) = (&held.db, &held.table);
        let barrier = &db.core().commits.in_progress;
        let commits = AtomicBool::new(false);
        barrier.close_barrier();
        std::thread::scope(|scope| {
            let handle = scope.spawn(|| {
                let options = TxOptions { lock_timeout: Some(LIMIT), ..level_1() };
                let mut handle = db.begin_with(&options).unwrap();
                set_n(&mut handle, table, BLACK, 4).unwrap();
                set_n(&mut handle, table, WHITE, 4).unwrap();
                commits.store(true, Ordering::SeqCst);
                handle.commit()
            });
            until("the handle commits", || commits.load(Ordering::SeqCst));
            std::thread::sleep(LIMIT / 20);
            barrier.open_barrier(CommitBarrier::Sides);
            until("the sweep is asked for the white segment", || db.core().storage.painting().is_pressed());
            std::thread::sleep(LIMIT + LIMIT / 10);
            barrier.close_barrier();
            std::thread::sleep(LIMIT / 20);
            barrier.open_barrier(CommitBarrier::Sides);
            held.go_on();
            assert_eq!(handle.join().unwrap(), Ok(()));
        });
    });
}

/// A handle in the body of a call, which has executors leased meanwhile: the sweep needs none of these.
#[test]
fn a_handle_in_the_body_of_a_call_waits_for_the_sweep() {
    for threads in [0, 2] {
        let options = Options { engine: Executors::of(4, threads).handing_over().into(), ..options() };
        let (held, found) = Held::sweep(tcbw(), options, |held| {
            let db = held.db.clone();
            let (within, table) = (db.clone(), held.table.clone());
            let action = Action::exclusive("t", move |tx, _, _| {
                let mut handle = within.begin()?;
                set_n(&mut handle, &table, BLACK, 4)?;
                set_n(&mut handle, &table, WHITE, 4)?;
                handle.commit()?;
                set_n(tx, &table, ALSO_WHITE, 4)
            });
            db.register(Procedure::new("p", [ColumnType::Int4], action.by_argument(0))).unwrap();
            std::thread::scope(|scope| {
                let call = scope.spawn(|| db.call("p", &[Value::Int4(ALSO_WHITE)]));
                let painting = db.core().storage.painting();
                until("the sweep is asked for the white segment", || painting.is_pressed());
                assert!(!call.is_finished(), "the handle waits, with its locks");
                held.go_on();
                assert_eq!(call.join().unwrap(), Ok(vec![]), "{threads} threads");
            });
        });
        assert_eq!((found[&BLACK].0, found[&WHITE].0), (1, 1), "{threads} threads");
        let all = rows(&held.db);
        assert_eq!((n_of(&all, BLACK), n_of(&all, WHITE), n_of(&all, ALSO_WHITE)), (4, 4, 4));
    }
}

pub(super) fn tcbw() -> Checkpointing {
    Checkpointing::TransactionBlackWhite
}

fn engines() -> [Options; 3] {
    Engine::ALL.map(|engine| Options { engine, ..options() })
}

/// A transaction on one side commits at once; one on both sides is aborted and runs again; one that only reads may
/// touch both.
#[test]
fn a_straddling_transaction_is_aborted_and_runs_again() {
    for options in engines() {
        let runs = AtomicU32::new(0);
        let (held, found) = Held::sweep(tcbw(), options, |held| {
            let (db, table) = (&held.db, &held.table);
            assert_eq!(held.write(&[WHITE, ALSO_WHITE], 2), 1, "white");
            assert_eq!(held.write(&[BLACK, ALSO_BLACK], 3), 1, "black");
            let both =
                db.transact(|tx| Ok((tx.get(table, BLACK)?.is_some(), tx.get(table, ALSO_WHITE)?.is_some())));
            assert_eq!(both.unwrap(), (true, true), "it only reads");
            assert_eq!(held.restarts(), 0);
            // It straddles by what it writes, and by what it reads.
            assert!(straddles(db, |tx| {
                set_n(tx, table, BLACK, 4)?;
                set_n(tx, table, WHITE, 4)
            }));
            assert!(straddles(db, |tx| {
                assert!(tx.get(table, BLACK)?.is_some());
                set_n(tx, table, WHITE, 4)
            }));
            assert_eq!(held.restarts(), 2);
            std::thread::scope(|scope| {
                let straddling = scope.spawn(|| held.write(&[ALSO_BLACK, WHITE], 5));
                until("it is aborted", || held.restarts() > 2);
                // Its locks are free meanwhile, sooner or later; the segment that it asked for is awaited, not painted.
                held.go_on();
                runs.store(straddling.join().unwrap(), Ordering::SeqCst);
            });
        });
        assert!(runs.load(Ordering::SeqCst) > 1);
        // The copy has white transactions whole, and black ones not at all; the straddling one was black in the end.
        let n = |id: i32| found[&id].0;
        assert_eq!((n(WHITE), n(ALSO_WHITE)), (2, 2));
        assert_eq!((n(BLACK), n(ALSO_BLACK)), (1, 1));
        let all = rows(&held.db);
        assert_eq!([BLACK, ALSO_BLACK, WHITE, ALSO_WHITE].map(|id| n_of(&all, id)), [3, 5, 5, 2]);
        held.db.close().unwrap();
        let db = Database::open_on(held.memory, super::options()).unwrap();
        assert_eq!(rows(&db), all, "with its log");
    }
}

/// A segment that a commit with a settled side holds white stays white until the commit lets go, however long that
/// takes. The sweep does all the rest, and a commit that comes now waits for it.
#[test]
fn the_sweep_waits_for_commits_that_are_white() {
    let (_, found) = Held::sweep(tcbw(), options(), |held| {
        let segments = &held.db.core().storage.memory.segments;
        let id = record_of(&held.table, WHITE).segment();
        assert_eq!(segments.hold_white(id), Paint::White);
        held.go_on();
        until("the sweep has come to it", || segments.is_awaited(id) || !segments.is_white(id));
        assert!(segments.is_awaited(id) && segments.is_white(id));
        assert!(
            !segments.is_white(record_of(&held.table, ALSO_WHITE).segment()),
            "it waits for it at its end"
        );
        std::thread::scope(|scope| {
            let late = scope.spawn(|| held.write(&[WHITE], 2));
            assert!(segments.is_white(id), "still");
            segments.let_go(id);
            assert_eq!(late.join().unwrap(), 1);
        });
    });
    assert_eq!(found[&WHITE].0, 1, "a commit that came when it was awaited is black");
}

/// A commit meets a black/white sweep at the barrier, and settles its side when that sweep has ended and a backup has
/// made all segments white for its own cut. So no copy of a sweep has the commit, and redo must not leave it out.
#[test]
fn a_commit_that_is_white_for_a_later_backup_is_redone() {
    for options in engines() {
        let options = Options { logging: Logging::Transaction, ..options };
        let (held, _) = Held::sweep(tcbw(), options, |held| {
            let (db, table) = (&held.db, &held.table);
            let (is_there, may_go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            std::thread::scope(|scope| {
                let commit = scope.spawn(|| {
                    let (is_there, may_go_on) = (is_there.clone(), may_go_on.clone());
                    BEFORE_SETTLING.set(Some(Box::new(move || {
                        is_there.store(true, Ordering::SeqCst);
                        until("the commit may settle", || may_go_on.load(Ordering::SeqCst));
                    })));
                    assert_eq!(held.write(&[WHITE], 2), 1);
                });
                until("the commit is behind the barrier", || is_there.load(Ordering::SeqCst));
                held.go_on();
                let (segments, id) = (&db.core().storage.memory.segments, record_of(table, WHITE).segment());
                until("the sweep is over", || !segments.is_painted());
                let backup = scope.spawn(|| db.backup_to(&mut Vec::new(), BackupKind::Full).unwrap());
                until("the backup has made all white", || segments.is_white(id));
                may_go_on.store(true, Ordering::SeqCst);
                commit.join().unwrap();
                backup.join().unwrap();
            });
        });
        let all = rows(&held.db);
        assert_eq!(n_of(&all, WHITE), 2);
        held.db.close().unwrap();
        let db = Database::open_on(held.memory, super::options()).unwrap();
        assert_eq!(rows(&db), all, "with its log");
    }
}

/// However often a transaction straddles, after a bounded number of runs it keeps what it has and waits for the sweep.
#[test]
fn a_straddling_transaction_is_aborted_so_often_and_no_more() {
    for options in engines() {
        let runs = AtomicU32::new(0);
        let options = Options { straddling_retry: Duration::from_micros(50), ..options };
        Held::sweep(tcbw(), options, |held| {
            std::thread::scope(|scope| {
                let straddling = scope.spawn(|| {
                    let mut own = 0;
                    held.db
                        .transact_with(&level_1(), |tx| {
                            own += 1;
                            runs.fetch_add(1, Ordering::SeqCst);
                            set_n(tx, &held.table, BLACK, 2)?;
                            set_n(tx, &held.table, WHITE, 2)
                        })
                        .unwrap();
                    own
                });
                until("it has been aborted so often", || {
                    held.restarts() == u64::from(STRADDLING_RETRIES_MAX)
                });
                until("it runs once more", || runs.load(Ordering::SeqCst) == STRADDLING_RETRIES_MAX + 1);
                // It holds its locks now, and other transactions on one side go on.
                assert_eq!(held.write(&[ALSO_WHITE], 3), 1);
                assert_eq!(held.write(&[ALSO_BLACK], 3), 1);
                assert!(!straddling.is_finished(), "the sweep stands still");
                held.go_on();
                assert_eq!(straddling.join().unwrap(), STRADDLING_RETRIES_MAX + 1);
            });
            assert_eq!(held.restarts(), u64::from(STRADDLING_RETRIES_MAX));
        });
    }
}

/// System M's own black/white sweep keeps to its order. Only a commit that waits for the sweep names its segments.
#[test]
fn an_aborted_transaction_names_its_segments_only_as_a_hint() {
    for straddling_hints in [true, false] {
        Held::sweep(tcbw(), Options { straddling_hints, ..options() }, |held| {
            let painting = held.db.core().storage.painting();
            let aborted = straddles(&held.db, |tx| {
                set_n(tx, &held.table, BLACK, 2)?;
                set_n(tx, &held.table, WHITE, 2)
            });
            assert!(aborted);
            assert_eq!(painting.is_pressed(), straddling_hints);
            std::thread::scope(|scope| {
                let handle = scope.spawn(|| {
                    let mut handle = held.db.begin().unwrap();
                    set_n(&mut handle, &held.table, BLACK, 4).unwrap();
                    set_n(&mut handle, &held.table, WHITE, 4).unwrap();
                    handle.commit()
                });
                until("the waiting commit has named its segments", || painting.is_pressed());
                held.go_on();
                assert_eq!(handle.join().unwrap(), Ok(()));
            });
        });
    }
}

/// DDL is not run again for straddling: its commit waits for the sweep.
#[test]
fn straddling_ddl_waits() {
    let (held, _) = Held::sweep(tcbw(), options(), |held| {
        std::thread::scope(|scope| {
            let mut runs = 0;
            let ddl = scope.spawn(move || {
                held.db
                    .transact(|tx| {
                        runs += 1;
                        tx.create_index("t", "by_id_and_n", &["id", "n"], true)
                    })
                    .unwrap();
                runs
            });
            // It has locked the whole table, so it has touched all of its segments.
            until("it has the table", || {
                let mut tx = held.db.begin().unwrap();
                tx.set_lock_policy(crate::isolate::LockPolicy::Refuse);
                matches!(tx.get_for_update(&held.table, BLACK), Err(Error::WouldWait { .. }))
            });
            assert!(!ddl.is_finished());
            held.go_on();
            assert_eq!(ddl.join().unwrap(), 1);
        });
        assert_eq!(held.restarts(), 0);
    });
    held.db.close().unwrap();
    let db = Database::open_on(held.memory, options()).unwrap();
    assert_eq!(db.table("t").unwrap().version().schema.indexes().len(), 2);
}

/// Two transactions conflict over an absent row. It has no segment, and yet the white one must not come after the black
/// one.
#[test]
fn what_is_absent_has_a_side_too() {
    for options in engines() {
        // A black transaction reads that there is no row, and a white one inserts it.
        Held::sweep(tcbw(), options.clone(), |held| {
            let (db, table) = (&held.db, &held.table);
            let insert_into_white = |id: i32| {
                straddles(db, |tx| {
                    set_n(tx, table, ALSO_WHITE, 2)?;
                    tx.insert(table, &[Value::Int4(id), Value::Int8(0), text(7_000)])
                })
            };
            assert!(!insert_into_white(1_000), "the test's own premise: the new row's segment is white");
            commit(db, |tx| {
                assert!(tx.get(table, 1_001)?.is_none());
                set_n(tx, table, BLACK, 2)
            });
            assert!(insert_into_white(1_001));
        });
        // A black one removes a row, and a white one reads that there is none.
        Held::sweep(tcbw(), options.clone(), |held| {
            let (db, table) = (&held.db, &held.table);
            assert!(!straddles(db, |tx| {
                assert!(tx.get(table, 2_000)?.is_none());
                let scan = Scan {
                    lower: KeyBound::Included(vec![Value::Int4(0)]),
                    upper: KeyBound::Excluded(vec![Value::Int4(0)]),
                    ..Scan::all()
                };
                tx.scan(table, &scan, |_, _| Ok(ControlFlow::Continue(())))?;
                set_n(tx, table, WHITE, 2)
            }));
            commit(db, |tx| tx.delete(table, BLACK).map(|there| assert!(there)));
            assert!(straddles(db, |tx| {
                assert!(tx.get(table, BLACK)?.is_none());
                set_n(tx, table, WHITE, 3)
            }));
        });
    }
}

/// Action-consistent, only a row that moves between the sides straddles.
#[test]
fn an_action_that_straddles_is_a_move() {
    let (held, found) = Held::sweep(Checkpointing::ActionBlackWhite, options(), |held| {
        assert_eq!(held.write(&[BLACK, WHITE], 2), 1, "two actions");
        let moves = |id: i32| {
            straddles(&held.db, |tx| {
                let longer = [(1, Value::Int8(9)), (2, text(9_500))];
                tx.update(&held.table, id, &longer).map(|there| assert!(there))
            })
        };
        // A row that outgrows its slot moves behind all others, where it is white.
        assert!(moves(ALSO_BLACK));
        assert!(!moves(WHITE));
        assert_eq!(held.restarts(), 1);
    });
    assert_eq!((found[&BLACK].0, found[&WHITE]), (1, (9, 9_500)));
    assert_eq!(found.len(), ROWS as usize);
    assert_eq!(n_of(&rows(&held.db), BLACK), 2);
}

/// The purpose of the paint, and of checking reads: one thread raises a number, another copies it to a row that is
/// always behind or equal. A copy of the database in which that row is ahead is a state that never existed.
fn ahead(ignores_reads: bool, seed: u64) -> u32 {
    let (disk, swept) = HookedDisk::counting();
    let disk: Arc<dyn Disk> = disk;
    let options = Options {
        sweep_bytes_per_s: Some(2 << 20),
        checkpoint_interval: Duration::from_millis(1),
        ..options()
    };
    let (db, table) = filled_with(disk.clone(), options);
    db.set_checkpoint(tcbw()).unwrap();
    let stop = AtomicBool::new(false);
    let mut ahead = 0;
    std::thread::scope(|scope| {
        let worker = |copies: bool| {
            let (db, table, stop) = (&db, &table, &stop);
            move || {
                IGNORES_READS.set(ignores_reads);
                let mut random = Random::new(seed.wrapping_add(u64::from(copies)));
                while !stop.load(Ordering::Relaxed) {
                    // The pair of a low row and a high one.
                    let low = random.below(ROWS as u64 / 2) as i32;
                    let high = low + ROWS / 2;
                    let done = db.transact_with(&level_1(), |tx| match copies {
                        false => tx.modify(table, low, |row| row.add_i64(1, 1).map(drop)).map(drop),
                        true => {
                            let n = tx.get(table, low)?.expect("it is there").view().get_i64(1)?;
                            set_n(tx, table, high, n)
                        }
                    });
                    done.unwrap();
                }
            }
        };
        let workers = [scope.spawn(worker(false)), scope.spawn(worker(true))];
        let began = Instant::now();
        for round in 0.. {
            until_checkpoint(&db, &swept);
            let [found] = backup_alone(&disk, ["t"]);
            ahead += (0..ROWS / 2).filter(|low| found[&(low + ROWS / 2)].0 > found[low].0).count() as u32;
            let enough = if ignores_reads { ahead > 0 } else { round == 8 };
            if enough || began.elapsed() > Duration::from_secs(50) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    ahead
}

#[test]
fn what_was_read_counts() {
    let seed = seed();
    assert_eq!(ahead(false, seed), 0, "RIALTO_SEED={seed}");
    assert!(ahead(true, seed) > 0, "the test's own premise: without the reads' side a copy is of no state");
}
