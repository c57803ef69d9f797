//! Columns: values of a call, and the programs that fetch them.

use std::fmt;

use rtrace_model::{Role, words};

/// At most this many operations fetch the values of one function.
pub const MOST_OPS: usize = 24;
/// At most this many words of 8 bytes are kept of one call, beside lists that are read when it returns.
pub const MOST_VALUE_WORDS: usize = 24;
/// At most this many words are in these lists.
pub const MOST_LISTED_WORDS: usize = 58;
/// At most this many elements of a list are recorded.
pub const MOST_ELEMENTS: u8 = 16;
/// At most this many bytes of a text are recorded.
pub const MOST_TEXT: u8 = 64;

/// A value of each call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// Its name, unique in its function.
    pub name: String,
    /// What its words mean.
    pub ctype: ColumnType,
    /// The type as C or the debug information says it, for people.
    pub c_type: String,
    /// When its last part is fetched.
    pub at: At,
    /// Fetches it. Postfix: operations push and pop words; those that remain are the value, the first word first.
    pub program: Vec<Op>,
    /// Its unit, such as `B`; `None` for plain numbers and text.
    pub unit: Option<String>,
    /// What it means to consumers that do not know the function.
    pub role: Option<Role>,
    /// The value is there only where this holds of the same call; null elsewhere. For `errno`.
    pub condition: Option<Condition>,
}

impl ValueSpec {
    /// The words of 8 bytes that its value takes.
    pub fn words(&self) -> usize {
        self.ctype.words()
    }
}

/// A number that is counted on every call, computed of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Its name, such as `io_bytes`.
    pub name: String,
    /// The unit of one.
    pub unit: MetricUnit,
    /// What it means to consumers that do not know the function.
    pub role: Option<Role>,
    /// As the table says it, such as `max(result, 0)`.
    pub expression: String,
    /// When it can be computed.
    pub at: At,
    /// Computes one word, a signed number of 64 bits that wraps.
    pub program: Vec<Op>,
}

impl MetricSpec {
    /// The column that has its value of each call.
    pub fn as_column(&self) -> ValueSpec {
        ValueSpec {
            name: self.name.clone(),
            ctype: ColumnType::Signed(8),
            c_type: format!("{} (long)", self.expression),
            at: self.at,
            program: self.program.clone(),
            unit: Some(self.unit.name().to_owned()),
            role: None,
            condition: None,
        }
    }
}

words! {
    /// The unit of a metric.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    MetricUnit {
        /// Bytes.
        Bytes = "B",
        /// Floating point operations.
        Flops = "flop",
        /// Plain numbers.
        Count = "#",
    }
}

impl MetricUnit {
    /// The unit of a metric by its name: those that end in `bytes` or `flops` count these.
    pub fn of(name: &str) -> MetricUnit {
        match name {
            name if name.ends_with("bytes") => MetricUnit::Bytes,
            name if name.ends_with("flops") => MetricUnit::Flops,
            _ => MetricUnit::Count,
        }
    }
}

/// How the words of a column are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// 0 or 1, in a word.
    Bool,
    /// A signed integer of so many bytes, extended to a word.
    Signed(u8),
    /// An unsigned integer of so many bytes, extended to a word.
    Unsigned(u8),
    /// An address, or a handle that a library calls a pointer.
    Pointer,
    /// The bits of a `float` in the low half of a word.
    Float,
    /// The bits of a `double`.
    Double,
    /// The 80 bits of an x87 number in two words.
    LongDouble,
    /// Up to so many bytes, a multiple of 8. It ends before the first 0.
    Text(u8),
    /// Up to [`MOST_ELEMENTS`] elements behind the word that says how many there are.
    List(ListElement),
}

/// What is taken of each element of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListElement {
    /// The bytes of an element.
    pub bytes: u8,
    /// Where in it the value begins.
    pub offset: u8,
    /// The bytes of the value that count.
    pub width: Width,
}

