//! Where the System V ABI for x86-64 puts arguments and results (section 3.2.3).

use crate::{AbiPlace, Cause, Class, Register, Type};

/// Bytes of an eightbyte, the unit of registers and of the stack.
const WORD: u64 = 8;
/// Vector registers that take arguments.
const VECTORS: u8 = 8;
/// Deeper structures are refused; none of C is.
const DEEPEST: u32 = 32;
/// Members with an own class lie in the first two eightbytes; more elements than this cannot.
const MOST_ELEMENTS: u64 = 16;

/// Where each of these parameters is at the first instruction, and where the result is behind the call.
pub fn locations(params: &[(&str, &Type)], result: Option<&Type>) -> (Vec<AbiPlace>, AbiPlace) {
    let mut places = Places::default();
    let result = result.map_or(AbiPlace::Unobservable(Cause::Void), |result| places.result(result));
    (params.iter().map(|(name, ctype)| places.argument(name, ctype)).collect(), result)
}

/// What earlier arguments have left.
#[derive(Debug, Default)]
struct Places {
    registers: usize,
    vectors: u8,
    /// Bytes of arguments on the stack.
    stack: u64,
    /// The first argument of unknown type: those behind it may be anywhere.
    unknown: Option<String>,
}

impl Places {
    fn result(&mut self, ctype: &Type) -> AbiPlace {
        let hidden = || AbiPlace::Behind(Box::new(AbiPlace::Register(Register::Rax)));
        if is_reference(ctype) {
            self.registers += 1;
            return hidden();
        }
        let classes = match classes(ctype) {
            Ok(classes) => classes,
            Err(reason) => {
                // Whether a hidden pointer comes before the arguments depends on the type.
                if let Cause::UnknownType(name) = &reason {
                    self.unknown = Some(name.clone());
                }
                return AbiPlace::Unobservable(reason);
            }
        };
        let location = |place: usize| match classes[place] {
            Class::None => AbiPlace::Unobservable(Cause::Empty),
            Class::Integer if classes[..place].contains(&Class::Integer) => {
                AbiPlace::Unobservable(Cause::SecondRegister)
            }
            Class::Integer => AbiPlace::Register(Register::Rax),
            Class::Sse => AbiPlace::Unobservable(Cause::XmmResult(u8::from(classes[..place].contains(&Class::Sse)))),
            Class::SseUp => AbiPlace::Unobservable(Cause::TooWide),
            Class::X87 | Class::X87Up | Class::Memory => AbiPlace::Unobservable(Cause::X87),
        };
        match classes.as_slice() {
            [] => AbiPlace::Unobservable(Cause::Empty),
            [Class::Memory, ..] => {
                self.registers += 1;
                hidden()
            }
            [_] | [Class::X87 | Class::Sse, Class::X87Up | Class::SseUp] => location(0),
            [..] => AbiPlace::Split([Box::new(location(0)), Box::new(location(1))]),
        }
    }

    fn argument(&mut self, name: &str, ctype: &Type) -> AbiPlace {
        if let Some(unknown) = &self.unknown {
            return AbiPlace::Unobservable(Cause::Behind(unknown.clone()));
        }
        if is_reference(ctype) {
            return AbiPlace::Behind(Box::new(self.words(&[Class::Integer], WORD, WORD)));
        }
        let classes = match classes(ctype) {
            Ok(classes) => classes,
            Err(reason) => {
                self.unknown = Some(name.to_owned());
                return AbiPlace::Unobservable(reason);
            }
        };
        // Clang before 18 takes the last register for the lower half, GCC none.
        if matches!(ctype, Type::Integer { bytes: 16, .. }) && self.registers + 1 == Register::ARGUMENTS.len() {
            self.unknown = Some(name.to_owned());
            return AbiPlace::Unobservable(Cause::Disputed);
        }
        match classes.is_empty() {
            true => AbiPlace::Unobservable(Cause::Empty),
            false if self.is_uncertain(&classes, ctype) => {
                self.unknown = Some(name.to_owned());
                AbiPlace::Unobservable(Cause::MaybePacked)
            }
            false => self.words(&classes, ctype.bytes().unwrap_or(WORD), ctype.align()),
        }
    }

