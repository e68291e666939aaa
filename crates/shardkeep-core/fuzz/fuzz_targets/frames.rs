//! Random access through an index: the fuzzer moves the offsets and the bytes, and nothing that comes back may be other
//! than a record of the file. Header checksums are corrected, so that lengths can be anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardkeep_core::batch::engine::{Batch, Dataset, Shard, read_now};
use shardkeep_core::io::descriptor_pool::VirtualFile;
use shardkeep_core::record::framing;
use shardkeep_core::record::scan::{frame_starts, frame_starts_of_part};

fuzz_target!(|data: &[u8]| {
    let Some((control, rest)) = data.split_first_chunk::<8>() else { return };
    let mut bytes = rest.to_vec();
    let mut at = 0_usize;
    while let Some(head) = bytes.get_mut(at..at.saturating_add(12)) {
        // Lengths of two bytes and now and then of eight.
        let huge = head[2] == 0xff;
        if !huge {
            head[2..8].fill(0);
        }
        let length = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
        head.copy_from_slice(&framing::header(length));
        let Some(next) = usize::try_from(length).ok().and_then(|n| at.checked_add(n)?.checked_add(16)) else {
            break;
        };
        at = next;
    }
    let path = format!("/dev/shm/shardkeep-fuzz-frames-{}", std::process::id());
    std::fs::write(&path, &bytes).expect("room in /dev/shm");
    let whole = frame_starts(&VirtualFile::new(&path), false);
    let from = u64::from_le_bytes(*control) % (bytes.len() as u64 + 2);
    let _ = frame_starts_of_part(&VirtualFile::new(&path), from, 0, from.saturating_add(100), false);
    let Ok(mut starts) = whole else { return };
    let right = starts.clone();
    // An index that is not that of the file.
    if let Some(start) = starts.get_mut(usize::from(control[0])) {
        *start = start.wrapping_add(u64::from(control[1])).wrapping_sub(u64::from(control[2]));
    }
    if control[3] > 128 {
        starts.push(starts.last().copied().unwrap_or(0).saturating_add(u64::from(control[4])));
    }
    let records = starts.len() as u64 - 1;
    let Ok(shard) = Shard::new(VirtualFile::new(&path), &starts) else { return };
    let data = Dataset::new(vec![shard]);
    for record in 0..records {
        let Ok(Batch::Records { values, .. }) = read_now(&data, &[record], false) else { continue };
        let place = data.locate(record, 0).expect("a record below the count");
        assert!(
            right.contains(&place.start) && right.contains(&place.end) || place.end > bytes.len() as u64 || {
                // Payloads may hold frames of their own.
                let head: [u8; 12] = bytes[place.start as usize..][..12].try_into().expect("twelve bytes");
                framing::parse_header(&head) == Ok(place.payload_bytes())
            }
        );
        assert!(*values == bytes[place.start as usize + 12..place.end as usize - 4]);
    }
});
