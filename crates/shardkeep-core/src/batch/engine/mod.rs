//! The batch engine: several threads read rows of many shards into batches, which are delivered in order.
//!
//! The caller submits batches, each a list of global record numbers, and takes them in the same order. The engine reads
//! only what was submitted, so memory is bounded by the pending batches plus a read buffer per thread. Threads start with
//! the first submission and end with the engine.
//!
//! The caller determines the order of rows and batches: the position of a row in its batch is fixed before any thread
//! reads it.
//!
//! An engine cannot be used after `fork`, because its threads exist only in the process that made it. In a child
//! [`Engine::is_foreign`] is true, and dropping the engine accesses no thread.

mod buffer_pool;
mod damage;
mod dataset;
mod frames;
mod job;
mod output;
mod shape_election;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use buffer_pool::PooledBuffer;
pub use damage::{Fault, OnCorrupt};
pub use dataset::{Dataset, RecordSpan, Shard};
pub use output::Batch;

use crate::batch::columns::{Column, GatheredColumns, Schema};
use crate::error::{Error, Result};
use job::{Job, Workspace};
use output::{Output, OutputKind};

/// The batch engine; see the module.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    output_kind: OutputKind,
    threads: usize,
    running: Vec<JoinHandle<()>>,
    /// Submitted batches that were not taken yet, oldest first.
    pending: VecDeque<Arc<Job>>,
    on_corrupt: OnCorrupt,
    faults: Vec<Fault>,
    pid: u32,
}

/// Read records on the calling thread, for random access.
///
/// # Errors
/// As [`Engine::submit`] and [`Engine::take`].
pub fn read_now(data: &Dataset, records: &[u64], verify: bool) -> Result<Batch> {
    let spans = locate_all(data, records)?;
    let output = Output::new(&OutputKind::Records(Arc::default()), &spans, spans.len())?;
    let job = Job::new(spans, output, 1, OnCorrupt::Raise);
    let mut space = Workspace::default();
    while let Some(rows) = job.claim() {
        job.work(data, verify, rows, &mut space);
    }
    job.finish().map(|(batch, _)| batch)
}

fn locate_all(data: &Dataset, records: &[u64]) -> Result<Vec<RecordSpan>> {
    // A loop, because collecting an iterator of results copies each span on the stack four times.
    let mut spans = Vec::with_capacity(records.len());
    let mut near = 0;
    for &record in records {
        let Some(span) = data.locate(record, near) else {
            return Err(Error::internal(format!(
                "record {record} is not in the data set, or its index is damaged"
            )));
        };
        near = span.shard;
        spans.push(span);
    }
    Ok(spans)
}

#[derive(Debug)]
struct Shared {
    data: Dataset,
    verify: bool,
    queue: Mutex<Queue>,
    /// Signalled when there is work, or at the end.
    work: Condvar,
    /// Signalled when a batch is complete.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// Jobs with unclaimed rows, oldest first.
    jobs: VecDeque<Arc<Job>>,
    stop: bool,
}

impl Engine {
    /// Create an engine. `schema` None delivers raw records. `verify` checks payloads; headers are always checked.
    #[must_use]
    pub fn new(data: Dataset, schema: Option<Schema>, threads: usize, verify: bool) -> Self {
        let output_kind = match schema {
            Some(schema) => OutputKind::Columns(Arc::new(schema)),
            None => OutputKind::Records(Arc::default()),
        };
        Self::with_output(output_kind, data, threads, verify)
    }

    /// Create an engine whose batches are consecutive parts of one result with a row for each record of the data set. The
    /// columns of [`GatheredColumns`] come from [`Engine::gathered`] instead of the batches.
    ///
    /// # Errors
    /// The memory for the result cannot be allocated.
    pub fn gathering(data: Dataset, schema: Schema, threads: usize, verify: bool) -> Result<Self> {
        let rows = usize::try_from(data.records()).map_err(|_| Error::memory(usize::MAX))?;
        let gathered = GatheredColumns::new(Arc::new(schema), rows)?;
        Ok(Self::with_output(OutputKind::Gathered(Arc::new(gathered)), data, threads, verify))
    }

    fn with_output(output_kind: OutputKind, data: Dataset, threads: usize, verify: bool) -> Self {
        Self {
            shared: Arc::new(Shared {
                data,
                verify,
                queue: Mutex::default(),
                work: Condvar::new(),
                done: Condvar::new(),
            }),
            output_kind,
            threads: threads.max(1),
            running: Vec::new(),
            pending: VecDeque::new(),
            on_corrupt: OnCorrupt::Raise,
            faults: Vec::new(),
            pid: std::process::id(),
        }
    }

    /// Set the treatment of damaged records in batches that are submitted later; the default is `Raise`.
    pub fn set_on_corrupt(&mut self, on_corrupt: OnCorrupt) {
        self.on_corrupt = on_corrupt;
    }

    /// Close the file of a shard that no pending batch reads. Its path may have another copy of the content later.
    pub fn release(&self, shard: usize) {
        if let Some(shard) = self.shared.data.shard(shard) {
            shard.file.release();
        }
    }

