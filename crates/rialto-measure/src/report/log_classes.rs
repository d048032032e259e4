//! The sizes of groups and the times of log writes, by the classes in which the log counts them, for people.

use rialto::log::{GROUP_SIZE_CLASSES, WRITE_TIME_CLASSES};

/// How many in a hundred of so many groups are of each class; classes that are rarer than one in two hundred are left out.
pub fn group_sizes(count: impl Fn(usize) -> u64, groups: u64) -> String {
    let shares = (0..GROUP_SIZE_CLASSES).filter_map(|class| {
        let percent = count(class) as f64 * 100.0 / groups.max(1) as f64;
        (percent >= 0.5).then(|| format!("{}: {percent:.0}%", class_name(class)))
    });
    shares.collect::<Vec<_>>().join(", ")
}

/// How many in a hundred of so many log writes are of each class, as for groups.
pub fn write_times(counts: &[u64; WRITE_TIME_CLASSES], groups: u64) -> String {
    let shares = counts.iter().enumerate().filter_map(|(class, count)| {
        let percent = *count as f64 * 100.0 / groups.max(1) as f64;
        (percent >= 0.5).then(|| format!("{} us: {percent:.0}%", write_time_name(class)))
    });
    shares.collect::<Vec<_>>().join(", ")
}

/// The times of a class of log writes, in microseconds: 0-2, 2-4, 4-8, …
pub fn write_time_name(class: usize) -> String {
    match class {
        0 => "0-2".to_owned(),
        _ if class == WRITE_TIME_CLASSES - 1 => format!("{}-", 1u64 << class),
        _ => format!("{}-{}", 1u64 << class, 2u64 << class),
    }
}

/// The sizes of a class of groups: 1, 2-3, 4-7, …
pub fn class_name(class: usize) -> String {
    let first = 1u64 << class;
    if class == 0 { "1".to_owned() } else { format!("{first}-{}", 2 * first - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_twice_the_one_before() {
        assert_eq!((class_name(0), class_name(3)), ("1".to_owned(), "8-15".to_owned()));
        assert_eq!((write_time_name(0), write_time_name(3)), ("0-2".to_owned(), "8-16".to_owned()));
    }
}