impl ListElement {
    /// The words of a list of such elements, with that of their number.
    pub fn words(self) -> usize {
        1 + (usize::from(self.bytes) * usize::from(MOST_ELEMENTS)).div_ceil(8)
    }

    /// The values of a list, by the words that it takes.
    pub fn values(self, words: &[u64]) -> impl Iterator<Item = i64> {
        let (number, bytes) = words.split_first().map_or((0, Vec::new()), |(number, elements)| {
            (*number as usize, elements.iter().flat_map(|word| word.to_ne_bytes()).collect())
        });
        let (size, offset) = (usize::from(self.bytes), usize::from(self.offset));
        (0..number).map_while(move |place| {
            let value = bytes.get(place * size + offset..)?.get(..usize::from(self.width.bytes))?;
            let mut word = [0; 8];
            word[..value.len()].copy_from_slice(value);
            Some(self.width.extend(u64::from_ne_bytes(word)).cast_signed())
        })
    }
}

impl ColumnType {
    /// The words of 8 bytes that a value takes.
    pub fn words(self) -> usize {
        match self {
            ColumnType::Text(bytes) => usize::from(bytes).div_ceil(8),
            ColumnType::LongDouble => 2,
            ColumnType::List(element) => element.words(),
            _ => 1,
        }
    }
}

impl ColumnType {
    /// Whether it is a number without a fraction.
    pub fn is_integer(self) -> bool {
        matches!(self, ColumnType::Bool | ColumnType::Signed(_) | ColumnType::Unsigned(_) | ColumnType::Pointer)
    }

    /// Whether it is a number with a fraction.
    pub fn is_float(self) -> bool {
        matches!(self, ColumnType::Float | ColumnType::Double | ColumnType::LongDouble)
    }
}

/// When something is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    /// When the function begins.
    Enter,
    /// When it has returned.
    Exit,
}

/// How many bytes of a word count, and how they are extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Width {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// Extend by the sign; else by zeros.
    pub signed: bool,
}

impl Width {
    /// A whole word without a sign.
    pub const WORD: Width = Width { bytes: 8, signed: false };

    /// Extends the low bytes of a word to all of it.
    pub fn extend(self, word: u64) -> u64 {
        let unused = 64 - 8 * u32::from(self.bytes.clamp(1, 8));
        match self.signed {
            true => ((word << unused) as i64 >> unused) as u64,
            false => word << unused >> unused,
        }
    }
}

/// One operation of a fetch program, in the terms of the kernel side.
///
/// Whatever reads a value extends it to a word, because the ABI leaves the upper bits of registers and stack words
/// undefined. Arithmetic is of signed words and wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// What it does.
    pub code: OpCode,
    /// A number that the code explains.
    pub number: i32,
    /// The bytes that count.
    pub width: Width,
    /// When it runs at the earliest: it runs at the exit if one of its operands does.
    pub at: At,
}

/// What an operation does, by the number that the kernel side knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpCode {
    /// Pushes the register of that number in instructions, as it is at the first instruction.
    Register = 0,
    /// Pushes what is on the stack, that many bytes above the return address.
    Stack = 1,
    /// Pops an address, and pushes what is that many bytes behind it.
    Memory = 2,
    /// Pops an address, and pushes the text there: that many bytes at most, a multiple of 8, padded by zeros.
    Text = 3,
    /// Pushes the result, in `rax`.
    Result = 4,
    /// Pops a number of elements and an address, and pushes the list there: how many elements are read, then these. An
    /// element has that many bytes.
    List = 5,
    /// Pushes the number.
    Number = 6,
    /// Pops a word, and pushes it shifted right by that many bits, then cut.
    Shift = 7,
    /// Pops two words, and pushes the product.
    Multiply = 8,
    /// Pops two words, and pushes the sum.
    Add = 9,
    /// Pops two words, and pushes the lower one minus the upper one.
    Subtract = 10,
    /// Pops two words, and pushes the greater one.
    Max = 11,
    /// Pops two words, and pushes the smaller one.
    Min = 12,
    /// Pushes the address of the thread's `errno`: where that is, the library knows that is entered.
    ErrnoAddress = 13,
    /// Pushes the vector register of that number, 0 to 7, which is known of calls that come by a stub.
    Vector = 14,
    /// Pops a word of 32 bits, and pushes it shifted right by the low byte of the number, then cut, if its highest byte is
    /// the next byte of the number. Else the value is not there.
    Tagged = 15,
    /// Pushes the number of the CPU on which the thread runs; of its NUMA node if the number is not 0.
    Cpu = 16,
    /// Pops a number of elements and an address, and keeps the list there until the call returns: pushes what says which
    /// one it is. An element has that many bytes.
    Keep = 17,
    /// Pops a place and what a list is kept by, and pushes the element there, which has that many bytes; 0 if the place is
    /// negative. If another list was kept since, the value is not there.
    Kept = 18,
    /// Pops a number of elements and an address, and pushes the sum of the elements there, which have that many bytes.
    Sum = 19,
}

