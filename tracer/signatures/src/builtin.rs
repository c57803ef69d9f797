//! The built-in table: text that a user can read, extend and override.

use crate::Error;
use crate::table::Table;

/// Its files, with their names.
pub const FILES: &[(&str, &str)] =
    &[("libc", include_str!("../table/libc.toml")), ("zlib", include_str!("../table/zlib.toml"))];

/// Reads all of it.
///
/// # Errors
/// A file is wrong, which the tests exclude.
pub fn tables() -> Result<Vec<Table>, Error> {
    FILES.iter().map(|(name, text)| Table::parse(text, None, name)).collect()
}
