//! Tests of the decoders: images with TensorFlow's pixels, hostile bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bounded;
mod hostile;
mod images;

use std::path::PathBuf;

fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/images").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn images(ending: &str) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/images");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder of test images")
        .map(|entry| entry.expect("a readable entry").file_name().into_string().expect("a plain name"))
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), data(&name))).collect()
}
