//! The inflater against zlib: what it deflates at any level comes back, whole or as far as there is room.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use shardkeep_image::inflate::Inflater;

fn deflate(bytes: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Bytes that repeat with `period`, with a stray byte now and then.
fn pattern(length: usize, period: usize, stray: u32) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let base: Vec<u8> = (0..period).map(|_| next() as u8).collect();
    (0..length).map(|i| if next() % stray == 0 { next() as u8 } else { base[i % period] }).collect()
}

#[test]
fn gives_back_what_zlib_deflates() {
    let mut inflater = Inflater::default();
    for level in [0, 1, 6, 9] {
        for period in [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 100, 9_000] {
            for (length, stray) in [(1, 9), (7, 9), (300, 50), (3_000, 20), (70_000, 400), (5_000, 2)] {
                let bytes = pattern(length, period, stray);
                let data = deflate(&bytes, level);
                let mut out = vec![0; length];
                assert_eq!(
                    inflater.zlib(&data, &mut out),
                    Ok(()),
                    "level {level}, period {period}, {length} bytes"
                );
                assert!(out == bytes, "level {level}, period {period}, {length} bytes");
                let room = length * 2 / 3;
                let mut out = vec![0; room];
                assert_eq!(inflater.zlib(&data, &mut out), Ok(()));
                assert!(out == bytes[..room], "{room} of {length} bytes, level {level}, period {period}");
                let mut out = vec![0; length + 1];
                assert_eq!(inflater.zlib(&data, &mut out), Err("it ends early"));
                let mut out = vec![0; length];
                assert!(
                    inflater.zlib(&data[..data.len().saturating_sub(6)], &mut out).is_err() || data.len() < 9
                );
            }
        }
    }
}

/// Noise over few values, the small ones more often: nearly all literals of a few bits, which are decoded in pairs.
#[test]
fn gives_back_noise_of_few_values() {
    let mut inflater = Inflater::default();
    for values in [2u32, 3, 9, 14, 40, 200] {
        for length in [1_000, 1_024, 1_025, 3_104, 70_000] {
            let bytes: Vec<u8> = pattern(2 * length, 2 * length, u32::MAX)
                .chunks(2)
                .map(|two| (u32::from(two[0]) * u32::from(two[1]) * values / 65_536) as u8)
                .collect();
            let data = deflate(&bytes, 6);
            for room in [length, length - 1, length - 9, length * 2 / 3, 1] {
                let mut out = vec![0; room];
                assert_eq!(inflater.zlib(&data, &mut out), Ok(()), "{values} values, {room} of {length}");
                assert!(out == bytes[..room], "{values} values, {room} of {length} bytes");
            }
            for cut in 1..40 {
                let mut out = vec![0; length];
                assert!(
                    inflater.zlib(&data[..data.len() - cut], &mut out).is_err(),
                    "{values}, {length}, {cut}"
                );
            }
        }
    }
}

#[test]
fn refuses_another_adler32() {
    let mut inflater = Inflater::default();
    for length in [1, 300, 3_000, 70_000] {
        for (period, stray) in [(1, u32::MAX), (7, 20), (9_000, 2)] {
            let bytes = pattern(length, period, stray);
            let good = deflate(&bytes, 6);
            for back in 1..=4 {
                for room in [length, length - 1, length / 2] {
                    let mut data = good.clone();
                    let at = data.len() - back;
                    data[at] ^= 1;
                    let found = inflater.zlib(&data, &mut vec![0; room]);
                    let expected = Err("its Adler-32 is not that of its data");
                    assert_eq!(found, expected, "{room} of {length}, period {period}, byte -{back}");
                }
            }
        }
    }
}

#[test]
fn blocks_after_the_data_may_be_empty() {
    // Z_SYNC_FLUSH and Z_FULL_FLUSH write an empty block, and the end is one more.
    let bytes = pattern(5_000, 9, 20);
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(&bytes).unwrap();
    encoder.flush().unwrap();
    encoder.flush().unwrap();
    let data = encoder.finish().unwrap();
    let mut out = vec![0; bytes.len()];
    assert_eq!(Inflater::default().zlib(&data, &mut out), Ok(()));
    assert!(out == bytes);
}

#[test]
fn refuses_codes_that_zlib_refuses() {
    let mut inflater = Inflater::default();
    let mut try_bits = |bits: &str| {
        let mut data = vec![0x78, 0x01];
        let bits: Vec<u8> = bits.bytes().filter(|bit| *bit != b' ').map(|bit| bit - b'0').collect();
        data.extend(bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |all, bit| all << 1 | bit)));
        data.extend_from_slice(&[0; 16]);
        inflater.zlib(&data, &mut [0; 64]).unwrap_err()
    };
    // Bits in the order of the stream: last block, its type, ...
    assert!(try_bits("1 11").contains("does not exist"));
    assert!(try_bits("1 01 11111 00000 0000").contains("more codes than exist"));
    // Four code lengths of one bit each: too many; one of two bits: too few.
    assert!(try_bits("1 01 00000 00000 0000 100 100 100 100").contains("more symbols than room"));
    assert!(try_bits("1 01 00000 00000 0000 010 000 000 000").contains("incomplete"));
    // A fixed block that starts with a copy (length 3, distance 1) of what is not there.
    assert!(try_bits("1 10 0000001 00000").contains("looks back"));
    assert_eq!(inflater.zlib(&[0x79, 0x01, 3, 0], &mut [0]), Err("it is not a zlib stream"));
}
