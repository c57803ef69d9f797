//! Captures: what a table or the user wants of a function's values, such as `count`, `*m`, `>out`, `type->size`.
//!
//! | capture | means |
//! |---|---|
//! | `count`, `result`, `errno` | an argument, the result, the thread's error number |
//! | `cpu`, `>cpu`, `numa_node` | the CPU on which the call begins, and on which it ends; the CPU's NUMA node |
//! | `*m` | what the pointer `m` points to when the function begins |
//! | `>out` | what the pointer `out` points to when the function has returned |
//! | `a->b.c[2]` | members and elements, when the function begins; with `>` before it, when it has returned |
//! | `list[..count]`, `>list[..*n]->a` | the elements of a list, or a member of each: as many as there are, 16 at most |
//! | `list[..count][+]`, `list[n->a]` | the sum of the elements, and the element with the number that another capture says |
//! | `list[..count][*n]` | the element that `n` points to the place of when the function has returned, as it was when that began |
//! | `path:text`, `path:text(16)` | text of at most 64, or 16, bytes with the zero at its end |
//! | `p:u32` | read as another type: `u8` to `u64`, `i8` to `i64`, `f32`, `f64`, `bool`, `pointer` |
//! | `rows=*m` | under another name; without one it is the last name of the capture |

use std::fmt;

use crate::lexer::{Lexer, Token};
use crate::read::ValuePlace;
use crate::{At, Cause, ColumnType, ListElement, MOST_TEXT, Op, OpCode, Type, Width};

/// More steps than this are a mistake.
const MOST_STEPS: usize = 8;
/// Where a call runs, by the number by which the kernel side knows it.
pub const RUNNING: [(&str, i32); 2] = [("cpu", 0), ("numa_node", 1)];

