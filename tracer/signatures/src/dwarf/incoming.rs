//! Where debug information says that a parameter is as its function begins.
//!
//! The ABI says it too, from the types alone. Debug information is asked for what types do not tell: whether Fortran
//! passes a value or its address, whether an object of C++ is no plain data, and whether the compiler keeps to the ABI.

use gimli::{AttributeValue, DW_AT_location, Operation};

use super::types::{DwarfFiles, EntryRef};
use rtrace_symbolizer::Reader;

/// Operations of one expression; those that are understood have fewer.
const MOST_OPERATIONS: usize = 8;
/// Numbers of DWARF for `rbp` and `rsp`.
const FRAME: [u16; 2] = [6, 7];
/// Those of the registers that take integer arguments, in their order.
pub const INTEGERS: [u16; 6] = [5, 4, 1, 2, 8, 9];
/// The number of the first vector register, and how many take arguments.
pub const VECTORS: std::ops::Range<u16> = 17..25;

/// Where a parameter is as its function begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Incoming {
    /// In the register with this number of DWARF.
    Register(u16),
    /// In several places: its parts in registers, and the rest nowhere.
    Parts,
    /// On the stack. A compiler that does not optimize says this of all, and puts them there first.
    Stack,
    /// In memory, at the address that is passed; `kept`: that address is on the stack.
    Behind {
        /// As [`Incoming::Stack`] of the address.
        kept: bool,
    },
    /// It is not said, or not of the function's begin.
    #[default]
    Unknown,
}

impl Incoming {
    /// Whether the compiler gave it a place on the stack, as it does if it does not optimize.
    pub fn is_on_stack(self) -> bool {
        matches!(self, Incoming::Stack | Incoming::Behind { kept: true })
    }
}

impl<'a> DwarfFiles<'a> {
    /// Where the debug information says that a parameter is as the function at this address begins.
    pub fn incoming(&self, param: EntryRef, function: u64) -> Incoming {
        let Some(value) = self.attribute(param, DW_AT_location) else { return Incoming::Unknown };
        let Ok(unit) = self.unit(param.shared, param.unit) else { return Incoming::Unknown };
        let is_argument = |number: u16| INTEGERS.contains(&number) || VECTORS.contains(&number);
        if let AttributeValue::Exprloc(expression) = value {
            // It is true of all of the function, or of all but its begin if the parameter has a register of its own.
            return match place_of(expression, unit.encoding()) {
                Incoming::Register(number) if !is_argument(number) => Incoming::Unknown,
                incoming => incoming,
            };
        }
        let Ok(Some(mut list)) = self.dwarf.attr_locations(&unit, value) else { return Incoming::Unknown };
        match list.next() {
            Ok(Some(first)) if first.range.begin == function => place_of(first.data, unit.encoding()),
            _ => Incoming::Unknown,
        }
    }
}

fn place_of(expression: gimli::Expression<Reader<'_>>, encoding: gimli::Encoding) -> Incoming {
    let mut operations = expression.operations(encoding);
    let mut read = Vec::new();
    while let Ok(Some(operation)) = operations.next() {
        if read.len() == MOST_OPERATIONS {
            return Incoming::Unknown;
        }
        read.push(operation);
    }
    let is_frame = |operation: &Operation<Reader<'_>>| match operation {
        Operation::FrameOffset { .. } => true,
        Operation::RegisterOffset { register, .. } => FRAME.contains(&register.0),
        _ => false,
    };
    let is_part =
        |operation: &Operation<Reader<'_>>| matches!(operation, Operation::Register { .. } | Operation::Piece { .. });
    match read.as_slice() {
        [Operation::Register { register }] => Incoming::Register(register.0),
        [place] if is_frame(place) => Incoming::Stack,
        [place, Operation::Deref { size: 8, space: false, .. }] if is_frame(place) => Incoming::Behind { kept: true },
        [_, .., Operation::Piece { .. }] if read.iter().all(is_part) => Incoming::Parts,
        [Operation::RegisterOffset { register, offset: 0, .. }] if INTEGERS.contains(&register.0) => {
            Incoming::Behind { kept: false }
        }
        _ => Incoming::Unknown,
    }
}
