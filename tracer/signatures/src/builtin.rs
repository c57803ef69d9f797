//! The built-in table: text that a user can read, extend and override.

use crate::Error;
use crate::table::SignatureTable;

/// Its files, with their names. Where two speak of a function of one library, the first one counts.
pub const FILES: [(&str, &str); 15] = [
    ("blas", include_str!("../table/blas.toml")),
    ("cublas", include_str!("../table/cublas.toml")),
    ("cuda", include_str!("../table/cuda.toml")),
    ("cufft", include_str!("../table/cufft.toml")),
    ("fftw", include_str!("../table/fftw.toml")),
    ("gomp", include_str!("../table/gomp.toml")),
    ("libc", include_str!("../table/libc.toml")),
    ("math", include_str!("../table/math.toml")),
    ("mpi", include_str!("../table/mpi.toml")),
    ("nccl", include_str!("../table/nccl.toml")),
    ("openssl", include_str!("../table/openssl.toml")),
    ("pthread", include_str!("../table/pthread.toml")),
    ("shmem", include_str!("../table/shmem.toml")),
    ("sqlite", include_str!("../table/sqlite.toml")),
    ("zlib", include_str!("../table/zlib.toml")),
];

/// Reads all of it.
///
/// # Errors
/// A file is wrong, which the tests exclude.
pub fn tables() -> Result<Vec<SignatureTable>, Error> {
    FILES.iter().map(|(name, text)| SignatureTable::parse(text, None, name)).collect()
}
