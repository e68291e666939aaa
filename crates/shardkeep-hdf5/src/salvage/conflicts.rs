//! Bytes of a file that two things claim.

use crate::salvage::index::chunks::Proof;
use crate::salvage::objects::Object;
use crate::salvage::reader::Reader;

/// A range of bytes, the proof of its owner, and the position of its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) proof: Proof,
    /// Number of the object and of its chunk; None for metadata.
    pub(crate) owner: Option<(usize, usize)>,
}

/// Return the owners of the ranges that share bytes with a stronger one.
///
/// Of two equally strong ranges, the one that overlaps more others is wrong, and both if they overlap as many.
pub(crate) fn contradicted(mut claims: Vec<Claim>) -> Vec<(usize, usize)> {
    claims.retain(|claim| claim.end > claim.offset && claim.proof < Proof::Conflict);
    claims.sort_unstable();
    // Pairs of a range with the one before it that reaches farthest.
    let mut pairs = Vec::new();
    let mut overlaps = vec![0_u32; claims.len()];
    let mut farthest: Option<(usize, Claim)> = None;
    for (number, claim) in claims.iter().enumerate() {
        if let Some((other, before)) = farthest.filter(|(_, before)| before.end > claim.offset) {
            pairs.push((other, *claim, before, number));
            for counted in [other, number] {
                if let Some(count) = overlaps.get_mut(counted) {
                    *count += 1;
                }
            }
        }
        if farthest.is_none_or(|(_, before)| claim.end > before.end) {
            farthest = Some((number, *claim));
        }
    }
    let mut found = Vec::new();
    for (other, claim, before, number) in pairs {
        let strength = |claim: &Claim, number: usize| {
            (claim.proof, claim.owner.is_some(), overlaps.get(number).copied().unwrap_or(0))
        };
        let (one, two) = (strength(&before, other), strength(&claim, number));
        if one >= two {
            found.extend(before.owner);
        }
        if two >= one {
            found.extend(claim.owner);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Mark chunks and contiguous values that share bytes with something that has a stronger proof.
pub(crate) fn mark_contradicted(reader: &Reader<'_>, objects: &mut [Object]) {
    const CONTIGUOUS: usize = usize::MAX;
    let mut claims: Vec<Claim> = reader
        .used()
        .into_iter()
        .map(|(offset, size)| Claim {
            offset,
            end: offset.saturating_add(size),
            proof: Proof::Unchecked,
            owner: None,
        })
        .collect();
    for (number, object) in objects.iter().enumerate() {
        let proof = if object.is_checked { Proof::Checked } else { Proof::Unchecked };
        if let Some((offset, end)) = object.contiguous() {
            claims.push(Claim { offset, end, proof, owner: Some((number, CONTIGUOUS)) });
        }
        let chunks = &object.chunks;
        let all = chunks.offsets.iter().zip(&chunks.sizes).zip(&chunks.proofs).enumerate();
        claims.extend(all.map(|(chunk, ((offset, size), proof))| Claim {
            offset: *offset,
            end: offset.saturating_add(*size),
            proof: *proof,
            owner: Some((number, chunk)),
        }));
    }
    for (number, chunk) in contradicted(claims) {
        let Some(object) = objects.get_mut(number) else { continue };
        match object.chunks.proofs.get_mut(chunk) {
            Some(proof) => *proof = Proof::Conflict,
            None => object.is_contradicted = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(offset: u64, end: u64, proof: Proof, number: usize) -> Claim {
        Claim { offset, end, proof, owner: Some((number, 0)) }
    }

    #[test]
    fn the_stronger_of_two_ranges_stays() {
        let stronger = claim(10, 20, Proof::Checked, 1);
        let weaker = claim(15, 25, Proof::Unchecked, 2);
        assert_eq!(contradicted(vec![stronger, weaker]), [(2, 0)]);
        let metadata = Claim { owner: None, ..claim(24, 30, Proof::Unchecked, 0) };
        assert_eq!(contradicted(vec![metadata, weaker]), [(2, 0)]);
        assert_eq!(contradicted(vec![stronger, claim(20, 30, Proof::Unchecked, 2)]), []);
    }

    #[test]
    fn a_range_over_many_others_is_wrong() {
        let ranges =
            (0..5).map(|number| claim(10 * number, 10 * number + 10, Proof::Unchecked, number as usize));
        let long = claim(15, 50, Proof::Unchecked, 9);
        assert_eq!(contradicted(ranges.chain([long]).collect()), [(9, 0)]);
        let two = [claim(0, 10, Proof::Unchecked, 0), claim(5, 15, Proof::Unchecked, 1)];
        assert_eq!(contradicted(two.to_vec()), [(0, 0), (1, 0)]);
    }
}
