//! The least that a traced call can cost: what the kernel takes for its hits, and for a hooked return, with
//! programs that do nothing. Benchmarks compare with it.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use crate::attach::{LinkKind, attach_sites};
use crate::skeleton::plain::PlainSkelBuilder;
use crate::{AttachTarget, Error, Mechanism, Probes, Role, Site};

/// Places probes of one role that do nothing.
///
/// # Errors
/// The kernel has no sessions, or refuses one of the sites.
pub fn attach_nothing(role: Role, target: AttachTarget<'_>, sites: &[Site]) -> Result<Probes, Error> {
    let load_error = |source| Error::Load { mechanism: Mechanism::Session.name(), source };
    let is_hooked = role == Role::EnterAndReturn;
    let mut storage = MaybeUninit::uninit();
    let mut open = PlainSkelBuilder::default().open(&mut storage).map_err(load_error)?;
    let program = if is_hooked { &mut open.progs.nothing_hooked } else { &mut open.progs.nothing_alone };
    program.set_autoload(true);
    let skel = open.load().map_err(load_error)?;
    let link = if is_hooked {
        attach_sites(&skel.progs.nothing_hooked, LinkKind::Session, target, sites)
    } else {
        attach_sites(&skel.progs.nothing_alone, LinkKind::Enter, target, sites)
    };
    let error = |source| Error::Attach { path: target.path.to_owned(), sites: sites.len(), source };
    Ok(Probes::of(link.map_err(error)?))
}
