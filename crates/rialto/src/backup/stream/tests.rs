//! Streams with pages that no backup has.

use super::*;
use crate::store::paged::PageList;

/// The frames of a backup of one segment and four pages, of which it has all.
fn frames() -> Vec<Frame> {
    let header =
        BackupHeader { id: 7, segments: 1, has_pages: true, ..BackupHeader::decode(&[0; BEGIN_BYTES]) };
    let header = BackupHeader { point: Some(LogPoint::beginning_after(Lsn::ZERO)), ..header };
    let mut out = Vec::new();
    let mut writer = StreamWriter::begin((&mut out, ""), StreamKind::Backup, &header).unwrap();
    writer.segment(0, None, &[]).unwrap();
    // 4 KiB pages, no tables, pages 0 to 3.
    writer.list(&PageList::of_words(&[4_096, 0, 4, 0b1111]).unwrap()).unwrap();
    (0..4).for_each(|number| writer.page(number, &image(number)).unwrap());
    writer.end().unwrap();
    frames_of(&out)
}

fn image(number: u32) -> Vec<u8> {
    let mut image = vec![0; 4_096];
    image[24..28].copy_from_slice(&number.to_ne_bytes());
    image
}

/// What a reader makes of these frames, whose end counts them as they are.
fn read(mut frames: Vec<Frame>, counts_right: bool) -> Result<(u64, u64), String> {
    if counts_right {
        let of = |kind: u32| frames.iter().filter(|frame| frame.0 == kind).count() as u64;
        let (segments, pages) = (of(SEGMENT), of(PAGE));
        let before = frames.iter().rev().skip(1).map(|(_, payload)| (FRAME_HEADER + payload.len()) as u64);
        let bytes: u64 = before.sum();
        let end = &mut frames.last_mut().unwrap().1;
        for (at, number) in [(0, segments), (8, bytes), (16, pages)] {
            end[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
    }
    let stream = forge(&frames);
    let mut from = &stream[..];
    let mut reader =
        StreamReader::begin(&mut from, "s", StreamKind::Backup).map_err(|error| error.to_string())?;
    let (mut segments, mut pages) = (0, 0);
    loop {
        match reader.next() {
            Ok(Some(ReadPart::Segment(_))) => segments += 1,
            Ok(Some(ReadPart::List(list))) => assert_eq!(list.pages.len(), 4),
            Ok(Some(ReadPart::Page(page))) => {
                assert_eq!(page.image[8..], image(page.number)[8..]);
                pages += 1;
            }
            Ok(Some(ReadPart::Log(_))) => panic!("a backup has no log"),
            Ok(None) => return Ok((segments, pages)),
            Err(OpenError::Corrupt { file, offset, what }) => {
                assert!(file == "s" && offset <= stream.len() as u64);
                return Err(what);
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn what_is_written_is_read() {
    assert_eq!(read(frames(), true), Ok((1, 4)));
    assert_eq!(read(frames(), false), Ok((1, 4)), "the end that was written is right");
}

#[test]
fn frames_that_do_not_follow_are_refused() {
    // Frame 0 is the begin, 1 the segment, 2 the list, 3 to 6 the pages, 7 the end.
    type Forge = fn(&mut Vec<Frame>);
    let refused: [(&str, Forge); 12] = [
        ("a page that the backup cannot have here", |frames| frames.swap(2, 3)),
        ("a page that the backup cannot have here", |frames| frames.swap(3, 4)),
        ("a page that the backup cannot have here", |frames| frames.insert(4, frames[3].clone())),
        ("a page that the backup cannot have here", |frames| frames[6].1[0] = 9),
        ("a page that the backup cannot have here", |frames| frames[3].1.truncate(2_048)),
        ("expected an image of page 1, found one of page 8", |frames| frames[4].1[24] = 8),
        ("a page with control word", |frames| frames[4].1[8..16].fill(0xff)),
        ("a frame of a kind or length", |frames| frames.swap(1, 2)),
        ("a frame of a kind or length", |frames| frames.insert(3, frames[2].clone())),
        ("a part of the list of pages", |frames| frames[2].1[8] = 1),
        ("a size of pages that no database has", |frames| frames[2].1[16..18].copy_from_slice(&[1, 1])),
        ("the backup ends before its list of pages does", |frames| _ = frames.drain(2..7)),
    ];
    for (expected, forge) in refused {
        let mut frames = frames();
        forge(&mut frames);
        let found = read(frames, true).unwrap_err();
        assert!(found.contains(expected), "expected {expected:?}, found {found:?}");
    }
    let mut frames = frames();
    frames.remove(5);
    assert!(read(frames, false).unwrap_err().contains("counts other segments, pages or bytes"));
}

/// A list that does not fit into one frame.
#[test]
fn a_long_list_is_read_in_parts() {
    let mut words = vec![8_192, 0, 64 * 20_000];
    words.extend([u64::MAX; 20_000]);
    let list = PageList::of_words(&words).unwrap();
    let header = BackupHeader { id: 7, has_pages: true, ..BackupHeader::decode(&[0; BEGIN_BYTES]) };
    let header = BackupHeader { point: Some(LogPoint::beginning_after(Lsn::ZERO)), ..header };
    let mut out = Vec::new();
    let mut writer = StreamWriter::begin((&mut out, ""), StreamKind::Backup, &header).unwrap();
    writer.list(&list).unwrap();
    writer.end().unwrap();
    let frames = frames_of(&out);
    assert_eq!(frames.len(), 5);
    let mut from = &out[..];
    let mut reader = StreamReader::begin(&mut from, "s", StreamKind::Backup).unwrap();
    let Ok(Some(ReadPart::List(found))) = reader.next() else { panic!("a list") };
    assert_eq!(found, list);
    assert!(matches!(reader.next(), Ok(None)));
    // Parts in another order, and an end before the last part.
    for (from, to) in [(1, 2), (3, 4)] {
        let mut frames = frames.clone();
        frames.swap(from, to);
        let stream = forge(&frames);
        let mut from = &stream[..];
        let mut reader = StreamReader::begin(&mut from, "s", StreamKind::Backup).unwrap();
        assert!(matches!(reader.next(), Err(OpenError::Corrupt { .. })));
    }
}
