//! What all that reads ELF files has in common.

use std::ffi::CStr;

use object::LittleEndian;
use object::elf::FileHeader64;

/// The ELF variant of this crate: 64 bits, little endian.
pub(crate) type Elf = FileHeader64<LittleEndian>;
/// The byte order that goes with [`Elf`].
pub(crate) const ENDIAN: LittleEndian = LittleEndian;

/// Longer strings than this are not names; this bounds the time to look for their end.
const MAX_STRING: usize = 16 << 10;

/// The string that begins at `offset` of a string table; `None` where it is unfinished or too long for a name.
pub(crate) fn string_at(table: &[u8], offset: u64) -> Option<&[u8]> {
    let rest = table.get(usize::try_from(offset).ok()?..)?;
    let rest = &rest[..rest.len().min(MAX_STRING)];
    Some(CStr::from_bytes_until_nul(rest).ok()?.to_bytes())
}
