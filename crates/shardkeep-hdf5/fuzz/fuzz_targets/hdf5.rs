//! The reader of HDF5 metadata: whatever the bytes, it ends, and what it keeps is in proportion to them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardkeep_hdf5::File;
use shardkeep_hdf5::format::lookup3::lookup3;
use shardkeep_hdf5::virtual_dataset::mapping::VirtualMapping;

fuzz_target!(|data: &[u8]| {
    if let Ok(file) = File::open(data) {
        for path in file.virtual_datasets(64).unwrap_or_default() {
            let _ = file.virtual_dataset(&path);
        }
        let _ = file.virtual_dataset(b"/g/x");
    }
    // Behind the checksum.
    let mut block = data.to_vec();
    block.extend(lookup3(data).to_le_bytes());
    if let Ok(found) = VirtualMapping::read(&block, &[9, 6], 8) {
        assert!(found.numbers.len() <= data.len());
        assert_eq!(found.low.len(), 2 * found.numbers.len());
        assert_eq!(found.high.len(), found.low.len());
        let dimensions: i64 = found.source_dimensions.iter().filter(|n| **n > 0).sum();
        assert_eq!(found.source_low.len() as i64, dimensions);
        assert_eq!(found.source_high.len() as i64, dimensions);
    }
});
