use super::*;
use crate::record::framing;
use crate::scratch::Scratch;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Salvaged {
    records: Vec<Vec<u8>>,
    parts: Vec<Part>,
}

impl Salvaged {
    fn lost(&self) -> usize {
        self.parts.iter().filter(|part| part.outcome == Outcome::Lost).count()
    }
}

fn salvage(bytes: &[u8]) -> Salvaged {
    static SERIAL: AtomicUsize = AtomicUsize::new(0);
    let folder = Scratch::new(&format!("compressed-salvage-{}", SERIAL.fetch_add(1, Ordering::Relaxed)));
    let (path, output) = (folder.join("x"), folder.join("y"));
    std::fs::write(&path, bytes).unwrap();
    let kind = Compression::sniff(bytes);
    let kind = Some(kind).filter(|kind| *kind != Compression::None);
    let mut salvage = CompressedSalvage::open(VirtualFile::new(&path), kind).unwrap();
    let file = std::fs::File::create(&output).unwrap();
    let mut writer = FrameWriter::new(file.as_raw_fd(), &output, Compression::None, 0);
    while salvage.advance(100_000, Some(&mut writer)).unwrap() {}
    writer.finish().unwrap();
    let mut records = Vec::new();
    let written = std::fs::read(&output).unwrap();
    let mut rest = written.as_slice();
    while let Some((header, more)) = rest.split_first_chunk() {
        let length = framing::parse_header(header).unwrap() as usize;
        records.push(more[..length].to_vec());
        rest = &more[length + 4..];
    }
    assert_eq!(records.len() as u64, salvage.records());
    Salvaged { records, parts: salvage.parts().to_vec() }
}

/// Records of words, which compress well, or of random bytes, which do not.
fn records(count: usize, is_random: bool) -> Vec<Vec<u8>> {
    let mut seed = 11_u32;
    let mut random = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    (0..count)
        .map(|number| {
            let length = 500 + usize::from(random()) * 10;
            let mut record = if is_random { Vec::new() } else { format!("record {number} ").into_bytes() };
            record.extend(
                (0..length).map(|_| if is_random { random() } else { b"etaoin"[usize::from(random()) % 6] }),
            );
            record
        })
        .collect()
}

