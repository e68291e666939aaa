//! The inflater of our own beside zlib: what zlib inflates to its end, ours inflates to the same bytes.
#![no_main]

use flate2::{Decompress, FlushDecompress, Status};
use libfuzzer_sys::fuzz_target;
use shardkeep_image::inflate::Inflater;

const MOST_BYTES: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let mut theirs = vec![0; MOST_BYTES];
    let mut state = Decompress::new(true);
    let status = state.decompress(data, &mut theirs, FlushDecompress::Finish);
    let length = usize::try_from(state.total_out()).expect("at most a mebibyte");
    let whole = matches!(status, Ok(Status::StreamEnd));

    let mut inflater = Inflater::default();
    let mut ours = vec![0; length];
    let done = inflater.zlib(data, &mut ours);
    if whole {
        assert_eq!(done, Ok(()), "zlib inflates it");
        assert!(ours == theirs[..length], "zlib inflates it to other bytes");
        // A buffer that is too large is an error, not made-up bytes.
        let mut larger = vec![0; length + 1];
        assert!(inflater.zlib(data, &mut larger).is_err());
    } else if length < MOST_BYTES {
        assert!(done.is_err(), "zlib does not come to its end");
    }
    let mut some = vec![0; 300];
    let _ = inflater.zlib(data, &mut some);
});
