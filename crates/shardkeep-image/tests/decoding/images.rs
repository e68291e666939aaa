//! Pixels against TensorFlow's, stored beside the images (see the README there).

use shardkeep_image::{Decoder, Pixels, header};

use super::{data, images};

/// One of TensorFlow's decodes: shape and pixels.
struct Expected {
    shape: (usize, usize, usize),
    pixels: Vec<u8>,
}

fn expected(name: &str) -> Vec<Expected> {
    let bytes = data(&format!("{name}.pixels"));
    let mut rest = &bytes[..];
    let mut all = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<12>() {
        let side = |i: usize| u32::from_le_bytes(head[4 * i..4 * i + 4].try_into().unwrap()) as usize;
        let shape = (side(0), side(1), side(2));
        let (pixels, tail) = tail.split_at(shape.0 * shape.1 * shape.2);
        all.push(Expected { shape, pixels: pixels.to_vec() });
        rest = tail;
    }
    all
}

fn decode(bytes: &[u8], channels: usize) -> ((usize, usize, usize), Vec<u8>) {
    let head = header(bytes).unwrap();
    let channels = if channels == 0 { head.channels } else { channels };
    let shape = (head.height, head.width, channels);
    let mut out = vec![0; shape.0 * shape.1 * shape.2];
    Decoder::default().decode(bytes, head, shape, Pixels::U8(&mut out)).unwrap();
    (shape, out)
}

#[test]
fn every_kind_of_png_equals_tensorflow() {
    let all = images(".png");
    assert_eq!(all.len(), 37);
    for (name, bytes) in all {
        let wanted = expected(&name);
        assert_eq!(wanted.len(), 4);
        for (channels, wanted) in [0, 1, 3, 4].into_iter().zip(wanted) {
            let (shape, pixels) = decode(&bytes, channels);
            assert_eq!(shape, wanted.shape, "{name} channels={channels}");
            assert_eq!(pixels, wanted.pixels, "{name} channels={channels}");
        }
    }
}

#[test]
fn sequential_jpegs_equal_tensorflow_and_others_are_close() {
    let all = images(".jpg");
    assert_eq!(all.len(), 8);
    for (name, bytes) in all {
        let choices: &[usize] = if name.starts_with("cmyk") { &[0, 3] } else { &[0, 1, 3] };
        // The other decoder reads these, and rounds in its own way.
        let others = name.contains("progressive") || name.starts_with("cmyk");
        for (&channels, wanted) in choices.iter().zip(expected(&name)) {
            let (shape, pixels) = decode(&bytes, channels);
            assert_eq!(shape, wanted.shape, "{name} channels={channels}");
            let differences = pixels.iter().zip(&wanted.pixels).map(|(a, b)| a.abs_diff(*b));
            let largest = differences.clone().max().unwrap();
            let mean = differences.map(f64::from).sum::<f64>() / pixels.len() as f64;
            let (most, most_mean) = if others { (4, 0.5) } else { (0, 0.0) };
            assert!(
                largest <= most && mean <= most_mean,
                "{name} channels={channels}: max {largest}, mean {mean:.3}"
            );
        }
    }
}

#[test]
fn every_kind_of_webp_equals_tensorflow() {
    let all = images(".webp");
    assert_eq!(all.len(), 5);
    for (name, bytes) in all {
        let wanted = expected(&name).remove(0);
        let stored = wanted.shape.2;
        assert_eq!(stored, if name.contains("alpha") { 4 } else { 3 }, "{name}");
        let (shape, pixels) = decode(&bytes, 0);
        assert_eq!((shape, &pixels), (wanted.shape, &wanted.pixels), "{name}");
        // TensorFlow gives no other number of channels than the stored one.
        let (grey, rgb, rgba) = (decode(&bytes, 1).1, decode(&bytes, 3).1, decode(&bytes, 4).1);
        for (pixel, (rgb, rgba)) in pixels.chunks(stored).zip(rgb.chunks(3).zip(rgba.chunks(4))) {
            assert_eq!(rgb, &pixel[..3], "{name}");
            assert_eq!(rgba, [rgb, &[pixel.get(3).copied().unwrap_or(255)]].concat(), "{name}");
        }
        for (grey, rgb) in grey.iter().zip(rgb.chunks_exact(3)) {
            let wanted = 0.299 * f64::from(rgb[0]) + 0.587 * f64::from(rgb[1]) + 0.114 * f64::from(rgb[2]);
            assert!((f64::from(*grey) - wanted).abs() <= 1.0, "{name}: {grey} {wanted}");
        }
        // What lies behind the file is none of its business.
        let behind = [&bytes[..], &[7; 99]].concat();
        assert_eq!(decode(&behind, 3).1, rgb, "{name}");
    }
}

