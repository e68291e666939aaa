//! `tf.train.SequenceExample`: a context as in an Example, and lists of Features, one Feature per step.

#![deny(clippy::indexing_slicing)]

use super::content::{Content, DecodeError};
use super::decode::{Value, features, keyed, last_of_each, value};
use super::encode::{FeatureValue, features_len, field_len, key_order, put_features, put_header};
use super::lists::FeatureView;
use super::parse::maps;
use crate::example::wire::{Cursor, Wire};

/// Context and feature lists, each sorted by the bytes of the key.
pub type Sequence<'a> = (Vec<(&'a str, Value<'a>)>, Vec<(&'a str, Vec<Value<'a>>)>);

/// Decode a record; both of its maps follow the rules of Examples.
///
/// # Errors
/// The record is not valid, or holds another message. An Example is a SequenceExample with a context only.
pub fn decode_sequence(record: &[u8]) -> Result<Sequence<'_>, DecodeError> {
    let (mut context, mut lists) = (Vec::new(), Vec::new());
    maps(record, Content::SequenceExample, |field, key, pieces| {
        if field == 1 { &mut context } else { &mut lists }.push(keyed(key, pieces));
    })?;
    let mut steps = Vec::with_capacity(lists.len());
    for (key, pieces) in last_of_each(lists) {
        let mut values = Vec::new();
        for piece in pieces {
            let mut list = Cursor::new(piece);
            while let Some((field, wire)) = list.tag()? {
                if (field, wire) == (1, Wire::Bytes) {
                    values.push(value(&FeatureView::new(list.bytes()?)?)?);
                } else {
                    list.skip(field, wire)?;
                }
            }
        }
        steps.push((key, values));
    }
    Ok((features(context)?, steps))
}

/// Encode a SequenceExample with both of its fields set, as `tf.train.SequenceExample(context=…, feature_lists=…)` does.
/// The order of keys is that of [`super::encode`].
pub fn encode_sequence(
    context: &[(&str, FeatureValue<'_>)],
    lists: &[(&str, &[FeatureValue<'_>])],
) -> Vec<u8> {
    let list_len =
        |steps: &[FeatureValue<'_>]| steps.iter().map(|step| field_len(step.feature_len())).sum::<usize>();
    let entry_len = |key: &str, steps: &[FeatureValue<'_>]| field_len(key.len()) + field_len(list_len(steps));
    let context_len = features_len(context);
    let lists_len = lists.iter().map(|(key, steps)| field_len(entry_len(key, steps))).sum::<usize>();
    let mut out = Vec::with_capacity(field_len(context_len) + field_len(lists_len));
    put_header(&mut out, 0x0a, context_len);
    put_features(&mut out, context);
    put_header(&mut out, 0x12, lists_len);
    let mut sorted: Vec<&(&str, &[FeatureValue<'_>])> = lists.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| key_order(a.as_bytes(), b.as_bytes()));
    for (key, steps) in sorted {
        put_header(&mut out, 0x0a, entry_len(key, steps));
        put_header(&mut out, 0x0a, key.len());
        out.extend_from_slice(key.as_bytes());
        put_header(&mut out, 0x12, list_len(steps));
        for step in *steps {
            put_header(&mut out, 0x0a, step.feature_len());
            step.put_feature(&mut out);
        }
    }
    out
}
