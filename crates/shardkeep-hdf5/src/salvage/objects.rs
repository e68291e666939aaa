//! Objects of a damaged file: those that links reach, and those that only a search finds.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;

use crate::format::file::Storage;
use crate::format::object_header::{Message, kind};
use crate::salvage::conflicts::mark_contradicted;
use crate::salvage::dataset::{Dataset, Layout};
use crate::salvage::header::Header;
use crate::salvage::index::chunks::{Chunks, Collection, LostPlaces, Proof};
use crate::salvage::index::lone_nodes::{is_within, ranges_of_values};
use crate::salvage::links::{Attribute, Link, Target, attributes, links, symbol_table};
use crate::salvage::reader::{Damage, Reader};
use crate::salvage::scan::{Scan, Signature};
use crate::salvage::superblock::{RootSource, Superblock, find, is_group, root_in_usual_place};

const GROUP_INFO: u16 = 0x0a;
/// Longest path that is kept, in bytes.
const LONGEST_PATH: usize = 4096;

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Group,
    Dataset,
    NamedType,
    /// A link leads here, and the header is damaged.
    Lost,
    /// The extension of a superblock, or something unknown.
    Other,
}

/// An object. Offsets count from the first byte of the file.
#[derive(Debug, Clone)]
pub struct Object {
    pub offset: u64,
    pub kind: Kind,
    /// None if no link leads from the root to the object.
    pub path: Option<Vec<u8>>,
    /// Whether the header has a checksum, which is right.
    pub is_checked: bool,
    /// Whether all parts of the header were found.
    pub is_whole: bool,
    pub extents: Vec<(u64, u64)>,
    pub messages: Vec<Message>,
    /// Links of a group; the target of a hard link is an offset.
    pub links: Vec<Link>,
    pub links_are_whole: bool,
    pub attributes: Vec<Attribute>,
    pub attributes_are_whole: bool,
    /// None for a dataset whose shape, type or layout is lost, or whose messages contradict each other.
    pub dataset: Option<Dataset>,
    pub chunks: Chunks,
    pub lost_places: Vec<LostPlaces>,
    /// Whether contiguous values share bytes with something else.
    pub is_contradicted: bool,
}

/// Chunks of a node that several datasets can own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ambiguous {
    /// Offset of the node.
    pub offset: u64,
    /// Offsets of the datasets.
    pub datasets: Vec<u64>,
    pub chunks: usize,
}

/// What is left of a file.
#[derive(Debug, Clone)]
pub struct Salvage {
    pub length: u64,
    /// Offset from which all addresses count.
    pub base: u64,
    pub superblock: Option<Superblock>,
    pub root: Option<u64>,
    pub root_source: Option<RootSource>,
    pub objects: Vec<Object>,
    pub ambiguous: Vec<Ambiguous>,
    pub damage: Vec<(u64, Damage)>,
    /// False if the search ended early: the file refers to its bytes too many times, as no writer's file does.
    pub is_complete: bool,
}

/// Find what is left of a file that no process is writing.
///
/// # Errors
/// The operating system cannot read the file.
pub fn salvage(storage: &dyn Storage) -> io::Result<Salvage> {
    let length = storage.length()?;
    let scanned = Scan::new(storage, length);
    let mut reader = Reader::new(storage, length);
    let superblock = find(&mut reader);
    let mut search = Search {
        reader: &reader,
        scanned: &scanned,
        objects: Vec::new(),
        numbers: HashMap::new(),
        nodes: HashSet::new(),
        with_chunks: 0,
    };
    let (root, root_source) = search.root(superblock.as_ref()).unzip();
    if let Some(root) = root {
        search.tree(root, Some(Vec::new()), superblock.as_ref());
        search.add_chunks();
    }
    search.lone_objects();
    let (root, root_source) = match root {
        Some(_) => (root, root_source),
        None => search.only_candidate().map(|root| (root, RootSource::OnlyCandidate)).unzip(),
    };
    search.add_chunks();
    let ambiguous = search.lone_nodes();
    let mut objects = search.objects;
    mark_contradicted(&reader, &mut objects);
    Ok(Salvage {
        length,
        base: reader.base,
        superblock,
        root: root.map(|root| reader.offset_of(root)),
        root_source,
        objects,
        ambiguous,
        damage: reader.damage(),
        is_complete: scanned.finish()? && reader.is_complete(),
    })
}

