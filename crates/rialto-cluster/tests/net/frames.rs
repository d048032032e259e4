//! Frames come out as they went in, however their bytes are split; changed bytes are refused.

use std::time::Instant;

use rialto::io::Random;
use rialto_cluster::net::frame::{Decoder, FrameError, HEADER, Kind, append};

const LONGEST: usize = 40_000;
const KINDS: [Kind; 4] = [Kind::Hello, Kind::Welcome, Kind::Refusal, Kind::Message];

/// Runs it with one seed after the other for as long as random tests may take.
fn for_a_while(run: impl Fn(&mut Random)) {
    let first = Random::seed_from_environment();
    println!("RIALTO_SEED={first}");
    let (began, mut seed) = (Instant::now(), first);
    while seed == first || began.elapsed() < Random::test_time_from_environment() {
        run(&mut Random::new(seed));
        seed = seed.wrapping_add(1);
    }
}

fn below(random: &mut Random, bound: usize) -> usize {
    random.next() as usize % bound
}

type Sent = Vec<(Kind, Vec<u8>)>;

fn some_frames(random: &mut Random) -> (Sent, Vec<u8>) {
    let (mut frames, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..1 + below(random, 12) {
        let longest = [0, 1, 30, 3_000, LONGEST][below(random, 5)];
        let payload: Vec<u8> = (0..below(random, longest + 1)).map(|_| random.next() as u8).collect();
        let kind = KINDS[below(random, KINDS.len())];
        append(&mut bytes, kind, &payload);
        frames.push((kind, payload));
    }
    (frames, bytes)
}

/// Feeds bytes in random splits, and gives the frames and the error that ends them.
fn decode(random: &mut Random, mut bytes: &[u8]) -> (Sent, Option<FrameError>, Decoder) {
    let (mut decoder, mut found) = (Decoder::new(LONGEST), Vec::new());
    let split_max = [1, 7, 100, 100_000][below(random, 4)];
    loop {
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => found.push((frame.kind, frame.payload.to_vec())),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next_frame(), Err(error), "an error stays");
                    return (found, Some(error), decoder);
                }
            }
        }
        if bytes.is_empty() {
            return (found, None, decoder);
        }
        let room = decoder.room();
        assert!(!room.is_empty() && room.len() <= HEADER + LONGEST + (16 << 10), "the room is bounded");
        let count = bytes.len().min(room.len()).min(1 + below(random, split_max));
        room[..count].copy_from_slice(&bytes[..count]);
        decoder.filled(count);
        bytes = &bytes[count..];
    }
}

#[test]
fn frames_are_found_however_their_bytes_are_split() {
    for_a_while(|random| {
        let (sent, bytes) = some_frames(random);
        let (found, error, decoder) = decode(random, &bytes);
        assert_eq!(error, None);
        assert!(found == sent, "{} frames of {}", found.len(), sent.len());
        assert!(!decoder.is_inside_a_frame());
    });
}

#[test]
fn bytes_that_are_cut_off_are_no_frame() {
    for_a_while(|random| {
        let (sent, bytes) = some_frames(random);
        let cut = below(random, bytes.len());
        let (found, error, decoder) = decode(random, &bytes[..cut]);
        assert_eq!(error, None);
        assert!(found.len() < sent.len() && found[..] == sent[..found.len()]);
        let whole: usize = found.iter().map(|(_, payload)| HEADER + payload.len()).sum();
        assert_eq!(decoder.is_inside_a_frame(), whole < cut);
    });
}

/// The frames before the changed byte come; the changed one does not, nor does anything after it.
#[test]
fn a_changed_byte_is_found() {
    for_a_while(|random| {
        let (sent, mut bytes) = some_frames(random);
        let at = below(random, bytes.len());
        bytes[at] ^= 1 + below(random, 255) as u8;
        let (mut end, mut before) = (0, 0);
        for (_, payload) in &sent {
            end += HEADER + payload.len();
            if end <= at {
                before += 1;
            }
        }
        let (found, error, _) = decode(random, &bytes);
        assert!(found == sent[..before], "{} frames before the change, not {before}", found.len());
        // The checksum covers the bytes that have no meaning yet, too.
        assert!(error.is_some(), "byte {at} is changed");
    });
}

#[test]
fn random_bytes_are_no_panic() {
    for_a_while(|random| {
        let mut bytes: Vec<u8> = (0..below(random, 300)).map(|_| random.next() as u8).collect();
        if below(random, 2) == 0 {
            let (_, good) = some_frames(random);
            let cut = below(random, good.len().min(HEADER) + 1);
            bytes.splice(0..0, good[..cut].iter().copied());
        }
        decode(random, &bytes);
    });
}

#[test]
fn an_unknown_version_and_a_long_frame_are_refused_by_name_before_the_rest_is_there() {
    let mut random = Random::new(1);
    let (_, error, _) = decode(&mut random, b"RLNT\x07");
    assert_eq!(error, Some(FrameError::Version(7)));
    assert!(error.expect("an error").to_string().contains("version 7"));
    let (_, error, _) = decode(&mut random, b"GET / HTTP/1.1");
    assert_eq!(error, Some(FrameError::NoFrame));
    let mut bytes = Vec::new();
    append(&mut bytes, Kind::Message, &vec![0; LONGEST + 1]);
    let (_, error, _) = decode(&mut random, &bytes[..HEADER]);
    assert_eq!(error, Some(FrameError::TooLong { length: LONGEST + 1, longest: LONGEST }));
}
