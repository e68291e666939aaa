//! The descriptor pool is one per process: its tests have a process of their own.
#![allow(clippy::unwrap_used, clippy::panic)]

mod scratch;

use std::sync::Mutex;

use scratch::Scratch;
use shardkeep_core::batch::engine::{Batch, Dataset, Shard, read_now};
use shardkeep_core::error::Kind;
use shardkeep_core::io::descriptor_pool::{VirtualFile, set_limit, usage};
use shardkeep_core::record::framing;

/// The pool is one per process, so the tests that set its limit take turns.
static TURN: Mutex<()> = Mutex::new(());

fn files(name: &str, count: usize) -> (Scratch, Vec<VirtualFile>) {
    let dir = Scratch::new(&format!("fdpool-{name}"));
    let files = (0..count)
        .map(|i| {
            let path = dir.join(i.to_string());
            std::fs::write(&path, format!("file {i:04}")).unwrap();
            VirtualFile::new(path)
        })
        .collect();
    (dir, files)
}

#[test]
fn many_files_are_read_by_several_threads_over_two_descriptors() {
    let _turn = TURN.lock().unwrap();
    let (_dir, files) = files("many", 50);
    set_limit(2);
    std::thread::scope(|scope| {
        for t in 0..4 {
            let files = &files;
            scope.spawn(move || {
                for round in 0..200 {
                    let i = (round * 7 + t * 13) % files.len();
                    let mut buf = [0; 9];
                    assert_eq!(files[i].read_at(&mut buf, 0).unwrap(), 9);
                    assert_eq!(buf, *format!("file {i:04}").as_bytes());
                    assert!(usage().open <= 2);
                }
            });
        }
    });
    assert!(usage().evicted > 0);
    drop(files);
    set_limit(1000);
}

#[test]
fn a_replaced_file_is_noticed_when_it_is_opened_again() {
    let _turn = TURN.lock().unwrap();
    let (dir, files) = files("replaced", 2);
    let mut buf = [0; 4];
    set_limit(1);
    files[0].read_at(&mut buf, 0).unwrap();
    // A hard link keeps the old inode alive, so that its number cannot be given out again.
    std::fs::hard_link(dir.join("0"), dir.join("old")).unwrap();
    std::fs::remove_file(dir.join("0")).unwrap();
    std::fs::write(dir.join("0"), "new").unwrap();
    files[1].read_at(&mut buf, 0).unwrap(); // the only descriptor goes to the other file
    let error = files[0].read_at(&mut buf, 0).unwrap_err();
    assert_eq!(error.kind, Kind::Changed, "{error}");
    drop(files);
    set_limit(1000);
}

#[test]
fn a_dropped_file_gives_its_descriptor_back() {
    let _turn = TURN.lock().unwrap();
    let (_dir, files) = files("dropped", 3);
    let before = usage().open;
    for file in &files {
        file.size().unwrap();
    }
    assert_eq!(usage().open, before + 3);
    drop(files);
    assert_eq!(usage().open, before);
}

#[test]
fn a_missing_file_and_a_folder_are_named() {
    let _turn = TURN.lock().unwrap();
    assert_eq!(VirtualFile::new("/nowhere/at/all").lease().unwrap_err().kind, Kind::NotFound);
    assert_eq!(VirtualFile::new("/tmp").lease().unwrap_err().kind, Kind::Format);
    assert_eq!(VirtualFile::new("/dev/zero").lease().unwrap_err().kind, Kind::Format);
}

/// Shards of records of `bytes` bytes; byte 0 is the shard, byte 1 the record.
fn shards(dir: &Scratch, shards: usize, records: usize, bytes: usize) -> Dataset {
    let shard = |shard: usize| {
        let (mut content, mut starts) = (Vec::new(), vec![0]);
        for record in 0..records {
            let mut payload = vec![0; bytes];
            payload[..2].copy_from_slice(&[shard as u8, record as u8]);
            framing::push(&mut content, &payload);
            starts.push(content.len() as u64);
        }
        let path = dir.join(shard.to_string());
        std::fs::write(&path, content).unwrap();
        Shard::new(VirtualFile::new(path), &starts).unwrap()
    };
    Dataset::new((0..shards).map(shard).collect())
}

/// Read all records, each shard in turn, and return the number of files that were opened for it.
fn opened_by_shuffle(data: &Dataset, shards: u64, records: u64) -> u64 {
    let before = usage().opened;
    for record in 0..records {
        for shard in 0..shards {
            let Batch::Records { values, .. } = read_now(data, &[shard * records + record], true).unwrap()
            else {
                panic!("columns")
            };
            assert_eq!(values[..2], [shard as u8, record as u8]);
        }
    }
    usage().opened - before
}

#[test]
fn small_shards_are_read_whole_when_they_are_opened_again() {
    let _turn = TURN.lock().unwrap();
    set_limit(2);
    for (name, bytes, opened) in [("small", 100, 2 * 50), ("large", 9000, 8 * 50)] {
        let dir = Scratch::new(&format!("fdpool-whole-{name}"));
        assert_eq!(opened_by_shuffle(&shards(&dir, 50, 8, bytes), 50, 8), opened, "{name}");
    }
    set_limit(1000);
    let dir = Scratch::new("fdpool-whole-open");
    let data = shards(&dir, 50, 8, 100);
    assert_eq!(opened_by_shuffle(&data, 50, 8), 50);
}

#[test]
fn a_kept_shard_that_was_cut_has_its_records_up_to_the_cut() {
    let _turn = TURN.lock().unwrap();
    set_limit(1);
    let dir = Scratch::new("fdpool-whole-cut");
    let data = shards(&dir, 2, 8, 100);
    for shard in [0, 8] {
        read_now(&data, &[shard], true).unwrap();
    }
    let file = std::fs::File::options().write(true).open(dir.join("0")).unwrap();
    file.set_len(4 * 116 + 20).unwrap();
    assert!(read_now(&data, &[3], true).is_ok());
    for record in [4, 5] {
        let error = read_now(&data, &[record], true).unwrap_err();
        assert_eq!(
            (error.kind, error.record, error.offset_bytes),
            (Kind::Truncated, Some(record), Some(record * 116))
        );
    }
    set_limit(1000);
}
