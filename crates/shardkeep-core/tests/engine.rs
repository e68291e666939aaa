//! The batch engine over real files: order, errors, more threads than work, and an end in mid-work.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::time::Duration;

use shardkeep_core::batch::columns::{Column, DType, Feature, Kind, Schema};
use shardkeep_core::batch::engine::{Batch, Dataset, Engine, Shard, read_now};
use shardkeep_core::error::Kind as ErrorKind;
use shardkeep_core::example::{FeatureValue, encode};
use shardkeep_core::io::descriptor_pool::VirtualFile;
use shardkeep_core::record::{framing, scan};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shardkeep-engine-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Shards whose records are Examples {"x": global number, "v": that many mod 4 values}.
    fn dataset(&self, counts: &[usize]) -> Dataset {
        let mut number = 0_i64;
        let shards = counts.iter().enumerate().map(|(i, count)| {
            let mut bytes = Vec::new();
            for _ in 0..*count {
                let v = vec![number; (number % 4) as usize];
                let record = encode(&[("v", FeatureValue::Int64(&v)), ("x", FeatureValue::Int64(&[number]))]);
                framing::push(&mut bytes, &record);
                number += 1;
            }
            let path = self.0.join(i.to_string());
            std::fs::write(&path, bytes).unwrap();
            let file = VirtualFile::new(path);
            let starts = scan::frame_starts(&file, true).unwrap();
            Shard::new(file, &starts).unwrap()
        });
        Dataset::new(shards.collect())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn schema() -> Schema {
    let x = Kind::Fixed { dtype: DType::Int64, shape: vec![], default: None };
    let v = Kind::Var { dtype: DType::Int64 };
    Schema::new(vec![Feature { name: "x".into(), kind: x }, Feature { name: "v".into(), kind: v }]).unwrap()
}

fn take(engine: &mut Engine) -> Batch {
    engine.take(Duration::from_secs(20)).unwrap().unwrap()
}

fn numbers(batch: &Batch) -> Vec<i64> {
    let Batch::Columns(columns) = batch else { panic!("raw") };
    let [(_, Column::FixedI64 { data, .. }), (_, Column::VarI64 { values, offsets })] = columns.as_slice()
    else {
        panic!("{columns:?}")
    };
    for (row, x) in data.iter().enumerate() {
        let [from, to] = [offsets[row] as usize, offsets[row + 1] as usize];
        assert!(values[from..to].iter().all(|v| v == x), "the values of a row are its own");
    }
    data.to_vec()
}

#[test]
fn batches_that_are_parts_of_one_result_fill_it_in_order() {
    let folder = Folder::new("gather");
    for threads in [1, 3] {
        let data = folder.dataset(&[100, 0, 1, 399]);
        let mut engine = Engine::gathering(data, schema(), threads, true).unwrap();
        for first in (0..500).step_by(70) {
            let records: Vec<u64> = (first..500.min(first + 70)).collect();
            engine.submit(&records, records.len()).unwrap();
        }
        assert_eq!(engine.gathered().unwrap_err().kind, ErrorKind::Internal, "batches are pending");
        for first in (0..500_i64).step_by(70) {
            let Batch::Columns(columns) = take(&mut engine) else { panic!("raw") };
            let [(name, Column::VarI64 { values, .. })] = columns.as_slice() else { panic!("{columns:?}") };
            let wanted: Vec<i64> =
                (first..500.min(first + 70)).flat_map(|n| vec![n; n as usize % 4]).collect();
            assert_eq!((name.as_str(), values), ("v", &wanted));
        }
        let beyond = engine.submit(&[0], 1).unwrap_err();
        assert_eq!(beyond.kind, ErrorKind::Internal, "all rows are given out");
        let wanted = Column::FixedI64 { data: (0..500).collect::<Vec<_>>().into(), shape: vec![500] };
        assert_eq!(engine.gathered().unwrap(), [("x".to_string(), wanted)]);
        assert_eq!(engine.submit(&[0], 1).unwrap_err().kind, ErrorKind::Internal, "it is over");
        assert_eq!(engine.gathered().unwrap(), []);
    }
}

#[test]
fn rows_and_batches_keep_their_order_whatever_the_threads() {
    let folder = Folder::new("order");
    for threads in [1, 2, 8] {
        let data = folder.dataset(&[100, 0, 1, 399]);
        let mut engine = Engine::new(data, Some(schema()), threads, true);
        let wanted: Vec<Vec<u64>> =
            (0..40).map(|b: u64| (0..(b % 7) * 20).map(|i| (b * 31 + i * 17) % 500).collect()).collect();
        for batch in &wanted {
            engine.submit(batch, batch.len() + 3).unwrap();
        }
        assert_eq!(engine.pending(), 40);
        for batch in &wanted {
            let mut rows: Vec<i64> = batch.iter().map(|n| *n as i64).collect();
            rows.extend([0, 0, 0]);
            assert_eq!(numbers(&take(&mut engine)), rows);
        }
        assert!(engine.take(Duration::ZERO).unwrap().is_none());
    }
}

#[test]
fn raw_records_are_the_payloads() {
    let folder = Folder::new("raw");
    let data = folder.dataset(&[5, 5]);
    let Batch::Records { values, offsets } = read_now(&data, &[9, 0, 9], true).unwrap() else { panic!() };
    assert_eq!(offsets.len(), 4);
    let row = |i: usize| &values[offsets[i] as usize..offsets[i + 1] as usize];
    assert_eq!(row(0), row(2));
    assert_eq!(row(1), encode(&[("v", FeatureValue::Int64(&[])), ("x", FeatureValue::Int64(&[0]))]));
    let mut engine = Engine::new(data, None, 2, true);
    engine.submit(&[9, 0, 9], 5).unwrap();
    let Batch::Records { values: again, offsets: padded } = take(&mut engine) else { panic!() };
    assert_eq!(again[..], values[..]);
    assert_eq!(padded, [offsets.as_slice(), &[offsets[3]; 2]].concat());
}

#[test]
fn the_error_of_the_lowest_row_is_reported_and_later_batches_still_come() {
    let folder = Folder::new("error");
    let data = folder.dataset(&[200]);
    let path = folder.0.join("0");
    let mut bytes = std::fs::read(&path).unwrap();
    let starts = scan::frame_starts(&VirtualFile::new(&path), true).unwrap();
    for record in [30, 170] {
        bytes[starts[record] as usize + 13] ^= 1;
    }
    std::fs::write(&path, bytes).unwrap();
    for threads in [1, 8] {
        let mut engine = Engine::new(folder_dataset_again(&path, &starts), Some(schema()), threads, true);
        engine.submit(&(0..200).collect::<Vec<u64>>(), 200).unwrap();
        engine.submit(&[5, 6], 2).unwrap();
        let error = engine.take(Duration::from_secs(20)).unwrap_err();
        assert_eq!((error.kind, error.record), (ErrorKind::Corrupt, Some(30)));
        assert_eq!((error.offset_bytes, error.path.as_deref()), (Some(starts[30]), Some(path.as_path())));
        assert_eq!(numbers(&take(&mut engine)), [5, 6]);
    }
    drop(data);
}

fn folder_dataset_again(path: &PathBuf, starts: &[u64]) -> Dataset {
    Dataset::new(vec![Shard::new(VirtualFile::new(path), starts).unwrap()])
}

#[test]
fn a_record_that_is_not_there_is_refused_before_anything_starts() {
    let folder = Folder::new("beyond");
    let mut engine = Engine::new(folder.dataset(&[3]), None, 1, true);
    assert!(engine.submit(&[3], 1).is_err());
    assert!(engine.submit(&[0, 1], 1).is_err());
    assert_eq!(engine.pending(), 0);
}

#[test]
fn dropped_in_mid_work_it_ends_its_threads() {
    let folder = Folder::new("dropped");
    for _ in 0..50 {
        let mut engine = Engine::new(folder.dataset(&[300]), Some(schema()), 4, true);
        for _ in 0..20 {
            engine.submit(&(0..300).collect::<Vec<u64>>(), 300).unwrap();
        }
        drop(engine);
    }
}