/// A capture as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name of its column.
    pub name: String,
    /// The parameter that it begins with, `result` or `errno`.
    pub root: String,
    at: At,
    /// A `*` or `>` in front of a plain name.
    target: bool,
    steps: Vec<WantedStep>,
    cast: Option<Cast>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WantedStep {
    /// `->name`
    Behind(String),
    /// `.name`
    Member(String),
    /// `[number]`
    Element(u64),
    /// `[number]`, where that is a capture
    Numbered(Box<Wanted>),
    /// `[..count]`, where that is a capture of the number of elements
    List(Box<Wanted>),
    /// `[+]`: the sum of the elements of the list before it
    Sum,
    /// `[*place]`: the parameter that points to the place of an element of the list before it
    Chosen(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cast {
    Text(u8),
    Type(Type),
}

/// Why a capture gives no column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureFault {
    /// It makes no sense for this function: a message.
    Wrong(String),
    /// It cannot be read.
    Unobservable(Cause),
}

/// Where a parameter or the result is, and which members it has if it is a handle.
pub type RootOf<'a> = &'a dyn Fn(&str) -> Result<(ValuePlace, Option<&'a Type>), String>;

impl From<Cause> for CaptureFault {
    fn from(reason: Cause) -> CaptureFault {
        CaptureFault::Unobservable(reason)
    }
}

impl Wanted {
    /// A parameter, `result` or `errno`, without more.
    pub fn plain(name: &str) -> Wanted {
        let name = name.to_owned();
        Wanted { root: name.clone(), name, at: At::Enter, target: false, steps: Vec::new(), cast: None }
    }

    /// What a parameter points to when the function begins.
    pub fn target(name: &str) -> Wanted {
        Wanted { target: true, ..Wanted::plain(name) }
    }

    /// A member of a parameter that is a structure: its column is called after both.
    pub fn member(name: &str, member: &str) -> Wanted {
        let steps = vec![WantedStep::Member(member.to_owned())];
        Wanted { steps, name: format!("{name}_{member}"), ..Wanted::plain(name) }
    }

    /// The operation that reads where the call runs, if that is asked for: it takes no signature.
    pub fn running(&self) -> Option<Op> {
        let is_bare = self.steps.is_empty() && self.cast.is_none();
        let (_, number) = RUNNING.into_iter().find(|(name, _)| is_bare && *name == self.root)?;
        Some(Op::new(OpCode::Cpu, number, Width { bytes: 4, signed: false }, self.at))
    }

    /// Whether it is a parameter, or the result, as it is.
    pub fn is_plain(&self) -> bool {
        !self.target && self.steps.is_empty() && self.cast.is_none()
    }

    /// How many pointers it follows into structures.
    pub fn levels(&self) -> u32 {
        let behind = self.steps.iter().filter(|step| !matches!(step, WantedStep::Member(_))).count();
        (behind + usize::from(self.target)) as u32
    }

    /// Reads a capture of its own.
    ///
    /// # Errors
    /// A message says what is wrong.
    pub fn parse(text: &str) -> Result<Wanted, String> {
        let mut lexer = Lexer::new(text)?;
        let wanted = Wanted::read(&mut lexer)?;
        lexer.end()?;
        Ok(wanted)
    }

    /// Reads a capture of a line that goes on.
    ///
    /// # Errors
    /// A message says what is wrong.
    pub fn read(lexer: &mut Lexer) -> Result<Wanted, String> {
        let mut name = None;
        if let (Some(Token::Name(own)), Some(Token::Sign("="))) = (lexer.peek(), lexer.ahead(1)) {
            name = Some(own.to_owned());
            lexer.next();
            lexer.next();
        }
        let at = if lexer.eat(">") { At::Exit } else { At::Enter };
        let target = at == At::Enter && lexer.eat("*");
        let wanted = Wanted::read_path(lexer, at, target, false)?;
        Ok(Wanted { name: name.unwrap_or_else(|| wanted.name.clone()), ..wanted })
    }

    /// Reads a capture within the brackets of one that is read then; with a `*` at the same time.
    fn read_inner(lexer: &mut Lexer, at: At) -> Result<Box<Wanted>, String> {
        let target = lexer.eat("*");
        Ok(Box::new(Wanted::read_path(lexer, if target { at } else { At::Enter }, target, true)?))
    }

    /// Reads what follows the signs in front of a capture; within brackets, others have numbers only.
    fn read_path(lexer: &mut Lexer, at: At, mut target: bool, is_inner: bool) -> Result<Wanted, String> {
        let root = lexer.name("the name of a parameter, `result` or `errno`")?.to_owned();
        let mut steps = Vec::new();
        loop {
            let step = match () {
                () if lexer.eat("->") => WantedStep::Behind(lexer.name("the name of a member")?.to_owned()),
                () if lexer.eat(".") => WantedStep::Member(lexer.name("the name of a member")?.to_owned()),
                () if !is_inner && lexer.eat("[..") => {
                    let count = Wanted::read_inner(lexer, at)?;
                    lexer.expect("]")?;
                    WantedStep::List(count)
                }
                () if matches!(steps.last(), Some(WantedStep::List(_))) && lexer.eat("[") => {
                    let step = match lexer.eat("+") {
                        true => WantedStep::Sum,
                        false => {
                            lexer.expect("*")?;
                            let place = lexer.name("the parameter that points to the place of an element")?;
                            WantedStep::Chosen(place.to_owned())
                        }
                    };
                    lexer.expect("]")?;
                    step
                }
                () if lexer.eat("[") => {
                    let step = match lexer.peek() {
                        Some(Token::Number(number)) => {
                            lexer.next();
                            WantedStep::Element(u64::try_from(number).map_err(|_| "an element before the first")?)
                        }
                        _ if is_inner => return Err(lexer.wanted("a number")),
                        _ => WantedStep::Numbered(Wanted::read_inner(lexer, at)?),
                    };
                    lexer.expect("]")?;
                    step
                }
                () => break,
            };
            steps.push(step);
            if steps.len() > MOST_STEPS {
                return Err(format!("more than {MOST_STEPS} steps from `{root}`"));
            }
        }
        let cast = if lexer.eat(":") { Some(Cast::read(lexer)?) } else { None };
        let is_text = matches!(cast, Some(Cast::Text(_)));
        target |= at == At::Exit && steps.is_empty() && !is_text;
        let last = steps.iter().rev().find_map(|step| match step {
            WantedStep::Behind(name) | WantedStep::Member(name) => Some(name),
            _ => None,
        });
        Ok(Wanted { name: last.unwrap_or(&root).clone(), root, at, target, steps, cast })
    }

    /// Whether it asks for text.
    pub fn is_text(&self) -> bool {
        matches!(self.cast, Some(Cast::Text(_)))
    }

    /// The operations that fetch it, what their words mean, and when it is complete. `root_of` says where a parameter or the
    /// result is, and which members it has if it is a handle.
    ///
    /// # Errors
    /// It makes no sense, or cannot be read.
    pub fn fetch(&self, root_of: RootOf) -> Result<(ColumnType, Vec<Op>, At), CaptureFault> {
        let (mut place, parts) = root_of(&self.root).map_err(CaptureFault::Wrong)?;
        if let [WantedStep::List(count), rest @ ..] = self.steps.as_slice() {
            let (count, counted) = count.number(root_of)?;
            return match rest {
                [WantedStep::Chosen(chosen)] => {
                    let (index, _) = root_of(chosen).map_err(CaptureFault::Wrong)?;
                    let index = index.target(At::Exit);
                    let index =
                        index.map_err(|_| CaptureFault::Wrong(format!("`{chosen}` does not point to a number")))?;
                    self.chosen(&place, count, &index)
                }
                [WantedStep::Sum] => self.sum(&place, count, counted),
                member => self.list(&place, count, counted, member),
            };
        }
        if self.target {
            place = place.target(self.at)?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            let is_first = !self.steps[..number].iter().any(|step| matches!(step, WantedStep::Behind(_)));
            place = match (step, parts.filter(|_| is_first)) {
                (WantedStep::Behind(name), Some(parts)) if !matches!(place.ctype, Type::Pointer(_)) => {
                    let member = place.cast(0, parts.clone()).member(name);
                    member.ok_or_else(|| CaptureFault::Unobservable(Cause::NoMember(name.clone())))?
                }
                (WantedStep::Numbered(number), _) => {
                    let (number, numbered) = number.number(root_of)?;
                    place.numbered(number, self.at.max(numbered)).map_err(|reason| self.no_pointer(reason))?
                }
                _ => self.step(&place, step, parts.is_some())?,
            };
        }
        match &self.cast {
            Some(Cast::Text(max)) => {
                let at = self.at.max(place.at());
                Ok((ColumnType::Text(*max), place.text(*max, self.at)?, at))
            }
            Some(Cast::Type(ctype)) => value(&place.cast(0, ctype.clone())),
            None => value(&place),
        }
    }

    /// The same where a number is needed.
    fn number(&self, root_of: RootOf) -> Result<(Vec<Op>, At), CaptureFault> {
        let (kind, program, at) = self.fetch(root_of)?;
        kind.is_integer().then_some((program, at)).ok_or_else(|| CaptureFault::Wrong(format!("`{self}` is no integer")))
    }

    fn step(&self, place: &ValuePlace, step: &WantedStep, is_handle: bool) -> Result<ValuePlace, CaptureFault> {
        // Which members a handle has depends on the implementation: not to have one is no mistake.
        let no_member = |name: &String| match is_handle {
            true => CaptureFault::Unobservable(Cause::NoMember(name.clone())),
            false => self.no_member(name),
        };
        match step {
            WantedStep::Behind(name) => {
                let target = place.target(self.at).map_err(|reason| match is_handle {
                    true => CaptureFault::Unobservable(Cause::NoMember(name.clone())),
                    false => self.no_pointer(reason),
                })?;
                target.member(name).ok_or_else(|| no_member(name))
            }
            WantedStep::Member(name) => place.member(name).ok_or_else(|| no_member(name)),
            WantedStep::List(_) | WantedStep::Sum | WantedStep::Chosen(_) | WantedStep::Numbered(_) => {
                Err(CaptureFault::Wrong("a list is that of a parameter".to_owned()))
            }
            WantedStep::Element(number) => {
                let first = match &place.ctype {
                    Type::Array(of, _) => place.cast(0, (**of).clone()),
                    _ => place.target(self.at).map_err(|reason| self.no_pointer(reason))?,
                };
                let bytes = first.ctype.bytes().ok_or(Cause::NoTarget)?;
                let ctype = first.ctype.clone();
                Ok(first.cast(bytes.saturating_mul(*number), ctype))
            }
        }
    }

    /// The elements that a pointer points to, or a member of each.
    fn list(
        &self,
        pointer: &ValuePlace,
        count: Vec<Op>,
        counted: At,
        member: &[WantedStep],
    ) -> Result<(ColumnType, Vec<Op>, At), CaptureFault> {
        let first = pointer.target(self.at).map_err(|reason| self.no_pointer(reason))?;
        let (bytes, offset, ctype) = match member {
            [] => (first.ctype.bytes(), 0, first.ctype.clone()),
            [WantedStep::Behind(name)] => {
                let of = first.member(name).ok_or_else(|| Cause::NoMember(name.clone()))?;
                (first.ctype.bytes(), of.offset(), of.ctype.clone())
            }
            _ => return Err(CaptureFault::Wrong(format!("more than a member of the elements of `{}`", self.root))),
        };
        let scalar = ctype.scalar().filter(|(kind, _)| !kind.is_float());
        let (Some(bytes), Some((_, width))) = (bytes.filter(|bytes| (1..=24).contains(bytes)), scalar) else {
            return Err(Cause::NotPlain.into());
        };
        let element = ListElement { bytes: bytes as u8, offset: offset as u8, width };
        let mut program = [pointer.value()?.1, count].concat();
        let at = self.at.max(counted).max(pointer.at());
        program.push(Op::new(OpCode::List, bytes as i32, Width::WORD, at));
        Ok((ColumnType::List(element), program, at))
    }

    /// The sum of the elements that a pointer points to.
    fn sum(
        &self,
        pointer: &ValuePlace,
        count: Vec<Op>,
        counted: At,
    ) -> Result<(ColumnType, Vec<Op>, At), CaptureFault> {
        let first = pointer.target(self.at).map_err(|reason| self.no_pointer(reason))?;
        let scalar = first.ctype.scalar().filter(|(kind, _)| kind.is_integer());
        let Some((_, width)) = scalar else { return Err(Cause::NotPlain.into()) };
        let mut program = [pointer.value()?.1, count].concat();
        let at = self.at.max(counted).max(pointer.at());
        program.push(Op::new(OpCode::Sum, width.bytes.into(), Width { bytes: 8, ..width }, at));
        Ok((ColumnType::Signed(8), program, at))
    }

    /// The element of a list that the function chooses, as it was when that began.
    fn chosen(
        &self,
        pointer: &ValuePlace,
        count: Vec<Op>,
        index: &ValuePlace,
    ) -> Result<(ColumnType, Vec<Op>, At), CaptureFault> {
        let first = pointer.target(At::Enter).map_err(|reason| self.no_pointer(reason))?;
        let scalar = first.ctype.scalar().filter(|(kind, _)| !kind.is_float());
        let (Some(bytes @ 1..=8), Some((kind, width))) = (first.ctype.bytes(), scalar) else {
            return Err(Cause::NotPlain.into());
        };
        let mut program = [pointer.value()?.1, count].concat();
        program.push(Op::new(OpCode::Keep, bytes as i32, Width::WORD, At::Enter));
        program.extend(index.value()?.1);
        program.push(Op::new(OpCode::Kept, bytes as i32, width, At::Exit));
        Ok((kind, program, At::Exit))
    }

    fn no_pointer(&self, reason: Cause) -> CaptureFault {
        match reason {
            Cause::NoTarget => CaptureFault::Wrong(format!("`{}` is no pointer, or one to an unknown type", self.root)),
            other => CaptureFault::Unobservable(other),
        }
    }

    fn no_member(&self, name: &str) -> CaptureFault {
        CaptureFault::Wrong(format!("nothing is known of a member `{name}` behind `{}`", self.root))
    }
}

impl Wanted {
    /// Writes what follows the signs in front.
    fn write_path(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |inner: &Wanted| if inner.target { "*" } else { "" };
        formatter.write_str(&self.root)?;
        for step in &self.steps {
            match step {
                WantedStep::Behind(name) => write!(formatter, "->{name}")?,
                WantedStep::Member(name) => write!(formatter, ".{name}")?,
                WantedStep::Element(number) => write!(formatter, "[{number}]")?,
                WantedStep::Chosen(place) => write!(formatter, "[*{place}]")?,
                WantedStep::Sum => formatter.write_str("[+]")?,
                WantedStep::List(inner) | WantedStep::Numbered(inner) => {
                    let dots = if matches!(step, WantedStep::List(_)) { ".." } else { "" };
                    write!(formatter, "[{dots}{}", sign(inner))?;
                    inner.write_path(formatter)?;
                    formatter.write_str("]")?;
                }
            }
        }
        match &self.cast {
            Some(Cast::Text(max)) => write!(formatter, ":text({max})"),
            Some(Cast::Type(ctype)) => write!(formatter, ":{ctype}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match (self.at, self.target) {
            (At::Exit, _) => ">",
            (At::Enter, true) => "*",
            (At::Enter, false) => "",
        })?;
        self.write_path(formatter)
    }
}

impl Cast {
    fn read(lexer: &mut Lexer) -> Result<Cast, String> {
        let name = lexer.name("a type, such as `text` or `u32`")?;
        let integer = |bytes, signed| Cast::Type(Type::Integer { bytes, signed });
        Ok(match name {
            "text" => {
                let mut max = MOST_TEXT;
                if lexer.eat("(") {
                    max = match lexer.next() {
                        Some(Token::Number(number @ 1..=64)) => (number as u8).next_multiple_of(8),
                        _ => return Err(format!("text has 1 to {MOST_TEXT} bytes")),
                    };
                    lexer.expect(")")?;
                }
                Cast::Text(max)
            }
            "u8" => integer(1, false),
            "u16" => integer(2, false),
            "u32" => integer(4, false),
            "u64" => integer(8, false),
            "i8" => integer(1, true),
            "i16" => integer(2, true),
            "i32" => integer(4, true),
            "i64" => integer(8, true),
            "f32" => Cast::Type(Type::Float),
            "f64" => Cast::Type(Type::Double),
            "bool" => Cast::Type(Type::Bool),
            "pointer" => Cast::Type(Type::Pointer(Box::new(Type::Void))),
            other => return Err(format!("`{other}` is no type of a value: use text, u8 to u64, i8 to i64, f32, f64")),
        })
    }
}

fn value(place: &ValuePlace) -> Result<(ColumnType, Vec<Op>, At), CaptureFault> {
    let (kind, program) = place.value()?;
    Ok((kind, program, place.at()))
}
