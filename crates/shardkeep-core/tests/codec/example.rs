use shardkeep_core::example::{FeatureValue, Value, decode, decode_sequence, encode, encode_sequence};

/// `tf.train.Example` with one feature of each kind and an empty list, by protobuf's
/// `SerializeToString(deterministic=True)`.
const BY_PROTOBUF: &[u8] = b"\x0a\x48\
    \x0a\x14\x0a\x01a\x12\x0f\x1a\x0d\x0a\x0b\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\
    \x0a\x12\x0a\x01b\x12\x0d\x0a\x0b\x0a\x02hi\x0a\x00\x0a\x03\x00\x01\x02\
    \x0a\x11\x0a\x01c\x12\x0c\x12\x0a\x0a\x08\x00\x00\x80\x3f\x00\x00\x00\xc0\
    \x0a\x09\x0a\x03nil\x12\x02\x1a\x00";

#[test]
fn encodes_byte_for_byte_as_protobuf() {
    let features = [
        ("nil", FeatureValue::Int64(&[])),
        ("c", FeatureValue::Float(&[1.0, -2.0])),
        ("a", FeatureValue::Int64(&[1, -1])),
        ("b", FeatureValue::Bytes(&[b"hi", b"", &[0, 1, 2]])),
    ];
    assert_eq!(encode(&features), BY_PROTOBUF);
    assert_eq!(encode(&[]), b"\x0a\x00");
}

#[test]
fn keys_come_in_the_order_of_pythons_protobuf() {
    let keys = ["", "b", "a", "aa", "ab"].map(|key| (key, FeatureValue::Int64(&[])));
    let order: Vec<u8> = encode(&keys);
    // By protobuf 6: aa, ab, a, b and the empty key last.
    let entry = |key: &str| {
        let mut entry = vec![0x0a, 6 + key.len() as u8, 0x0a, key.len() as u8];
        entry.extend_from_slice(key.as_bytes());
        entry.extend_from_slice(&[0x12, 2, 0x1a, 0]);
        entry
    };
    assert_eq!(order[2..], ["aa", "ab", "a", "b", ""].map(entry).concat());
}

#[test]
fn the_size_is_known_before_the_first_byte() {
    let long = vec![7u8; 300];
    let numbers: Vec<i64> = (0..400).map(|i| i * 1_000_003).collect();
    let out = encode(&[("x", FeatureValue::Bytes(&[&long])), ("y", FeatureValue::Int64(&numbers))]);
    assert_eq!(out.capacity(), out.len());
}

#[test]
fn decodes_what_it_encodes_in_key_order() {
    let values = decode(BY_PROTOBUF).unwrap();
    assert_eq!(
        values,
        [
            ("a", Value::Int64(vec![1, -1])),
            ("b", Value::Bytes(vec![b"hi", b"", &[0, 1, 2]])),
            ("c", Value::Float(vec![1.0, -2.0])),
            ("nil", Value::Int64(vec![])),
        ]
    );
}

#[test]
fn reads_packed_unpacked_and_mixed_lists() {
    // int64_list { packed 1, 2; unpacked 3; packed 300 }, float_list { unpacked 1.0; packed 2.0 }
    let record = b"\x0a\x28\
        \x0a\x11\x0a\x01i\x12\x0c\x1a\x0a\x0a\x02\x01\x02\x08\x03\x0a\x02\xac\x02\
        \x0a\x13\x0a\x01f\x12\x0e\x12\x0c\x0d\x00\x00\x80\x3f\x0a\x05\x00\x00\x00\x40";
    // The packed float chunk claims 5 bytes: broken.
    assert!(decode(record).is_err());
    let record = b"\x0a\x27\
        \x0a\x11\x0a\x01i\x12\x0c\x1a\x0a\x0a\x02\x01\x02\x08\x03\x0a\x02\xac\x02\
        \x0a\x12\x0a\x01f\x12\x0d\x12\x0b\x0d\x00\x00\x80\x3f\x0a\x04\x00\x00\x00\x40";
    let values = decode(record).unwrap();
    assert_eq!(values, [("f", Value::Float(vec![1.0, 2.0])), ("i", Value::Int64(vec![1, 2, 3, 300]))]);
}

