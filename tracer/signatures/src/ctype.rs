//! Types of C, as far as the ABI and a reader of values care.

use crate::Width;

/// The type of a parameter, of a result, or of what a pointer points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// No value.
    Void,
    /// `_Bool`: 0 or 1 in one byte.
    Bool,
    /// `char`, signed on x86-64: one byte.
    Char,
    /// An integer of 1, 2, 4, 8 or 16 bytes.
    Integer {
        /// Its size.
        bytes: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// An enumeration.
    Enum {
        /// Its name, if it has one.
        name: String,
        /// The integers that it consists of.
        width: Width,
    },
    /// A pointer, or a reference of C++ or Fortran.
    Pointer(Box<Type>),
    /// `float`: 4 bytes.
    Float,
    /// `double`: 8 bytes.
    Double,
    /// `long double`: the 10 bytes of the x87 processor in 16.
    LongDouble,
    /// A complex number of two of these.
    Complex(Box<Type>),
    /// A structure, a union or a class.
    Struct(Box<Structure>),
    /// So many of one type in a row; as a parameter, it is a pointer.
    Array(Box<Type>, u64),
    /// Code; as a parameter, it is a pointer.
    Function,
    /// A type that only has a name: behind a pointer it does no harm, as a value it is unobservable.
    Named(String),
}

/// A structure, a union or a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    /// Its name, with `struct`, `union` or nothing before it, as C says it; empty if it has none.
    pub name: String,
    /// Its size in bytes, with padding; `None` if it is only declared.
    pub bytes: Option<u64>,
    /// Its alignment in bytes.
    pub align: u64,
    /// Its members; those of a union overlap.
    pub fields: Vec<Field>,
    /// It is no plain data of C++ (it has a destructor or a copy constructor): a pointer to it is passed.
    pub by_reference: bool,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name; empty for members without one and for base classes.
    pub name: String,
    /// Bytes from the start of the structure.
    pub offset: u64,
    /// Its type.
    pub ctype: Type,
    /// For bit fields, the first bit from `offset` and the number of bits.
    pub bits: Option<(u8, u8)>,
}

/// How the ABI passes eight bytes of a value (section 3.2.3 of the System V ABI for x86-64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// In a general register.
    Integer,
    /// In a vector register.
    Sse,
    /// On the stack; a result of this class is written to memory of the caller.
    Memory,
    /// On the stack; a result of this class is in an x87 register.
    X87,
}
