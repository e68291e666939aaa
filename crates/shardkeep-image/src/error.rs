//! Errors of image decoding.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The reason why an image cannot be decoded: one line, without a final full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageError(pub String);

impl ImageError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl std::fmt::Display for ImageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImageError {}

/// Run a decoder of another crate. A panic would end the training run, so it becomes an [`ImageError`] as other
/// damage; messages become one line.
pub(crate) fn catch_panic(
    format: &str,
    decode: impl FnOnce() -> Result<(), String>,
) -> Result<(), ImageError> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(message)) => {
            let words: Vec<&str> = message.split_whitespace().collect();
            Err(ImageError(format!("the {format} is damaged: {}", words.join(" "))))
        }
        Err(_) => Err(ImageError(format!("the {format} decoder failed on damaged data"))),
    }
}
