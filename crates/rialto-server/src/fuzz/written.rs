//! Messages of a client, made from bytes.
//!
//! A message is a byte for its tag, a byte for the length of what follows, and that many bytes. These are the fields of
//! the message in a short form, so that most inputs are valid. If the highest bit of the tag's byte is set, they are
//! the body itself.

use rialto::fuzz::Script;
use rialto_sql::fuzz::text;

/// All tags but that of Terminate.
const TAGS: [u8; 13] = *b"QPBDECSHdcfFp";
/// Names of statements and portals.
const NAMES: [&str; 4] = ["", "s", "p", "nobody"];

/// One message.
pub(super) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend_from_slice(&(4 + body.len() as u32).to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// The messages of the script, each whole.
pub(super) fn messages(script: &mut Script<'_>) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while !script.is_over() {
        let first = script.byte();
        let named = first & 0x7f;
        let tag = if TAGS.contains(&named) { named } else { TAGS[usize::from(named) % TAGS.len()] };
        let length = usize::from(script.byte());
        let fields = script.bytes(length);
        messages.push(if first < 0x80 { message(tag, &body(tag, fields)) } else { message(tag, fields) });
    }
    messages
}

/// The body that fields in the short form describe.
fn body(tag: u8, fields: &[u8]) -> Vec<u8> {
    let mut script = Script::of(fields);
    let mut body = Vec::new();
    let name = |script: &mut Script<'_>, body: &mut Vec<u8>| string(body, NAMES[script.below(NAMES.len())]);
    match tag {
        b'Q' => string(&mut body, &text(fields)),
        b'P' => {
            name(&mut script, &mut body);
            string(&mut body, &text(script.bytes(usize::MAX)));
            body.extend_from_slice(&[0, 0]);
        }
        b'B' => {
            name(&mut script, &mut body);
            name(&mut script, &mut body);
            let (format, result_format) = (script.byte() & 1, script.byte() & 1);
            body.extend_from_slice(&[0, 1, 0, format]);
            let mut arguments = Vec::new();
            while !script.is_over() {
                let length = usize::from(script.byte());
                arguments.push((length < 255).then(|| script.bytes(length)));
            }
            body.extend_from_slice(&(arguments.len() as u16).to_be_bytes());
            for argument in arguments {
                body.extend_from_slice(&argument.map_or(u32::MAX, |bytes| bytes.len() as u32).to_be_bytes());
                body.extend_from_slice(argument.unwrap_or_default());
            }
            body.extend_from_slice(&[0, 1, 0, result_format]);
        }
        b'D' | b'C' => {
            body.push(b"PS"[script.below(2)]);
            name(&mut script, &mut body);
        }
        b'E' => {
            name(&mut script, &mut body);
            body.extend_from_slice(&[0, 0, 0, script.byte()]);
        }
        b'f' => string(&mut body, &text(fields)),
        b'S' | b'H' | b'c' => {}
        _ => body.extend_from_slice(fields),
    }
    body
}

fn string(body: &mut Vec<u8>, text: &str) {
    body.extend(text.bytes().filter(|&byte| byte != 0));
    body.push(0);
}
