//! `tf.train.Example` and `SequenceExample`: what decodes must survive a second encoding and decoding unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardkeep_core::example::{Content, FeatureValue, Value, decode, decode_sequence, encode};

fuzz_target!(|data: &[u8]| {
    let _ = decode_sequence(data);
    let Ok(features) = decode(data) else { return };
    assert!(matches!(Content::of(data), None | Some(Content::Example)) || data.is_empty());
    let again: Vec<(&str, FeatureValue<'_>)> = features
        .iter()
        .map(|(key, value)| {
            let value = match value {
                Value::Bytes(values) => FeatureValue::Bytes(values),
                Value::Float(values) => FeatureValue::Float(values),
                Value::Int64(values) => FeatureValue::Int64(values),
                Value::Empty => FeatureValue::Empty,
            };
            (*key, value)
        })
        .collect();
    let bytes = encode(&again);
    let decoded = decode(&bytes).expect("what was just encoded");
    // Debug text, since a NaN is not equal to itself.
    assert_eq!(format!("{features:?}"), format!("{decoded:?}"));
});
