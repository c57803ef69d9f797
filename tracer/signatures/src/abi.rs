//! Where the System V ABI for x86-64 puts arguments and results (section 3.2.3).

use crate::{Class, Location, Reason, Register, Type};

/// Bytes of an eightbyte, the unit of registers and of the stack.
const WORD: u64 = 8;
/// Vector registers that take arguments.
const VECTORS: u8 = 8;
/// Deeper structures are refused; none of C is.
const DEEPEST: u32 = 32;
/// Members with an own class lie in the first two eightbytes; more elements than this cannot.
const MOST_ELEMENTS: u64 = 16;

/// Where each of these parameters is at the first instruction, and where the result is behind the call.
#[must_use]
pub fn locations(params: &[(&str, &Type)], result: Option<&Type>) -> (Vec<Location>, Location) {
    let mut places = Places::default();
    let result = result.map_or(Location::Unobservable(Reason::Void), |result| places.result(result));
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
    fn result(&mut self, ctype: &Type) -> Location {
        let hidden = || Location::Behind(Box::new(Location::Register(Register::Rax)));
        if is_reference(ctype) {
            self.registers += 1;
            return hidden();
        }
        let classes = match classes(ctype) {
            Ok(classes) => classes,
            Err(reason) => {
                // Whether a hidden pointer comes before the arguments depends on the type.
                if let Reason::UnknownType(name) = &reason {
                    self.unknown = Some(name.clone());
                }
                return Location::Unobservable(reason);
            }
        };
        let location = |place: usize| match classes[place] {
            Class::None => Location::Unobservable(Reason::Empty),
            Class::Integer if classes[..place].contains(&Class::Integer) => {
                Location::Unobservable(Reason::SecondRegister)
            }
            Class::Integer => Location::Register(Register::Rax),
            Class::Sse => Location::Unobservable(Reason::XmmResult(u8::from(classes[..place].contains(&Class::Sse)))),
            Class::SseUp => Location::Unobservable(Reason::TooWide),
            Class::X87 | Class::X87Up | Class::Memory => Location::Unobservable(Reason::X87),
        };
        match classes.as_slice() {
            [] => Location::Unobservable(Reason::Empty),
            [Class::Memory, ..] => {
                self.registers += 1;
                hidden()
            }
            [_] | [Class::X87 | Class::Sse, Class::X87Up | Class::SseUp] => location(0),
            [..] => Location::Split([Box::new(location(0)), Box::new(location(1))]),
        }
    }

    fn argument(&mut self, name: &str, ctype: &Type) -> Location {
        if let Some(unknown) = &self.unknown {
            return Location::Unobservable(Reason::Behind(unknown.clone()));
        }
        if is_reference(ctype) {
            return Location::Behind(Box::new(self.words(&[Class::Integer], WORD, WORD)));
        }
        let classes = match classes(ctype) {
            Ok(classes) => classes,
            Err(reason) => {
                self.unknown = Some(name.to_owned());
                return Location::Unobservable(reason);
            }
        };
        // Clang before 18 takes the last register for the lower half, GCC none.
        if matches!(ctype, Type::Integer { bytes: 16, .. }) && self.registers + 1 == Register::ARGUMENTS.len() {
            self.unknown = Some(name.to_owned());
            return Location::Unobservable(Reason::Disputed);
        }
        match classes.is_empty() {
            true => Location::Unobservable(Reason::Empty),
            false if self.is_uncertain(&classes, ctype) => {
                self.unknown = Some(name.to_owned());
                Location::Unobservable(Reason::MaybePacked)
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
    fn words(&mut self, classes: &[Class], bytes: u64, align: u64) -> Location {
        if !self.fits(classes) {
            let start = self.stack.next_multiple_of(align.max(WORD));
            self.stack = start.saturating_add(bytes.next_multiple_of(WORD));
            return match u32::try_from(start + WORD) {
                Ok(offset) => Location::Stack(offset),
                Err(_) => Location::Unobservable(Reason::TooWide),
            };
        }
        let mut parts = classes.iter().filter(|&&class| class != Class::SseUp).map(|class| self.register(*class));
        match (parts.next(), parts.next()) {
            (Some(first), None) => first,
            (Some(first), Some(second)) => Location::Split([Box::new(first), Box::new(second)]),
            (None, _) => Location::Unobservable(Reason::Empty),
        }
    }

    fn register(&mut self, class: Class) -> Location {
        match class {
            Class::Integer => {
                self.registers += 1;
                Location::Register(Register::ARGUMENTS[self.registers - 1])
            }
            Class::Sse => {
                self.vectors += 1;
                Location::Xmm(self.vectors - 1)
            }
            _ => Location::Unobservable(Reason::Empty),
        }
    }
}

/// Whether a pointer to the value is passed, as it is no plain data of C++.
fn is_reference(ctype: &Type) -> bool {
    matches!(ctype, Type::Struct(structure) if structure.by_reference)
}

/// The classes of a value's eightbytes: none if it is empty, else one or two. Of a value in memory the first is
/// [`Class::Memory`].
fn classes(ctype: &Type) -> Result<Vec<Class>, Reason> {
    let bytes = match ctype {
        Type::Void => return Err(Reason::Void),
        Type::Named(name) => return Err(Reason::UnknownType(name.clone())),
        Type::Struct(structure) if structure.bytes.is_none() => {
            return Err(Reason::UnknownType(structure.name.clone()));
        }
        // An empty class of C++ has a size of 1; of what is larger, the debug information leaves out the members.
        Type::Struct(structure) if structure.fields.is_empty() && structure.bytes > Some(1) => {
            return Err(Reason::UnknownType(structure.name.clone()));
        }
        // Whether they are in a register depends on what the caller was compiled for.
        Type::Vector(bytes) if *bytes > 16 => return Err(Reason::UnknownType("a wide vector".to_owned())),
        other => other.bytes().ok_or_else(|| Reason::UnknownType("an incomplete type".to_owned()))?,
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
        return Err(Reason::UnknownType(ctype.to_string()));
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
fn classify(ctype: &Type, offset: u64, words: &mut [Class; 2], depth: u32) -> Result<(), Reason> {
    if depth > DEEPEST {
        return Err(Reason::NotPlain);
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
        Type::Named(name) => return Err(Reason::UnknownType(name.clone())),
        Type::Void | Type::Function => return Err(Reason::NotPlain),
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
