//! Files of records, mutated: the part of the fuzzing (see CONTRIBUTING.md) that needs no fuzzer and runs every time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod records;
#[path = "../scratch/mod.rs"]
mod scratch;

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use scratch::Scratch;
use shardkeep_core::record::framing;

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
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            let end = (at + self.below(40)).min(bytes.len());
            match self.below(8) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.below(256) as u8),
                2 => drop(bytes.drain(at..end)),
                3 => bytes.get_mut(at..end).unwrap_or_default().fill(0),
                4 => {
                    let piece = bytes.get(at..end).unwrap_or_default().to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
                5 => bytes
                    .splice(
                        at..at,
                        framing::header((1_u64 << self.below(64)).wrapping_sub(self.below(20) as u64)),
                    )
                    .for_each(drop),
                6 => framing::push(bytes, &[7; 9]),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << self.below(8)),
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut plain = Vec::new();
    for length in [3, 0, 200, 17, 1, 0, 64] {
        framing::push(&mut plain, &vec![length as u8; length]);
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&plain).unwrap();
    let gzip = gzip.finish().unwrap();
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::none());
    zlib.write_all(&plain).unwrap();
    let zlib = zlib.finish().unwrap();
    let mut zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
    zstd.extend_from_slice(&((plain.len() as u32) << 3 | 1).to_le_bytes()[..3]);
    zstd.extend_from_slice(&plain);
    vec![plain, [gzip.clone(), gzip.clone()].concat(), gzip, zlib, zstd]
}

#[test]
fn mutated_files_of_records() {
    let mut random = Random(4);
    let folder = Scratch::new("mutations");
    let path = folder.join("x");
    let (mut whole, mut broken) = (0, 0);
    for seed in seeds() {
        assert!(records::check(&seed, &path), "a seed is whole");
        for _ in 0..1_000 {
            let mut bytes = seed.clone();
            random.mutate(&mut bytes);
            if records::check(&bytes, &path) { whole += 1 } else { broken += 1 }
        }
    }
    assert!(whole > 50 && broken > 3_000, "{whole} whole, {broken} broken");
}
