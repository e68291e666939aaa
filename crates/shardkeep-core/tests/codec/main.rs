//! Tests of the codec: examples into columns and back, images in batches, hostile bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../shardkeep-image/tests/decoding/bounded.rs"]
mod bounded;
mod columns;
mod content;
mod example;
mod hostile;
mod images;