#[test]
fn the_last_of_equal_keys_counts() {
    let one = encode(&[("k", FeatureValue::Int64(&[1]))]);
    let two = encode(&[("k", FeatureValue::Float(&[2.0]))]);
    // Two `features` fields in one Example are merged by protobuf.
    let both = [one, two].concat();
    assert_eq!(decode(&both).unwrap(), [("k", Value::Float(vec![2.0]))]);
}

#[test]
fn merges_a_value_that_comes_twice_in_one_entry() {
    // entry { key "k"; value int64_list [1]; value int64_list [2] }
    let entry = b"\x0a\x01k\x12\x05\x1a\x03\x0a\x01\x01\x12\x05\x1a\x03\x0a\x01\x02";
    let record = [b"\x0a\x13\x0a\x11".as_slice(), entry].concat();
    assert_eq!(decode(&record).unwrap(), [("k", Value::Int64(vec![1, 2]))]);
}

#[test]
fn skips_what_it_does_not_know() {
    // Example { unknown field 9 = 5; features { unknown field 3 = "x"; entry { key "k"; unknown 7 fixed32; no value } } }
    let record = b"\x48\x05\x0a\x0d\x1a\x01x\x0a\x08\x0a\x01k\x3d\x01\x02\x03\x04";
    assert_eq!(decode(record).unwrap(), [("k", Value::Empty)]);
    assert_eq!(decode(b"").unwrap(), []);
}

#[test]
fn refuses_keys_that_are_not_utf8() {
    assert!(decode(b"\x0a\x05\x0a\x03\x0a\x01\xff").unwrap_err().to_string().contains("UTF-8"));
}

#[test]
fn sequences_equal_protobufs_and_come_back() {
    let context = [("id", FeatureValue::Bytes(&[b"x"]))];
    let steps: &[FeatureValue] = &[FeatureValue::Int64(&[1, 2]), FeatureValue::Int64(&[])];
    let lists = [("b", steps), ("none", &[] as &[FeatureValue]), ("a", &[FeatureValue::Float(&[0.5])])];
    let record = encode_sequence(&context, &lists);
    // By protobuf 7.36.
    let by_protobuf = b"\x0a\x0d\x0a\x0b\x0a\x02\x69\x64\x12\x05\x0a\x03\x0a\x01\x78\x12\x2e\x0a\x0f\x0a\x01\x61\x12\x0a\x0a\x08\x12\x06\x0a\x04\x00\
        \x00\x00\x3f\x0a\x11\x0a\x01\x62\x12\x0c\x0a\x06\x1a\x04\x0a\x02\x01\x02\x0a\x02\x1a\x00\x0a\x08\x0a\x04\x6e\x6f\x6e\x65\x12\x00";
    assert_eq!(record, by_protobuf);
    assert_eq!(record.capacity(), record.len());
    let (context, lists) = decode_sequence(&record).unwrap();
    assert_eq!(context, [("id", Value::Bytes(vec![b"x"]))]);
    let wanted = [
        ("a", vec![Value::Float(vec![0.5])]),
        ("b", vec![Value::Int64(vec![1, 2]), Value::Int64(vec![])]),
        ("none", vec![]),
    ];
    assert_eq!(lists, wanted);
    // A second `feature_lists` field replaces the lists of the keys it has.
    let both = [record, encode_sequence(&[], &[("a", &[])])].concat();
    assert_eq!(decode_sequence(&both).unwrap().1[0], ("a", vec![]));
    assert!(decode_sequence(&both[..both.len() - 1]).is_err());
}

#[test]
fn a_step_without_a_kind_is_not_an_empty_list() {
    let steps: &[FeatureValue] = &[FeatureValue::Empty, FeatureValue::Int64(&[]), FeatureValue::Empty];
    let record = encode_sequence(&[("c", FeatureValue::Empty)], &[("x", steps)]);
    assert_eq!(
        record,
        b"\x0a\x07\x0a\x05\x0a\x01c\x12\x00\x12\x0f\x0a\x0d\x0a\x01x\x12\x08\x0a\x00\x0a\x02\x1a\x00\x0a\x00"
    );
    let (context, lists) = decode_sequence(&record).unwrap();
    assert_eq!(context, [("c", Value::Empty)]);
    assert_eq!(lists, [("x", vec![Value::Empty, Value::Int64(vec![]), Value::Empty])]);
}
