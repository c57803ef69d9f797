//! Fetch programs of values: from where a value is and what it is, to the operations that read it.

use crate::{AbiPlace, At, Cause, ColumnType, Op, OpCode, Register, Type, Width};

/// A value that can be pointed at: where it is, and what it is.
#[derive(Clone, Debug)]
pub struct ValuePlace {
    base: PlaceBase,
    /// Bytes from there.
    offset: u64,
    bits: Option<(u8, u8)>,
    /// The number of 32 bits that it is a part of has this as its highest byte, or it has no such part; with the bytes
    /// from there to the part.
    tag: Option<(u8, u64)>,
    /// Its type.
    pub ctype: Type,
}

#[derive(Clone, Debug)]
enum PlaceBase {
    Location(AbiPlace),
    /// In memory, at the address that these operations push, read then.
    Memory(Vec<Op>, At),
}

impl ValuePlace {
    /// An argument or a result.
    pub fn new(location: &AbiPlace, ctype: &Type) -> ValuePlace {
        let base = match location {
            AbiPlace::Behind(address) => match register_of(address) {
                // The address in rax is that of a result: it is written when the function returns.
                Some(Register::Rax) => PlaceBase::Memory(vec![load(Register::Rax, Width::WORD)], At::Exit),
                _ => match read(address, 0, Width::WORD) {
                    Ok(program) => PlaceBase::Memory(program, At::Enter),
                    Err(reason) => PlaceBase::Location(AbiPlace::Unobservable(reason)),
                },
            },
            other => PlaceBase::Location(other.clone()),
        };
        ValuePlace { base, offset: 0, bits: None, tag: None, ctype: ctype.clone() }
    }

    /// What its value, a pointer, points to.
    ///
    /// # Errors
    /// It is no pointer, or its value cannot be read.
    pub fn target(&self, at: At) -> Result<ValuePlace, Cause> {
        let Type::Pointer(to) = &self.ctype else { return Err(Cause::NoTarget) };
        let (_, program) = self.value()?;
        let at = at.max(self.at());
        let base = PlaceBase::Memory(program, at);
        Ok(ValuePlace { base, offset: 0, bits: None, tag: None, ctype: (**to).clone() })
    }

    /// The element that its value, a pointer, has with the number that these operations push, read then.
    ///
    /// # Errors
    /// It points to nothing that has a size, or its value cannot be read.
    pub fn numbered(&self, number: Vec<Op>, at: At) -> Result<ValuePlace, Cause> {
        let first = self.target(at)?;
        let bytes = first.ctype.bytes().and_then(|bytes| i32::try_from(bytes).ok()).ok_or(Cause::NoTarget)?;
        let distance = [Op::number(bytes), Op::binary(OpCode::Multiply), Op::binary(OpCode::Add)];
        let program = [self.value()?.1, number, distance.to_vec()].concat();
        Ok(ValuePlace { base: PlaceBase::Memory(program, at.max(self.at())), ..first })
    }

    /// The same bytes as another type, some bytes further.
    pub fn cast(&self, offset: u64, ctype: Type) -> ValuePlace {
        ValuePlace { offset: self.offset.saturating_add(offset), ctype, ..self.clone() }
    }

    /// A member of a structure, also one of an unnamed structure in it.
    pub fn member(&self, name: &str) -> Option<ValuePlace> {
        self.members().into_iter().find_map(|(known, place)| match known {
            "" => place.member(name),
            known => (known == name).then_some(place),
        })
    }

    /// The members of a structure.
    pub fn members(&self) -> Vec<(&str, ValuePlace)> {
        let Type::Struct(structure) = &self.ctype else { return Vec::new() };
        let place = |field: &crate::Field| {
            let inside = if field.tag.is_some() { 0 } else { field.offset };
            let place = self.cast(inside, field.ctype.clone());
            ValuePlace { bits: field.bits, tag: field.tag.map(|tag| (tag, field.offset)), ..place }
        };
        structure.fields.iter().map(|field| (field.name.as_str(), place(field))).collect()
    }

    /// How many bytes it is behind the place that it is a part of.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// When it is read.
    pub fn at(&self) -> At {
        match &self.base {
            PlaceBase::Memory(_, at) => *at,
            PlaceBase::Location(location) => match is_result(location) {
                true => At::Exit,
                false => At::Enter,
            },
        }
    }

