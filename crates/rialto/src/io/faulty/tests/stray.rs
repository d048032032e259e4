//! Writes that go astray.

use super::*;

#[test]
fn a_lost_write_is_answered_and_its_place_keeps_what_it_had() {
    let mut wholes = 0;
    for seed in 0..40 {
        let disk = FaultyDisk::new(seed);
        let file = durable(&disk, "f", &[1; 1024]);
        disk.fail(FaultKind::LostWrite, "f", 1);
        file.write_at(&[2; 512], 0).unwrap();
        file.write_at(&[3; 1024], 512).unwrap();
        file.sync().unwrap();
        let [stray] = &disk.strays()[..] else { panic!("one write goes astray") };
        assert_eq!((stray.step, stray.name.as_str(), &stray.landed), (disk.steps() - 1, "f", &None));
        wholes += u64::from(stray.bytes == 1024);
        let mut expected = [[2; 512], [3; 512], [3; 512]].concat();
        for (at, byte) in expected.iter_mut().enumerate() {
            if (stray.offset..stray.offset + stray.bytes).contains(&(at as u64)) {
                *byte = if at < 1024 { 1 } else { 0 };
            }
        }
        assert_eq!(contents(&disk, "f"), Some(expected.clone()), "{stray:?}");
        assert_eq!(outcomes(&disk, "f"), BTreeSet::from([Some(expected)]), "{stray:?}");
    }
    assert!((1..40).contains(&wholes), "{wholes} of 40 are lost whole");
}

#[test]
fn a_misdirected_write_lands_elsewhere_at_once() {
    let mut landed = BTreeSet::new();
    for seed in 0..100 {
        let disk = FaultyDisk::new(seed);
        let (file, _other) = (durable(&disk, "f", &[1; 8192]), durable(&disk, "other", &[4; 4096]));
        disk.fail(FaultKind::MisdirectedWrite, "f", 0);
        file.write_at(&[2; 4096], 4096).unwrap();
        let stray = disk.strays().remove(0);
        let mut expected = [("f", [[1; 4096], [2; 4096]].concat()), ("other", vec![4; 4096])];
        for at in stray.offset..stray.offset + stray.bytes {
            expected[0].1[at as usize] = 1;
        }
        if let Some((name, offset)) = &stray.landed {
            let (_, bytes) = expected.iter_mut().find(|(it, _)| it == name).unwrap();
            bytes[*offset as usize..(*offset + stray.bytes) as usize].fill(2);
            assert_eq!(stray.offset % 4096, offset % 4096);
        }
        landed.insert(stray.landed.clone().map(|(name, _)| name));
        let other = outcomes(&disk, "other");
        assert_eq!(other, BTreeSet::from([Some(expected[1].1.clone())]), "{stray:?}");
        // Nothing of the write is durable at its own place yet; what has landed in the other file is.
        for bytes in outcomes(&disk, "f").iter().flatten() {
            assert_eq!(bytes[..4096], expected[0].1[..4096], "{stray:?}");
        }
    }
    let expected = [None, Some("f".to_owned()), Some("other".to_owned())];
    assert_eq!(landed, BTreeSet::from(expected));
}
