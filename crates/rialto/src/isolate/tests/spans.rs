//! Spans of keys.

use std::ops::Bound::{Excluded, Included, Unbounded};

use std::ops::Bound;

use crate::isolate::{Span, SpanRef};

/// All keys of up to three letters, of two letters and the extremes of a byte.
fn keys() -> Vec<Vec<u8>> {
    let mut keys = vec![vec![]];
    for _ in 0..3 {
        let longer = keys.iter().flat_map(|key: &Vec<u8>| {
            [0, b'a', 255].map(|byte| key.iter().copied().chain([byte]).collect::<Vec<u8>>())
        });
        keys = keys.iter().cloned().chain(longer).collect();
        keys.sort();
        keys.dedup();
    }
    keys
}

/// The keys that are in a span.
type Contains = Box<dyn Fn(&[u8]) -> bool>;

/// Spans of all kinds, each with a function that says which keys are in it.
fn spans() -> Vec<(Span, Contains)> {
    let mut spans: Vec<(Span, Contains)> = Vec::new();
    let short: Vec<Vec<u8>> = keys().into_iter().filter(|key| key.len() < 3).collect();
    for key in &short {
        let (one, two) = (key.clone(), key.clone());
        spans.push((SpanRef::point(key).to_owned(), Box::new(move |other| *other == *one)));
        spans.push((Span::prefix(key), Box::new(move |other| other.starts_with(&two))));
    }
    type Of = for<'a> fn(&'a [u8]) -> Bound<&'a [u8]>;
    let bounds: [Of; 3] = [|_| Unbounded, |key| Included(key), |key| Excluded(key)];
    for (lower, upper) in bounds.iter().flat_map(|lower| bounds.iter().map(move |upper| (*lower, *upper))) {
        for (first, last) in short.iter().flat_map(|first| short.iter().map(move |last| (first, last))) {
            let (from, to) = (first.clone(), last.clone());
            if let Some(span) = Span::between(lower(first), upper(last)) {
                let contains = move |key: &[u8]| {
                    use std::ops::RangeBounds;
                    (lower(&from), upper(&to)).contains(key)
                };
                spans.push((span, Box::new(contains)));
            }
        }
    }
    spans
}

#[test]
fn a_span_has_the_keys_that_it_says() {
    let keys = keys();
    for (span, contains) in spans() {
        for key in &keys {
            assert_eq!(span.borrow().contains(key), contains(key), "{key:?} in {span:?}");
        }
    }
}

/// Overlapping and covering agree with the keys: two spans of these bounds that overlap have one of the keys in
/// common.
#[test]
fn spans_overlap_and_cover_as_their_keys_do() {
    let keys = keys();
    let spans = spans();
    let members: Vec<Vec<bool>> =
        spans.iter().map(|(span, _)| keys.iter().map(|key| span.borrow().contains(key)).collect()).collect();
    for ((one, _), ones) in spans.iter().zip(&members) {
        for ((other, _), others) in spans.iter().zip(&members) {
            let common = ones.iter().zip(others).any(|(one, other)| *one && *other);
            if common {
                assert!(one.borrow().overlaps(other.borrow()), "{one:?} {other:?}");
            }
            let has_all = ones.iter().zip(others).all(|(one, other)| *one || !*other);
            if one.borrow().covers(other.borrow()) {
                assert!(has_all, "{one:?} {other:?}");
            }
            if one.borrow().is(other.borrow()) {
                assert!(one.borrow().covers(other.borrow()));
            }
            if !one.borrow().overlaps(other.borrow()) {
                assert!(!common, "{one:?} {other:?}");
            }
        }
    }
}