    /// Whether a structure on the stack begins elsewhere if it is packed, which debug information does not tell.
    fn is_uncertain(&self, classes: &[Class], ctype: &Type) -> bool {
        let Type::Struct(structure) = ctype else { return false };
        structure.may_be_packed && !self.stack.is_multiple_of(ctype.align().max(WORD)) && !self.fits(classes)
    }

    fn fits(&self, classes: &[Class]) -> bool {
        let needed = |wanted: Class| classes.iter().filter(|&&class| class == wanted).count();
        !classes.iter().any(|class| matches!(class, Class::Memory | Class::X87 | Class::X87Up))
            && self.registers + needed(Class::Integer) <= Register::ARGUMENTS.len()
            && usize::from(self.vectors) + needed(Class::Sse) <= usize::from(VECTORS)
    }

    /// Takes registers for all of a value, or room on the stack for all of it.
    fn words(&mut self, classes: &[Class], bytes: u64, align: u64) -> AbiPlace {
        if !self.fits(classes) {
            let start = self.stack.next_multiple_of(align.max(WORD));
            self.stack = start.saturating_add(bytes.next_multiple_of(WORD));
            return match u32::try_from(start + WORD) {
                Ok(offset) => AbiPlace::Stack(offset),
                Err(_) => AbiPlace::Unobservable(Cause::TooWide),
            };
        }
        let mut parts = classes.iter().filter(|&&class| class != Class::SseUp).map(|class| self.register(*class));
        match (parts.next(), parts.next()) {
            (Some(first), None) => first,
            (Some(first), Some(second)) => AbiPlace::Split([Box::new(first), Box::new(second)]),
            (None, _) => AbiPlace::Unobservable(Cause::Empty),
        }
    }

    fn register(&mut self, class: Class) -> AbiPlace {
        match class {
            Class::Integer => {
                self.registers += 1;
                AbiPlace::Register(Register::ARGUMENTS[self.registers - 1])
            }
            Class::Sse => {
                self.vectors += 1;
                AbiPlace::Xmm(self.vectors - 1)
            }
            _ => AbiPlace::Unobservable(Cause::Empty),
        }
    }
}

/// Whether a pointer to the value is passed, as it is no plain data of C++.
fn is_reference(ctype: &Type) -> bool {
    matches!(ctype, Type::Struct(structure) if structure.by_reference)
}

/// The classes of a value's eightbytes: none if it is empty, else one or two. Of a value in memory the first is
/// [`Class::Memory`].
fn classes(ctype: &Type) -> Result<Vec<Class>, Cause> {
    let bytes = match ctype {
        Type::Void => return Err(Cause::Void),
        Type::Named(name) => return Err(Cause::UnknownType(name.clone())),
        Type::Struct(structure) if structure.bytes.is_none() => {
            return Err(Cause::UnknownType(structure.name.clone()));
        }
        // An empty class of C++ has a size of 1; of what is larger, the debug information leaves out the members.
        Type::Struct(structure) if structure.fields.is_empty() && structure.bytes > Some(1) => {
            return Err(Cause::UnknownType(structure.name.clone()));
        }
        // Whether they are in a register depends on what the caller was compiled for.
        Type::Vector(bytes) if *bytes > 16 => return Err(Cause::UnknownType("a wide vector".to_owned())),
        other => other.bytes().ok_or_else(|| Cause::UnknownType("an incomplete type".to_owned()))?,
    };
    if bytes == 0 {
        return Ok(Vec::new());
    }
    if let Type::Complex(part) = ctype
        && **part == Type::LongDouble
    {
        return Ok(vec![Class::X87, Class::X87Up]);
    }
    if bytes > 2 * WORD && is_wide_vector(ctype, bytes) {
        return Err(Cause::UnknownType(ctype.to_string()));
    }
    if bytes > 2 * WORD {
        // A member without a known type changes nothing any more.
        return Ok(vec![Class::Memory]);
    }
    let mut words = [Class::None; 2];
    classify(ctype, 0, &mut words, 0)?;
    let [first, second] = words;
    if words.contains(&Class::Memory) || (second == Class::X87Up && first != Class::X87) {
        return Ok(vec![Class::Memory]);
    }
    let second = if second == Class::SseUp && first != Class::Sse { Class::Sse } else { second };
    Ok(match () {
        // Without members, a structure of C++ has a size of 1.
        () if words == [Class::None; 2] => Vec::new(),
        () if bytes <= WORD => vec![first],
        () => vec![first, second],
    })
}

