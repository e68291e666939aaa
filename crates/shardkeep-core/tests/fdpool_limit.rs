//! The soft limit of open files that the program sets stays, although the pool raises it briefly. Runs in a separate process.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod scratch;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use scratch::Scratch;
use shardkeep_core::io::descriptor_pool::VirtualFile;

fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    limit
}

fn set_soft(soft: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: soft, ..limit() };
    // SAFETY: `limit` is readable.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

#[test]
fn a_limit_that_the_program_sets_while_files_are_opened_stays() {
    const SOFT: libc::rlim_t = 64;
    if limit().rlim_max < 1024 {
        return;
    }
    set_soft(SOFT);
    let folder = Scratch::new("fdpool-limit");
    let path = folder.join("x");
    std::fs::write(&path, "x").unwrap();
    // So many of the low numbers are in use that every opening moves its descriptor.
    let _low: Vec<_> = (0..SOFT / 4).map(|_| std::fs::File::open(&path).unwrap()).collect();
    let done = AtomicBool::new(false);
    let mut wanted = SOFT;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    VirtualFile::new(&path).read_at(&mut [0], 0).unwrap();
                }
            });
        }
        for round in 0..20_000 {
            wanted = SOFT + round % 7;
            set_soft(wanted);
            // Another one may be seen for as long as files are being opened.
            let begin = Instant::now();
            while limit().rlim_cur != wanted {
                if begin.elapsed() > Duration::from_secs(120) {
                    done.store(true, Ordering::Relaxed);
                    panic!("round {round}: set {wanted}, found {}", limit().rlim_cur);
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(limit().rlim_cur, wanted);
}
