//! Recognition of the messages that a parser of Examples would read in part, and of other data.
//!
//! Messages of protobuf have no magic number, and a parser skips the fields that it does not know. `Example.features`,
//! `SequenceExample.context` and `ExampleListWithContext.examples` are all field 1, so TensorFlow reads the context of a
//! SequenceExample as an Example and drops its steps. Here the structure decides: each of these messages is nested in its
//! own way, and the keys of their maps are text.
//!
//! ```text
//! ExampleListWithContext { repeated Example examples = 1; Example context = 2 }      tensorflow_serving/apis/input.proto
//! Event { double wall_time = 1; int64 step = 2; strings and messages = 3 to 10 }     tensorflow/core/util/event.proto
//! ```

#![deny(clippy::indexing_slicing)]

use super::lists::FeatureView;
use super::parse::map_entries;
use crate::error::Kind;
use crate::example::wire::{Cursor, Wire, WireError};

/// The content of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Example,
    SequenceExample,
    ExampleListWithContext,
    Event,
    /// A message of protobuf of any other type.
    Message,
    /// Data that are not protobuf, by name.
    Data(&'static str),
}

impl Content {
    /// Determine the content of `record`; `None` for bytes of no known form, which may be a damaged message.
    #[must_use]
    pub fn of(record: &[u8]) -> Option<Self> {
        let Ok(outer) = Outer::of(record) else {
            return known_data(record).map(Self::Data);
        };
        if record.is_empty() || outer.may_be_example() && outer.first.iter().all(|one| is_features(one)) {
            Some(Self::Example)
        } else if !outer.second.is_empty() && outer.consists_of(is_features, is_feature_lists) {
            Some(Self::SequenceExample)
        } else if outer.consists_of(is_example, is_example) {
            Some(Self::ExampleListWithContext)
        } else if outer.is_event {
            Some(Self::Event)
        } else {
            let features =
                outer.first.iter().try_fold(true, |all, one| Ok::<_, WireError>(all & are_entries(one)?));
            match (features, known_data(record)) {
                (Ok(true), _) if outer.may_be_example() => Some(Self::Example),
                (_, Some(name)) => Some(Self::Data(name)),
                (Err(_), None) if outer.may_be_example() && !outer.has_others => None,
                _ => Some(Self::Message),
            }
        }
    }

    /// Return the name of the message or of the data.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Example => "tf.train.Example",
            Self::SequenceExample => "tf.train.SequenceExample",
            Self::ExampleListWithContext => "tensorflow.serving.ExampleListWithContext",
            Self::Event => "tensorflow.Event",
            Self::Message => "protobuf message of another type",
            Self::Data(name) => name,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Example => "decode_example reads it",
            Self::SequenceExample => "read its bytes with Reader and pass them to decode_sequence_example",
            Self::ExampleListWithContext => {
                "read its bytes with Reader and parse them with TensorFlow Ranking"
            }
            Self::Event => "read the scalars of the file with read_scalars, or the bytes with Reader",
            Self::Message | Self::Data(_) => "read its bytes with Reader, or with a Loader without features",
        }
    }
}

/// The reason why a record cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    Malformed(WireError),
    /// The record holds another message, or other data.
    Other(Content),
}

impl DecodeError {
    /// Return the class of the error: the bytes of another message are not damaged.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Malformed(_) => Kind::Corrupt,
            Self::Other(_) => Kind::Format,
        }
    }
}

impl From<WireError> for DecodeError {
    fn from(error: WireError) -> Self {
        Self::Malformed(error)
    }
}

/// To be printed after the name of the expected message.
impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::Other(content) => write!(f, "it is a {}; {}", content.name(), content.advice()),
        }
    }
}

/// The fields of a record.
#[derive(Debug, Default)]
struct Outer<'a> {
    first: Vec<&'a [u8]>,
    second: Vec<&'a [u8]>,
    has_others: bool,
    is_event: bool,
}