    /// The operations that read it, and what its words mean.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn value(&self) -> Result<(ColumnType, Vec<Op>), Cause> {
        if self.bits.is_some() {
            return Err(Cause::BitField);
        }
        if self.ctype == Type::LongDouble {
            let mut program = self.word(0, Width::WORD)?;
            program.extend(self.word(8, Width { bytes: 2, signed: false })?);
            return Ok((ColumnType::LongDouble, program));
        }
        let Some((kind, width)) = self.ctype.scalar() else {
            return Err(match &self.ctype {
                Type::Integer { .. } | Type::Vector(_) | Type::Complex(_) => Cause::TooWide,
                Type::Named(name) => Cause::UnknownType(name.clone()),
                Type::Void | Type::Function => Cause::NoTarget,
                _ => Cause::NotPlain,
            });
        };
        let Some((tag, offset)) = self.tag else { return Ok((kind, self.word(0, width)?)) };
        let mut program = self.word(0, Width { bytes: 4, signed: false })?;
        let number = (i32::from(tag) << 8) | (8 * offset as i32);
        program.push(Op::new(OpCode::Tagged, number, width, self.at()));
        Ok((kind, program))
    }

    /// The operations that read text of at most so many bytes: what a pointer points to, or an array of bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn text(&self, max: u8, at: At) -> Result<Vec<Op>, Cause> {
        let (mut program, at) = match (&self.ctype, &self.base) {
            (Type::Pointer(_), _) => (self.value()?.1, at.max(self.at())),
            (_, PlaceBase::Memory(address, own)) => {
                let mut program = address.clone();
                if self.offset > 0 {
                    let offset = Op::number(i32::try_from(self.offset).map_err(|_| Cause::TooWide)?);
                    program.extend([offset, Op::binary(OpCode::Add)]);
                }
                (program, at.max(*own))
            }
            _ => return Err(Cause::NotPlain),
        };
        program.push(Op::new(OpCode::Text, max.into(), Width::WORD, at));
        Ok(program)
    }

    fn word(&self, offset: u64, width: Width) -> Result<Vec<Op>, Cause> {
        let offset = self.offset.saturating_add(offset);
        match &self.base {
            PlaceBase::Location(location) => read(location, offset, width),
            PlaceBase::Memory(address, at) => {
                let offset = i32::try_from(offset).map_err(|_| Cause::TooWide)?;
                let mut program = address.clone();
                program.push(Op::new(OpCode::Memory, offset, width, *at));
                Ok(program)
            }
        }
    }
}

/// The operations that read some bytes of what is at a location.
fn read(location: &AbiPlace, offset: u64, width: Width) -> Result<Vec<Op>, Cause> {
    match location {
        AbiPlace::Register(register) => part(offset, width, |width| load(*register, width)),
        AbiPlace::Xmm(number) => {
            part(offset, width, |width| Op::new(OpCode::Vector, (*number).into(), width, At::Enter))
        }
        AbiPlace::Stack(start) => {
            let offset = u64::from(*start).saturating_add(offset);
            let offset = i32::try_from(offset).map_err(|_| Cause::TooWide)?;
            Ok(vec![Op::new(OpCode::Stack, offset, width, At::Enter)])
        }
        AbiPlace::Split(parts) => match offset {
            0..8 => read(&parts[0], offset, width),
            8..16 => read(&parts[1], offset - 8, width),
            _ => Err(Cause::TooWide),
        },
        AbiPlace::Operand(operand) => operand.read(offset, width).ok_or(Cause::TooWide),
        AbiPlace::Behind(_) => Err(Cause::NotPlain),
        AbiPlace::Unobservable(reason) => Err(reason.clone()),
    }
}

/// The operations that read some bytes of a register.
fn part(offset: u64, width: Width, load: impl Fn(Width) -> Op) -> Result<Vec<Op>, Cause> {
    match offset {
        0 => Ok(vec![load(width)]),
        1..8 => Ok(vec![load(Width::WORD), Op::new(OpCode::Shift, 8 * offset as i32, width, At::Enter)]),
        _ => Err(Cause::TooWide),
    }
}

fn load(register: Register, width: Width) -> Op {
    match register {
        Register::Rax => Op::new(OpCode::Result, 0, width, At::Exit),
        register => Op::new(OpCode::Register, register as i32, width, At::Enter),
    }
}

fn register_of(location: &AbiPlace) -> Option<Register> {
    match location {
        AbiPlace::Register(register) => Some(*register),
        _ => None,
    }
}

/// Whether a location is that of a result: `rax` takes no argument.
fn is_result(location: &AbiPlace) -> bool {
    match location {
        AbiPlace::Split(parts) => parts.iter().any(|part| is_result(part)),
        location => register_of(location) == Some(Register::Rax),
    }
}
