//! The sums of HDF5's filter `fletcher32` (`H5_checksum_fletcher32`).

/// The sums of so many words fit into 64 bits.
const BLOCK_BYTES: usize = 2 << 20;

/// Return both sums of 16-bit big-endian words, modulo 65,535.
#[must_use]
pub fn fletcher32(bytes: &[u8]) -> (u32, u32) {
    let (words, last) = bytes.as_chunks::<2>();
    let (mut one, mut two) = (0_u64, 0_u64);
    for block in words.chunks(BLOCK_BYTES / 2) {
        for word in block {
            one += u64::from(u16::from_be_bytes(*word));
            two += one;
        }
        one %= 0xffff;
        two %= 0xffff;
    }
    for byte in last {
        one += u64::from(*byte) << 8;
        two += one;
    }
    ((one % 0xffff) as u32, (two % 0xffff) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_words_and_an_odd_byte() {
        assert_eq!(fletcher32(&[]), (0, 0));
        assert_eq!(fletcher32(&[0, 1, 0, 2]), (3, 4));
        assert_eq!(fletcher32(&[0, 1, 2]), (0x201, 0x202));
        // The sum of n words of 0xfffe is n * 0xfffe, that is -n modulo 0xffff.
        let many = vec![[0xff, 0xfe]; 3 << 20].concat();
        let n = 3_u64 << 20;
        let wanted = |sum: u64| ((0xffff - sum % 0xffff) % 0xffff) as u32;
        assert_eq!(fletcher32(&many), (wanted(n), wanted(n * (n + 1) / 2)));
    }
}
