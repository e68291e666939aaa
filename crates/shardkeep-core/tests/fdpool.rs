//! The descriptor pool is one per process: its tests have a process of their own.
#![allow(clippy::unwrap_used)]

mod scratch;

use std::sync::Mutex;

use scratch::Scratch;
use shardkeep_core::error::Kind;
use shardkeep_core::io::descriptor_pool::{VirtualFile, set_limit, usage};

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