fn frames(records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    records.iter().for_each(|record| framing::push(&mut bytes, record));
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    e.write_all(bytes).unwrap();
    e.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
    e.write_all(bytes).unwrap();
    e.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn undamaged_files_are_kept() {
    let all = records(300, false);
    let bytes = frames(&all);
    let (a, b) = bytes.split_at(bytes.len() / 3);
    for packed in [
        gzip(&bytes),
        zlib(&bytes),
        zstd(&bytes),
        [gzip(a), gzip(b"").to_vec(), gzip(b)].concat(),
        [zlib(a), zlib(b)].concat(),
        [zstd(a), b"\x50\x2a\x4d\x18\x03\0\0\0abc".to_vec(), zstd(b)].concat(),
    ] {
        let got = salvage(&packed);
        assert!(got.records == all);
        assert_eq!(got.parts.len(), 1, "{:?}", got.parts);
        assert_eq!((got.parts[0].start, got.parts[0].stop), (Some(0), Some(packed.len() as u64)));
    }
}

#[test]
fn members_after_a_damaged_one_are_kept() {
    let all = records(300, false);
    for pack in [gzip, zlib, zstd] {
        let parts: Vec<Vec<u8>> = all.chunks(100).map(|part| pack(&frames(part))).collect();
        let mut packed = parts.concat();
        let middle = parts[0].len() + parts[1].len() / 2;
        packed[middle..middle + 100].fill(0);
        let got = salvage(&packed);
        assert!(got.records.starts_with(&all[..100]) && got.records.ends_with(&all[200..]));
        assert!(got.records.iter().all(|record| all.contains(record)));
        assert!(got.lost() > 0);
    }
}

#[test]
fn a_member_is_decoded_from_a_block_after_the_damage() {
    // Random payloads have few matches, so that most records do not need the bytes before.
    let all = records(2000, true);
    for pack in [gzip, zlib] {
        let whole = pack(&frames(&all));
        for at in [0, whole.len() / 3] {
            let mut packed = whole.clone();
            packed[at..at + 64].fill(0x55);
            let got = salvage(&packed);
            assert!(got.records.iter().all(|record| all.contains(record)));
            assert!(got.records.len() > 1800, "{} after damage at {at}: {:?}", got.records.len(), got.parts);
            packed.drain(at..at + 64);
            let got = salvage(&packed);
            assert!(got.records.len() > 1800, "{} after a cut at {at}: {:?}", got.records.len(), got.parts);
        }
    }
}

#[test]
fn blocks_of_a_zstd_frame_after_a_damaged_one_are_kept() {
    let all = records(2000, true);
    let mut packed = zstd(&frames(&all));
    let middle = packed.len() / 2;
    let begin = middle;
    packed[begin..begin + 64].fill(0x55);
    let got = salvage(&packed);
    assert!(got.records.iter().all(|record| all.contains(record)));
    assert!(got.records.len() > 1800, "{}: {:?}", got.records.len(), got.parts);
}

#[test]
fn a_full_flush_is_a_beginning() {
    let all = records(300, false);
    let mut e = flate2::Compress::new(flate2::Compression::new(6), false);
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    for part in all.chunks(10) {
        packed.reserve(1 << 20);
        e.compress_vec(&frames(part), &mut packed, flate2::FlushCompress::Full).unwrap();
    }
    for at in [11, packed.len() / 2] {
        let mut damaged = packed.clone();
        damaged[at..at + 10].fill(0xaa);
        let got = salvage(&damaged);
        assert!(got.records.len() >= 280, "{}: {:?}", got.records.len(), got.parts);
        assert!(got.records.iter().all(|record| all.contains(record)));
    }
}

#[test]
fn other_bytes_between_members_are_stepped_over() {
    let all = records(90, false);
    for pack in [gzip, zlib, zstd] {
        let [a, b, c] = [&all[..30], &all[30..60], &all[60..]].map(frames);
        let packed = [pack(&a), b"rubbish".repeat(100), pack(&b), c, vec![0; 1000]].concat();
        let got = salvage(&packed);
        assert!(got.records == all, "{:?}", got.parts);
        assert_eq!(got.lost(), 2, "{:?}", got.parts);
    }
}

#[test]
fn another_compression_in_a_file_is_named() {
    let all = records(90, false);
    let (a, b) = (frames(&all[..30]), frames(&all[30..]));
    for packed in [[gzip(&a), zstd(&b)].concat(), [gzip(&a), b.clone()].concat(), [a, gzip(&b)].concat()] {
        let got = salvage(&packed);
        assert!(got.records == all);
        assert!(got.parts[1].reason.contains("another compression") && got.lost() == 0, "{:?}", got.parts);
    }
}

#[test]
fn no_record_of_a_stored_block_is_found_twice() {
    let all = records(60, true);
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    e.write_all(&frames(&all)).unwrap();
    let packed = e.finish().unwrap();
    for cut in [11, 15, 100, 10_000, 70_000, packed.len() - 9] {
        let got = salvage(&packed[..cut]);
        assert!(all.starts_with(&got.records), "{} of {cut}: {:?}", got.records.len(), got.parts);
        assert!(got.lost() > 0);
    }
}

#[test]
fn wrong_trailers_are_named() {
    let all = records(20, false);
    let bytes = frames(&all);
    let packed = gzip(&bytes);
    let end = packed.len();
    for (cut, damaged, name) in [
        (end - 8, None, "missing (0 of 8 bytes)"),
        (end - 1, None, "missing (7 of 8 bytes)"),
        (end, Some(end - 8), "a wrong checksum"),
        (end, Some(end - 1), "a wrong size"),
    ] {
        for more in [Vec::new(), gzip(&bytes)] {
            let mut packed = packed[..cut].to_vec();
            if let Some(at) = damaged {
                packed[at] ^= 0x10;
            }
            if !more.is_empty() && cut < end {
                continue;
            }
            packed.extend_from_slice(&more);
            let got = salvage(&packed);
            assert!(got.records.starts_with(&all));
            assert!(got.parts[1].reason.contains(name), "{:?}", got.parts);
            assert_eq!(got.lost(), 0);
        }
    }
    let mut zeroed = packed.clone();
    zeroed[end - 8..].fill(0);
    let got = salvage(&zeroed);
    assert!(got.records == all && got.parts[1].reason.contains("may be missing"));
    let got = salvage(&[&packed[..end - 8], &gzip(&bytes)].concat());
    assert!(got.records.len() == 40 && got.parts[1].reason.contains("missing"), "{:?}", got.parts);
}

#[test]
fn flipped_bits_of_decoded_bytes_are_corrected() {
    let all = records(20, false);
    let bytes = frames(&all);
    let second = all[0].len() + 16;
    for bit in [second * 8, second * 8 + 70, second * 8 + 2000] {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        for pack in [gzip, zlib, zstd] {
            let got = salvage(&pack(&flipped));
            assert!(got.records == all);
            assert_eq!(got.parts[1].outcome, Outcome::Repaired);
        }
    }
    let mut nul = bytes.clone();
    nul[second..second + 12].fill(0);
    let got = salvage(&gzip(&nul));
    assert!(got.records == all && got.parts[1].reason.contains("header"), "{:?}", got.parts);
}

#[test]
fn a_bomb_allocates_a_bounded_window() {
    let zeros = vec![0; 1 << 20];
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    e.write_all(&framing::header(1 << 40)).unwrap();
    for _ in 0..40 {
        e.write_all(&zeros).unwrap();
    }
    let got = salvage(&e.finish().unwrap());
    assert_eq!((got.records.len(), got.lost()), (0, 1), "{:?}", got.parts);
}
