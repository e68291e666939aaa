//! Records into columns: the quick way over the keys and the careful one must agree.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use shardkeep_core::batch::columns::{BatchColumns, DType, DefaultValue, Feature, Kind, Schema, Scratch};

fn schema() -> Arc<Schema> {
    let fixed = |dtype, side, default| Kind::Fixed { dtype, shape: vec![side], default };
    let kinds = [
        ("a", fixed(DType::Int64, 1, Some(DefaultValue::Int64(vec![7])))),
        ("b", fixed(DType::Float32, 2, Some(DefaultValue::Float32(vec![0.5, 1.5])))),
        ("c", Kind::Var { dtype: DType::Bytes }),
        ("d", Kind::Var { dtype: DType::Int64 }),
        ("e", Kind::Var { dtype: DType::Float32 }),
    ];
    let features = kinds.map(|(name, kind)| Feature { name: name.into(), kind });
    Arc::new(Schema::new(features.to_vec()).expect("a good schema"))
}

fuzz_target!(|data: &[u8]| {
    let schema = schema();
    let mut scratch = Scratch::default();
    let mut fill = |records: &[&[u8]]| {
        let batch = BatchColumns::new(Arc::clone(&schema), records.len()).expect("a small batch");
        batch.fill(0, records, &mut scratch).map(|()| batch.finish().expect("a full batch"))
    };
    // Twice the same: the second one finds the key order of the first.
    let Ok(columns) = fill(&[data, data]) else { return };
    // An unknown field alone is another message, an empty record is an Example.
    if data.is_empty() {
        return;
    }
    // An unknown field behind the map sends the record down the careful way.
    let careful = [data, &[0x50, 1]].concat();
    let carefully = fill(&[&careful, &careful]).expect("the same record");
    assert_eq!(format!("{columns:?}"), format!("{carefully:?}"));
});
