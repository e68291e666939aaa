//! Files that become stale, shrink, or are deleted while they are read.

use super::*;
use crate::scratch::Scratch;
use syscalls::faults::{Fault, Of};

/// Create a file in a new folder.
fn file(name: &str, content: &[u8]) -> (Scratch, VirtualFile) {
    let folder = Scratch::new(&format!("stale-{name}"));
    let path = folder.join("x");
    std::fs::write(&path, content).unwrap();
    (folder, VirtualFile::new(path))
}

fn read(file: &VirtualFile) -> Result<Vec<u8>> {
    let mut buf = [0; 5];
    let n = file.read_at(&mut buf, 0)?;
    Ok(buf[..n].to_vec())
}

fn is_open(fd: RawFd) -> bool {
    syscalls::status(fd).is_ok()
}

#[test]
fn a_stale_file_is_opened_again_while_other_threads_have_it_pinned() {
    let (_folder, file) = file("pinned", b"whole");
    let pinned: Vec<Lease<'_>> = (0..3).map(|_| file.lease().unwrap()).collect();
    let stale = pinned[0].fd;
    let fault = Fault::new(Of::Descriptor(stale), libc::ESTALE);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    assert_eq!(read(&file).unwrap(), b"whole");
                }
            });
        }
    });
    assert_ne!(file.lease().unwrap().fd, stale);
    for lease in pinned {
        assert!(is_open(stale), "the last lease closes it");
        drop(lease);
    }
    // The number is not checked any more, since another test may have it.
    assert!(POOL.usage().open >= 1);
    drop(fault);
}

#[test]
fn a_file_that_is_stale_twice_is_an_error() {
    let (_folder, file) = file("twice", b"whole");
    let inode = syscalls::status(file.lease().unwrap().fd).unwrap().st_ino;
    let opened = POOL.usage().opened;
    let fault = Fault::new(Of::Inode(inode), libc::ESTALE);
    let error = read(&file).unwrap_err();
    assert_eq!((error.kind, error.errno, error.offset_bytes), (Kind::Os, Some(libc::ESTALE), Some(0)));
    assert!(error.to_string().contains("after the path was opened again"), "{error}");
    assert!(POOL.usage().opened > opened);
    drop(fault);
    assert_eq!(read(&file).unwrap(), b"whole", "a later read succeeds");
}

#[test]
fn a_replaced_stale_file_is_an_error_with_the_time() {
    let (folder, file) = file("replaced", b"whole");
    let lease = file.lease().unwrap();
    std::fs::write(folder.join("new"), "other").unwrap();
    std::fs::rename(folder.join("new"), folder.join("x")).unwrap();
    assert_eq!(read(&file).unwrap(), b"whole", "an open file is still read");
    let _fault = Fault::new(Of::Descriptor(lease.fd), libc::ESTALE);
    let error = read(&file).unwrap_err();
    assert_eq!(error.kind, Kind::Changed);
    assert!(error.to_string().contains("replaced by another one, last written 2"), "{error}");
    drop(lease);
}

#[test]
fn a_deleted_stale_file_is_an_error_with_the_time() {
    let (folder, file) = file("deleted", b"whole");
    let lease = file.lease().unwrap();
    std::fs::remove_file(folder.join("x")).unwrap();
    let _fault = Fault::new(Of::Descriptor(lease.fd), libc::ESTALE);
    let error = read(&file).unwrap_err();
    assert_eq!(error.kind, Kind::NotFound);
    assert!(error.to_string().contains("gone now (2"), "{error}");
    drop(lease);
}

#[test]
fn a_file_that_is_too_short_is_opened_again_once() {
    let (folder, file) = file("short", b"whole");
    let mut buf = [0; 8];
    let opened = POOL.usage().opened;
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 5);
    assert_eq!(file.read_whole_at(&mut [IoSliceMut::new(&mut buf)], 0).unwrap(), 5);
    assert!(POOL.usage().opened >= opened + 2);
    // The file is longer when it is read again: the bytes that were read stay, and the rest follows.
    let lease = file.lease().unwrap();
    let mut bufs = [IoSliceMut::new(&mut buf)];
    let (mut rest, mut done) = (bufs.as_mut_slice(), 0);
    lease.fill(&mut rest, 0, &mut done).unwrap();
    std::fs::write(folder.join("x"), "whole now").unwrap();
    lease.fill(&mut rest, 0, &mut done).unwrap();
    assert_eq!((done, &buf), (8, b"whole no"));
    drop(lease);
    assert!(file.written_since_opened().is_some());
}

#[test]
fn other_errors_are_not_retried() {
    let (_folder, file) = file("io", b"whole");
    let lease = file.lease().unwrap();
    let _fault = Fault::new(Of::Descriptor(lease.fd), libc::EIO);
    let error = read(&file).unwrap_err();
    assert_eq!((error.kind, error.errno, error.offset_bytes), (Kind::Os, Some(libc::EIO), Some(0)));
    assert_eq!(file.lease().unwrap().fd, lease.fd);
    drop(lease);
}

#[test]
fn a_transient_file_is_counted_and_closed_after_use() {
    let (folder, file) = file("transient", b"whole");
    let transient = TransientFile::open(file.path()).unwrap();
    transient.lock_shared().unwrap();
    let fd = transient.fd();
    assert!(POOL.usage().open > 0);
    let mut buf = [0; 3];
    transient.read_exact_at(&mut buf, 2).unwrap();
    assert_eq!(&buf, b"ole");
    assert_eq!(transient.read_exact_at(&mut buf, 3).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    // SAFETY: the child calls only functions that are safe after a fork.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from(libc::fcntl(fd, libc::F_GETFD) >= 0));
        }
        let mut status = -1;
        libc::waitpid(child, &raw mut status, 0);
        assert_eq!(status, 0, "the child must not have the descriptor and its lock");
    }
    drop(transient);
    let writer = std::fs::File::options().write(true).open(file.path()).unwrap();
    writer.try_lock().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_released_file_is_closed_and_may_be_replaced() {
    let (folder, file) = file("released", b"whole");
    let fd = file.lease().unwrap().fd;
    std::fs::rename(folder.join("x"), folder.join("old")).unwrap();
    std::fs::write(folder.join("x"), b"other").unwrap();
    assert_eq!(read(&file).unwrap(), b"whole");
    file.release();
    assert!(file.inner.pin_if_open().is_none(), "descriptor {fd} stays open");
    assert_eq!(read(&file).unwrap(), b"other");
}
