//! Pieces of one file, hashed one by one on their way to places in another.
//!
//! Adjacent pieces are read and written together. The contents of the pieces do not matter here.
#![deny(clippy::indexing_slicing)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use crate::crc::Crc32c;
use crate::error::{Error, Result, try_resize};

/// A buffer that stays in the cache of a processor.
const BLOCK_BYTES: u64 = 512 << 10;
/// Read along between two pieces, that costs less than another call.
const GAP_BYTES: u64 = 16 << 10;

/// A piece of a file and its offset in the result; None: it is only hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub from: u64,
    pub size: u64,
    pub to: Option<u64>,
}

/// A failed system call, with its file and offset.
#[derive(Debug)]
pub enum Failure {
    Read { offset_bytes: u64, error: io::Error },
    Write { offset_bytes: u64, error: io::Error },
    Other(Error),
}

/// The CRC32C of each piece, or the first failure (`UnexpectedEof` if the source ends too early), after which nothing was
/// copied.
pub type Outcome = std::result::Result<Vec<u32>, Failure>;

/// Threads that copy. They end after this is dropped and all copies are done.
#[derive(Debug)]
pub struct Copier {
    jobs: Option<Sender<Job>>,
    /// Buffer of copies without a thread.
    buffer: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct Job {
    source: File,
    result: File,
    pieces: Vec<Piece>,
    done: Sender<Outcome>,
}

/// A copy in progress.
#[derive(Debug)]
pub struct Ticket(Receiver<Outcome>);

impl Copier {
    /// With no threads, or where none can be had, `begin` does all itself.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let (sender, receiver) = mpsc::channel::<Job>();
        let receiver = Arc::new(Mutex::new(receiver));
        let started = (0..threads).filter(|_| {
            let receiver = Arc::clone(&receiver);
            let thread = std::thread::Builder::new().name("shardkeep-copy".into());
            thread.spawn(move || work(&receiver)).is_ok()
        });
        let jobs = (started.count() > 0).then_some(sender);
        Self { jobs, buffer: Mutex::default() }
    }

    #[must_use]
    pub fn begin(&self, source: File, result: File, pieces: Vec<Piece>) -> Ticket {
        let (done, outcome) = mpsc::channel();
        let job = Job { source, result, pieces, done };
        match &self.jobs {
            // Cannot fail: the threads live as long as the sender.
            Some(jobs) => drop(jobs.send(job)),
            None => job.run(&mut self.buffer.lock().unwrap_or_else(|e| e.into_inner())),
        }
        Ticket(outcome)
    }
}

impl Ticket {
    /// Wait for the end.
    ///
    /// # Errors
    /// As [`Outcome`].
    pub fn wait(self) -> Outcome {
        self.0.recv().unwrap_or_else(|_| Err(Failure::Other(Error::internal("a copying thread died"))))
    }
}

impl Job {
    fn run(self, buffer: &mut Vec<u8>) {
        let outcome = copy(&self.source, &self.result, &self.pieces, buffer);
        // Closed before the result is available: a caller that waits may count descriptors.
        drop((self.source, self.result));
        let _ = self.done.send(outcome);
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    let mut buffer = Vec::new();
    loop {
        let next = jobs.lock().unwrap_or_else(|e| e.into_inner()).recv();
        let Ok(job) = next else { break };
        job.run(&mut buffer);
    }
}

fn copy(source: &File, result: &File, pieces: &[Piece], buffer: &mut Vec<u8>) -> Outcome {
    if let Some(far) = pieces.iter().find(|piece| piece.from.checked_add(piece.size).is_none()) {
        return Err(Failure::Read { offset_bytes: far.from, error: io::ErrorKind::UnexpectedEof.into() });
    }
    let mut crcs = Vec::new();
    crcs.try_reserve_exact(pieces.len()).map_err(|_| Failure::Other(Error::memory(4 * pieces.len())))?;
    let mut rest = pieces;
    while let Some(first) = rest.first() {
        if first.size > BLOCK_BYTES {
            crcs.push(copy_large(source, result, *first, buffer)?);
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        let (run, behind) = rest.split_at_checked(run_length(rest)).unwrap_or((rest, &[]));
        let end = run.last().map_or(first.from, |last| last.from + last.size);
        let bytes = read(source, buffer, first.from, end - first.from)?;
        let part = |piece: &Piece| {
            let at = usize::try_from(piece.from - first.from).unwrap_or(usize::MAX);
            bytes.get(at..).and_then(|bytes| bytes.get(..piece.size as usize)).unwrap_or_default()
        };
        crcs.extend(run.iter().map(|piece| crate::crc::crc32c(part(piece))));
        for together in run.chunk_by(|a, b| a.from + a.size == b.from && follows(a, b)) {
            let Some(Piece { from, to: Some(to), .. }) = together.first() else { continue };
            let size = together.iter().map(|piece| piece.size).sum();
            write(result, part(&Piece { from: *from, size, to: None }), *to)?;
        }
        rest = behind;
    }
    Ok(crcs)
}

/// How many pieces are read at once; at least one.
fn run_length(pieces: &[Piece]) -> usize {
    let first = pieces.first().map_or(0, |piece| piece.from);
    let mut end = None;
    let together = pieces.iter().take_while(|piece| {
        let near = end.is_none_or(|end| piece.from.checked_sub(end).is_some_and(|gap| gap <= GAP_BYTES));
        let behind = piece.from.checked_add(piece.size);
        end = behind;
        near && behind.is_some_and(|behind| behind - first <= BLOCK_BYTES)
    });
    together.count().max(1)
}

/// Return true if one piece directly follows the other in source and result.
fn follows(a: &Piece, b: &Piece) -> bool {
    match (a.to, b.to) {
        (Some(one), Some(other)) => one.checked_add(a.size) == Some(other),
        (None, None) => true,
        _ => false,
    }
}

fn copy_large(
    source: &File,
    result: &File,
    piece: Piece,
    buffer: &mut Vec<u8>,
) -> std::result::Result<u32, Failure> {
    let mut crc = Crc32c::new();
    let mut done = 0;
    while done < piece.size {
        let bytes = read(source, buffer, piece.from + done, BLOCK_BYTES.min(piece.size - done))?;
        crc.update(bytes);
        if let Some(to) = piece.to {
            write(result, bytes, to.saturating_add(done))?;
        }
        done += bytes.len() as u64;
    }
    Ok(crc.finish())
}

fn read<'a>(
    source: &File,
    buffer: &'a mut Vec<u8>,
    offset_bytes: u64,
    size: u64,
) -> std::result::Result<&'a [u8], Failure> {
    room(buffer, size as usize).map_err(Failure::Other)?;
    let bytes = buffer.get_mut(..size as usize).unwrap_or_default();
    source.read_exact_at(bytes, offset_bytes).map_err(|error| Failure::Read { offset_bytes, error })?;
    Ok(bytes)
}

