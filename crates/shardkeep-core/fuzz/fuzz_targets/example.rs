//! `tf.train.Example` and `SequenceExample`: what decodes must survive a second encoding and decoding unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardkeep_core::example::{FeatureValue, Value, decode, decode_sequence, encode};

fuzz_target!(|data: &[u8]| {
    let _ = decode_sequence(data);
    let Ok(features) = decode(data) else { return };
    let again: Vec<(&str, FeatureValue<'_>)> = features
        .iter()
        .filter_map(|(key, value)| {
            Some((
                *key,
                match value {
                    Value::Bytes(values) => FeatureValue::Bytes(values),
                    Value::Float(values) => FeatureValue::Float(values),
                    Value::Int64(values) => FeatureValue::Int64(values),
                    Value::Empty => return None,
                },
            ))
        })
        .collect();
    let bytes = encode(&again);
    let kept: Vec<_> = features.iter().filter(|(_, value)| !matches!(value, Value::Empty)).collect();
    let decoded = decode(&bytes).expect("what was just encoded");
    // Debug text, since a NaN is not equal to itself.
    assert_eq!(format!("{kept:?}"), format!("{:?}", decoded.iter().collect::<Vec<_>>()));
});
