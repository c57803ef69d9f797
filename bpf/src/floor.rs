//! The least that a traced call can cost: what the kernel takes for a hit and a hooked return with a
//! program that does nothing. Benchmarks compare with it.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use crate::attach::{LinkKind, attach_sites};
use crate::skeleton::features::FeaturesSkelBuilder;
use crate::{AttachTarget, Error, Mechanism, Probes, Site};

/// Places probes that do nothing, on entries and on the returns of the functions there.
///
/// # Errors
/// The kernel has no sessions, or refuses one of the sites.
pub fn attach_nothing(target: AttachTarget<'_>, sites: &[Site]) -> Result<Probes, Error> {
    let load_error = |source| Error::Load { mechanism: Mechanism::Session.name(), source };
    let mut storage = MaybeUninit::uninit();
    let mut open = FeaturesSkelBuilder::default().open(&mut storage).map_err(load_error)?;
    for mut program in open.open_object_mut().progs_mut() {
        let is_nothing = program.name() == "nothing";
        program.set_autoload(is_nothing);
    }
    let skel = open.load().map_err(load_error)?;
    let link = attach_sites(&skel.progs.nothing, LinkKind::Session, target, sites);
    let error = |source| Error::Attach { path: target.path.to_owned(), sites: sites.len(), source };
    Ok(Probes::of(link.map_err(error)?))
}