fn write(result: &File, bytes: &[u8], offset_bytes: u64) -> std::result::Result<(), Failure> {
    result.write_all_at(bytes, offset_bytes).map_err(|error| Failure::Write { offset_bytes, error })
}

fn room(buffer: &mut Vec<u8>, size: usize) -> Result<()> {
    if buffer.len() < size { try_resize(buffer, size.max(BLOCK_BYTES as usize)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::crc32c;

    fn copy(source: &File, result: &File, pieces: &[Piece]) -> Outcome {
        super::copy(source, result, pieces, &mut Vec::new())
    }

    fn files(name: &str, content: &[u8]) -> (std::path::PathBuf, File, File) {
        let folder = std::env::temp_dir().join(format!("shardkeep-copy-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("source"), content).unwrap();
        let source = File::open(folder.join("source")).unwrap();
        let result = File::create_new(folder.join("result")).unwrap();
        (folder, source, result)
    }

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|i| (i * 31 / 7) as u8).collect()
    }

    #[test]
    fn pieces_of_all_sizes_arrive_with_their_hashes() {
        let bytes = content(3_000_000);
        let (folder, source, result) = files("all", &bytes);
        let mut pieces = Vec::new();
        let (mut at, mut to) = (5, 100);
        for (i, size) in [1, 0, 9, 70_000, 600_000, 3, 524_288, 524_289, 100, 100, 100_000].iter().enumerate()
        {
            let goes = (i % 4 != 3).then_some(to);
            pieces.push(Piece { from: at, size: *size, to: goes });
            at += size + [0, 0, 3, 17_000][i % 4];
            to += size + u64::from(i == 8);
        }
        pieces.push(Piece { from: 0, size: 7, to: Some(0) }); // backwards
        let crcs = copy(&source, &result, &pieces).unwrap();
        let written = std::fs::read(folder.join("result")).unwrap();
        for (piece, crc) in pieces.iter().zip(crcs) {
            let expected = &bytes[piece.from as usize..(piece.from + piece.size) as usize];
            assert_eq!(crc, crc32c(expected));
            if let Some(to) = piece.to {
                assert_eq!(&written[to as usize..to as usize + expected.len()], expected);
            }
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_source_that_ends_and_a_result_that_cannot_be_written_are_told() {
        let (folder, source, result) = files("fail", &content(1000));
        let end = Piece { from: 990, size: 11, to: None };
        let Err(Failure::Read { offset_bytes: 990, error }) = copy(&source, &result, &[end]) else {
            panic!()
        };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        for from in [u64::MAX, u64::MAX - 5] {
            let far = Piece { from, size: 9, to: None };
            assert!(matches!(copy(&source, &result, &[far]), Err(Failure::Read { .. })));
        }
        let piece = Piece { from: 0, size: 9, to: Some(7) };
        let read_only = File::open(folder.join("result")).unwrap();
        let Err(Failure::Write { offset_bytes: 7, error }) = copy(&source, &read_only, &[piece]) else {
            panic!()
        };
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn threads_do_the_same() {
        let bytes = content(100_000);
        for threads in [0, 1, 3] {
            let (folder, source, result) = files(&format!("threads-{threads}"), &bytes);
            let copier = Copier::new(threads);
            let tickets: Vec<Ticket> = (0..100)
                .map(|i| {
                    let piece = Piece { from: 1000 * i, size: 1000, to: Some(1000 * (99 - i)) };
                    copier.begin(source.try_clone().unwrap(), result.try_clone().unwrap(), vec![piece])
                })
                .collect();
            drop(copier); // what was begun is done all the same
            for (ticket, part) in tickets.into_iter().zip(bytes.chunks(1000)) {
                assert_eq!(ticket.wait().unwrap(), [crc32c(part)]);
            }
            let written = std::fs::read(folder.join("result")).unwrap();
            assert_eq!(written, bytes.chunks(1000).rev().flatten().copied().collect::<Vec<u8>>());
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}
