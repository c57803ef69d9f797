//! Which values of calls are fetched.

use libbpf_rs::{MapCore as _, MapFlags};

use crate::skeleton::rtrace::OpenRtraceSkel;
use crate::wire::{ProgramRecord, bytes_of};
use crate::{Error, Programs};

/// Regions that may have programs: their ids are below.
pub const MAX_PROGRAMS: u32 = 1 << 16;

/// Makes room for the programs, if calls have values.
pub(crate) fn configure(open: &mut OpenRtraceSkel<'_>, words: u32) -> libbpf_rs::Result<()> {
    open.maps.fetch_programs.set_max_entries(if words > 0 { MAX_PROGRAMS } else { 1 })
}

impl Programs {
    /// Fetches values of the calls of a region below [`MAX_PROGRAMS`] from now on. Its probes must not be hit yet: calls
    /// that run would get the values of others.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn set_program(&self, region: u32, program: &ProgramRecord) -> Result<(), Error> {
        let program = ProgramRecord { region, ..*program };
        let put = self.skel.maps.fetch_programs.update(&region.to_ne_bytes(), bytes_of(&program), MapFlags::ANY);
        put.map_err(Error::kernel("say which values of calls are fetched"))
    }

    /// Words of values in the record of a call, 0 where no call has any.
    pub fn words(&self) -> usize {
        self.words
    }
}
