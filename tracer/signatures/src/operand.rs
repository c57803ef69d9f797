//! Operands: where the notes of USDT probes say that arguments are.
//!
//! An argument is `N@OP`: N bytes, with a minus in front if it has a sign, in an operand as the assembler writes it.

use std::fmt;

use crate::{At, Op, OpCode, Register, Type, Width};

/// Arguments of one place that are looked at; `<sys/sdt.h>` knows no more than 12.
const MOST_ARGUMENTS: usize = 16;
/// Names of registers beside `r8` to `r15`: of 8, 4, 2 and 1 bytes.
const NAMES: [(Register, [&str; 4]); 8] = [
    (Register::Rax, ["rax", "eax", "ax", "al"]),
    (Register::Rcx, ["rcx", "ecx", "cx", "cl"]),
    (Register::Rdx, ["rdx", "edx", "dx", "dl"]),
    (Register::Rbx, ["rbx", "ebx", "bx", "bl"]),
    (Register::Rsp, ["rsp", "esp", "sp", "spl"]),
    (Register::Rbp, ["rbp", "ebp", "bp", "bpl"]),
    (Register::Rsi, ["rsi", "esi", "si", "sil"]),
    (Register::Rdi, ["rdi", "edi", "di", "dil"]),
];

/// Where an argument is when control comes to the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// It is this number.
    Number(i32),
    /// In the low bytes of this register.
    Register(Register),
    /// In memory, so many bytes behind the sum of a register and a multiple of another.
    Memory {
        /// The register.
        base: Register,
        /// The other, and by what it is multiplied.
        index: Option<(Register, i32)>,
        /// Bytes.
        displacement: i32,
    },
}

impl Operand {
    /// The operations that read some bytes of it, so many bytes further; `None`: that is too far.
    pub(crate) fn read(&self, offset: u64, width: Width) -> Option<Vec<Op>> {
        let load = |register: Register, width| Op::new(OpCode::Register, register as i32, width, At::Enter);
        Some(match *self {
            Operand::Number(number) => vec![Op::number(number)],
            Operand::Register(register) => vec![load(register, width)],
            Operand::Memory { base, index, displacement } => {
                let mut program = vec![load(base, Width::WORD)];
                if let Some((index, scale)) = index {
                    let scaled = [load(index, Width::WORD), Op::number(scale), Op::binary(OpCode::Multiply)];
                    program.extend(scaled);
                    program.push(Op::binary(OpCode::Add));
                }
                let offset = i32::try_from(offset).ok().and_then(|offset| displacement.checked_add(offset));
                program.push(Op::new(OpCode::Memory, offset?, width, At::Enter));
                program
            }
        })
    }

    fn parse(text: &str) -> Option<Operand> {
        if let Some(number) = text.strip_prefix('$') {
            return Some(Operand::Number(number.parse().ok()?));
        }
        if let Some(name) = text.strip_prefix('%') {
            return Some(Operand::Register(register(name)?.0));
        }
        let (displacement, registers) = text.strip_suffix(')')?.split_once('(')?;
        let displacement = if displacement.is_empty() { 0 } else { displacement.parse().ok()? };
        let mut parts = registers.split(',').map(str::trim);
        let mut whole = || register(parts.next()?.strip_prefix('%')?).filter(|&(_, bytes)| bytes == 8);
        let (base, _) = whole()?;
        let index = whole();
        let index = match (index, parts.next()) {
            (Some((index, _)), scale) => Some((index, scale.map_or(Some(1), |scale| scale.parse().ok())?)),
            (None, _) if registers.contains(',') => return None,
            (None, _) => None,
        };
        Some(Operand::Memory { base, index, displacement })
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Number(number) => write!(formatter, "${number}"),
            Operand::Register(register) => register.fmt(formatter),
            Operand::Memory { base, index, displacement } => match index {
                Some((index, scale)) => write!(formatter, "{displacement}(%{base},%{index},{scale})"),
                None => write!(formatter, "{displacement}(%{base})"),
            },
        }
    }
}

