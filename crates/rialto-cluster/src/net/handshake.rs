//! The frames of a handshake, sent and read.

use std::io::{Read, Write};

use super::event::Failure;
use super::frame::{self, Decoder, FrameError, Kind};
use super::hello::{Hello, Refusal};
use super::stream::Stream;

/// The longest payload of a handshake's frame.
const PAYLOAD_MAX: usize = 4 << 10;

/// Sends one frame.
pub(super) fn send(stream: &mut Stream, kind: Kind, payload: &[u8]) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(frame::HEADER + payload.len());
    frame::append(&mut bytes, kind, payload);
    stream.write_all(&bytes)?;
    stream.flush()
}

/// Says why this node ends the connection.
pub(super) fn refuse(stream: &mut Stream, refusal: Refusal) -> Failure {
    // The other node may have ended the connection already.
    let _ = send(stream, Kind::Refusal, &refusal.encode());
    Failure::RefusedByUs(refusal)
}

/// Reads the other node's hello, in a frame of a kind. What cannot be one is refused.
pub(super) fn read_hello(stream: &mut Stream, expected: Kind) -> Result<Hello, Failure> {
    let mut decoder = Decoder::new(PAYLOAD_MAX);
    loop {
        match decoder.next_frame() {
            Ok(None) => {}
            Ok(Some(found)) if found.kind == Kind::Refusal => {
                return Err(Failure::RefusedByThem(Refusal::decode(found.payload)));
            }
            Ok(Some(found)) if found.kind == expected => {
                let hello = Hello::decode(found.payload);
                let hello = match hello {
                    // The other node waits for an answer before it sends more.
                    Ok(_) if decoder.is_inside_a_frame() => {
                        Err(Refusal::Garbled("bytes follow a hello".to_owned()))
                    }
                    hello => hello,
                };
                return hello.map_err(|refusal| refuse(stream, refusal));
            }
            Ok(Some(found)) => {
                let refusal =
                    Refusal::Garbled(format!("a frame of the kind {:?} instead of a hello", found.kind));
                return Err(refuse(stream, refusal));
            }
            Err(error @ FrameError::Version(_)) => {
                return Err(refuse(stream, Refusal::Version(error.to_string())));
            }
            Err(error) => return Err(refuse(stream, Refusal::Garbled(error.to_string()))),
        }
        match stream.read(decoder.room()) {
            Ok(0) => return Err(Failure::Unreachable("the connection has ended before a hello".to_owned())),
            Ok(bytes) => decoder.filled(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                return Err(Failure::Unreachable("no hello has come in time".to_owned()));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
