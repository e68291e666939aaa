//! The one error type of the Rust half; the binding maps its kind to a class of `errors.py`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub type Result<T> = std::result::Result<T, Error>;

/// The class of `errors.py` that the binding raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `CorruptRecordError`
    Corrupt,
    /// `CorruptDataError`
    Changed,
    /// `TruncatedFileError`
    Truncated,
    /// `FormatError`
    Format,
    /// `SchemaError`
    Schema,
    /// `NotFoundError`
    NotFound,
    /// `BudgetError`
    Budget,
    /// The built-in `OSError` subclass of `errno`
    Os,
    /// The built-in `MemoryError`
    Memory,
    /// `InternalError`
    Internal,
}

/// One line with the problem and the remedy, and the path, record and offset in separate fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub kind: Kind,
    /// The message without the path, which `Display` adds in front.
    pub message: String,
    pub path: Option<PathBuf>,
    pub record: Option<u64>,
    pub offset_bytes: Option<u64>,
    pub errno: Option<i32>,
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), path: None, record: None, offset_bytes: None, errno: None }
    }

    /// Create the error for a buffer of `bytes` bytes that cannot be allocated.
    #[cold]
    pub fn memory(bytes: usize) -> Self {
        Self::new(Kind::Memory, format!("no memory for {bytes} more bytes"))
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    #[must_use]
    pub fn at(mut self, path: &Path) -> Self {
        self.path = Some(path.to_path_buf());
        self
    }

    #[must_use]
    pub fn record(mut self, record: u64) -> Self {
        self.record = Some(record);
        self
    }

    #[must_use]
    pub fn offset(mut self, offset_bytes: u64) -> Self {
        self.offset_bytes = Some(offset_bytes);
        self
    }

    /// Create the error for a failed system call; `doing` names the operation.
    pub fn os(error: &io::Error, doing: &str, path: &Path) -> Self {
        let errno = error.raw_os_error();
        let (kind, message) = match errno {
            Some(libc::ENOENT) => (Kind::NotFound, "no such file".to_string()),
            Some(libc::EMFILE | libc::ENFILE) => (
                Kind::Budget,
                format!(
                    "cannot {doing}: no file descriptor is left ({error}); raise `ulimit -n` or pass \
                     a smaller max_open_files"
                ),
            ),
            _ => (Kind::Os, format!("cannot {doing}: {error}")),
        };
        Self { kind, message, path: Some(path.to_path_buf()), record: None, offset_bytes: None, errno }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        match (self.record, self.offset_bytes) {
            (Some(record), Some(offset)) => write!(f, "record {record} at byte {offset}: ")?,
            (Some(record), None) => write!(f, "record {record}: ")?,
            (None, Some(offset)) => write!(f, "at byte {offset}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Resize `buf` to `length` bytes of any content.
///
/// # Errors
/// The memory cannot be allocated; `Vec` alone would end the process.
pub(crate) fn try_resize(buf: &mut Vec<u8>, length: usize) -> Result<()> {
    if let Some(more) = length.checked_sub(buf.len()) {
        buf.try_reserve_exact(more).map_err(|_| Error::memory(more))?;
    }
    buf.resize(length, 0);
    Ok(())
}
