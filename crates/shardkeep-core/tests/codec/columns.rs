use std::sync::Arc;

use shardkeep_core::batch::columns::{
    BatchColumns, Column, DType, DefaultValue, Feature, GatheredColumns, ImageDType, Kind, RowError,
    RowErrorKind, Schema, Scratch,
};
use shardkeep_core::example::{FeatureValue, encode};

fn fixed(dtype: DType, shape: &[usize]) -> Kind {
    Kind::Fixed { dtype, shape: shape.to_vec(), default: None }
}

fn schema(features: &[(&str, Kind)]) -> Arc<Schema> {
    let features = features.iter().map(|(name, kind)| Feature { name: name.to_string(), kind: kind.clone() });
    Arc::new(Schema::new(features.collect()).unwrap())
}

fn fill(schema: &Arc<Schema>, records: &[&[u8]]) -> Result<Vec<Column>, RowError> {
    let batch = BatchColumns::new(Arc::clone(schema), records.len())?;
    batch.fill(0, records, &mut Scratch::default())?;
    Ok(batch.finish()?.into_iter().map(|(_, column)| column).collect())
}

fn error(kind: Kind, record: &[u8]) -> (RowErrorKind, String) {
    let error = fill(&schema(&[("x", kind)]), &[record]).unwrap_err();
    assert_eq!(error.message.lines().count(), 1);
    (error.kind, error.message)
}

#[test]
fn scalars_shapes_and_padding() {
    let schema = schema(&[
        ("i", fixed(DType::Int64, &[])),
        ("f", fixed(DType::Float32, &[2, 1])),
        ("b", fixed(DType::Bytes, &[2])),
    ]);
    let record = |i: i64, f: [f32; 2], b: [&[u8]; 2]| {
        encode(&[
            ("i", FeatureValue::Int64(&[i])),
            ("f", FeatureValue::Float(&f)),
            ("b", FeatureValue::Bytes(&b)),
        ])
    };
    let records = [record(-5, [1.0, 2.0], [b"ab", b""]), record(1 << 40, [3.0, 4.0], [b"c", b"de"])];
    let batch = BatchColumns::new(schema, 4).unwrap();
    // Row 0 and row 3 stay empty; the second row is filled first.
    let mut scratch = Scratch::default();
    batch.fill(2, &[&records[1]], &mut scratch).unwrap();
    batch.fill(1, &[&records[0]], &mut scratch).unwrap();
    let columns = batch.finish().unwrap();
    assert_eq!(
        columns[0],
        ("i".into(), Column::FixedI64 { data: vec![0, -5, 1 << 40, 0].into(), shape: vec![4] })
    );
    let data = vec![0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0].into();
    assert_eq!(columns[1].1, Column::FixedF32 { data, shape: vec![4, 2, 1] });
    let offsets = vec![0, 0, 0, 2, 2, 3, 5, 5, 5];
    assert_eq!(columns[2].1, Column::FixedBytes { values: b"abcde".to_vec(), offsets, shape: vec![4, 2] });
}

#[test]
fn ragged_columns_join_in_row_order() {
    let kinds = [("i", DType::Int64), ("f", DType::Float32), ("b", DType::Bytes)];
    let schema = schema(&kinds.map(|(name, dtype)| (name, Kind::Var { dtype })));
    let batch = BatchColumns::new(schema, 6).unwrap();
    let row = |n: usize| {
        let ints: Vec<i64> = (0..n as i64).collect();
        let floats = vec![n as f32; n % 2];
        let bytes = vec![b"xy".as_slice(); n];
        encode(&[
            ("i", FeatureValue::Int64(&ints)),
            ("f", FeatureValue::Float(&floats)),
            ("b", FeatureValue::Bytes(&bytes)),
        ])
    };
    let (one, two, three) = (row(1), row(2), row(3));
    std::thread::scope(|scope| {
        let batch = &batch;
        scope.spawn(|| batch.fill(4, &[&three], &mut Scratch::default()).unwrap());
        scope.spawn(|| batch.fill(1, &[&two, b"", &one], &mut Scratch::default()).unwrap());
    });
    let columns: Vec<Column> = batch.finish().unwrap().into_iter().map(|(_, column)| column).collect();
    let offsets = vec![0, 0, 2, 2, 3, 6, 6];
    assert_eq!(columns[0], Column::VarI64 { values: vec![0, 1, 0, 0, 1, 2], offsets: offsets.clone() });
    assert_eq!(columns[1], Column::VarF32 { values: vec![1.0, 3.0], offsets: vec![0, 0, 0, 0, 1, 2, 2] });
    let value_offsets = (0..=6).map(|i| 2 * i).collect();
    assert_eq!(columns[2], Column::VarBytes { values: b"xyxyxyxyxyxy".to_vec(), value_offsets, offsets });
}

