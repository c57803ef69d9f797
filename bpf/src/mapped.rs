//! Tables of the kernel side that are read where it writes them.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr::{self, NonNull};

use libbpf_rs::ErrorExt as _;

/// A table of numbers in memory that is shared with the kernel side.
pub(crate) struct Mapped<T> {
    first: NonNull<T>,
    length: usize,
}

// SAFETY: the memory is not bound to a thread, and is only read here, each number at once.
unsafe impl<T> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Mapped<T> {}

impl<T> Mapped<T> {
    /// Maps the first `length` entries of a table, which has them.
    pub fn of(map: &impl AsFd, length: usize) -> libbpf_rs::Result<Mapped<T>> {
        let (bytes, descriptor) = (length * size_of::<T>(), map.as_fd().as_raw_fd());
        // SAFETY: a new mapping, which nobody else knows.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0) };
        let mapped = NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED);
        let first = mapped.ok_or_else(|| libbpf_rs::Error::from(io::Error::last_os_error()));
        Ok(Mapped { first: first.context("mmap failed")?, length })
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Where an entry is; none behind the last.
    pub fn at(&self, index: usize) -> Option<*const T> {
        // SAFETY: the entry is in the mapping.
        (index < self.length).then(|| unsafe { self.first.as_ptr().add(index) }.cast_const())
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody refers to it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.length * size_of::<T>()) };
    }
}
