//! Small records of fixed size, written in place and checksummed: a torn or foreign one reads as
//! absent.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use crate::key::Digest;

const CHECKSUM_BYTES: usize = 8;

/// Room for one record. Two in one file never share a sector, so that damage to one leaves the
/// other.
pub(crate) const SLOT_BYTES: u64 = 512;

/// Reads `N` integers from a slot. `None` if `magic` or the checksum isn't there.
///
/// # Errors
///
/// When the file can't be read.
pub(crate) fn read<const N: usize>(
    file: &File,
    slot: u64,
    magic: &[u8; 8],
) -> io::Result<Option<[u64; N]>> {
    let mut bytes = vec![0; encoded_bytes::<N>()];
    match file.read_exact_at(&mut bytes, slot * SLOT_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let (body, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    if !body.starts_with(magic) || Digest::of(body).0[..CHECKSUM_BYTES] != *checksum {
        return Ok(None);
    }
    let mut values = [0; N];
    for (value, bytes) in values.iter_mut().zip(body[magic.len()..].as_chunks().0) {
        *value = u64::from_le_bytes(*bytes);
    }
    Ok(Some(values))
}

/// Writes `N` integers into a slot with one call.
///
/// # Errors
///
/// When the file can't be written.
pub(crate) fn write<const N: usize>(
    file: &File,
    slot: u64,
    magic: &[u8; 8],
    values: [u64; N],
) -> io::Result<()> {
    let mut bytes = magic.to_vec();
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    let checksum = Digest::of(&bytes);
    bytes.extend(&checksum.0[..CHECKSUM_BYTES]);
    file.write_all_at(&bytes, slot * SLOT_BYTES)
}

const fn encoded_bytes<const N: usize>() -> usize {
    8 + N * 8 + CHECKSUM_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_records_are_read() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(read::<2>(&file, 0, b"TESTTEST").unwrap(), None);
        write(&file, 1, b"TESTTEST", [3, u64::MAX]).unwrap();
        assert_eq!(read(&file, 1, b"TESTTEST").unwrap(), Some([3, u64::MAX]));
        assert_eq!(read::<2>(&file, 0, b"TESTTEST").unwrap(), None);
        assert_eq!(read::<2>(&file, 1, b"OTHEROTH").unwrap(), None);
        assert_eq!(read::<1>(&file, 1, b"TESTTEST").unwrap(), None);
        for at in 0..32 {
            let mut byte = [0];
            file.read_exact_at(&mut byte, SLOT_BYTES + at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], SLOT_BYTES + at).unwrap();
            assert_eq!(read::<2>(&file, 1, b"TESTTEST").unwrap(), None, "byte {at}");
            file.write_all_at(&byte, SLOT_BYTES + at).unwrap();
        }
    }
}