pub(crate) struct Search<'a> {
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) scanned: &'a Scan<'a>,
    pub(crate) objects: Vec<Object>,
    /// Position of each object by its address.
    numbers: HashMap<u64, usize>,
    /// Offsets of the nodes of trees of chunks that were used.
    pub(crate) nodes: HashSet<u64>,
    /// Number of objects whose indexes of chunks were read.
    with_chunks: usize,
}

impl Search<'_> {
    /// Return the address of the root group.
    fn root(&self, superblock: Option<&Superblock>) -> Option<(u64, RootSource)> {
        if let Some((superblock, root)) = superblock.and_then(|found| Some((found, found.root?))) {
            let is_right = superblock.checksum_is_right == Some(true);
            let header = Header::read_if_whole(self.reader, root);
            if is_right || header.is_some_and(|header| is_group(self.reader, &header)) {
                return Some((root, RootSource::Superblock));
            }
        }
        match (root_in_usual_place(self.reader), superblock) {
            (Some(root), _) => Some((root, RootSource::UsualPlace)),
            // A root whose header is lost: the superblock repeats where its links are.
            (None, Some(superblock)) if superblock.version < 2 => {
                Some((superblock.root?, RootSource::Superblock))
            }
            _ => None,
        }
    }

    /// Add an object and all objects below it.
    fn tree(&mut self, address: u64, path: Option<Vec<u8>>, superblock: Option<&Superblock>) {
        let mut open = VecDeque::from([(address, path)]);
        while let Some((address, path)) = open.pop_front() {
            if self.numbers.contains_key(&address) {
                continue;
            }
            let mut object = match Header::read(self.reader, address) {
                Some(header) => self.object(address, &header),
                None => self.lost(address),
            };
            if path.as_ref().is_some_and(Vec::is_empty) {
                self.repeat_links(&mut object, address, superblock);
            }
            for link in &object.links {
                let Target::Object(child) = link.target else { continue };
                let child_path = path.as_ref().zip(link.name.as_ref()).map(|(path, name)| {
                    if path.is_empty() { name.clone() } else { [path, b"/".as_slice(), name].concat() }
                });
                let child_path = child_path.filter(|path| path.len() <= LONGEST_PATH);
                open.push_back((child.saturating_sub(self.reader.base), child_path));
            }
            object.path = path;
            self.numbers.insert(address, self.objects.len());
            self.objects.push(object);
        }
    }

    /// Read the links of a root whose header is lost, from the superblock, which repeats where they are.
    fn repeat_links(&self, object: &mut Object, address: u64, superblock: Option<&Superblock>) {
        if object.kind != Kind::Lost {
            return;
        }
        let Some(superblock) = superblock.filter(|superblock| superblock.root == Some(address)) else {
            return;
        };
        if let Some((tree, heap)) = superblock.table {
            let found = symbol_table(self.reader, Some(tree), Some(heap));
            object.kind = Kind::Group;
            object.links_are_whole = found.is_whole;
            object.links = self.with_offsets(found.found);
        }
    }

    fn with_offsets(&self, mut links: Vec<Link>) -> Vec<Link> {
        for link in &mut links {
            if let Target::Object(address) = &mut link.target {
                *address = self.reader.offset_of(*address);
            }
        }
        links
    }

    fn lost(&self, address: u64) -> Object {
        Object {
            offset: self.reader.offset_of(address),
            kind: Kind::Lost,
            path: None,
            is_checked: false,
            is_whole: false,
            extents: Vec::new(),
            messages: Vec::new(),
            links: Vec::new(),
            links_are_whole: false,
            attributes: Vec::new(),
            attributes_are_whole: false,
            dataset: None,
            chunks: Chunks::default(),
            lost_places: Vec::new(),
            is_contradicted: false,
        }
    }

    fn object(&self, address: u64, header: &Header) -> Object {
        let mut object = self.lost(address);
        let is_group = [kind::SYMBOL_TABLE, kind::LINK_INFO, kind::LINK, GROUP_INFO]
            .iter()
            .any(|kind| header.has(*kind));
        let is_dataset =
            header.has(kind::LAYOUT) || (header.has(kind::DATASPACE) && header.has(kind::DATATYPE));
        object.kind = match (is_group, is_dataset) {
            (true, false) => Kind::Group,
            (false, true) => Kind::Dataset,
            (false, false) if header.has(kind::DATATYPE) => Kind::NamedType,
            _ => Kind::Other,
        };
        object.is_checked = header.version == 2;
        object.is_whole = header.is_whole;
        object.extents.clone_from(&header.extents);
        object.messages.clone_from(&header.messages);
        if object.kind == Kind::Group {
            let found = links(self.reader, header, self.scanned);
            (object.links, object.links_are_whole) = (self.with_offsets(found.found), found.is_whole);
        }
        if object.kind == Kind::Dataset {
            object.dataset = Dataset::new(self.reader, header);
        }
        let found = attributes(self.reader, header, self.scanned);
        (object.attributes, object.attributes_are_whole) = (found.found, found.is_whole);
        object
    }

    /// Add the objects to which no link leads, except what looks like one in the values of a dataset.
    fn lone_objects(&mut self) {
        let values = ranges_of_values(&self.objects);
        let positions = self.scanned.outside(&values);
        let mut addresses: Vec<u64> = Vec::new();
        for kind in [Signature::ObjectHeader, Signature::OldObjectHeader] {
            let offsets = positions.iter().filter(|(_, found)| *found == kind).map(|(offset, _)| *offset);
            let offsets = offsets.filter(|offset| !is_within(&values, *offset));
            addresses.extend(offsets.filter_map(|offset| offset.checked_sub(self.reader.base)));
        }
        let mut children = HashSet::new();
        let mut roots = Vec::new();
        for address in addresses {
            if self.numbers.contains_key(&address) {
                continue;
            }
            let Some(header) = Header::read_if_whole(self.reader, address) else { continue };
            if header.version == 1 && !self.is_old_object(&header) {
                continue;
            }
            header.use_extents(self.reader);
            let object = self.object(address, &header);
            children.extend(object.links.iter().filter_map(|link| match link.target {
                Target::Object(offset) => Some(offset.saturating_sub(self.reader.base)),
                _ => None,
            }));
            if object.kind != Kind::Other {
                roots.push(address);
            }
        }
        // First those that no other one names, so that each is found below its own group.
        roots.sort_by_key(|address| (children.contains(address), *address));
        for address in roots {
            self.tree(address, None, None);
        }
    }

    /// Return true for a header of version 1, which has no checksum, whose messages can only be those of an object.
    fn is_old_object(&self, header: &Header) -> bool {
        if !header.is_whole || header.messages.iter().any(|message| message.kind > kind::LAST) {
            return false;
        }
        is_group(self.reader, header) || Dataset::new(self.reader, header).is_some()
    }

    /// Return the only group without a path to which no link leads, if there is one.
    fn only_candidate(&mut self) -> Option<u64> {
        let named: HashSet<u64> = self
            .objects
            .iter()
            .flat_map(|object| &object.links)
            .filter_map(|link| if let Target::Object(offset) = link.target { Some(offset) } else { None })
            .collect();
        let mut candidates = self
            .objects
            .iter()
            .filter(|object| object.kind == Kind::Group && !named.contains(&object.offset))
            .map(|object| object.offset.saturating_sub(self.reader.base));
        let root = candidates.next().filter(|_| candidates.next().is_none())?;
        drop(candidates);
        let objects = std::mem::take(&mut self.objects);
        self.numbers.clear();
        self.with_chunks = 0;
        self.tree(root, Some(Vec::new()), None);
        for object in objects {
            let address = object.offset.saturating_sub(self.reader.base);
            if !self.numbers.contains_key(&address) {
                self.numbers.insert(address, self.objects.len());
                self.objects.push(object);
            }
        }
        Some(root)
    }

    /// Read the indexes of the datasets that were added since the last time.
    fn add_chunks(&mut self) {
        for object in self.objects.iter_mut().skip(self.with_chunks) {
            let Some(dataset) = &object.dataset else { continue };
            let Layout::Chunked(chunked) = &dataset.layout else { continue };
            let Some(mut collection) = Collection::new(self.reader, dataset, chunked) else { continue };
            let proof = if object.is_checked { Proof::Checked } else { Proof::Unchecked };
            collection.collect(proof, self.scanned);
            collection.resolve_places();
            self.nodes.extend(collection.nodes.drain());
            (object.chunks, object.lost_places) = (collection.chunks, collection.lost);
        }
        self.with_chunks = self.objects.len();
    }
}

impl Object {
    /// Return the range of contiguous values.
    #[must_use]
    pub fn contiguous(&self) -> Option<(u64, u64)> {
        let dataset = self.dataset.as_ref()?;
        let Layout::Contiguous { offset: Some(offset), size } = dataset.layout else { return None };
        let size = size.or_else(|| dataset.elements()?.checked_mul(dataset.value_bytes))?;
        Some((offset, offset.saturating_add(size)))
    }
}
