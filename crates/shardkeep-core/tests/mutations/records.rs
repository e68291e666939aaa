//! What must hold of any bytes whatever that are read as a file of records. The fuzz target `records` includes this
//! file.

use std::io::Read;
use std::path::Path;

use shardkeep_core::error::Error;
use shardkeep_core::io::descriptor_pool::VirtualFile;
use shardkeep_core::record::framing;
use shardkeep_core::record::scan::frame_starts;
use shardkeep_core::record::stream::{Compression, Input, RecordStream};

/// A bomb is legal (docs/design/hostile-input.md), but takes time that other input can use better.
const MOST_BYTES: usize = 16 << 20;

/// A reader that gives a few bytes at a time.
struct Trickle(Vec<u8>, usize);

impl Read for Trickle {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut rest = self.0.get(self.1..).unwrap_or_default();
        let room = out.len().min(7);
        let n = rest.read(&mut out[..room])?;
        self.1 += n;
        Ok(n)
    }
}

type Outcome = (Compression, Vec<Vec<u8>>, Option<Error>);

/// All records and the error at their end; None if there is too much of them.
fn drain(input: Input, verify: bool) -> Option<Outcome> {
    let mut stream = RecordStream::open(input, None, verify).expect("bytes in memory can be read");
    let (mut records, mut bytes) = (Vec::new(), 0);
    let error = loop {
        match stream.next_record() {
            Ok(Some(record)) => {
                bytes += record.len() + 16;
                if bytes > MOST_BYTES {
                    return None;
                }
                records.push(record.to_vec());
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(matches!(stream.next_record(), Ok(None)), "something comes after the end");
    Some((stream.compression(), records, error))
}

/// From a file and from a reader that gives little at a time the same records must come; and of plain bytes the scan must
/// say what the stream says. Returns whether all is whole.
pub fn check(data: &[u8], path: &Path) -> bool {
    std::fs::write(path, data).expect("room for a small file");
    let mut whole = true;
    for verify in [true, false] {
        let Some((kind, records, error)) = drain(Input::file(VirtualFile::new(path)), verify) else {
            return true;
        };
        let trickle = Box::new(Trickle(data.to_vec(), 0));
        let Some(pieces) = drain(Input::other(trickle, path.to_path_buf()), verify) else { return true };
        assert!(kind == pieces.0, "{kind:?} of a file, {:?} of a reader", pieces.0);
        assert_eq!(error.is_some(), pieces.2.is_some(), "{error:?} of a file, {:?} of a reader", pieces.2);
        whole &= error.is_none();
        if kind != Compression::None {
            // The number of bytes that are inflated before the damage depends on the size of the pieces.
            let both = records.len().min(pieces.1.len());
            assert!(records.get(..both) == pieces.1.get(..both), "other records in pieces");
            continue;
        }
        assert!(records == pieces.1, "other records in pieces");
        assert_eq!(error.as_ref().map(|e| e.kind), pieces.2.as_ref().map(|e| e.kind));
        match (error, frame_starts(&VirtualFile::new(path), verify)) {
            (None, Ok(starts)) => {
                assert_eq!(starts.len(), records.len() + 1);
                let mut written = Vec::new();
                records.iter().for_each(|record| framing::push(&mut written, record));
                assert!(written == data || !verify, "the records are not all that the file holds");
            }
            (Some(stream), Err(scan)) => assert_eq!(
                (stream.kind, stream.record, stream.offset_bytes),
                (scan.kind, scan.record, scan.offset_bytes)
            ),
            (stream, scan) => panic!("the stream says {stream:?}, the scan {scan:?}"),
        }
    }
    whole
}
