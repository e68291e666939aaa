//! Random mutations, and an allocator that measures the largest block of a thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator; it records the largest block that a thread requested.
struct Measuring;

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: by the contract of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: by the contract of the caller.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

/// xorshift64*: the same mutations in every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }

    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.below(256) as u8),
                2 if !bytes.is_empty() => drop(bytes.remove(at)),
                3 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][self.below(6)],
                4 if !bytes.is_empty() => {
                    let end = (at + self.below(9)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
                _ if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
    }
}

/// Run `work`, and panics if it requested a block larger than `limit` bytes.
pub fn bounded<T>(limit: usize, work: impl FnOnce() -> T) -> T {
    LARGEST.with(|largest| largest.set(0));
    let result = work();
    let found = LARGEST.with(Cell::get);
    assert!(found <= limit, "a block of {found} bytes, where {limit} were the limit");
    result
}
