//! PNG, JPEG and WebP. Checksums of PNG chunks and the length of a WebP are corrected first, so that the fuzzer reaches
//! the code after their checks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardkeep_image::{Decoder, Pixels, header};

/// More pixels than this cost the fuzzer time and memory and show nothing new.
const MOST_PIXELS: usize = 1 << 22;

fn repair(bytes: &mut [u8]) {
    let mut at = 8_usize;
    while let Some(head) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(covered) = bytes.get(at + 4..at.saturating_add(8).saturating_add(length)) else { return };
        let sum = crc32fast::hash(covered).to_be_bytes();
        let Some(slot) = bytes.get_mut(at + 8 + length..at + 12 + length) else { return };
        slot.copy_from_slice(&sum);
        at += 12 + length;
    }
}

fuzz_target!(init: {
    // zune-jpeg and image-webp may panic; the fence around them turns that into an error. libFuzzer's hook would abort.
    std::panic::set_hook(Box::new(|info| {
        let fenced = |place: &str| place.contains("zune") || place.contains("image-webp");
        if !info.location().is_some_and(|place| fenced(place.file())) {
            eprintln!("{info}");
            std::process::abort();
        }
    }));
}, |data: &[u8]| {
    let mut bytes = data.to_vec();
    if bytes.starts_with(b"\x89PNG") {
        repair(&mut bytes);
    } else if bytes.starts_with(b"RIFF") && bytes.len() >= 12 {
        let length = (bytes.len() as u32 - 8).to_le_bytes();
        bytes[4..8].copy_from_slice(&length);
    }
    let Ok(head) = header(&bytes) else { return };
    if head.width.saturating_mul(head.height) > MOST_PIXELS {
        return;
    }
    let mut decoder = Decoder::default();
    for channels in [1, 3, 4] {
        let mut out = vec![0; head.width * head.height * channels];
        let first = decoder.decode(&bytes, head, (head.height, head.width, channels), Pixels::U8(&mut out));
        let mut again = vec![1; out.len()];
        let second = decoder.decode(&bytes, head, (head.height, head.width, channels), Pixels::U8(&mut again));
        assert_eq!(first.is_ok(), second.is_ok(), "{channels} channels: a decoder that was used before says something else");
        assert!(first.is_err() || out == again, "{channels} channels: a decoder that was used before, or the slot's old content, gives other pixels");
        // Floats are the bytes over 255; of 16 bits they have the low byte as well.
        let mut floats = vec![2.0; out.len()];
        let third = decoder.decode(&bytes, head, (head.height, head.width, channels), Pixels::F32(&mut floats));
        assert_eq!(first.is_ok(), third.is_ok(), "{channels} channels: bytes and floats differ in what they can read");
        let same = |(byte, float): (&u8, &f32)| {
            if head.deep { (float * 65_535.0).round() as u32 >> 8 == u32::from(*byte) } else { *float == f32::from(*byte) * (1.0 / 255.0) }
        };
        assert!(first.is_err() || out.iter().zip(&floats).all(same), "{channels} channels: bytes and floats differ");
    }
    let mut small = vec![0.0; 5 * 7 * 3];
    let _ = decoder.decode(&bytes, head, (5, 7, 3), Pixels::F32(&mut small));
    assert!(small.iter().all(|value| (0.0..=1.0).contains(value)));
});