#[test]
fn defaults_fill_what_is_missing_or_unset() {
    let with = |dtype, shape: &[usize], default| Kind::Fixed {
        dtype,
        shape: shape.to_vec(),
        default: Some(default),
    };
    let schema = schema(&[
        ("i", with(DType::Int64, &[2], DefaultValue::Int64(vec![7]))),
        ("f", with(DType::Float32, &[2], DefaultValue::Float32(vec![0.5, 1.5]))),
        ("b", with(DType::Bytes, &[2], DefaultValue::Bytes(vec![b"z".to_vec()]))),
    ]);
    // An entry whose Feature has no kind counts as missing.
    let unset = b"\x0a\x07\x0a\x05\x0a\x01i\x12\x00";
    for record in [&b""[..], unset] {
        let columns = fill(&schema, &[record]).unwrap();
        assert_eq!(columns[0], Column::FixedI64 { data: vec![7, 7].into(), shape: vec![1, 2] });
        assert_eq!(columns[1], Column::FixedF32 { data: vec![0.5, 1.5].into(), shape: vec![1, 2] });
        let bytes = Column::FixedBytes { values: b"zz".to_vec(), offsets: vec![0, 1, 2], shape: vec![1, 2] };
        assert_eq!(columns[2], bytes);
    }
}

#[test]
fn errors_name_both_sides() {
    let ints = encode(&[("x", FeatureValue::Int64(&[1, 2, 3]))]);
    let empty = encode(&[("x", FeatureValue::Int64(&[]))]);
    let (kind, message) = error(fixed(DType::Int64, &[2]), &ints);
    assert_eq!(
        (kind, &message[..]),
        (RowErrorKind::WrongShape, "expected int64 of shape (2,) (2 values), found 3")
    );
    assert_eq!(error(fixed(DType::Int64, &[]), &empty).0, RowErrorKind::WrongShape);
    let (kind, message) = error(fixed(DType::Float32, &[]), &ints);
    let wanted = "expected float32 of shape (), found int64 (3 values)";
    assert_eq!((kind, &message[..]), (RowErrorKind::WrongDType, wanted));
    assert_eq!(error(Kind::Var { dtype: DType::Bytes }, &ints).0, RowErrorKind::WrongDType);
    let others: Vec<String> = (0..14).map(|number| format!("f\n{number:02}")).collect();
    let others: Vec<_> = others.iter().map(|name| (&name[..], FeatureValue::Int64(&[1]))).collect();
    let listed =
        |count: usize| (0..count).map(|number| format!("\"f\\n{number:02}\"")).collect::<Vec<_>>().join(", ");
    for (record, found) in [
        (Vec::new(), "no features".to_owned()),
        (encode(&others[..2]), format!("only {}", listed(2))),
        (encode(&others), format!("only {}, 2 more", listed(12))),
        (b"\x0a\x07\x0a\x05\x0a\x01x\x12\x00".to_vec(), "it without values".to_owned()),
    ] {
        let (kind, message) = error(fixed(DType::Int64, &[]), &record);
        let wanted = format!("expected int64 of shape (), but the record has {found}");
        assert_eq!((kind, message), (RowErrorKind::Missing, wanted));
    }
    let image = Kind::Image { channels: 3, dtype: ImageDType::U8, size: None };
    let two = encode(&[("x", FeatureValue::Bytes(&[b"a", b"b"]))]);
    assert_eq!(error(image.clone(), &two).0, RowErrorKind::WrongShape);
    let gif = encode(&[("x", FeatureValue::Bytes(&[b"GIF89a"]))]);
    let (kind, message) = error(image, &gif);
    assert_eq!(kind, RowErrorKind::Image);
    assert!(message.contains("found a GIF image"), "{message}");
    assert_eq!(error(fixed(DType::Int64, &[]), b"\x0a\xff").0, RowErrorKind::Malformed);
    assert_eq!(
        error(fixed(DType::Int64, &[]), b"\x0a\x0c\x0a\x0a\x0a\x01x\x12\x05\x1a\x03\x0a\x01\xff").0,
        RowErrorKind::Malformed
    );
}