#[test]
fn webp_damage_is_named() {
    let message = |bytes: &[u8]| {
        let decoded = header(bytes).and_then(|head| {
            let mut out = vec![0; head.height * head.width * 3];
            let frame = (head.height, head.width, 3);
            Decoder::default().decode(bytes, head, frame, Pixels::U8(&mut out))
        });
        decoded.unwrap_err().0
    };
    for (name, bytes) in images(".webp") {
        for cut in [1, 20, bytes.len() - 12] {
            let found = message(&bytes[..bytes.len() - cut]);
            assert!(found.contains("the WebP is cut off"), "{name}: {found}");
        }
    }
    // 16,384 pixels a side.
    let mut bomb = data("lossless.webp");
    bomb[21..25].copy_from_slice(&0x0fff_ffff_u32.to_le_bytes());
    assert!(message(&bomb).contains("promises 16384x16384 pixels, more than its"), "{}", message(&bomb));
    let mut bomb = data("lossy.webp");
    bomb[26..30].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    assert!(message(&bomb).contains("promises 16383x16383 pixels, more than its"), "{}", message(&bomb));
    let mut other = data("lossy_alpha.webp");
    other[24] += 1;
    assert!(message(&other).contains("another size than its canvas"), "{}", message(&other));
    let mut animated = data("lossy_alpha.webp");
    animated[20] |= 2;
    assert!(message(&animated).contains("an animated WebP"), "{}", message(&animated));
    let mut broken = data("lossless.webp");
    let end = broken.len() - 30;
    broken[40..end].fill(0xa5);
    assert!(message(&broken).starts_with("the WebP "), "{}", message(&broken));
}

#[test]
fn floats_are_scaled_as_tensorflow_does() {
    let wanted = data("scale.expected");
    // A grey ramp of 256 values, as a stored-only PNG would hold it.
    let ramp: Vec<u8> = (0..=255).collect();
    let png = grey_png(256, 1, &ramp);
    let head = header(&png).unwrap();
    let mut out = vec![0f32; 256];
    Decoder::default().decode(&png, head, (1, 256, 1), Pixels::F32(&mut out)).unwrap();
    let found: Vec<u8> = out.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(found, wanted);
}

#[test]
fn floats_have_all_bits_of_deep_pngs() {
    let mut deep = 0;
    for (name, bytes) in images(".png") {
        let head = header(&bytes).unwrap();
        assert_eq!(head.deep, name.contains("16bit"), "{name}");
        for channels in if head.deep { vec![head.channels, 1, 3, 4] } else { vec![] } {
            let frame = (head.height, head.width, channels);
            let high = decode(&bytes, channels).1;
            let mut floats = vec![0f32; high.len()];
            Decoder::default().decode(&bytes, head, frame, Pixels::F32(&mut floats)).unwrap();
            let mut low = 0;
            for (value, high) in floats.iter().zip(high) {
                let sample = (f64::from(*value) * 65_535.0).round() as u16;
                assert_eq!(*value, f32::from(sample) * (1.0 / 65_535.0), "{name} channels={channels}");
                assert_eq!((sample >> 8) as u8, high, "{name} channels={channels}");
                low += usize::from(!sample.is_multiple_of(257));
            }
            assert!(low * 2 > floats.len(), "{name} channels={channels}: bytes in disguise");
            // One pixel of the average is a resize that can be checked by hand: TensorFlow takes the middle four.
            let mut one = vec![0f32; channels];
            Decoder::default().decode(&bytes, head, (1, 1, channels), Pixels::F32(&mut one)).unwrap();
            let at = |y: usize, x: usize, c: usize| floats[(y * head.width + x) * channels + c];
            let (y, x) = ((head.height - 1) / 2, (head.width - 1) / 2);
            let (y1, x1) = (head.height / 2, head.width / 2);
            for (c, value) in one.iter().enumerate() {
                let wanted = (at(y, x, c) + at(y, x1, c) + at(y1, x, c) + at(y1, x1, c)) / 4.0;
                assert!((value - wanted).abs() < 1e-6, "{name} channels={channels}");
            }
            deep += 1;
        }
    }
    assert_eq!(deep, 10 * 4);
}