/// Whether a structure is nothing but a vector, which may be in a register where the processor has wide ones.
fn is_wide_vector(ctype: &Type, bytes: u64) -> bool {
    match ctype {
        Type::Vector(size) => u64::from(*size) == bytes,
        Type::Array(of, 1) => is_wide_vector(of, bytes),
        Type::Struct(structure) => structure.fields.iter().any(|field| is_wide_vector(&field.ctype, bytes)),
        _ => false,
    }
}

/// Merges the classes of a value at an offset into those of the eightbytes.
fn classify(ctype: &Type, offset: u64, words: &mut [Class; 2], depth: u32) -> Result<(), Cause> {
    if depth > DEEPEST {
        return Err(Cause::NotPlain);
    }
    let is_aligned = offset.is_multiple_of(ctype.align());
    let mut merge = |class, at: u64| {
        let class = if is_aligned { class } else { Class::Memory };
        match words.get_mut((at / WORD) as usize) {
            Some(word) => *word = merged(*word, class),
            None => words[0] = Class::Memory,
        }
    };
    match ctype {
        Type::Bool | Type::Char | Type::Enum { .. } | Type::Pointer(_) => merge(Class::Integer, offset),
        Type::Integer { bytes, .. } => {
            merge(Class::Integer, offset);
            if *bytes > 8 {
                merge(Class::Integer, offset + WORD);
            }
        }
        Type::Float | Type::Double => merge(Class::Sse, offset),
        Type::Vector(bytes) => {
            merge(Class::Sse, offset);
            if *bytes > 8 {
                merge(Class::SseUp, offset + WORD);
            }
        }
        Type::LongDouble => {
            merge(Class::X87, offset);
            merge(Class::X87Up, offset + WORD);
        }
        Type::Complex(part) => {
            classify(part, offset, words, depth + 1)?;
            classify(part, offset + part.bytes().unwrap_or(WORD), words, depth + 1)?;
        }
        Type::Array(of, count) => {
            let step = of.bytes().unwrap_or(0);
            for element in 0..(*count).min(MOST_ELEMENTS) {
                classify(of, offset.saturating_add(element.saturating_mul(step)), words, depth + 1)?;
            }
        }
        Type::Struct(structure) => {
            for field in &structure.fields {
                let start = offset.saturating_add(field.offset);
                match field.bits {
                    Some((first, count)) => {
                        let bits = u64::from(first)..=u64::from(first) + u64::from(count.max(1)) - 1;
                        for bit in [*bits.start(), *bits.end()] {
                            let word = words.get_mut(((start * 8 + bit) / 64) as usize);
                            word.into_iter().for_each(|word| *word = merged(*word, Class::Integer));
                        }
                    }
                    None => classify(&field.ctype, start, words, depth + 1)?,
                }
            }
        }
        Type::Named(name) => return Err(Cause::UnknownType(name.clone())),
        Type::Void | Type::Function => return Err(Cause::NotPlain),
    }
    Ok(())
}

/// The class of an eightbyte that two members share.
fn merged(one: Class, other: Class) -> Class {
    match (one, other) {
        (one, other) if one == other => one,
        (Class::None, class) | (class, Class::None) => class,
        (Class::Memory, _) | (_, Class::Memory) => Class::Memory,
        (Class::Integer, _) | (_, Class::Integer) => Class::Integer,
        (Class::X87 | Class::X87Up, _) | (_, Class::X87 | Class::X87Up) => Class::Memory,
        _ => Class::Sse,
    }
}
