//! Integers in as many bytes as they need: seven bits a byte, the least significant first, the high
//! bit set on all bytes but the last (LEB128, which is also protobuf's `varint`).

/// Most bytes of one integer.
pub(super) const LONGEST: usize = 10;

pub(super) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a difference: small ones of either sign are short.
pub(super) fn put_difference(bytes: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from) as i64;
    put(bytes, ((difference << 1) ^ (difference >> 63)) as u64);
}

/// Takes an integer off the front; `None` where none is whole.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..LONGEST {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Takes a difference off the front and adds it to `from`.
pub(super) fn take_difference(bytes: &mut &[u8], from: u64) -> Option<u64> {
    let folded = take(bytes)?;
    Some(from.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_put_is_taken(value: u64, from: u64) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            put_difference(&mut bytes, from, value);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert_eq!(take_difference(&mut rest, from), Some(value));
            prop_assert!(rest.is_empty());
            prop_assert_eq!(take(&mut rest), None);
        }
    }

    #[test]
    fn endless_integers_end() {
        assert_eq!(take(&mut [0xff; 20].as_slice()), None);
    }
}
