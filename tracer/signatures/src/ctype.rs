//! Types of C, as far as the ABI and a reader of values care.

use std::fmt;

use crate::{ColumnType, Width};

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
    /// A vector of this many bytes, or another number that a vector register holds, such as `_Float16`.
    Vector(u16),
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
    /// The alignment is inferred from the members: it may be packed, and have none.
    pub may_be_packed: bool,
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
    /// Of members of a number of 32 bits, its highest byte where it has the member; `None` for any.
    pub tag: Option<u8>,
}

/// How the ABI passes eight bytes of a value (section 3.2.3 of the System V ABI for x86-64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Padding.
    None,
    /// In a general register.
    Integer,
    /// In a vector register.
    Sse,
    /// The upper half of a vector register.
    SseUp,
    /// On the stack; a result of this class is written to memory of the caller.
    Memory,
    /// On the stack; a result of this class is in an x87 register.
    X87,
    /// What follows in that register.
    X87Up,
}

impl Structure {
    /// Plain data in the layout that C gives it.
    pub fn plain(name: String, bytes: Option<u64>, align: u64, fields: Vec<Field>) -> Structure {
        Structure { name, bytes, align, may_be_packed: false, fields, by_reference: false }
    }
}

impl Type {
    /// Its size in bytes, if it has one that is known.
    pub fn bytes(&self) -> Option<u64> {
        Some(match self {
            Type::Void | Type::Function | Type::Named(_) => return None,
            Type::Bool | Type::Char => 1,
            Type::Integer { bytes, .. } | Type::Enum { width: Width { bytes, .. }, .. } => u64::from(*bytes),
            Type::Pointer(_) | Type::Double => 8,
            Type::Float => 4,
            Type::LongDouble => 16,
            Type::Complex(part) => 2 * part.bytes()?,
            Type::Vector(bytes) => u64::from(*bytes),
            Type::Struct(structure) => structure.bytes?,
            Type::Array(of, count) => of.bytes()?.checked_mul(*count)?,
        })
    }

    /// Its alignment in bytes.
    pub fn align(&self) -> u64 {
        match self {
            Type::Complex(part) => part.align(),
            Type::Struct(structure) => structure.align.max(1),
            Type::Array(of, _) => of.align(),
            other => other.bytes().unwrap_or(1),
        }
    }

    /// What it is as a parameter: arrays and functions are pointers there.
    pub fn as_parameter(self) -> Type {
        match self {
            Type::Array(of, _) => Type::Pointer(of),
            Type::Function => Type::Pointer(Box::new(Type::Function)),
            other => other,
        }
    }

    /// How its value is read from a word, if it is a number or an address of at most 8 bytes.
    pub fn scalar(&self) -> Option<(ColumnType, Width)> {
        let unsigned = |bytes| Width { bytes, signed: false };
        Some(match self {
            Type::Bool => (ColumnType::Bool, unsigned(1)),
            Type::Char => (ColumnType::Signed(1), Width { bytes: 1, signed: true }),
            Type::Integer { bytes, signed } if *bytes <= 8 => integer(Width { bytes: *bytes, signed: *signed }),
            Type::Enum { width, .. } => integer(*width),
            Type::Pointer(_) => (ColumnType::Pointer, Width::WORD),
            Type::Float => (ColumnType::Float, unsigned(4)),
            Type::Double => (ColumnType::Double, Width::WORD),
            _ => return None,
        })
    }
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Void => formatter.write_str("void"),
            Type::Bool => formatter.write_str("bool"),
            Type::Char => formatter.write_str("char"),
            Type::Integer { bytes, signed } => {
                write!(formatter, "{}int{}_t", if *signed { "" } else { "u" }, 8 * u32::from(*bytes))
            }
            Type::Enum { name, .. } | Type::Named(name) => formatter.write_str(name),
            Type::Struct(structure) => formatter.write_str(&structure.name),
            Type::Pointer(to) if matches!(**to, Type::Pointer(_)) => write!(formatter, "{to}*"),
            Type::Pointer(to) => write!(formatter, "{to} *"),
            Type::Float => formatter.write_str("float"),
            Type::Double => formatter.write_str("double"),
            Type::LongDouble => formatter.write_str("long double"),
            Type::Complex(part) => write!(formatter, "{part} _Complex"),
            Type::Vector(bytes) => write!(formatter, "vector of {bytes} bytes"),
            Type::Array(of, count) => write!(formatter, "{of}[{count}]"),
            Type::Function => formatter.write_str("function"),
        }
    }
}

fn integer(width: Width) -> (ColumnType, Width) {
    match width.signed {
        true => (ColumnType::Signed(width.bytes), width),
        false => (ColumnType::Unsigned(width.bytes), width),
    }
}
