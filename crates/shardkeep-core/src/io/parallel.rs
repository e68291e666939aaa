//! Division of work on many files among a few threads.

use std::sync::Mutex;

/// Smallest number of files for another thread: starting one takes as long as reading ten files.
const FILES_A_THREAD: usize = 32;
/// Largest number of threads; more are limited by the memory bandwidth.
const MOST_THREADS: usize = 4;
/// Bytes of a share: not less, so that two threads do not fault in the same 2 MiB page of the buffer.
pub(crate) const SHARE_BYTES: usize = 4 << 20;
/// Number of files of a share: not more, so that all threads have work.
const SHARE_FILES: std::ops::RangeInclusive<usize> = 8..=256;

/// Return the result of `work` for each item, computed by several threads.
pub fn for_each<T: Sync, R: Default + Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = threads_for(items.len());
    let most = share_files(items.len(), threads);
    let mut results: Vec<R> = std::iter::repeat_with(R::default).take(items.len()).collect();
    run(results.chunks_mut(most).zip(items.chunks(most)), threads, |(results, items)| {
        for (result, item) in results.iter_mut().zip(items) {
            *result = work(item);
        }
    });
    results
}

/// Return the numbers below `count` for which `is_selected` returns true, computed by several threads, in ascending order.
pub(crate) fn select(count: usize, is_selected: impl Fn(usize) -> bool + Sync) -> Vec<usize> {
    let found = Mutex::new(Vec::new());
    let threads = threads_for(count);
    let share = share_files(count, threads);
    run((0..count).step_by(share), threads, |first| {
        for number in first..count.min(first + share) {
            if is_selected(number) {
                found.lock().unwrap_or_else(|e| e.into_inner()).push(number);
            }
        }
    });
    let mut found = found.into_inner().unwrap_or_else(|e| e.into_inner());
    found.sort_unstable();
    found
}

/// Return the number of files of a share.
pub(crate) fn share_files(files: usize, threads: usize) -> usize {
    (files / (4 * threads)).clamp(*SHARE_FILES.start(), *SHARE_FILES.end())
}

/// Return the number of threads for a number of files.
pub(crate) fn threads_for(files: usize) -> usize {
    if files < 2 * FILES_A_THREAD {
        return 1;
    }
    let most = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    most.min(files / FILES_A_THREAD)
}

/// Process each of `shares` in `threads` threads, of which this one is the first. If no thread can be started, this one does all the work.
pub(crate) fn run<T: Send>(shares: impl Iterator<Item = T> + Send, threads: usize, work: impl Fn(T) + Sync) {
    let shares = Mutex::new(shares);
    let process = || {
        loop {
            let next = shares.lock().unwrap_or_else(|e| e.into_inner()).next();
            let Some(share) = next else { break };
            work(share);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let name = std::thread::Builder::new().name("shardkeep-read".into());
            if name.spawn_scoped(scope, process).is_err() {
                break;
            }
        }
        process();
    });
}
