//! Any bytes as a file of records: see `check`.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/mutations/records.rs"]
mod records;

fuzz_target!(|data: &[u8]| {
    let path = format!("/dev/shm/shardkeep-fuzz-{}", std::process::id());
    records::check(data, Path::new(&path));
});
