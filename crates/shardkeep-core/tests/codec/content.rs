//! Records that are not Examples: each is recognised, and none is decoded in part.

use std::sync::Arc;

use shardkeep_core::batch::columns::{BatchColumns, DType, Feature, Kind, RowErrorKind, Schema, Scratch};
use shardkeep_core::example::{
    Content, DecodeError, FeatureValue, decode, decode_sequence, encode, encode_sequence,
};

/// Return a length-delimited field of fewer than 128 bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

fn example(label: i64) -> Vec<u8> {
    encode(&[("label", FeatureValue::Int64(&[label])), ("name", FeatureValue::Bytes(&[b"n"]))])
}

fn columns_error(record: &[u8]) -> (RowErrorKind, String) {
    let kind = Kind::Var { dtype: DType::Int64 };
    let schema = Arc::new(Schema::new(vec![Feature { name: "label".into(), kind }]).unwrap());
    let mut scratch = Scratch::default();
    let good = example(1);
    // After Examples, whose keys and layouts are known then.
    BatchColumns::new(Arc::clone(&schema), 2).unwrap().fill(0, &[&good, &good], &mut scratch).unwrap();
    let batch = BatchColumns::new(Arc::clone(&schema), 1).unwrap();
    let error = batch.fill(0, &[record], &mut scratch).unwrap_err();
    (error.kind, error.message)
}

fn records() -> Vec<(Vec<u8>, Content)> {
    let (good, other) = (example(3), example(4));
    let step: &[FeatureValue] = &[FeatureValue::Int64(&[1])];
    let context = [("label", FeatureValue::Int64(&[3]))];
    let time = [&[0x09][..], &1.7e9_f64.to_le_bytes()].concat();
    let item = |value: &[u8]| field(1, &field(1, &[field(1, b"\x08\x01"), field(2, value)].concat()));
    vec![
        (encode_sequence(&context, &[("words", step)]), Content::SequenceExample),
        (encode_sequence(&[], &[("words", step)])[2..].to_vec(), Content::SequenceExample),
        (encode_sequence(&context, &[]), Content::SequenceExample),
        (encode_sequence(&[], &[]), Content::SequenceExample),
        (field(1, &good), Content::ExampleListWithContext),
        ([field(1, &good), field(1, &other)].concat(), Content::ExampleListWithContext),
        ([field(1, &good), field(2, &other)].concat(), Content::ExampleListWithContext),
        ([field(2, &other), field(1, &good), field(1, &good)].concat(), Content::ExampleListWithContext),
        (field(1, &encode(&[])), Content::ExampleListWithContext),
        ([time.clone(), field(3, b"brain.Event:2")].concat(), Content::Event),
        ([time, b"\x10\x05".to_vec(), field(5, &field(1, b"\x0a\x01x"))].concat(), Content::Event),
        // A user's message around Features, and one whose items have two parts.
        ([good.clone(), field(2, b"\x08\x01")].concat(), Content::Message),
        (item(b"\x08\x01"), Content::Message),
        (item(&field(1, b"hello")), Content::Message),
        (field(3, &good), Content::Message),
        (field(1, b"\x08\x01"), Content::Message),
        (b"\x08\x05\x12\x03abc".to_vec(), Content::Message),
        ([field(1, b"hello"), b"\x18\x05".to_vec()].concat(), Content::Message),
        (b"{\"label\": 3}".to_vec(), Content::Data("JSON text")),
        ("straße und weiter".into(), Content::Data("text")),
        (b"\nhello world".to_vec(), Content::Data("text")),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(), Content::Data("PNG image")),
        (b"\x80\x04\x95\x03\0\0\0\0\0\0\0K\x01.".to_vec(), Content::Data("Python pickle")),
    ]
}

#[test]
fn other_messages_are_named_and_refused() {
    for (record, content) in records() {
        assert_eq!(Content::of(&record), Some(content), "{record:02x?}");
        assert_eq!(decode(&record), Err(DecodeError::Other(content)), "{record:02x?}");
        let (kind, message) = columns_error(&record);
        assert_eq!(kind, RowErrorKind::OtherMessage, "{record:02x?}");
        assert!(
            message.contains(content.name()) && message.contains("Reader") || message.contains("read_"),
            "{message}"
        );
        let as_sequence = decode_sequence(&record);
        match content {
            Content::SequenceExample => assert!(as_sequence.is_ok()),
            _ => assert_eq!(as_sequence, Err(DecodeError::Other(content)), "{record:02x?}"),
        }
    }
}

#[test]
fn unusual_examples_are_examples() {
    let good = example(3);
    for record in [
        vec![],
        encode(&[]),
        good.clone(),
        [good.clone(), good.clone()].concat(),
        // Fields of a later version: a number, and a message, which parsers skip.
        [good.clone(), b"\x18\x05".to_vec()].concat(),
        [field(9, b"later"), good.clone()].concat(),
        [b"\x10\x05".to_vec(), good].concat(),
        // An unknown field in Features, an entry without a value, an empty key, a key with a control character.
        field(1, &[b"\x18\x05".to_vec(), field(1, &field(1, b"k"))].concat()),
        field(1, &field(1, &[field(1, b""), field(2, b"")].concat())),
        encode(&[("a\nb", FeatureValue::Int64(&[1]))]),
        encode(&[("k", FeatureValue::Empty), ("nil", FeatureValue::Bytes(&[]))]),
    ] {
        assert_eq!(Content::of(&record), Some(Content::Example), "{record:02x?}");
        assert!(decode(&record).is_ok(), "{record:02x?}");
        assert!(decode_sequence(&record).is_ok(), "{record:02x?}");
    }
}

#[test]
fn bytes_of_no_known_form_are_malformed() {
    for record in
        [&b"\x0a"[..], b"\x0a\x05abc", b"\xff\xff", &[0; 8], b"\x0a\x03\x0a\x09x", &field(1, b"hello")]
    {
        assert_eq!(Content::of(record), None, "{record:02x?}");
        assert!(matches!(decode(record), Err(DecodeError::Malformed(_))), "{record:02x?}");
        assert_eq!(columns_error(record).0, RowErrorKind::Malformed);
    }
}

#[test]
fn binary_names_with_values_are_names() {
    let step: &[FeatureValue] = &[FeatureValue::Int64(&[1]), FeatureValue::Empty];
    for context in [FeatureValue::Int64(&[1]), FeatureValue::Bytes(&[]), FeatureValue::Empty] {
        let record = encode(&[("a\nb", context), ("\0", context)]);
        assert_eq!(Content::of(&record), Some(Content::Example));
        assert_eq!(decode(&record).unwrap().len(), 2);
        let record = encode_sequence(&[("a\nb", context)], &[("\x01", step), ("\x02", &[])]);
        assert_eq!(Content::of(&record), Some(Content::SequenceExample));
        assert_eq!(decode_sequence(&record).unwrap().1.len(), 2);
    }
}
