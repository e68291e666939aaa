//! `tf.train.Example`: the encoder, the decoder into values, and the fast parser that fills columns.
//!
//! ```text
//! Example  { Features features = 1 }
//! Features { map<string, Feature> feature = 1 }          an entry is { string key = 1; Feature value = 2 }
//! Feature  { oneof { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3 } }
//! *List    { repeated value = 1 }                         float and int64 packed or not
//!
//! SequenceExample { Features context = 1; FeatureLists feature_lists = 2 }
//! FeatureLists    { map<string, FeatureList> feature_list = 1 }
//! FeatureList     { repeated Feature feature = 1 }
//! ```
//!
//! The rules of protobuf hold: unknown fields are skipped, a known field with another wire type is unknown, a later map
//! entry replaces an earlier one with the same key, and a repeated message field is merged. One rule is stricter: a record
//! whose bytes are those of another message is refused ([`content`]).

pub mod content;
pub mod decode;
pub mod encode;
pub mod layout;
pub mod lists;
pub mod parse;
pub mod rows;
pub mod sequence;
pub mod wire;

pub use content::{Content, DecodeError};
pub use decode::{Value, decode};
pub use encode::{FeatureValue, encode};
pub use sequence::{decode_sequence, encode_sequence};