/// The arguments that a note tells: the type of each, and where it is, or the text that says something else.
pub(crate) fn arguments(note: &str) -> impl Iterator<Item = (Type, Result<Operand, String>)> {
    note.split_ascii_whitespace().take(MOST_ARGUMENTS).map(|argument| {
        let (size, operand) = argument.split_once('@').unwrap_or(("8", argument));
        let is_float = size.ends_with('f');
        let bytes = size.trim_start_matches('-').trim_end_matches('f').parse().ok();
        let ctype = match (bytes.filter(|bytes| [1, 2, 4, 8].contains(bytes)), is_float) {
            (Some(4), true) => Type::Float,
            (Some(8), true) => Type::Double,
            // Notes tell no pointer from a number without a sign.
            (Some(8), false) if !size.starts_with('-') => Type::Pointer(Box::new(Type::Void)),
            (Some(bytes), false) => Type::Integer { bytes, signed: size.starts_with('-') },
            _ => Type::Named(size.to_owned()),
        };
        (ctype, Operand::parse(operand).ok_or_else(|| argument.to_owned()))
    })
}

/// A register by its name, and its bytes. The second bytes of registers, such as `ah`, are none of their own.
fn register(name: &str) -> Option<(Register, u8)> {
    use Register::{R8, R9, R10, R11, R12, R13, R14, R15};
    for (register, names) in NAMES {
        if let Some(place) = names.iter().position(|known| *known == name) {
            return Some((register, 8 >> place));
        }
    }
    let (digits, bytes) = match name.strip_prefix('r')? {
        rest if rest.ends_with('d') => (&rest[..rest.len() - 1], 4),
        rest if rest.ends_with('w') => (&rest[..rest.len() - 1], 2),
        rest if rest.ends_with('b') => (&rest[..rest.len() - 1], 1),
        rest => (rest, 8),
    };
    let number = digits.parse::<usize>().ok()?.checked_sub(8)?;
    Some((*[R8, R9, R10, R11, R12, R13, R14, R15].get(number)?, bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn operands_are_those_of_the_assembler() {
        let memory = |base, index, displacement| Some(Operand::Memory { base, index, displacement });
        for (text, operand) in [
            ("$-5", Some(Operand::Number(-5))),
            ("%rbx", Some(Operand::Register(Register::Rbx))),
            ("%r12d", Some(Operand::Register(Register::R12))),
            ("%sil", Some(Operand::Register(Register::Rsi))),
            ("-4(%rbp)", memory(Register::Rbp, None, -4)),
            ("(%rsp)", memory(Register::Rsp, None, 0)),
            ("8(%rax,%rdx,4)", memory(Register::Rax, Some((Register::Rdx, 4)), 8)),
            ("(%rax,%r9)", memory(Register::Rax, Some((Register::R9, 1)), 0)),
        ] {
            assert_eq!(Operand::parse(text), operand, "{text}");
        }
        for text in
            ["x(%rip)", "48+x(%rip)", "%ah", "%xmm0", "%r16", "4(%eax)", "(%rax,%edx,2)", "$x", "", "%", "(,%rax,8)"]
        {
            assert_eq!(Operand::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_say_types() {
        let told: Vec<_> = arguments("8@%rax -8@%rax 1@$0 -4@x(%rip) %rdi 8f@%xmm0 3@%rax").collect();
        let integer = |bytes, signed| Type::Integer { bytes, signed };
        assert_eq!(told[0], (Type::Pointer(Box::new(Type::Void)), Ok(Operand::Register(Register::Rax))));
        assert_eq!(told[1].0, integer(8, true));
        assert_eq!(told[2], (integer(1, false), Ok(Operand::Number(0))));
        assert_eq!(told[3], (integer(4, true), Err("-4@x(%rip)".to_owned())));
        assert_eq!(told[4].1, Ok(Operand::Register(Register::Rdi)));
        assert_eq!(told[5], (Type::Double, Err("8f@%xmm0".to_owned())));
        assert_eq!(told[6].0, Type::Named("3".to_owned()));
    }

    #[test]
    fn memory_takes_a_register_a_product_and_a_distance() {
        let operand = Operand::parse("-8(%rbp,%rcx,4)").unwrap();
        let codes: Vec<_> =
            operand.read(0, Width { bytes: 4, signed: true }).unwrap().iter().map(|op| (op.code, op.number)).collect();
        use OpCode::{Add, Memory, Multiply, Number, Register};
        assert_eq!(codes, [(Register, 5), (Register, 1), (Number, 4), (Multiply, 0), (Add, 0), (Memory, -8)]);
    }
}
