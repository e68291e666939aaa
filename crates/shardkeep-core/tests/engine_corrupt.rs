//! Damaged records in batches: skipped, repaired, or an error, whatever the threads.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::time::Duration;

use shardkeep_core::batch::columns::{Column, DType, Feature, Kind, Schema};
use shardkeep_core::batch::engine::{Batch, Dataset, Engine, Fault, OnCorrupt, Shard};
use shardkeep_core::error::{Error, Kind as ErrorKind};
use shardkeep_core::example::{FeatureValue, encode};
use shardkeep_core::io::descriptor_pool::VirtualFile;
use shardkeep_core::record::framing;

const RECORDS: usize = 300;

struct Shards {
    folder: PathBuf,
    bytes: Vec<u8>,
    starts: Vec<u64>,
}

impl Shards {
    /// One shard of Examples {"x": number, "v": number mod 4 values}.
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("shardkeep-corrupt-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (mut bytes, mut starts) = (Vec::new(), vec![0]);
        for number in 0..RECORDS as i64 {
            let v = vec![number; (number % 4) as usize];
            let record = encode(&[("v", FeatureValue::Int64(&v)), ("x", FeatureValue::Int64(&[number]))]);
            framing::push(&mut bytes, &record);
            starts.push(bytes.len() as u64);
        }
        Self { folder, bytes, starts }
    }

    fn flip(&mut self, record: usize, byte: i64) {
        let at = if byte < 0 { self.starts[record + 1] } else { self.starts[record] };
        self.bytes[at.checked_add_signed(byte).unwrap() as usize] ^= 0x10;
    }

