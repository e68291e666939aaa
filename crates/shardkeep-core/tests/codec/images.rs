//! Images in batches: the frame of a batch, and images of other sizes.

use std::sync::Arc;

use shardkeep_core::batch::columns::{
    BatchColumns, Column, Feature, ImageDType, Kind, RowError, RowErrorKind, Schema, Scratch,
};
use shardkeep_core::example::{FeatureValue, encode};

/// Return an RGB PNG of 8 bits with one stored deflate block, all of whose samples are `sample`.
fn rgb_png(width: u32, height: u32, sample: u8) -> Vec<u8> {
    let row = [&[0][..], &vec![sample; 3 * width as usize]].concat();
    let raw = row.repeat(height as usize);
    let length = raw.len() as u16;
    let data = [
        &[0x78, 1, 1][..],
        &length.to_le_bytes(),
        &(!length).to_le_bytes(),
        &raw,
        &libdeflater::adler32(&raw).to_be_bytes(),
    ];
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    let mut out = shardkeep_image::png::SIGNATURE.to_vec();
    for (kind, data) in [(b"IHDR", header), (b"IDAT", data.concat()), (b"IEND", vec![])] {
        let covered = [kind, &data[..]].concat();
        out.extend((data.len() as u32).to_be_bytes());
        out.extend(&covered);
        out.extend(libdeflater::crc32(&covered).to_be_bytes());
    }
    out
}

fn batch(kind: Kind, images: &[&[u8]]) -> Result<Column, RowError> {
    let features = vec![Feature { name: "x".into(), kind }];
    let batch = BatchColumns::new(Arc::new(Schema::new(features).unwrap()), images.len() + 1)?;
    let records: Vec<Vec<u8>> =
        images.iter().map(|image| encode(&[("x", FeatureValue::Bytes(&[image]))])).collect();
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    batch.fill(0, &records, &mut Scratch::default())?;
    Ok(batch.finish()?.remove(0).1)
}

#[test]
fn the_first_image_sets_the_frame_of_its_batch() {
    let kind = |size| Kind::Image { channels: 3, dtype: ImageDType::U8, size };
    let (small, large) = (rgb_png(2, 1, 1), rgb_png(3, 2, 2));
    let column = batch(kind(None), &[&small, &small]).unwrap();
    assert_eq!(
        column,
        Column::ImageU8 { data: [[1; 12].as_slice(), &[0; 6]].concat().into(), shape: [3, 1, 2, 3] }
    );
    let error = batch(kind(None), &[&small, &large]).unwrap_err();
    assert_eq!((error.row, error.kind), (1, RowErrorKind::WrongShape));
    assert!(error.message.contains("expected 1x2x3") && error.message.contains("found 2x3x3"), "{error}");
    let column = batch(kind(Some((2, 3))), &[&small, &large]).unwrap();
    assert_eq!(
        column,
        Column::ImageU8 { data: [[1; 18], [2; 18], [0; 18]].concat().into(), shape: [3, 2, 3, 3] }
    );
    let none = batch(kind(Some((2, 3))), &[]).unwrap();
    assert_eq!(none, Column::ImageU8 { data: vec![0; 18].into(), shape: [1, 2, 3, 3] });
    assert_eq!(batch(kind(None), &[]).unwrap(), Column::ImageU8 { data: vec![].into(), shape: [1, 0, 0, 3] });
}
