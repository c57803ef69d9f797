//! Where a value is when a function begins, or when it has returned.

use std::fmt;

use crate::{Operand, Register};

/// Where the ABI puts a value.
///
/// For arguments that is at the function's first instruction; a probe that sits elsewhere must follow the value. For
/// results it is behind the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AbiPlace {
    /// In the low bytes of this register.
    Register(Register),
    /// In memory, so many bytes above the stack pointer, which points at the return address: the first is at 8.
    Stack(u32),
    /// In the low bytes of a vector register.
    Xmm(u8),
    /// In two registers, the lower eight bytes first.
    Split([Box<AbiPlace>; 2]),
    /// In memory, at the address that is here: a large structure that is returned, and one of C++ that is no plain data.
    Behind(Box<AbiPlace>),
    /// Where the note of a USDT probe says.
    Operand(Operand),
    /// It cannot be read.
    Unobservable(Cause),
}

/// Why a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is in this vector register, which only stubs can read.
    Xmm(u8),
    /// It is a result in this vector register, which nothing can read.
    XmmResult(u8),
    /// It is a result in an x87 register.
    X87,
    /// It is the second half of a result in two registers.
    SecondRegister,
    /// It is wider than 64 bits.
    TooWide,
    /// Its type is not known: its name.
    UnknownType(String),
    /// An argument before it has an unknown type, so its own place is not known: that argument's name.
    Behind(String),
    /// It is a structure or something else that has no value of its own; name its members.
    NotPlain,
    /// It is a bit field.
    BitField,
    /// It has no bytes, and is not passed.
    Empty,
    /// It is a member that handles do not have in this implementation: its name.
    NoMember(String),
    /// The pointer leads to something whose size is not known.
    NoTarget,
    /// It may be packed, so its place is not certain.
    MaybePacked,
    /// Only functions of the C library tell where it is.
    OtherLibrary,
    /// Compilers disagree on where it is.
    Disputed,
    /// It is in the variable part of the arguments.
    Variadic,
    /// The note of a USDT probe says where it is: in a place that is not read, such as a variable or a vector register.
    Operand(String),
    /// The function returns nothing.
    Void,
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Xmm(number) => {
                write!(formatter, "in xmm{number}, which probes cannot read; stubs can: `rtrace run --stubs`")
            }
            Cause::XmmResult(number) => write!(formatter, "a result in xmm{number}, which probes cannot read"),
            Cause::X87 => formatter.write_str("a result in an x87 register, which probes cannot read"),
            Cause::SecondRegister => formatter.write_str("the second half of a result, in rdx"),
            Cause::TooWide => formatter.write_str("wider than 64 bits"),
            Cause::UnknownType(name) => write!(formatter, "the type `{name}` is not known"),
            Cause::Behind(name) => write!(formatter, "behind `{name}`, whose type is not known"),
            Cause::NotPlain => formatter.write_str("no single value"),
            Cause::BitField => formatter.write_str("a bit field"),
            Cause::Empty => formatter.write_str("empty, so it is not passed"),
            Cause::NoMember(name) => write!(formatter, "`{name}` is not known of this implementation's handles"),
            Cause::NoTarget => formatter.write_str("points to something of unknown size"),
            Cause::MaybePacked => formatter.write_str("on the stack, in a place that is not certain if it is packed"),
            Cause::OtherLibrary => formatter.write_str("known to functions of the C library only"),
            Cause::Disputed => formatter.write_str("in a place on which compilers disagree"),
            Cause::Variadic => formatter.write_str("in the variable part of the arguments"),
            Cause::Operand(text) => write!(formatter, "in `{text}`, which is not read"),
            Cause::Void => formatter.write_str("the function returns nothing"),
        }
    }
}
