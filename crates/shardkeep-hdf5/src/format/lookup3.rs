//! Bob Jenkins' lookup3 (`hashlittle`, 2006, public domain), the checksum of HDF5's metadata.

use crate::format::cursor::{Known, Unread};

/// Return the checksum of bytes, with HDF5's initial value of 0.
#[must_use]
pub fn lookup3(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    // The last twelve bytes, or fewer, are mixed in another way.
    let (mut rest, word) = (bytes, |bytes: &[u8], at: usize| -> u32 {
        bytes.iter().skip(at).take(4).rev().fold(0, |word, byte| (word << 8) | u32::from(*byte))
    });
    while rest.len() > 12 {
        let Some((block, behind)) = rest.split_first_chunk::<12>() else { break };
        let [b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11] = *block;
        a = a.wrapping_add(u32::from_le_bytes([b0, b1, b2, b3]));
        b = b.wrapping_add(u32::from_le_bytes([b4, b5, b6, b7]));
        c = c.wrapping_add(u32::from_le_bytes([b8, b9, b10, b11]));
        a = a.wrapping_sub(c) ^ c.rotate_left(4);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(6);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(8);
        b = b.wrapping_add(a);
        a = a.wrapping_sub(c) ^ c.rotate_left(16);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(19);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(4);
        b = b.wrapping_add(a);
        rest = behind;
    }
    if rest.is_empty() {
        return c;
    }
    a = a.wrapping_add(word(rest, 0));
    b = b.wrapping_add(word(rest, 4));
    c = c.wrapping_add(word(rest, 8));
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

/// Return bytes without the checksum at their end.
///
/// # Errors
/// The checksum is wrong.
pub fn checked(bytes: &[u8]) -> Known<&[u8]> {
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or(Unread::damaged("no room for a checksum"))?;
    if lookup3(body) == u32::from_le_bytes(*sum) {
        Ok(body)
    } else {
        Err(Unread::damaged("a wrong checksum"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `driver5` of lookup3.c.
    #[test]
    fn as_its_author_prints() {
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }

    #[test]
    fn a_checksum_stands_behind() {
        let mut bytes = b"some".to_vec();
        bytes.extend(lookup3(b"some").to_le_bytes());
        assert_eq!(checked(&bytes), Ok(b"some".as_slice()));
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(checked(&bytes).is_err());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(checked(&bytes[..3]).is_err());
    }
}
