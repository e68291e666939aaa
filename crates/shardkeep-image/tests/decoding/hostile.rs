//! Damaged and malicious images: no panic, no allocation beyond what the input could expand to.

use shardkeep_image::{Decoder, Pixels, header};

use super::bounded::{Random, bounded};
use super::images;

/// Correct the checksums of a mutated PNG, so that the damage reaches the code after their check.
fn repair_checksums(bytes: &mut [u8]) {
    let mut at = 8usize;
    while let Some(head) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes(head.try_into().unwrap()) as usize;
        let Some(covered) = bytes.get(at + 4..at.saturating_add(8).saturating_add(length)) else { return };
        let crc = libdeflater::crc32(covered);
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

/// zune-jpeg and image-webp may panic; the decoder turns that into an error, and this hook prints nothing for it.
fn silence_caught_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_caught = |place: &str| place.contains("zune") || place.contains("image-webp");
            if !info.location().is_some_and(|place| is_caught(place.file())) {
                hook(info);
            }
        }));
    });
}

/// Make the length of a mutated WebP that of its bytes.
fn repair_length(bytes: &mut [u8]) {
    let length = (bytes.len() as u32).saturating_sub(8).to_le_bytes();
    if let Some(slot) = bytes.get_mut(4..8) {
        slot.copy_from_slice(&length);
    }
}

#[test]
fn mutated_webps() {
    silence_caught_panics();
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
    silence_caught_panics();
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
