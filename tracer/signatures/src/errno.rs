//! `errno`, whose place only the C library knows.

use crate::{Cause, DropReason, Dropped, FetchProgram, OpCode, Signature, Slots};

/// Leaves out what depends on `errno`, of a function of another library. The program keeps its operations.
pub fn leave_out_errno(signature: &mut Signature, program: &mut FetchProgram) {
    let of_errno = (0..).zip(&program.fetches).filter(|(_, fetch)| fetch.op.code == OpCode::ErrnoAddress);
    let errno = of_errno.fold(0_u32, |all, (place, _)| all | 1 << place);
    let Signature { columns, metrics, dropped, .. } = signature;
    let columns = leave_out(columns, &mut program.columns, errno).map(|column| (column.name, column.c_type));
    let metrics =
        leave_out(metrics, &mut program.metrics, errno).map(|metric| (metric.name, metric.unit.name().to_owned()));
    dropped.extend(columns.chain(metrics).map(|(name, c_type)| {
        let reason = DropReason::Unobservable(Cause::OtherLibrary);
        Dropped { name, c_type, reason }
    }));
}

/// Takes out what needs one of these operations.
fn leave_out<T>(items: &mut Vec<T>, slots: &mut Vec<Slots>, operations: u32) -> impl Iterator<Item = T> + use<T> {
    let pairs = std::mem::take(items).into_iter().zip(std::mem::take(slots));
    let (out, kept): (Vec<_>, Vec<_>) = pairs.partition(|(_, slots)| slots.fetches & operations != 0);
    (*items, *slots) = kept.into_iter().unzip();
    out.into_iter().map(|(item, _)| item)
}
