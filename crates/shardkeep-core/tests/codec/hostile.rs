//! Damaged and malicious input: no panic, no allocation beyond what the input could expand to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use shardkeep_core::columns::{BatchColumns, DType, Feature, Kind, Schema, Scratch};
use shardkeep_core::example::{FeatureValue, decode, decode_sequence, encode};
use shardkeep_core::image::{Decoder, Pixels, header};

use super::images;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which notes the largest block that a thread asked for.
struct Noting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

/// xorshift64*: the same mutations in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.below(256) as u8),
                2 if !bytes.is_empty() => drop(bytes.remove(at)),
                3 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][self.below(6)],
                4 if !bytes.is_empty() => {
                    let end = (at + self.below(9)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
                _ if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
    }
}

/// Runs `work` and fails if it asked for one block larger than `limit`.
fn bounded<T>(limit: usize, work: impl FnOnce() -> T) -> T {
    LARGEST.with(|largest| largest.set(0));
    let result = work();
    let found = LARGEST.with(Cell::get);
    assert!(found <= limit, "a block of {found} bytes, where {limit} were the limit");
    result
}

#[test]
fn mutated_examples() {
    let numbers: Vec<i64> = (-3..60).map(|i| i * i * i).collect();
    let seed = encode(&[
        ("a", FeatureValue::Int64(&[5])),
        ("b", FeatureValue::Float(&[0.5, 1.5])),
        ("c", FeatureValue::Bytes(&[b"some", b"text", b""])),
        ("d", FeatureValue::Int64(&numbers)),
        ("e", FeatureValue::Float(&[1.0])),
        ("f", FeatureValue::Bytes(&[b"one"])),
        ("g", FeatureValue::Int64(&[1 << 40, -1])),
        ("nobody asked for this one", FeatureValue::Int64(&[7])),
        ("with a key of some length", FeatureValue::Int64(&[-7])),
    ]);
    let fixed = |dtype, side| Kind::Fixed { dtype, shape: vec![side], default: None };
    let kinds = [
        ("a", fixed(DType::Int64, 1)),
        ("b", fixed(DType::Float32, 2)),
        ("c", Kind::Var { dtype: DType::Bytes }),
        ("d", Kind::Var { dtype: DType::Int64 }),
        ("e", Kind::Var { dtype: DType::Float32 }),
        ("f", fixed(DType::Bytes, 1)),
        ("g", fixed(DType::Int64, 2)),
        ("with a key of some length", fixed(DType::Int64, 1)),
    ];
    let features = kinds.map(|(name, kind)| Feature { name: name.into(), kind });
    let schema = Arc::new(Schema::new(features.to_vec()).unwrap());
    let mut random = Random(1);
    let mut scratch = Scratch::default();
    let (mut whole, mut broken) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = seed.clone();
        random.mutate(&mut bytes);
        let limit = 64 * bytes.len() + 16_384;
        bounded(limit, || drop((decode(&bytes), decode_sequence(&bytes))));
        let mut fill = |bytes: &[u8]| {
            // Behind a whole record, after which every key is expected at its place.
            let batch = BatchColumns::new(Arc::clone(&schema), 2).unwrap();
            let done = bounded(limit, || batch.fill(0, &[&seed, bytes], &mut scratch));
            done.map(|()| batch.finish().unwrap())
        };
        let columns = fill(&bytes);
        let filled = columns.is_ok();
        if let Ok(columns) = columns {
            // An unknown field behind the map sends the record down the careful way, which must agree.
            bytes.extend_from_slice(&[0x50, 1]);
            let carefully = fill(&bytes).unwrap();
            assert_eq!(format!("{columns:?}"), format!("{carefully:?}"), "{bytes:02x?}");
        }
        if filled { whole += 1 } else { broken += 1 }
    }
    assert!(whole > 500 && broken > 5_000, "{whole} whole, {broken} broken");
}

/// Puts right checksums into a mutated PNG, so that the damage reaches what lies behind them.
fn repair_checksums(bytes: &mut [u8]) {
    let mut at = 8usize;
    while let Some(head) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes(head.try_into().unwrap()) as usize;
        let Some(covered) = bytes.get(at + 4..at.saturating_add(8).saturating_add(length)) else { return };
        let crc = crc32fast::hash(covered);
        let Some(slot) = bytes.get_mut(at + 8 + length..at + 12 + length) else { return };
        slot.copy_from_slice(&crc.to_be_bytes());
        at += 12 + length;
    }
}

