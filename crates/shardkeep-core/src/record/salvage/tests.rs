use super::*;
use crate::scratch::Scratch;

pub(super) fn frames(payloads: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    payloads.iter().for_each(|payload| framing::push(&mut out, payload));
    out
}

/// Return the parts and the bytes of the result, examined in steps of `step` bytes.
pub(super) fn salvage(name: &str, bytes: &[u8], step: u64) -> (Vec<Part>, Vec<u8>) {
    let folder = Scratch::new(&format!("salvage-{name}"));
    let path = folder.join("x");
    std::fs::write(&path, bytes).unwrap();
    let mut salvage = Salvage::new(VirtualFile::new(&path)).unwrap();
    let mut sum = 0;
    loop {
        match salvage.advance(step).unwrap() {
            0 => break,
            more => sum += more,
        }
    }
    assert_eq!(sum, bytes.len() as u64);
    let mut out = Vec::new();
    let mut room = vec![0; usize::try_from(step.min(1 << 20)).unwrap()];
    loop {
        match salvage.read(&mut room).unwrap() {
            0 => break,
            more => out.extend_from_slice(&room[..more]),
        }
    }
    let mut at = 0;
    for part in salvage.parts() {
        assert_eq!(part.start, at, "{:?}", salvage.parts());
        at = part.end;
    }
    assert_eq!(at, bytes.len() as u64, "{:?}", salvage.parts());
    (salvage.parts().to_vec(), out)
}

const RECORDS: [&[u8]; 5] = [b"first", b"", b"the third record", b"4", b"and the last one"];

#[test]
fn undamaged_files_are_one_part() {
    let bytes = frames(&RECORDS);
    let (parts, out) = salvage("undamaged", &bytes, u64::MAX);
    let whole = Part { start: 0, end: bytes.len() as u64, record: 0, items: 5, content: Content::Whole };
    assert_eq!((parts.as_slice(), &out), ([whole].as_slice(), &bytes));
    assert_eq!(salvage("empty", b"", u64::MAX), (vec![], vec![]));
}

#[test]
fn every_flipped_bit_is_corrected() {
    let bytes = frames(&RECORDS);
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let (parts, out) = salvage("flip", &bad, 7);
        assert_eq!(out, bytes, "bit {bit}: {parts:?}");
    }
}

#[test]
fn every_cut_and_every_inserted_byte_costs_one_record() {
    let bytes = frames(&RECORDS);
    for at in 0..bytes.len() {
        let cut = [&bytes[..at], &bytes[at + 1..]].concat();
        let inserted = [&bytes[..at], b"\x05", &bytes[at..]].concat();
        for bad in [cut, inserted] {
            let (parts, out) = salvage("shifted", &bad, 13);
            let kept: u64 =
                parts.iter().filter(|part| part.content == Content::Whole).map(|part| part.items).sum();
            assert!(kept >= 4, "byte {at}: {parts:?}");
            assert!(out.len() + 64 > bytes.len());
        }
    }
}

#[test]
fn a_destroyed_header_is_made_again() {
    let bytes = frames(&RECORDS);
    let mut bad = bytes.clone();
    bad[21..33].fill(0xaa);
    let (parts, out) = salvage("headless", &bad, 5);
    assert_eq!(out, bytes, "{parts:?}");
}

#[test]
fn a_length_beyond_the_end_hides_nothing() {
    let bytes = frames(&RECORDS);
    for length in [1 << 40, u64::MAX, u64::MAX - 15, 100] {
        let bad = [&framing::header(length)[..], &bytes, &framing::header(length), &bytes].concat();
        let (parts, out) = salvage("tebibyte", &bad, 5);
        assert_eq!(out, [&bytes[..], &bytes].concat(), "{parts:?}");
    }
}
