//! Whether there is room for a run: the bytes that it adds a second, against the memory and the log space that are
//! free.

use std::time::Duration;

/// One kind of room.
#[derive(Debug, Clone, PartialEq)]
pub struct Room {
    /// What it is, and how there can be more of it.
    pub what: String,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that the run adds with each transaction.
    pub bytes_per_transaction: f64,
}

/// Refuses a run that would outgrow a room.
///
/// # Errors
/// What is too small, and the seconds that would fit.
pub fn check(rooms: &[Room], per_s: f64, time: Duration) -> Result<(), String> {
    let fits = |room: &Room| room.free as f64 / (per_s * room.bytes_per_transaction).max(f64::MIN_POSITIVE);
    let Some(tightest) = rooms.iter().min_by(|a, b| fits(a).total_cmp(&fits(b))) else {
        return Ok(());
    };
    let seconds = fits(tightest);
    if seconds >= time.as_secs_f64() {
        return Ok(());
    }
    Err(format!(
        "the run would not fit: {:.0} transactions a second add {:.0} bytes each for {:.1} s, and {} bytes of {} are \
         free; {:.1} seconds in all would fit",
        per_s,
        tightest.bytes_per_transaction,
        time.as_secs_f64(),
        tightest.free,
        tightest.what,
        (seconds * 10.0).floor() / 10.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_room_decides_and_is_named() {
        let room = |what: &str, free| Room { what: what.into(), free, bytes_per_transaction: 100.0 };
        let rooms = [room("memory (--memory-bytes)", 1_000_000), room("log", 250_000)];
        check(&rooms, 1000.0, Duration::from_secs(2)).unwrap();
        let refusal = check(&rooms, 1000.0, Duration::from_secs(5)).unwrap_err();
        assert!(refusal.contains("250000 bytes of log") && refusal.contains("2.5 seconds"), "{refusal}");
        check(&rooms, 0.0, Duration::from_secs(5)).unwrap();
        check(&[], 1e9, Duration::from_secs(5)).unwrap();
    }
}