impl Op {
    /// Reads the thread's `errno`, an `int`.
    pub const ERRNO: [Op; 2] = [
        Op::new(OpCode::ErrnoAddress, 0, Width::WORD, At::Enter),
        Op::new(OpCode::Memory, 0, Width { bytes: 4, signed: true }, At::Exit),
    ];

    /// An operation.
    pub const fn new(code: OpCode, number: i32, width: Width, at: At) -> Op {
        Op { code, number, width, at }
    }

    /// Pushes a number.
    pub const fn number(number: i32) -> Op {
        Op::new(OpCode::Number, number, Width::WORD, At::Enter)
    }

    /// Computes a word of two.
    pub const fn binary(code: OpCode) -> Op {
        Op::new(code, 0, Width::WORD, At::Enter)
    }

    /// The words of 8 bytes that it pushes.
    pub fn words(self) -> usize {
        match self.code {
            OpCode::Text => self.number as usize / 8,
            OpCode::List => 1 + (self.number as usize * usize::from(MOST_ELEMENTS)).div_ceil(8),
            _ => 1,
        }
    }
}

/// A value is there only where a column of the same call compares so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The name of the column, which has one word.
    pub column: String,
    /// How it must compare, as a signed number.
    pub comparison: Comparison,
    /// With what.
    pub value: i64,
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Comparison {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
}

impl Comparison {
    /// Whether `left` compares so with `right`.
    pub fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Comparison::Less => left < right,
            Comparison::LessOrEqual => left <= right,
            Comparison::Equal => left == right,
            Comparison::NotEqual => left != right,
            Comparison::GreaterOrEqual => left >= right,
            Comparison::Greater => left > right,
        }
    }
}

/// A general register of x86-64. Its discriminant is its number in instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Register {
    Rax = 0,
    Rcx = 1,
    Rdx = 2,
    Rbx = 3,
    Rsp = 4,
    Rbp = 5,
    Rsi = 6,
    Rdi = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
    R11 = 11,
    R12 = 12,
    R13 = 13,
    R14 = 14,
    R15 = 15,
}

impl Register {
    /// Those of the first six integer arguments, in their order.
    pub const ARGUMENTS: [Register; 6] =
        [Register::Rdi, Register::Rsi, Register::Rdx, Register::Rcx, Register::R8, Register::R9];

    /// Its name.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 16] = [
            "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
            "r15",
        ];
        NAMES[self as usize]
    }
}

impl fmt::Display for Register {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_and_extended() {
        let extended = |bytes, signed| Width { bytes, signed }.extend(0xdead_beef_ffff_fffe) as i64;
        assert_eq!(extended(4, true), -2);
        assert_eq!(extended(4, false), 0xffff_fffe);
        assert_eq!(extended(1, false), 0xfe);
        assert_eq!(extended(2, true), -2);
        assert_eq!(extended(8, true), 0xdead_beef_ffff_fffe_u64 as i64);
    }
}
