//! Moments of calls at which somebody acts at once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use libbpf_rs::{MapCore as _, MapFlags, RingBufferBuilder};
use rtrace_model::RegionId;

use crate::wire::{self, MomentCode, MomentRecord};
use crate::{Error, Programs};

/// When a call enters, and when it leaves: bits.
pub const ENTER: u32 = MomentCode::RT_MOMENT_ENTER.0;
/// See [`ENTER`].
pub const LEAVE: u32 = MomentCode::RT_MOMENT_LEAVE.0;

impl Programs {
    /// Lets [`act`](Programs::act) hear of calls of this function; `moments` are [`ENTER`] and [`LEAVE`].
    ///
    /// # Errors
    /// [`Error::Kernel`] where there is no room for more functions.
    pub fn act_on(&self, region: RegionId, moments: u32) -> Result<(), Error> {
        let error = Error::kernel("choose functions on which rtrace acts");
        self.skel.maps.acting.update(&region.0.to_ne_bytes(), &moments.to_ne_bytes(), MapFlags::ANY).map_err(error)?;
        self.shared.has_actions.store(1, Ordering::Relaxed);
        Ok(())
    }

    /// Hands moments to `act` as they come, until `is_over`; looks at that at least every `patience`. Gives how many came
    /// while the ring was full.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the ring cannot be read.
    pub fn act(
        &self,
        patience: Duration,
        is_over: impl Fn() -> bool,
        mut act: impl FnMut(MomentRecord),
    ) -> Result<u64, Error> {
        let error = || Error::kernel("read the moments at which rtrace acts");
        let mut builder = RingBufferBuilder::new();
        let take = |bytes: &[u8]| {
            if let Ok(moment) = wire::decode(bytes) {
                act(moment);
            }
            0
        };
        builder.add(&self.skel.maps.moments, take).map_err(error())?;
        let ring = builder.build().map_err(error())?;
        while !is_over() {
            ring.poll(patience).map_err(error())?;
        }
        Ok(self.shared.lost_moments.load(Ordering::Relaxed))
    }
}
