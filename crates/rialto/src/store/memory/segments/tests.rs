use super::*;

fn arena() -> Segments {
    Segments::reserve(Arc::new(Budget::new(1 << 20))).unwrap()
}

/// Copies a segment to the first copy: its heap and the bytes in use.
fn sweep_one(segments: &Segments, id: SegmentId, buffer: &mut [u8]) -> Option<(Option<HeapId>, usize)> {
    let swept = segments.sweep(segments.latch(id), id, Copy::Ping, buffer).copied()?;
    Some((swept.heap, swept.used))
}

#[test]
fn a_row_is_read_back_and_patched() {
    let segments = arena();
    let id = segments.allocate(HeapId(7)).unwrap();
    let record = segments.extend(id, 3, SEGMENT_BYTES, b"").unwrap();
    assert!(segments.is_absent(record));
    segments.write(record, b"seventeen bytes!!", Lsn(9));
    assert!(!segments.is_absent(record));
    let parts: [(usize, &[u8]); 2] = [(0, b"S"), (6, b"EEN BYTES")];
    segments.patch(record, parts, Lsn(12));
    let mut row = Vec::new();
    segments.read(record, &mut row);
    assert_eq!((row.as_slice(), segments.lsn(record)), (&b"SeventEEN BYTES!!"[..], Lsn(12)));
}

#[test]
fn patches_of_any_length_at_any_offset_change_their_bytes_and_no_others() {
    let segments = arena();
    let id = segments.allocate(HeapId(7)).unwrap();
    let record = segments.extend(id, 5, SEGMENT_BYTES, b"").unwrap();
    let (mut model, mut row) = (vec![0xA5; 61], Vec::new());
    segments.write(record, &model, Lsn(1));
    for length in 1..=20usize {
        for offset in 0..=model.len() - length {
            let bytes: Vec<u8> = (0..length).map(|n| (offset * 7 + length * 31 + n) as u8).collect();
            segments.patch(record, [(offset, &bytes[..])], Lsn(2));
            model[offset..offset + length].copy_from_slice(&bytes);
            segments.read(record, &mut row);
            assert_eq!(row, model, "{length} bytes at {offset}");
        }
    }
}

#[test]
fn a_change_marks_both_copies_and_a_sweep_clears_one() {
    let segments = arena();
    let id = segments.allocate(HeapId(7)).unwrap();
    let mut buffer = vec![0; SEGMENT_BYTES];
    sweep_one(&segments, id, &mut buffer);
    assert!(!segments.is_dirty(id, Copy::Ping) && segments.is_dirty(id, Copy::Pong));
    let record = segments.extend(id, 2, SEGMENT_BYTES, b"").unwrap();
    segments.write(record, b"row", Lsn(1));
    assert!(segments.is_dirty(id, Copy::Ping) && segments.is_dirty(id, Copy::Pong));
}

#[test]
fn a_swept_segment_is_restored_as_it_was() {
    let segments = arena();
    let id = segments.allocate(HeapId(7)).unwrap();
    for n in 0..10u8 {
        let record = segments.extend(id, 2, SEGMENT_BYTES, b"").unwrap();
        segments.write(record, &[n; 9], Lsn(u64::from(n)));
    }
    let mut buffer = vec![0; SEGMENT_BYTES];
    let (heap, used) = sweep_one(&segments, id, &mut buffer).unwrap();
    assert_eq!(heap, Some(HeapId(7)));
    let other = arena();
    assert!(other.adopt(id, HeapId(7)));
    other.rebuild_free_list(1);
    other.restore(id, &buffer[..used]);
    let mut row = Vec::new();
    for (n, slot) in other.slots(id).enumerate() {
        let slot = slot.unwrap();
        assert!(other.settle_after_load(slot));
        other.read(slot, &mut row);
        assert_eq!(row, [n as u8; 9]);
    }
}

#[test]
fn a_latch_that_is_refused_stays_with_its_holder() {
    let segments = arena();
    let id = segments.allocate(HeapId(7)).unwrap();
    let held = segments.latch(id);
    assert!(segments.try_latch(id).is_none());
    assert!(segments.try_latch(id).is_none(), "the first try has not given it back");
    drop(held);
    assert!(segments.try_latch(id).is_some());
    assert!(segments.try_latch(id).is_some());
}

#[test]
fn the_memory_bound_is_an_answer() {
    let segments = Segments::reserve(Arc::new(Budget::new(2 * SEGMENT_BYTES as u64))).unwrap();
    let first = segments.allocate(HeapId(1)).unwrap();
    assert!(segments.allocate(HeapId(1)).is_some());
    assert!(segments.allocate(HeapId(1)).is_none());
    segments.free(first);
    assert_eq!(segments.allocate(HeapId(2)), Some(first));
}

#[test]
fn a_wait_for_a_latched_segment_is_counted_for_the_thread_that_waits() {
    let latch = AtomicBool::new(false);
    let waited = (0..100).any(|_| {
        latch.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                wait_for_latch(&latch);
                crate::account::waits::now().latch_ns
            });
            std::thread::sleep(std::time::Duration::from_millis(2));
            latch.store(false, Ordering::Release);
            waiter.join().unwrap() >= 1_000_000
        })
    });
    assert!(waited);
}