#[test]
fn resizing_equals_tensorflow() {
    let wanted = data("resize.expected");
    let source: Vec<u8> = (0..5 * 7 * 3).map(|i| (i * 37 % 256) as u8).collect();
    let png = rgb_png(7, 5, &source);
    let head = header(&png).unwrap();
    let mut rest = &wanted[..];
    while let Some((size, tail)) = rest.split_first_chunk::<8>() {
        let side = |i: usize| u32::from_le_bytes(size[4 * i..4 * i + 4].try_into().unwrap()) as usize;
        let count = side(0) * side(1) * 3;
        let (floats, tail) = tail.split_at(4 * count);
        let (bytes, tail) = tail.split_at(count);
        rest = tail;
        let frame = (side(0), side(1), 3);
        let mut out = vec![0f32; count];
        Decoder::default().decode(&png, head, frame, Pixels::F32(&mut out)).unwrap();
        for (found, wanted) in out.iter().zip(floats.chunks_exact(4)) {
            let wanted = f32::from_le_bytes(wanted.try_into().unwrap());
            assert!((found - wanted).abs() <= 1e-6, "{frame:?}: {found} {wanted}");
        }
        let mut out = vec![0u8; count];
        Decoder::default().decode(&png, head, frame, Pixels::U8(&mut out)).unwrap();
        assert_eq!(out, bytes, "{frame:?}");
    }
}

fn chunk(out: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    let start = out.len();
    out.extend_from_slice(kind);
    out.extend_from_slice(data);
    let crc = libdeflater::crc32(&out[start..]);
    out.extend_from_slice(&crc.to_be_bytes());
}

/// A PNG of 8 bits with stored deflate blocks.
fn png(width: u32, height: u32, color: u8, samples: usize, pixels: &[u8]) -> Vec<u8> {
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend_from_slice(&[8, color, 0, 0, 0]);
    let mut raw = Vec::new();
    for row in pixels.chunks(width as usize * samples) {
        raw.push(0);
        raw.extend_from_slice(row);
    }
    let mut data = vec![0x78, 0x01];
    for (i, block) in raw.chunks(65_535).enumerate() {
        let last = (i + 1) * 65_535 >= raw.len();
        data.push(u8::from(last));
        data.extend_from_slice(&(block.len() as u16).to_le_bytes());
        data.extend_from_slice(&(!(block.len() as u16)).to_le_bytes());
        data.extend_from_slice(block);
    }
    data.extend_from_slice(&libdeflater::adler32(&raw).to_be_bytes());
    let mut out = shardkeep_image::png::SIGNATURE.to_vec();
    chunk(&mut out, b"IHDR", &header);
    chunk(&mut out, b"IDAT", &data);
    chunk(&mut out, b"IEND", &[]);
    out
}

fn grey_png(width: u32, height: u32, pixels: &[u8]) -> Vec<u8> {
    png(width, height, 0, 1, pixels)
}

fn rgb_png(width: u32, height: u32, pixels: &[u8]) -> Vec<u8> {
    png(width, height, 2, 3, pixels)
}