#[test]
fn both_walks_agree_on_odd_encodings() {
    let schema = schema(&[("a", fixed(DType::Int64, &[])), ("v", Kind::Var { dtype: DType::Int64 })]);
    let plain = encode(&[("a", FeatureValue::Int64(&[300])), ("v", FeatureValue::Int64(&[1, 2]))]);
    let entry = |key: &[u8], feature: &[u8]| {
        let inner = [&[0x0a, key.len() as u8], key, &[0x12, feature.len() as u8], feature].concat();
        [&[0x0a, inner.len() as u8], &inner[..]].concat()
    };
    let example = |entries: &[Vec<u8>]| {
        let inner = entries.concat();
        [&[0x0a, inner.len() as u8], &inner[..]].concat()
    };
    let a = entry(b"a", b"\x1a\x04\x0a\x02\xac\x02");
    let v = entry(b"v", b"\x1a\x04\x0a\x02\x01\x02");
    let wanted = fill(&schema, &[&plain]).unwrap();
    for odd in [
        example(&[a.clone(), v.clone()]),
        example(&[v.clone(), a.clone()]),
        // an earlier entry of another type is replaced, and so is an earlier ragged row
        example(&[entry(b"a", b"\x12\x06\x0a\x04\0\0\0\0"), v.clone(), a.clone()]),
        example(&[entry(b"v", b"\x1a\x03\x0a\x01\x09"), v.clone(), a.clone()]),
        // unpacked, in pieces, an unknown field, two `features` fields
        example(&[entry(b"a", b"\x1a\x03\x08\xac\x02"), entry(b"v", b"\x1a\x05\x0a\x01\x01\x08\x02")]),
        example(&[
            entry(b"a", b"\x1a\x06\x0a\x02\xac\x02\x50\x01"),
            entry(b"v", b"\x1a\x02\x08\x01\x1a\x02\x08\x02"),
        ]),
        [example(std::slice::from_ref(&a)), example(std::slice::from_ref(&v))].concat(),
        [vec![0x50, 1], example(&[a.clone(), entry(b"other", b""), v.clone()])].concat(),
    ] {
        assert_eq!(fill(&schema, &[&odd]).unwrap(), wanted, "{odd:02x?}");
        // The same between plain records, when the order of the keys is known already.
        let three = fill(&schema, &[&plain, &odd, &plain]).unwrap();
        assert_eq!(three[0], Column::FixedI64 { data: vec![300; 3].into(), shape: vec![3] });
        let offsets = vec![0, 2, 4, 6];
        assert_eq!(three[1], Column::VarI64 { values: [1, 2].repeat(3), offsets });
    }
}

#[test]
fn a_bad_record_leaves_its_row_free_and_zeroed() {
    let schema = schema(&[
        ("a", fixed(DType::Int64, &[])),
        ("v", Kind::Var { dtype: DType::Int64 }),
        ("z", fixed(DType::Int64, &[])),
    ]);
    let good = |n: i64| {
        let value = FeatureValue::Int64;
        encode(&[("a", value(&[n])), ("v", value(&[n, n])), ("z", value(&[n]))])
    };
    let bad = encode(&[("a", FeatureValue::Int64(&[9])), ("v", FeatureValue::Int64(&[9]))]);
    let (one, three) = (good(1), good(3));
    let batch = BatchColumns::new(Arc::clone(&schema), 3).unwrap();
    let mut scratch = Scratch::default();
    let error = batch.fill(0, &[&one, &bad, &three], &mut scratch).unwrap_err();
    assert_eq!((error.row, error.kind, error.feature.as_deref()), (1, RowErrorKind::Missing, Some("z")));
    let again = batch.fill(0, &[&one], &mut scratch).unwrap_err();
    assert_eq!((again.row, again.kind), (0, RowErrorKind::Slot));
    batch.fill(2, &[&three], &mut scratch).unwrap();
    let columns: Vec<Column> = batch.finish().unwrap().into_iter().map(|(_, column)| column).collect();
    assert_eq!(columns[0], Column::FixedI64 { data: vec![1, 0, 3].into(), shape: vec![3] });
    assert_eq!(columns[1], Column::VarI64 { values: vec![1, 1, 3, 3], offsets: vec![0, 2, 2, 4] });
    assert_eq!(columns[2], Column::FixedI64 { data: vec![1, 0, 3].into(), shape: vec![3] });
}