fn try_image(bytes: &[u8], decoder: &mut Decoder, limit: usize) -> bool {
    let Ok(head) = bounded(limit, || header(bytes)) else { return false };
    assert!(head.width * head.height * 4 <= limit, "{head:?} of {} bytes", bytes.len());
    let frame = |channels| (head.height, head.width, channels);
    let slot = |channels| vec![1; head.width * head.height * channels];
    let mut out = slot(3);
    let done = bounded(limit, || decoder.decode(bytes, head, frame(3), Pixels::U8(&mut out))).is_ok();
    // A fresh decoder, and a slot of other content: neither may be seen in the pixels.
    let mut again: Vec<u8> = vec![2; out.len()];
    let fresh = Decoder::default().decode(bytes, head, frame(3), Pixels::U8(&mut again)).is_ok();
    assert!(fresh == done && (!done || again == out), "{head:?}: what was there before shows");
    let mut wide = slot(4);
    let four = bounded(limit, || decoder.decode(bytes, head, frame(4), Pixels::U8(&mut wide))).is_ok();
    let mut rgb = wide.chunks_exact(4).flat_map(|pixel| &pixel[..3]);
    assert!(four == done && (!done || rgb.by_ref().eq(&out)), "{head:?}: four channels differ from three");
    let mut floats = vec![2f32; out.len()];
    let deep = bounded(limit, || decoder.decode(bytes, head, frame(3), Pixels::F32(&mut floats))).is_ok();
    let (scale, shift) = if head.deep { (65_535.0, 8) } else { (255.0, 0) };
    let byte = |value: &f32| ((value * scale).round() as u32 >> shift) as u8;
    assert!(deep == done && (!done || floats.iter().map(byte).eq(out)), "{head:?}: floats differ from bytes");
    done
}

#[test]
fn mutated_pngs() {
    let mut random = Random(2);
    let mut decoder = Decoder::default();
    let (mut whole, mut broken) = (0, 0);
    for (_, seed) in images(".png") {
        for _ in 0..600 {
            let mut bytes = seed.clone();
            random.mutate(&mut bytes);
            repair_checksums(&mut bytes);
            // 1,032 bytes for a byte, at 1 bit a pixel, 4 bytes for a pixel.
            let limit = 1_032 * 8 * 4 * bytes.len() + 4_096;
            if try_image(&bytes, &mut decoder, limit) { whole += 1 } else { broken += 1 }
        }
    }
    assert!(whole > 500 && broken > 5_000, "{whole} whole, {broken} broken");
}

/// zune-jpeg and image-webp may panic; the fence turns that into an error, and this keeps it quiet.
fn keep_fenced_panics_quiet() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let fenced = |place: &str| place.contains("zune") || place.contains("image-webp");
            if !info.location().is_some_and(|place| fenced(place.file())) {
                hook(info);
            }
        }));
    });
}

/// Makes the length of a mutated WebP that of its bytes.
fn repair_length(bytes: &mut [u8]) {
    let length = (bytes.len() as u32).saturating_sub(8).to_le_bytes();
    if let Some(slot) = bytes.get_mut(4..8) {
        slot.copy_from_slice(&length);
    }
}

#[test]
fn mutated_webps() {
    keep_fenced_panics_quiet();
    let mut random = Random(4);
    let mut decoder = Decoder::default();
    let (mut whole, mut broken) = (0, 0);
    for (_, seed) in images(".webp") {
        for _ in 0..1_500 {
            let mut bytes = seed.clone();
            random.mutate(&mut bytes);
            repair_length(&mut bytes);
            // The pixels that its bytes may stand for, and four times four bytes for each.
            let limit = 16 * (32_768 * bytes.len()).max(1 << 20);
            if try_image(&bytes, &mut decoder, limit) { whole += 1 } else { broken += 1 }
        }
    }
    assert!(whole > 100 && broken > 1_000, "{whole} whole, {broken} broken");
}

#[test]
fn mutated_jpegs() {
    keep_fenced_panics_quiet();
    let mut random = Random(3);
    let mut decoder = Decoder::default();
    let (mut whole, mut broken) = (0, 0);
    for (_, seed) in images(".jpg") {
        for _ in 0..800 {
            let mut bytes = seed.clone();
            random.mutate(&mut bytes);
            let limit = 1_024 * 12 * bytes.len() + (1 << 20);
            if try_image(&bytes, &mut decoder, limit) { whole += 1 } else { broken += 1 }
        }
    }
    assert!(whole > 100 && broken > 1_000, "{whole} whole, {broken} broken");
}
