//! The batch engine: rows of many shards into batch slots, by several threads, delivered in order.
//!
//! The caller submits batches, each a list of global record numbers, and takes them back in the same order.
//! It decides how many it keeps under way: the engine reads nothing that was not submitted, so memory is
//! bounded by the batches under way plus, for each thread, a read buffer. Threads start with the first
//! submission and end with the engine.
//!
//! The order of rows and of batches is the caller's, whatever the number of threads: a row's place in its
//! batch is fixed before any thread touches it.
//!
//! An engine does not cross `fork`: its threads exist only in the process that made it. In a child,
//! [`Engine::is_foreign`] says so, and dropping it there touches no thread.

mod corrupt;
mod dataset;
mod frames;
mod job;
mod lead;
mod output;
mod recycle;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use corrupt::{Fault, OnCorrupt};
pub use dataset::{Dataset, Place, Shard};
pub use output::Batch;
pub use recycle::Recycled;

use crate::columns::{Column, Schema, Whole};
use crate::error::{Error, Result};
use job::{Job, Workspace};
use output::{Delivery, Output};

/// See the module.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    delivery: Delivery,
    threads: usize,
    running: Vec<JoinHandle<()>>,
    /// Submitted and not yet taken, oldest first.
    pending: VecDeque<Arc<Job>>,
    on_corrupt: OnCorrupt,
    faults: Vec<Fault>,
    pid: u32,
}

/// Read records now, on this thread: for random access, where no order of batches is to be kept.
///
/// # Errors
/// As [`Engine::submit`] and [`Engine::take`].
pub fn read_now(data: &Dataset, records: &[u64], verify: bool) -> Result<Batch> {
    let places = locate_all(data, records)?;
    let output = Output::new(&Delivery::Records(Arc::default()), &places, places.len())?;
    let job = Job::new(places, output, 1, OnCorrupt::Raise);
    let mut space = Workspace::default();
    while let Some(rows) = job.claim() {
        job.work(data, verify, rows, &mut space);
    }
    job.finish().map(|(batch, _)| batch)
}

fn locate_all(data: &Dataset, records: &[u64]) -> Result<Vec<Place>> {
    // A loop: collected through an iterator of results, each place went through the stack four times.
    let mut places = Vec::with_capacity(records.len());
    let mut near = 0;
    for &record in records {
        let Some(place) = data.locate(record, near) else {
            return Err(Error::internal(format!("record {record} is beyond the data set")));
        };
        near = place.shard;
        places.push(place);
    }
    Ok(places)
}

#[derive(Debug)]
struct Shared {
    data: Dataset,
    verify: bool,
    queue: Mutex<Queue>,
    /// There is work, or the end.
    work: Condvar,
    /// A batch is complete.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// Jobs with rows that nobody has taken, oldest first.
    jobs: VecDeque<Arc<Job>>,
    stop: bool,
}

impl Engine {
    /// `schema` None delivers raw records. `verify` is about payloads; headers are always checked.
    #[must_use]
    pub fn new(data: Dataset, schema: Option<Schema>, threads: usize, verify: bool) -> Self {
        let delivery = match schema {
            Some(schema) => Delivery::Columns(Arc::new(schema)),
            None => Delivery::Records(Arc::default()),
        };
        Self::delivering(delivery, data, threads, verify)
    }

    /// An engine whose batches are parts of one result, as large as the data set: the rows of the first are its first
    /// rows, and so on. The columns that a [`Whole`] has come from [`Engine::gathered`] instead of the batches.
    ///
    /// # Errors
    /// No memory for the result.
    pub fn gathering(data: Dataset, schema: Schema, threads: usize, verify: bool) -> Result<Self> {
        let rows = usize::try_from(data.records()).map_err(|_| Error::memory(usize::MAX))?;
        let whole = Whole::new(Arc::new(schema), rows)?;
        Ok(Self::delivering(Delivery::Parts(Arc::new(whole)), data, threads, verify))
    }

    fn delivering(delivery: Delivery, data: Dataset, threads: usize, verify: bool) -> Self {
        Self {
            shared: Arc::new(Shared {
                data,
                verify,
                queue: Mutex::default(),
                work: Condvar::new(),
                done: Condvar::new(),
            }),
            delivery,
            threads: threads.max(1),
            running: Vec::new(),
            pending: VecDeque::new(),
            on_corrupt: OnCorrupt::Raise,
            faults: Vec::new(),
            pid: std::process::id(),
        }
    }

    /// What damaged records do, in batches that are submitted from now on; at first they raise.
    pub fn set_on_corrupt(&mut self, on_corrupt: OnCorrupt) {
        self.on_corrupt = on_corrupt;
    }

    /// The damaged records of the batch that was taken last and did not raise, in the order of its rows.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Whether this process is not the one whose threads do the work.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.pid != std::process::id()
    }

    /// Batches submitted and not yet taken.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Ask for a batch of `rows` rows, the first of which are `records`, the rest padding.
    ///
    /// # Errors
    /// A record number beyond the data set, more records than rows, or a thread that cannot be started.
    pub fn submit(&mut self, records: &[u64], rows: usize) -> Result<()> {
        if self.is_foreign() {
            return Err(Error::internal("an engine was used in a forked child"));
        }
        if records.len() > rows {
            return Err(Error::internal("more records than rows"));
        }
        let places = locate_all(&self.shared.data, records)?;
        let output = Output::new(&self.delivery, &places, rows)?;
        self.start()?;
        let job = Arc::new(Job::new(places, output, self.threads, self.on_corrupt));
        self.pending.push_back(Arc::clone(&job));
        if !job.is_done() {
            self.shared.lock().jobs.push_back(job);
            self.shared.work.notify_all();
        }
        Ok(())
    }

    /// Take the oldest batch; None if it is not complete within `timeout` or none is pending.
    ///
    /// # Errors
    /// The first damaged or unfit row of the batch, with its place. The batch is taken then.
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
        // The thread that finished last may hold its reference for another moment.
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

    /// The columns that were gathered, in the order of the schema; of an engine without them none. Ends it: nothing can
    /// be submitted any more. To be called when all batches have been taken.
    ///
    /// # Errors
    /// A batch is still pending, or the memory for images that no record had cannot be had.
    pub fn gathered(&mut self) -> Result<Vec<(String, Column)>> {
        match std::mem::replace(&mut self.delivery, Delivery::Nothing) {
            Delivery::Parts(whole) => match Arc::try_unwrap(whole) {
                Ok(whole) => Ok(whole.finish()?),
                Err(whole) => {
                    self.delivery = Delivery::Parts(whole);
                    Err(Error::internal("a result was asked for before its batches"))
                }
            },
            other => {
                self.delivery = other;
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
                .map_err(|e| Error::internal(format!("a reading thread cannot be started: {e}")));
            match thread {
                Ok(thread) => self.running.push(thread),
                // Fewer threads than wished are enough, as long as there is one.
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
            // The threads and perhaps the queue's lock belong to the parent: leave all of it alone.
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
            // A thread that panicked has already given its batch up.
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
                // Under the lock, so that no waiter can miss it between its look and its sleep.
                let _queue = self.lock();
                self.done.notify_all();
            }
        }
    }

    /// The next rows to fill, oldest batch first; None at the end.
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
