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

/// Two streams of frames, each written in blocks.
fn interleaved(sizes: [&[usize]; 2], block: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut frames = Vec::new();
    let streams = [0, 1].map(|writer: usize| {
        let mut stream = Vec::new();
        for (i, size) in sizes[writer].iter().enumerate() {
            let payload: Vec<u8> = (0..*size).map(|k| (writer * 101 + i * 31 + k * k / 7) as u8).collect();
            let mut frame = Vec::new();
            framing::push(&mut frame, &payload);
            stream.extend_from_slice(&frame);
            frames.push(frame);
        }
        stream
    });
    let mut bytes = Vec::new();
    for at in (0..streams[0].len().max(streams[1].len())).step_by(block) {
        for stream in &streams {
            bytes.extend_from_slice(stream.get(at..).map_or(&[], |rest| &rest[..rest.len().min(block)]));
        }
    }
    (bytes, frames)
}

#[test]
fn two_writers_are_separated() {
    for (sizes, block, least) in [
        ([[300; 20].as_slice(), &[301; 20]], 1000, 40),
        ([&[1700; 30], &[1650; 31]], 4096, 60),
        ([&[10_000; 8], &[9_000; 8]], 4096, 16),
        ([&[100; 90], &[120; 90]], 512, 175),
        ([&[20_000; 5], &[50; 300]], 4096, 300),
        (
            [
                &[5000, 30, 100, 1500, 5000, 7, 500, 2, 1500, 30],
                &[2, 500, 5000, 1500, 1500, 100, 7, 5000, 16, 30],
            ],
            1000,
            18,
        ),
    ] {
        let (bytes, frames) = interleaved(sizes, block);
        let (parts, out) = salvage("interleaved", &bytes, 4096);
        let records: u64 =
            parts.iter().filter(|part| part.content.outcome() != "lost").map(|part| part.items).sum();
        let found =
            frames.iter().filter(|frame| out.windows(frame.len()).any(|window| window == **frame)).count();
        assert!(found >= least, "{found} of {} frames in blocks of {block}: {parts:#?}", frames.len());
        assert_eq!(records as usize, found);
    }
}

#[test]
fn sums_of_ranges_do_not_depend_on_the_order_of_the_questions() {
    let folder = Scratch::new("salvage-sums");
    let path = folder.join("x");
    let bytes: Vec<u8> = (0..700_000_u64).map(|i| (i * i / 11) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let mut source = Source::new(VirtualFile::new(&path)).unwrap();
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for round in 0..300 {
        let from = next(bytes.len() as u64);
        let to = from + next(bytes.len() as u64 - from);
        let expected = crc::crc32c(&bytes[from as usize..to as usize]);
        assert_eq!(source.crc(from, to).unwrap(), expected, "{from}..{to}");
        if round % 20 == 0 {
            source.forget_before(next(bytes.len() as u64) * round / 300);
        }
    }
}

/// Every byte is read a few times at most, whatever the headers claim.
#[test]
fn hostile_lengths_do_not_make_the_search_quadratic() {
    let size = 300_000_u64;
    for (name, last) in [("to the end", size - 16), ("to the middle", size / 2), ("a tebibyte", 1 << 40)] {
        let claim = |at: u64| last.saturating_sub(at);
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            bytes.extend_from_slice(&framing::header(claim(bytes.len() as u64)));
        }
        let folder = Scratch::new("salvage-hostile");
        let path = folder.join("x");
        std::fs::write(&path, &bytes).unwrap();
        let mut salvage = Salvage::new(VirtualFile::new(&path)).unwrap();
        // The attempts to join frames have their own limit.
        salvage.joins = Some(Joins::new());
        while salvage.advance(1 << 20).unwrap() > 0 {}
        // A header costs the ends of its range: two steps.
        let most = size / 12 * 2 * source::STEP_BYTES + 50 * size;
        assert!(salvage.source.summed < most, "{name}: {} bytes", salvage.source.summed);
    }
}

#[test]
fn a_long_payload_that_another_header_does_not_follow_is_not_corrected() {
    for (length, whole) in [(60_000_usize, true), (100_000, false)] {
        let payload: Vec<u8> = (0..length).map(|i| (i * i / 7) as u8).collect();
        let mut bytes = frames(&[&payload, b"destroyed", b"last"]);
        bytes[100] ^= 4;
        let (parts, out) = salvage("followed", &bytes, u64::MAX);
        assert_eq!((parts.len(), out.len()), (2, bytes.len()), "{parts:?}");
        bytes[length + 16..length + 41].fill(0xaa);
        let (parts, _) = salvage("not-followed", &bytes, u64::MAX);
        assert_eq!(matches!(parts[0].content, Content::Corrected(_)), whole, "{parts:?}");
    }
}