    /// Return the damaged records of the last taken batch that did not fail it, in the order of its rows.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Return true in a process other than the one that has the threads.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.pid != std::process::id()
    }

    /// Return the number of submitted batches that were not taken yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Submit a batch of `rows` rows: `records`, then padding.
    ///
    /// # Errors
    /// A record number is not in the data set, there are more records than rows, or no thread can be started.
    pub fn submit(&mut self, records: &[u64], rows: usize) -> Result<()> {
        if self.is_foreign() {
            return Err(Error::internal("an engine was used in a forked child"));
        }
        if records.len() > rows {
            return Err(Error::internal("more records than rows"));
        }
        let spans = locate_all(&self.shared.data, records)?;
        let output = Output::new(&self.output_kind, &spans, rows)?;
        self.start()?;
        let job = Arc::new(Job::new(spans, output, self.threads, self.on_corrupt));
        self.pending.push_back(Arc::clone(&job));
        if !job.is_done() {
            self.shared.lock().jobs.push_back(job);
            self.shared.work.notify_all();
        }
        Ok(())
    }

    /// Take the oldest batch; None if it is not complete within `timeout`, or if none is pending.
    ///
    /// # Errors
    /// The first row of the batch that is damaged or does not fit the schema, with its location. The batch is then taken.
    pub fn take(&mut self, timeout: Duration) -> Result<Option<Batch>> {
        let Some(job) = self.pending.front() else {
            return Ok(None);
        };
        if self.is_foreign() {
            return Err(Error::internal("an engine was used in a forked child"));
        }
        let deadline = Instant::now() + timeout;
        let mut queue = self.shared.lock();
        while !job.is_done() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            queue = self.shared.done.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(queue);
        self.faults = Vec::new();
        let Some(mut job) = self.pending.pop_front() else {
            return Ok(None);
        };
        // The thread that finished last may still hold its reference for a moment.
        let job = loop {
            match Arc::try_unwrap(job) {
                Ok(job) => break job,
                Err(shared) => job = shared,
            }
            std::thread::yield_now();
        };
        let (batch, faults) = job.finish()?;
        self.faults = faults;
        Ok(Some(batch))
    }

    /// Take the gathered columns, in the order of the schema, after all batches were taken. Nothing can be submitted
    /// afterwards. Returns no column for an engine without gathered columns.
    ///
    /// # Errors
    /// A batch is still pending, or the memory for images that no record had cannot be allocated.
    pub fn gathered(&mut self) -> Result<Vec<(String, Column)>> {
        match std::mem::replace(&mut self.output_kind, OutputKind::Finished) {
            OutputKind::Gathered(gathered) => match Arc::try_unwrap(gathered) {
                Ok(gathered) => Ok(gathered.finish()?),
                Err(gathered) => {
                    self.output_kind = OutputKind::Gathered(gathered);
                    Err(Error::internal("gathered columns were taken before all batches"))
                }
            },
            other => {
                self.output_kind = other;
                Ok(Vec::new())
            }
        }
    }

    fn start(&mut self) -> Result<()> {
        while self.running.len() < self.threads {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new()
                .name("shardkeep-read".to_string())
                .spawn(move || shared.run())
                .map_err(|e| Error::internal(format!("a reader thread cannot be started: {e}")));
            match thread {
                Ok(thread) => self.running.push(thread),
                // Fewer threads than requested are enough, if there is at least one.
                Err(e) if self.running.is_empty() => return Err(e),
                Err(_) => break,
            }
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let running = std::mem::take(&mut self.running);
        if self.is_foreign() {
            // The threads, and possibly a locked queue, belong to the parent, so nothing is accessed.
            running.into_iter().for_each(std::mem::forget);
            std::mem::forget(Arc::clone(&self.shared));
            std::mem::forget(std::mem::take(&mut self.pending));
            return;
        }
        {
            let mut queue = self.shared.lock();
            queue.stop = true;
            queue.jobs.clear();
        }
        self.shared.work.notify_all();
        for thread in running {
            // A thread that panicked has already marked its batch as failed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut space = Workspace::default();
        while let Some((job, rows)) = self.next() {
            let first = rows.start;
            let last = catch_unwind(AssertUnwindSafe(|| job.work(&self.data, self.verify, rows, &mut space)))
                .unwrap_or_else(|_| job.abandon(first));
            drop(job);
            if last {
                // With the lock held, so that a waiter cannot miss the signal between its check and its wait.
                let _queue = self.lock();
                self.done.notify_all();
            }
        }
    }

    /// Claim the next rows to fill, oldest batch first; None at the end.
    fn next(&self) -> Option<(Arc<Job>, std::ops::Range<usize>)> {
        let mut queue = self.lock();
        loop {
            if queue.stop {
                return None;
            }
            while let Some(job) = queue.jobs.front() {
                let Some(rows) = job.claim() else {
                    queue.jobs.pop_front();
                    continue;
                };
                let last = job.ends_with(&rows);
                let job = if last { queue.jobs.pop_front()? } else { Arc::clone(job) };
                return Some((job, rows));
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