#[test]
fn damage_is_named() {
    let good = rgb_png(2, 2, &[9; 12]);
    let message = |bytes: &[u8]| {
        let head = match header(bytes) {
            Ok(head) => head,
            Err(error) => return error.0,
        };
        let mut out = vec![0; head.height * head.width * 3];
        let frame = (head.height, head.width, 3);
        Decoder::default().decode(bytes, head, frame, Pixels::U8(&mut out)).unwrap_err().0
    };
    let mut flipped = good.clone();
    flipped[45] ^= 1;
    assert!(message(&flipped).contains("IDAT chunk has CRC"), "{}", message(&flipped));
    assert!(message(&good[..good.len() - 12]).contains("cut off"));
    let mut bomb = good.clone();
    bomb[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    let crc = libdeflater::crc32(&bomb[12..29]);
    bomb[29..33].copy_from_slice(&crc.to_be_bytes());
    let out = header(&bomb).unwrap_err().0;
    assert!(out.contains("more than its 49 bytes can hold"), "{out}");
    let jpeg = data("baseline_420.jpg");
    assert!(message(&jpeg[..100]).contains("before its frame header"), "{}", message(&jpeg[..100]));
    for cut in [1, 2, 10, 100] {
        assert!(message(&jpeg[..jpeg.len() - cut]).contains("has no end marker"), "{cut} bytes are missing");
    }
}

/// The JPEG that `change` makes of a stored one is damaged, and the message says how.
#[track_caller]
fn jpeg_fails(name: &str, wanted: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = data(name);
    change(&mut bytes);
    let head = header(&bytes).unwrap();
    let mut out = vec![0; head.height * head.width * 3];
    let frame = (head.height, head.width, 3);
    let error = Decoder::default().decode(&bytes, head, frame, Pixels::U8(&mut out)).unwrap_err().0;
    assert!(error.contains(wanted), "{error}");
}

/// Where a marker is followed by `next`, with the place behind both.
fn behind(bytes: &[u8], marker: u8, next: &[u8]) -> usize {
    let wanted = [&[0xff, marker], next].concat();
    bytes.windows(wanted.len()).position(|window| window == wanted).unwrap() + wanted.len()
}

#[test]
fn jpeg_damage_is_named() {
    // Cut in the data, and an end marker put behind: libjpeg fills the rest with grey and warns.
    for cut in [2, 10, 100] {
        jpeg_fails("baseline_420.jpg", "its data end before its last row", |bytes| {
            bytes.truncate(bytes.len() - 2 - cut);
            bytes.extend_from_slice(&[0xff, 0xd9]);
        });
    }
    // A height that the data do not fill.
    jpeg_fails("baseline_444.jpg", "its data end before its last row", |bytes| {
        let at = behind(bytes, 0xc0, &[0, 17, 8]);
        bytes[at + 1] += 8;
    });
    jpeg_fails("restart_420.jpg", "a restart marker is missing or out of its order", |bytes| {
        let at = behind(bytes, 0xd0, &[]);
        bytes[at - 1] = 0xd3;
    });
    jpeg_fails("restart_420.jpg", "data before a restart marker that belong to no pixel", |bytes| {
        let at = behind(bytes, 0xd0, &[]);
        bytes.splice(at - 2..at - 2, [1, 2, 3]);
    });
    jpeg_fails("baseline_420.jpg", "more codes than there can be", |bytes| {
        let at = behind(bytes, 0xc4, &[]);
        bytes.swap(at + 3, at + 5);
    });
    jpeg_fails("baseline_420.jpg", "a quantisation table is missing", |bytes| {
        let at = behind(bytes, 0xc0, &[0, 17, 8]);
        bytes[at + 7] = 3;
    });
}

#[test]
fn a_jpeg_with_bytes_before_its_end_marker_is_whole() {
    // Some cameras and tools leave such; libjpeg warns of "extraneous bytes" and TensorFlow reads them.
    let bytes = data("baseline_420.jpg");
    let (_, wanted) = decode(&bytes, 3);
    let mut padded = bytes[..bytes.len() - 2].to_vec();
    padded.extend_from_slice(&[0; 100]);
    padded.extend_from_slice(&[0xff, 0xff, 0xd9]);
    assert_eq!(decode(&padded, 3).1, wanted);
}
