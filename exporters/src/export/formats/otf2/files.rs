//! Records of what calls do with files: handles, and operations on them.

use std::collections::HashMap;

use rtrace_model::{CallValues, Role, Value};

use super::encoding::{self, OtfRecord, bytes};
use crate::{CommunicatorId, FileAct, Size};

/// The files that calls opened, in the order of their numbers in the archive.
#[derive(Default)]
pub(super) struct OtfFiles {
    pub(super) all: Vec<OtfFile>,
    /// The numbers of those of the trace that is followed.
    numbers: HashMap<u64, u32>,
}

/// A file that a call opened.
pub(super) struct OtfFile {
    /// Where it lies, if that is known.
    pub(super) path: Option<String>,
    /// The ranks that opened it together.
    pub(super) communicator: Option<CommunicatorId>,
    /// Whether it was open before anything was seen of it.
    pub(super) is_found: bool,
}

/// How files are accessed that are read and written, as far as is known.
pub(super) const READ_WRITE: u8 = 2;

impl OtfFiles {
    /// The records of another trace follow.
    pub(super) fn next_trace(&mut self) {
        self.numbers.clear();
    }

    /// Fills the record of an act; gives its kind, if it has a record. A function of which all ranks call it together
    /// `is_collective`.
    pub(super) fn fill(
        &mut self,
        record: &mut OtfRecord,
        (file, act): (u64, FileAct),
        values: Option<&CallValues>,
        is_collective: bool,
    ) -> Option<u8> {
        const NON_BLOCKING: u32 = 1;
        const COLLECTIVE: u32 = 2;
        let next = self.all.len() as u32;
        let number = *self.numbers.entry(file).or_insert(next);
        if number == next {
            let (path, communicator) = match act {
                FileAct::Opened(communicator) => (path_of(values), communicator),
                _ => (None, None),
            };
            self.all.push(OtfFile { path, communicator, is_found: act == FileAct::Found });
        }
        record.int(number);
        Some(match act {
            FileAct::Found => return None,
            FileAct::Opened(_) => {
                let [access, creation, status] = modes(values);
                record.byte(access as u8).int(creation).int(status);
                encoding::IO_CREATE_HANDLE
            }
            FileAct::Closed => encoding::IO_DESTROY_HANDLE,
            FileAct::Begun { operation, is_write, asked, is_nonblocking } => {
                let flags = [(is_nonblocking, NON_BLOCKING), (is_collective, COLLECTIVE)];
                let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
                let asked = bytes(asked.map_or(Size::Unknown, Size::Exact));
                record.byte(is_write.into()).int(flags).long(asked).long(operation);
                encoding::IO_OPERATION_BEGIN
            }
            FileAct::Issued(operation) => {
                record.long(operation);
                encoding::IO_OPERATION_ISSUED
            }
            FileAct::Done { operation, bytes: size } => {
                record.long(bytes(size)).long(operation);
                encoding::IO_OPERATION_COMPLETE
            }
        })
    }
}

fn path_of(values: Option<&CallValues>) -> Option<String> {
    values?.iter().find_map(|(column, value)| match value {
        Some(Value::Text(path)) if column.role.as_deref() == Some(Role::Path.name()) => Some(path.clone()),
        _ => None,
    })
}

/// How a file was opened, by the bits of MPI's modes: access, flags of creation, and flags of status.
fn modes(values: Option<&CallValues>) -> [u32; 3] {
    let mode = values.into_iter().flat_map(CallValues::iter).find_map(|(column, value)| match value {
        Some(Value::Integer(mode)) if column.name == "amode" => Some(*mode),
        _ => None,
    });
    let Some(mode) = mode else { return [READ_WRITE.into(), 0, 0] };
    let flags = |of: &[(i64, u32)]| of.iter().filter(|(bit, _)| mode & bit != 0).map(|(_, flag)| flag).sum();
    let access = [(2, 0), (4, 1)].into_iter().find(|(bit, _)| mode & bit != 0).map_or(READ_WRITE.into(), |(_, of)| of);
    // Create, exclusive, sequential, unique; append, delete on close.
    let creation = flags(&[(1, 1), (64, 1 << 3), (256, 1 << 9), (32, 1 << 10)]);
    [access, creation, flags(&[(128, 1 << 1), (16, 1 << 8)])]
}