impl<'a> Outer<'a> {
    fn of(record: &'a [u8]) -> Result<Self, WireError> {
        let mut outer = Self::default();
        let (mut has_time, mut has_content, mut has_unknown) = (false, false, false);
        let mut cursor = Cursor::new(record);
        while let Some((field, wire)) = cursor.tag()? {
            match (field, wire) {
                (1, Wire::Bytes) => outer.first.push(cursor.bytes()?),
                (2, Wire::Bytes) => outer.second.push(cursor.bytes()?),
                _ => {
                    outer.has_others = true;
                    match (field, wire) {
                        (1, Wire::Fixed64) => has_time = true,
                        (2, Wire::Varint) => {}
                        (3..=10, Wire::Bytes) => has_content = true,
                        _ => has_unknown = true,
                    }
                    cursor.skip(field, wire)?;
                }
            }
        }
        let has_bytes = !(outer.first.is_empty() && outer.second.is_empty());
        outer.is_event = has_time && has_content && !has_unknown && !has_bytes;
        Ok(outer)
    }

    /// Return true for a `features` field without a field 2, which no Example has. Other fields may be from a later version.
    fn may_be_example(&self) -> bool {
        !self.first.is_empty() && self.second.is_empty()
    }

    fn consists_of(&self, first: fn(&[u8]) -> bool, second: fn(&[u8]) -> bool) -> bool {
        !self.has_others
            && self.first.iter().all(|one| first(one))
            && self.second.iter().all(|one| second(one))
    }
}

/// Return true if all fields of a message are length-delimited and accepted by `holds`.
fn all_fields<'a>(message: &'a [u8], mut holds: impl FnMut(u32, &'a [u8]) -> bool) -> bool {
    let mut cursor = Cursor::new(message);
    loop {
        match cursor.tag() {
            Ok(None) => return true,
            Ok(Some((field, Wire::Bytes))) if cursor.bytes().is_ok_and(|content| holds(field, content)) => {}
            _ => return false,
        }
    }
}

/// Return true for a map from names to `is_value` messages. A name that may be a message itself must have a value.
fn is_map(message: &[u8], is_value: impl Fn(&[u8]) -> bool) -> bool {
    all_fields(message, |field, entry| {
        let (mut is_name, mut has_value) = (true, false);
        let holds = |field, content: &[u8]| match field {
            1 => {
                is_name = !has_control(content);
                std::str::from_utf8(content).is_ok()
            }
            2 => {
                has_value = true;
                is_value(content)
            }
            _ => false,
        };
        field == 1 && !entry.is_empty() && all_fields(entry, holds) && (is_name || has_value)
    })
}

fn is_feature(message: &[u8]) -> bool {
    all_fields(message, |field, _| (1..=3).contains(&field))
        && FeatureView::new(message).is_ok_and(|feature| feature.count().is_ok())
}

fn is_features(message: &[u8]) -> bool {
    is_map(message, is_feature)
}

fn is_feature_lists(message: &[u8]) -> bool {
    is_map(message, |list| all_fields(list, |field, step| field == 1 && is_feature(step)))
}

fn is_example(message: &[u8]) -> bool {
    all_fields(message, |field, features| field == 1 && is_features(features))
}

/// Return true for the entries of Features by the rules of protobuf, where a key that is not text has a value.
fn are_entries(message: &[u8]) -> Result<bool, WireError> {
    let (mut has_entries, mut are_plausible) = (message.is_empty(), true);
    map_entries(message, &mut |key, pieces| {
        has_entries = true;
        are_plausible &= !has_control(key) || pieces.iter().any(|one| !one.is_empty() && is_feature(one));
    })?;
    Ok(has_entries && are_plausible)
}

/// Return true for a key that may be a message itself.
pub(super) fn has_control(key: &[u8]) -> bool {
    key.iter().any(u8::is_ascii_control)
}

/// Return the name of data that are stored in records without a message around them.
fn known_data(record: &[u8]) -> Option<&'static str> {
    Some(match record {
        [0x89, b'P', b'N', b'G', ..] => "PNG image",
        [0xff, 0xd8, 0xff, ..] => "JPEG image",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "WebP image",
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => "NumPy array",
        [0x80, 2..=5, .., b'.'] => "Python pickle",
        [0x1f, 0x8b, 8, ..] => "gzip stream",
        [b'P', b'K', 3, 4, ..] => "zip archive",
        _ => {
            let text = std::str::from_utf8(record).ok()?;
            let is_text = text.chars().all(|one| !one.is_control() || matches!(one, '\t' | '\n' | '\r'));
            match text.trim_start().bytes().next().filter(|_| is_text)? {
                b'{' | b'[' => "JSON text",
                _ => "text",
            }
        }
    })
}