#[test]
fn rows_are_claimed_once_however_many_threads_try() {
    let schema = schema(&[("a", fixed(DType::Int64, &[]))]);
    let record = encode(&[("a", FeatureValue::Int64(&[5]))]);
    let records = vec![&record[..]; 150];
    let batch = BatchColumns::new(schema, 200).unwrap();
    let done: usize = std::thread::scope(|scope| {
        let fills: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| batch.fill(30, &records, &mut Scratch::default()).is_ok()))
            .collect();
        fills.into_iter().filter(|_| true).map(|fill| usize::from(fill.join().unwrap())).sum()
    });
    assert_eq!(done, 1);
    assert_eq!(batch.fill(100, &records, &mut Scratch::default()).unwrap_err().kind, RowErrorKind::Slot);
    // What the refused calls claimed on their way is free again.
    batch.fill(0, &records[..30], &mut Scratch::default()).unwrap();
    batch.fill(180, &records[..20], &mut Scratch::default()).unwrap();
}

#[test]
fn one_scratch_serves_several_schemas() {
    let first = schema(&[("a", fixed(DType::Int64, &[])), ("b", fixed(DType::Int64, &[]))]);
    let second = schema(&[("b", fixed(DType::Int64, &[])), ("a", fixed(DType::Int64, &[]))]);
    let record = encode(&[("a", FeatureValue::Int64(&[1])), ("b", FeatureValue::Int64(&[2]))]);
    let mut scratch = Scratch::default();
    for (schema, wanted) in [(&first, 1), (&second, 2), (&first, 1)] {
        let batch = BatchColumns::new(Arc::clone(schema), 1).unwrap();
        batch.fill(0, &[&record], &mut scratch).unwrap();
        assert_eq!(
            batch.finish().unwrap()[0].1,
            Column::FixedI64 { data: vec![wanted].into(), shape: vec![1] }
        );
    }
}

#[test]
fn parts_of_a_whole_have_their_own_rows_and_only_the_columns_that_it_lacks() {
    let whole = schema(&[
        ("a", fixed(DType::Int64, &[2])),
        ("v", Kind::Var { dtype: DType::Int64 }),
        ("f", fixed(DType::Float32, &[])),
        ("b", fixed(DType::Bytes, &[])),
    ]);
    let record = |n: i64| {
        encode(&[
            ("a", FeatureValue::Int64(&[n, -n])),
            ("b", FeatureValue::Bytes(&[b"b"])),
            ("f", FeatureValue::Float(&[n as f32])),
            ("v", FeatureValue::Int64(&[n])),
        ])
    };
    let bad = encode(&[("a", FeatureValue::Int64(&[7, 7]))]);
    let whole = Arc::new(GatheredColumns::new(whole, 5).unwrap());
    let (first, second) = (whole.part(2).unwrap(), whole.part(3).unwrap());
    assert_eq!(whole.part(1).unwrap_err().kind, RowErrorKind::Slot);
    assert_eq!(whole.part(usize::MAX).unwrap_err().kind, RowErrorKind::Slot);
    let mut scratch = Scratch::default();
    let (one, two) = (record(1), record(2));
    assert_eq!(second.fill(0, &[&one, &bad], &mut scratch).unwrap_err().row, 1);
    first.fill(1, &[&two], &mut scratch).unwrap();
    assert_eq!(first.fill(1, &[&two], &mut scratch).unwrap_err().kind, RowErrorKind::Slot);
    let columns = second.finish().unwrap();
    assert_eq!(columns[0], ("v".into(), Column::VarI64 { values: vec![1], offsets: vec![0, 1, 1, 1] }));
    let values = Column::FixedBytes { values: b"b".to_vec(), offsets: vec![0, 1, 1, 1], shape: vec![3] };
    assert_eq!(columns[1..], [("b".into(), values)]);
    drop(first);
    let found = Arc::into_inner(whole).unwrap().finish().unwrap();
    let a = Column::FixedI64 { data: vec![0, 0, 2, -2, 1, -1, 0, 0, 0, 0].into(), shape: vec![5, 2] };
    let f = Column::FixedF32 { data: vec![0.0, 2.0, 1.0, 0.0, 0.0].into(), shape: vec![5] };
    assert_eq!(found, [("a".into(), a), ("f".into(), f)]);
}