    fn read(
        &self,
        columns: bool,
        threads: usize,
        mode: OnCorrupt,
        holes: &[u64],
    ) -> Result<(Batch, Vec<Fault>), Error> {
        let path = self.folder.join("x");
        std::fs::write(&path, &self.bytes).unwrap();
        let shard = Shard::new(VirtualFile::new(path), &self.starts)?;
        let data = Dataset::with_holes(vec![shard], holes.to_vec());
        let mut engine = Engine::new(data, columns.then(schema), threads, true);
        engine.set_on_corrupt(mode);
        let rows = self.starts.len() - 1;
        engine.submit(&(0..rows as u64).rev().collect::<Vec<_>>(), rows + 2).unwrap();
        let batch = engine.take(Duration::from_secs(20))?.unwrap();
        Ok((batch, engine.faults().to_vec()))
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn schema() -> Schema {
    let x = Kind::Fixed { dtype: DType::Int64, shape: vec![], default: None };
    let v = Kind::Var { dtype: DType::Int64 };
    Schema::new(vec![Feature { name: "x".into(), kind: x }, Feature { name: "v".into(), kind: v }]).unwrap()
}

/// Whether the batch holds the records from the last to the first, but for some, which are empty.
fn assert_whole_without(batch: &Batch, shards: &Shards, empty: &[usize]) {
    match batch {
        Batch::Records { values, offsets } => {
            assert_eq!(offsets.len(), RECORDS + 3);
            for (row, record) in (0..RECORDS).rev().enumerate() {
                let got = &values[offsets[row] as usize..offsets[row + 1] as usize];
                let [from, to] = [shards.starts[record], shards.starts[record + 1]].map(|at| at as usize);
                let want: &[u8] =
                    if empty.contains(&record) { &[] } else { &shards.bytes[from + 12..to - 4] };
                assert_eq!(got, want, "record {record}");
            }
            assert_eq!(values.len() as i64, offsets[RECORDS]);
        }
        Batch::Columns(columns) => {
            let [(_, Column::FixedI64 { data, .. }), (_, Column::VarI64 { offsets, .. })] =
                columns.as_slice()
            else {
                panic!("{columns:?}")
            };
            for (row, record) in (0..RECORDS).rev().enumerate() {
                let number = if empty.contains(&record) { 0 } else { record as i64 };
                assert_eq!(data[row], number);
                assert_eq!(offsets[row + 1] - offsets[row], number % 4);
            }
        }
    }
}

fn records_of(faults: &[Fault]) -> Vec<usize> {
    faults.iter().map(|fault| RECORDS - 1 - fault.row).collect()
}

/// As [`Shards::read`] of every kind and number of threads.
fn each(shards: &Shards, mode: OnCorrupt, holes: &[u64], check: impl Fn(Result<(Batch, Vec<Fault>), Error>)) {
    for columns in [false, true] {
        for threads in [1, 8] {
            check(shards.read(columns, threads, mode, holes));
        }
    }
}

#[test]
fn skipped_rows_are_empty_and_named() {
    let good = Shards::new("skip");
    let mut shards = Shards::new("skip");
    // A payload, its checksum, a length, its checksum; the first and the last; neighbours.
    for (record, byte) in [(0, 14), (7, -2), (50, 3), (51, 10), (52, 14), (299, 14)] {
        shards.flip(record, byte);
    }
    each(&shards, OnCorrupt::Skip, &[], |found| {
        let (batch, faults) = found.unwrap();
        assert_whole_without(&batch, &good, &[0, 7, 50, 51, 52, 299]);
        assert_eq!(records_of(&faults), [299, 52, 51, 50, 7, 0]);
        for fault in &faults {
            let record = RECORDS - 1 - fault.row;
            assert_eq!((fault.start, fault.end), (good.starts[record], good.starts[record + 1]));
            assert!(!fault.repaired && fault.what.contains("damaged"), "{fault:?}");
        }
    });
    each(&shards, OnCorrupt::Raise, &[], |found| {
        let error = found.unwrap_err();
        assert_eq!((error.kind, error.record), (ErrorKind::Corrupt, Some(299)));
    });
}

#[test]
fn single_flips_are_put_right_wherever_they_are() {
    let good = Shards::new("repair");
    let mut shards = Shards::new("repair");
    for (record, byte) in [(0, 14), (7, -2), (50, 3), (51, 10), (52, 14), (299, 14)] {
        shards.flip(record, byte);
    }
    // One in the length and one in the payload; and a header of which nothing is left, but its place is known.
    shards.flip(100, 0);
    shards.flip(100, 15);
    for byte in 0..12 {
        shards.flip(120, byte);
    }
    each(&shards, OnCorrupt::Repair, &[], |found| {
        let (batch, faults) = found.unwrap();
        assert_whole_without(&batch, &good, &[]);
        assert_eq!(records_of(&faults), [299, 120, 100, 52, 51, 50, 7, 0]);
        assert!(faults.iter().all(|fault| fault.repaired));
        let what: Vec<&str> = faults.iter().map(|fault| fault.what.as_str()).collect();
        assert_eq!(what[7], "bit 4 of byte 2 of the payload was flipped");
        assert_eq!(what[6], "bit 4 of byte 2 of the checksum of the payload was flipped");
        assert_eq!(what[5], "bit 4 of byte 3 of the length was flipped");
        assert_eq!(what[4], "bit 4 of byte 2 of the checksum of the length was flipped");
        assert_eq!(what[1], "the header was made again from the length that the index has");
        assert!(what[2].contains("of the length was flipped; bit 4 of byte 3 of the payload"));
    });
}

#[test]
fn what_is_more_than_a_flip_is_not_repaired() {
    for damage in [&[14, 15][..], &[0, 1, 14], &[-2, 14]] {
        let mut shards = Shards::new("more");
        for byte in damage {
            shards.flip(33, *byte);
        }
        each(&shards, OnCorrupt::Repair, &[], |found| {
            let error = found.unwrap_err();
            assert_eq!((error.kind, error.record), (ErrorKind::Corrupt, Some(33)));
            assert!(error.message.contains("more than a single flipped bit"), "{error}");
        });
    }
}

#[test]
fn a_record_that_is_no_example_is_skipped_and_one_of_another_schema_is_an_error() {
    let mut shards = Shards::new("parse");
    shards.bytes.truncate(shards.starts[298] as usize);
    shards.starts.truncate(299);
    framing::push(&mut shards.bytes, b"\xff\xff\xff");
    shards.starts.push(shards.bytes.len() as u64);
    framing::push(&mut shards.bytes, &encode(&[("v", FeatureValue::Int64(&[299]))]));
    shards.starts.push(shards.bytes.len() as u64);
    for threads in [1, 8] {
        let error = shards.read(true, threads, OnCorrupt::Skip, &[]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Schema, "x is missing");
    }
    shards.starts.pop();
    for threads in [1, 8] {
        let (batch, faults) = shards.read(true, threads, OnCorrupt::Skip, &[]).unwrap();
        let Batch::Columns(columns) = batch else { panic!() };
        let (_, Column::FixedI64 { data, .. }) = &columns[0] else { panic!() };
        assert_eq!((data[0], data[1], data[298]), (0, 297, 0));
        assert_eq!((faults.len(), faults[0].row), (1, 0));
        assert!(faults[0].what.contains("not a tf.train.Example"));
    }
}

#[test]
fn holes_are_not_read() {
    let mut shards = Shards::new("holes");
    let good = Shards::new("holes");
    // Also one of three bytes, and one whose first bytes look like the header of another record.
    shards.starts.splice(100..=100, [shards.starts[100] - 3]);
    each(&shards, OnCorrupt::Skip, &[99, 100, 200], |found| {
        let (batch, faults) = found.unwrap();
        assert_whole_without(&batch, &good, &[99, 100, 200]);
        assert_eq!(records_of(&faults), [200, 100, 99]);
        assert!(faults[0].what.contains("without a recognisable record"));
    });
    for mode in [OnCorrupt::Raise, OnCorrupt::Repair] {
        each(&shards, mode, &[200], |found| {
            let error = found.unwrap_err();
            assert_eq!((error.kind, error.record), (ErrorKind::Corrupt, Some(200)));
        });
    }
}

#[test]
fn a_file_that_is_written_to_is_not_skipped_over() {
    let shards = Shards::new("written");
    let path = shards.folder.join("x");
    std::fs::write(&path, &shards.bytes).unwrap();
    let shard = Shard::new(VirtualFile::new(&path), &shards.starts).unwrap();
    let mut engine = Engine::new(Dataset::new(vec![shard]), None, 1, true);
    engine.set_on_corrupt(OnCorrupt::Skip);
    engine.submit(&[0], 1).unwrap();
    engine.take(Duration::from_secs(20)).unwrap().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let zeros = vec![0; shards.bytes.len()];
    std::fs::write(&path, zeros).unwrap();
    engine.submit(&[1], 1).unwrap();
    let error = engine.take(Duration::from_secs(20)).unwrap_err();
    assert_eq!((error.kind, error.record), (ErrorKind::Changed, Some(1)));
    assert!(error.message.contains("was written to (2"), "{error}");
    assert!(engine.faults().is_empty());
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    engine.submit(&[1], 1).unwrap();
    let error = engine.take(Duration::from_secs(20)).unwrap_err();
    assert_eq!((error.kind, error.record), (ErrorKind::Truncated, Some(1)));
    assert!(error.message.contains("(written 2"), "{error}");
}
