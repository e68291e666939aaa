//! Damaged and malicious examples: no panic, no allocation beyond what the input could expand to.

use std::sync::Arc;

use shardkeep_core::batch::columns::{BatchColumns, DType, Feature, Kind, Schema, Scratch};
use shardkeep_core::example::{FeatureValue, decode, decode_sequence, encode};

use super::bounded::{Random, bounded};

#[test]
fn mutated_examples() {
    let numbers: Vec<i64> = (-3..60).map(|i| i * i * i).collect();
    let seed = encode(&[
        ("a", FeatureValue::Int64(&[5])),
        ("b", FeatureValue::Float(&[0.5, 1.5])),
        ("c", FeatureValue::Bytes(&[b"some", b"text", b""])),
        ("d", FeatureValue::Int64(&numbers)),
        ("e", FeatureValue::Float(&[1.0])),
        ("f", FeatureValue::Bytes(&[b"one"])),
        ("g", FeatureValue::Int64(&[1 << 40, -1])),
        ("nobody asked for this one", FeatureValue::Int64(&[7])),
        ("with a key of some length", FeatureValue::Int64(&[-7])),
    ]);
    let fixed = |dtype, side| Kind::Fixed { dtype, shape: vec![side], default: None };
    let kinds = [
        ("a", fixed(DType::Int64, 1)),
        ("b", fixed(DType::Float32, 2)),
        ("c", Kind::Var { dtype: DType::Bytes }),
        ("d", Kind::Var { dtype: DType::Int64 }),
        ("e", Kind::Var { dtype: DType::Float32 }),
        ("f", fixed(DType::Bytes, 1)),
        ("g", fixed(DType::Int64, 2)),
        ("with a key of some length", fixed(DType::Int64, 1)),
    ];
    let features = kinds.map(|(name, kind)| Feature { name: name.into(), kind });
    let schema = Arc::new(Schema::new(features.to_vec()).unwrap());
    let mut random = Random(1);
    let mut scratch = Scratch::default();
    let (mut whole, mut broken) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = seed.clone();
        random.mutate(&mut bytes);
        let limit = 64 * bytes.len() + 16_384;
        bounded(limit, || drop((decode(&bytes), decode_sequence(&bytes))));
        let mut fill = |bytes: &[u8]| {
            // Behind a whole record, after which every key is expected at its place.
            let batch = BatchColumns::new(Arc::clone(&schema), 2).unwrap();
            let done = bounded(limit, || batch.fill(0, &[&seed, bytes], &mut scratch));
            done.map(|()| batch.finish().unwrap())
        };
        let columns = fill(&bytes);
        let filled = columns.is_ok();
        if let Ok(columns) = columns {
            // An unknown field behind the map sends the record down the careful way, which must agree.
            bytes.extend_from_slice(&[0x50, 1]);
            let carefully = fill(&bytes).unwrap();
            assert_eq!(format!("{columns:?}"), format!("{carefully:?}"), "{bytes:02x?}");
        }
        if filled { whole += 1 } else { broken += 1 }
    }
    assert!(whole > 500 && broken > 5_000, "{whole} whole, {broken} broken");
}
