//! What is left of a damaged file where HDF5 gives up.
//!
//! * [`reader`]      bytes by address, checksums, flipped bits, damage
//! * [`correction`]  single flipped bits of structures with a checksum
//! * [`scan`]        search for signatures, outside of known values or in the whole file
//! * [`superblock`], [`header`], [`heap`], [`tree2`], [`links`], [`datatype`], [`dataset`]  structures of which parts may be
//!   lost
//! * [`index`]       indexes of chunks, and blocks of them that no other block names
//! * [`conflicts`]   bytes that two things claim
//! * [`objects`]     all objects of a file
//!
//! A structure with a checksum is used only if the checksum is right, or one flipped bit makes it right. A structure without
//! one is used if it is plausible, and all that it leads to is reported as unchecked.
//!
//! All reading is bounded by the length of the file, and so is all memory.

mod conflicts;
mod correction;
mod dataset;
mod header;
mod heap;
mod index;
mod links;
mod objects;
mod reader;
mod scan;
mod superblock;
mod tree2;

pub use correction::{LARGEST_BYTES, correct_flipped_bit};
pub use dataset::{Chunked, Dataset, Filter, Index, Layout};
pub use index::chunks::{Chunks, LostPlaces, Proof};
pub use links::{Attribute, Link, Target};
pub use objects::{Ambiguous, Kind, Object, Salvage, salvage};
pub use reader::Damage;
pub use superblock::{RootSource, Superblock};
