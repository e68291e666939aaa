//! Schema of a batch: named features, each with a kind.
//!
//! [`Schema::new`] checks that names are unique, that the product of a shape does not overflow, and that a default has one
//! value or one per element. All users of a schema rely on these checks.

#![deny(clippy::indexing_slicing)]

use std::collections::HashMap;

pub use shardkeep_image::ImageDType;

/// The element type of a feature, one of the three that `tf.train.Feature` can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    Int64,
    Float32,
    Bytes,
}

impl DType {
    /// Return the name of the type in the Python API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int64 => "int64",
            Self::Float32 => "float32",
            Self::Bytes => "bytes",
        }
    }
}

/// Value of a `Fixed` feature that a record lacks: one value for all elements, or one per element.
#[derive(Debug, Clone, PartialEq)]
pub enum DefaultValue {
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Bytes(Vec<Vec<u8>>),
}

impl DefaultValue {
    /// Return the element type.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Int64(_) => DType::Int64,
            Self::Float32(_) => DType::Float32,
            Self::Bytes(_) => DType::Bytes,
        }
    }

    /// Return the number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Int64(values) => values.len(),
            Self::Float32(values) => values.len(),
            Self::Bytes(values) => values.len(),
        }
    }

    /// Return true without values, which is valid only for a shape without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Conversion of the values of a feature into a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// The same number of values in every record: an array of (rows, *shape).
    Fixed { dtype: DType, shape: Vec<usize>, default: Option<DefaultValue> },
    /// Any number of values: ragged. A record without the feature is an empty row.
    Var { dtype: DType },
    /// One PNG, JPEG or WebP: an array of (rows, height, width, channels). `channels` 0 keeps what the image has; `size`
    /// (height, width) resizes images of other sizes.
    Image { channels: u8, dtype: ImageDType, size: Option<(usize, usize)> },
}

/// A named column.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature {
    pub name: String,
    pub kind: Kind,
}

impl Feature {
    /// Return the number of elements of one row: the product of a fixed shape, 1 for other kinds.
    pub fn elements(&self) -> usize {
        match &self.kind {
            Kind::Fixed { shape, .. } => shape.iter().product(),
            _ => 1,
        }
    }
}

/// An invalid schema: the feature and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    pub feature: String,
    pub message: String,
}

impl std::fmt::Display for SchemaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "feature {:?}: {}", self.feature, self.message)
    }
}

impl std::error::Error for SchemaError {}

/// The features of a batch, in the order of its columns.
#[derive(Debug, Clone)]
pub struct Schema {
    features: Vec<Feature>,
    by_name: HashMap<Box<[u8]>, usize>,
}

/// Largest number of elements of a row; products below it cannot overflow.
const MAX_ELEMENTS: usize = 1 << 40;

impl Schema {
    /// Check `features` and create the lookup table.
    pub fn new(features: Vec<Feature>) -> Result<Self, SchemaError> {
        let mut by_name = HashMap::with_capacity(features.len());
        for (index, feature) in features.iter().enumerate() {
            check(feature).map_err(|message| SchemaError { feature: feature.name.clone(), message })?;
            if by_name.insert(feature.name.as_bytes().into(), index).is_some() {
                return Err(SchemaError { feature: feature.name.clone(), message: "occurs twice".into() });
            }
        }
        Ok(Self { features, by_name })
    }

    /// Return the features, in column order.
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// Return the column of the feature `name`, given as the bytes in a record.
    pub fn position(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

fn check(feature: &Feature) -> Result<(), String> {
    match &feature.kind {
        Kind::Fixed { dtype, shape, default } => {
            let elements = shape
                .iter()
                .try_fold(1usize, |product, &side| product.checked_mul(side))
                .filter(|&product| product <= MAX_ELEMENTS)
                .ok_or_else(|| format!("shape {shape:?} has too many elements"))?;
            if let Some(default) = default {
                if default.dtype() != *dtype {
                    let (wanted, found) = (dtype.name(), default.dtype().name());
                    return Err(format!("the default must be {wanted}, not {found}"));
                }
                if default.len() != 1 && default.len() != elements {
                    let found = default.len();
                    return Err(format!(
                        "the default must have 1 or {elements} values (shape {shape:?}), not {found}"
                    ));
                }
            }
        }
        Kind::Var { .. } => {}
        Kind::Image { channels, size, .. } => {
            if !matches!(channels, 0 | 1 | 3 | 4) {
                return Err(format!("channels must be 0 (as stored), 1, 3 or 4, not {channels}"));
            }
            if let Some((height, width)) = size {
                let sides_ok = (1..=MAX_SIDE).contains(height) && (1..=MAX_SIDE).contains(width);
                if !sides_ok {
                    return Err(format!(
                        "size must be 1..={MAX_SIDE} on both sides, not ({height}, {width})"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Largest side of an image, stored or resized (the limit of JPEG).
pub const MAX_SIDE: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: Kind) -> Result<Schema, String> {
        Schema::new(vec![Feature { name: "x".into(), kind }]).map_err(|error| error.to_string())
    }

    #[test]
    fn looks_up_by_name() {
        let var = |name: &str| Feature { name: name.into(), kind: Kind::Var { dtype: DType::Int64 } };
        let schema = Schema::new(vec![var("b"), var("a")]).map_err(|e| e.to_string());
        let schema = schema.unwrap_or_else(|e| unreachable!("{e}"));
        assert_eq!(schema.position(b"a"), Some(1));
        assert_eq!(schema.position(b"c"), None);
        let twice = Schema::new(vec![var("b"), var("b")]).map_err(|e| e.to_string());
        assert_eq!(twice.map(|_| ()), Err("feature \"b\": occurs twice".to_string()));
    }

    #[test]
    fn refuses_invalid_features() {
        let fixed =
            |shape: &[usize], default| Kind::Fixed { dtype: DType::Int64, shape: shape.to_vec(), default };
        assert!(one(fixed(&[2], Some(DefaultValue::Int64(vec![1, 2])))).is_ok());
        assert!(one(fixed(&[2], Some(DefaultValue::Int64(vec![1])))).is_ok());
        assert!(one(fixed(&[0, usize::MAX], None)).is_ok());
        let message = |kind| one(kind).map(|_| ()).unwrap_err_or_default();
        assert!(message(fixed(&[2], Some(DefaultValue::Int64(vec![1; 3])))).contains("1 or 2 values"));
        assert!(message(fixed(&[2], Some(DefaultValue::Float32(vec![1.0])))).contains("int64, not float32"));
        assert!(message(fixed(&[usize::MAX, 2], None)).contains("too many elements"));
        let image = |channels, size| Kind::Image { channels, dtype: ImageDType::U8, size };
        assert!(message(image(2, None)).contains("channels"));
        assert!(message(image(3, Some((0, 4)))).contains("size"));
        assert!(one(image(0, Some((4, 4)))).is_ok());
    }

    trait ErrorOrDefault {
        fn unwrap_err_or_default(self) -> String;
    }

    impl ErrorOrDefault for Result<(), String> {
        fn unwrap_err_or_default(self) -> String {
            self.err().unwrap_or_default()
        }
    }
}
