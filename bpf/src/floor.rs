//! The least that a traced call can cost: what the kernel takes for its hits with programs that do
//! nothing. Benchmarks compare with it.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use crate::attach::attach_sites;
use crate::skeleton::plain::PlainSkelBuilder;
use crate::{AttachTarget, Error, Mechanism, Probes, Site};

/// Places probes that do nothing.
///
/// # Errors
/// The kernel has no probes on many sites, or refuses one of these.
pub fn attach_nothing(target: AttachTarget<'_>, sites: &[Site]) -> Result<Probes, Error> {
    let load_error = |source| Error::Load { mechanism: Mechanism::Multi.name(), source };
    let mut storage = MaybeUninit::uninit();
    let mut open = PlainSkelBuilder::default().open(&mut storage).map_err(load_error)?;
    open.progs.nothing.set_autoload(true);
    let skel = open.load().map_err(load_error)?;
    let error = |source| Error::Attach { path: target.path.to_owned(), sites: sites.len(), source };
    Ok(Probes::of(target.pid, attach_sites(&skel.progs.nothing, target, sites).map_err(error)?))
}
